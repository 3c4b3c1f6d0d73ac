//! Where a pool on a disk could lie, and what it would bring: each place is measured beside the directory of the data.

use super::disks::{self, Mount};
use forebay_measure::{
    disk::pages::{How, Pages},
    rounds::percentile,
};
use forebay_pool::disks::whole;
use serde::Serialize;
use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A place is measured for so long, at most.
const LIMIT: Duration = Duration::from_millis(400);
/// So often, at most.
const TIMES: usize = 100;
/// A pool of the usual size, and some room.
const FREE: u64 = 192 << 20;
/// A gain below this is within the noise of a disk.
const PAYS: f64 = 1.5;
/// No disk has anything safe in less, µs: it is memory, or says so before it is.
const TOO_FAST_US: f64 = 8.0;

/// What was found.
#[derive(Debug, Default, Serialize)]
pub struct Found {
    /// Appending a page to a file in the directory, and syncing it: the median, µs.
    pub sync_us: Option<f64>,
    /// The best place first.
    pub places: Vec<Place>,
    /// Block devices that no program uses and that hold nothing at their beginning. They are not measured.
    pub unused: Vec<PathBuf>,
}

/// A place for a pool on a disk.
#[derive(Debug, Serialize)]
pub struct Place {
    /// A directory.
    #[serde(serialize_with = "forebay_files::readable")]
    pub directory: PathBuf,
    /// The device that is mounted there.
    pub device: String,
    /// Of its file system.
    pub kind: String,
    /// It is on the disk that has the data.
    pub same_disk: bool,
    /// A commit of a page: the median, µs.
    pub commit_us: f64,
    /// The 99th percentile of it, µs.
    pub commit_p99_us: f64,
    /// How many times faster than a sync in the directory a commit is.
    pub gain: f64,
    /// What speaks against keeping acknowledged writes there.
    pub warnings: Vec<String>,
}

impl Place {
    /// True if it is worth it.
    pub fn pays(&self) -> bool {
        self.gain >= PAYS
    }

    /// The command that makes a pool there.
    pub fn command(&self) -> String {
        let pool = self.directory.join("forebay.pool");
        format!(
            "forebay pool create {} --disk --size 128MiB",
            pool.display()
        )
    }

    /// In one sentence.
    pub fn sentence(&self, sync_us: f64) -> String {
        let (place, device) = (self.directory.display(), &self.device);
        let which = match self.same_disk {
            true => "the same disk as the data",
            false => "another disk than the data's",
        };
        let mut text = format!(
            "{place} ({} on {device}, {which}): a commit takes {:.0} µs (p99 {:.0} µs), a sync of a growing file in the data's directory {sync_us:.0} µs",
            self.kind, self.commit_us, self.commit_p99_us
        );
        match self.pays() {
            true => text.push_str(&format!(": {:.1} times as fast", self.gain)),
            false => text.push_str(": a pool there does not pay"),
        }
        for warning in &self.warnings {
            text.push_str(&format!("; but {warning}"));
        }
        text
    }
}

impl Found {
    /// The best place that is worth it and that nothing speaks against.
    pub fn best(&self) -> Option<&Place> {
        let mut good = self.places.iter().filter(|place| place.warnings.is_empty());
        good.find(|place| place.pays())
    }
}

/// Looks for places for the data in `directory`, and measures them.
pub fn find(directory: &Path) -> Found {
    let sync = measure(directory, How::Appended);
    let (Ok(mut sync), Some(own)) = (sync, disks::mount_of(directory)) else {
        return Found::default();
    };
    let sync_us = percentile(&mut sync, 0.5);
    let (device, disks) = (own.device, whole(own.device));
    let others = disks::mounts()
        .into_iter()
        .filter(|other| other.device != device && !other.is_dax && free(&other.point) >= FREE);
    let mut here = own;
    here.point = directory.to_owned();
    let mut places: Vec<Place> = std::iter::once(here)
        .chain(others)
        .filter_map(|mount| place(&mount, &disks, sync_us))
        .collect();
    places.sort_by(|one, other| other.gain.total_cmp(&one.gain));
    Found {
        sync_us: Some(sync_us),
        places,
        unused: disks::unused(),
    }
}

fn place(mount: &Mount, data: &[String], sync_us: f64) -> Option<Place> {
    let mut commits = measure(&mount.point, How::InPlace).ok()?;
    let commit_us = percentile(&mut commits, 0.5);
    let disks = whole(mount.device);
    let mut warnings: Vec<String> = disks.iter().filter_map(|disk| disks::doubt(disk)).collect();
    if commit_us < TOO_FAST_US {
        warnings.push(
            "no disk has a page safe so quickly: it keeps it in memory, or says so too early"
                .to_owned(),
        );
    }
    Some(Place {
        directory: mount.point.clone(),
        device: mount.source.clone(),
        kind: mount.kind.clone(),
        same_disk: disks.iter().any(|disk| data.contains(disk)),
        commit_us,
        commit_p99_us: percentile(&mut commits, 0.99),
        gain: sync_us / commit_us,
        warnings,
    })
}

fn free(directory: &Path) -> u64 {
    rustix::fs::statvfs(directory).map_or(0, |found| found.f_bavail * found.f_frsize)
}

/// Each page's time, µs.
fn measure(directory: &Path, how: How) -> io::Result<Vec<f64>> {
    let mut pages = Pages::new(directory, how)?;
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < TIMES && begun.elapsed() < LIMIT {
        times.push(pages.write()?);
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_itself_is_a_place_and_nothing_is_left_in_it() {
        let program = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let found = find(dir.path());
        // Nothing can be said of file systems that are on no device.
        if disks::mount_of(dir.path()).is_none() {
            return;
        }
        let own = found
            .places
            .iter()
            .find(|place| place.directory == dir.path());
        let own = own.unwrap();
        assert!(own.same_disk && own.commit_us > 0.0);
        assert!(found.sync_us.unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
