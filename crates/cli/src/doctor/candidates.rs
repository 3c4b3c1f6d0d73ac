//! Places for a pool on a disk, and the gain of each. A measurement writes, so only the directory
//! of the data and those that the user names beside it are measured. The other disks are listed.

use crate::{
    disk_loss::DiskLoss,
    disk_mounts::{self, DiskMount},
};
use forebay_pool::disks::BackingStore;
use forebay_probe::{
    disk::{
        self,
        pages::{PageDurability, Pages},
    },
    figures::percentile,
};
use serde::Serialize;
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
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
/// Of a directory that no mount holds.
const NOWHERE: &str = "its file system is not known";
/// No disk has anything safe in less, µs: it is memory, or says so before it is.
const TOO_FAST_US: f64 = 8.0;

/// The places found.
#[derive(Debug, Default, Serialize)]
pub struct PoolCandidates {
    /// Appending a page to a file in the directory, and syncing it: the median, µs.
    pub sync_us: Option<f64>,
    /// The best place first.
    pub places: Vec<CandidatePlace>,
    /// File systems with room for a pool, to which nothing was written.
    pub unmeasured: Vec<CandidateSpot>,
    /// Block devices that no program uses and that hold nothing at their beginning. They are not
    /// measured.
    pub unused: Vec<PathBuf>,
}

/// A directory in which a pool could lie.
#[derive(Debug, Serialize)]
pub struct CandidateSpot {
    /// The directory.
    #[serde(serialize_with = "forebay_files::readable")]
    pub directory: PathBuf,
    /// The device that is mounted there.
    pub device: String,
    /// Of its file system.
    pub kind: String,
    /// It is on the disk that has the data; none if that cannot be told.
    pub same_disk: Option<bool>,
    /// The disks and arrays below it, and the losses that each survives.
    pub losses: Vec<DiskLoss>,
    /// Warnings against keeping acknowledged writes there.
    pub warnings: Vec<String>,
    /// It is memory: no pool on a disk can lie there.
    pub in_memory: bool,
    /// The reason that it was named and not measured.
    pub trouble: Option<String>,
}

/// A place for a pool on a disk, measured.
#[derive(Debug, Serialize)]
pub struct CandidatePlace {
    /// The place.
    #[serde(flatten)]
    pub spot: CandidateSpot,
    /// A commit of a page: the median, µs.
    pub commit_us: f64,
    /// The 99th percentile of it, µs.
    pub commit_p99_us: f64,
    /// A commit's speed, as a multiple of a sync in the directory.
    pub gain: f64,
}

impl CandidateSpot {
    fn of(mount: &DiskMount, data: &DataDirectory) -> Self {
        let ground = BackingStore::of_device(mount.device);
        let is_same = mount.device == data.device || ground.shares_with(&data.ground);
        let is_known = is_same || !(ground.is_unknown() || data.ground.is_unknown());
        let memory = ground.memory.iter();
        let memory = memory.map(|what| {
            format!("it lies in memory ({what}): a power cut takes its files, so no pool on a disk can be made there")
        });
        let losses = DiskLoss::below(&ground);
        let doubts = losses.iter().filter_map(|loss| loss.doubt.clone());
        Self {
            directory: mount.point.clone(),
            device: mount.source.clone(),
            kind: mount.kind.clone(),
            same_disk: is_known.then_some(is_same),
            in_memory: !ground.memory.is_empty(),
            warnings: memory.chain(doubts).collect(),
            losses,
            trouble: None,
        }
    }

    /// Of a directory that was named.
    fn at(directory: &Path, data: &DataDirectory) -> Result<Self, (PathBuf, String)> {
        let failed = |why: String| (directory.to_owned(), why);
        let found = fs::metadata(directory).map_err(|e| failed(e.to_string()))?;
        let mounted = disk::file_system(directory).ok_or_else(|| failed(NOWHERE.to_owned()))?;
        let mount = DiskMount {
            point: directory.to_owned(),
            device: found.dev(),
            source: mounted.source.clone(),
            is_dax: mounted.is_dax(),
            kind: mounted.kind,
        };
        Ok(Self::of(&mount, data))
    }

    /// Of a directory that was named, and cannot be looked at.
    fn unknown(directory: PathBuf, why: String) -> Self {
        Self {
            directory,
            device: "?".to_owned(),
            kind: "?".to_owned(),
            same_disk: None,
            losses: Vec::new(),
            warnings: Vec::new(),
            in_memory: false,
            trouble: Some(why),
        }
    }

    fn told(&self) -> String {
        let which = match self.same_disk {
            Some(true) => "the same disk as the data",
            Some(false) => "another disk than the data's",
            None => "perhaps on the data's disk",
        };
        let losses = self.losses.iter();
        let losses: String = losses
            .map(|loss| format!("; {}: {}", loss.disk, loss.told))
            .collect();
        format!(
            "{} ({} on {}, {which}{losses})",
            self.directory.display(),
            self.kind,
            self.device
        )
    }

    fn warned(&self) -> String {
        let warnings = self.warnings.iter();
        warnings.map(|warning| format!("; but {warning}")).collect()
    }

    /// In one sentence, of a place that was not measured.
    pub fn sentence(&self, data: &Path) -> String {
        let measured = match (&self.trouble, self.in_memory) {
            (Some(why), _) => format!(" ({why})"),
            (None, true) => String::new(),
            (None, false) => format!(
                " (to measure it: forebay doctor --dir {} --beside {})",
                data.display(),
                self.directory.display()
            ),
        };
        format!("{}: not measured{measured}{}", self.told(), self.warned())
    }
}

impl CandidatePlace {
    /// True if it is worth it.
    pub fn pays(&self) -> bool {
        self.gain >= PAYS
    }

    /// The command that makes a pool there.
    pub fn command(&self) -> String {
        let pool = self.spot.directory.join("forebay.pool");
        format!(
            "forebay pool create {} --disk --size 128MiB",
            pool.display()
        )
    }

    /// In one sentence.
    pub fn sentence(&self, sync_us: f64) -> String {
        let mut text = format!(
            "{}: a commit takes {:.0} µs (p99 {:.0} µs), a sync of a growing file in the data's directory {sync_us:.0} µs",
            self.spot.told(),
            self.commit_us,
            self.commit_p99_us
        );
        match self.pays() {
            true => text.push_str(&format!(": {:.1} times as fast", self.gain)),
            false => text.push_str(": a pool there does not pay"),
        }
        text + &self.spot.warned()
    }
}

impl PoolCandidates {
    /// The result if the data's directory gives no figure that others could be compared with.
    fn without(beside: &[PathBuf], why: &str) -> Self {
        let why = format!("the data's directory {why}");
        let named = beside.iter();
        Self {
            unmeasured: named
                .map(|named| CandidateSpot::unknown(named.clone(), why.clone()))
                .collect(),
            ..Self::default()
        }
    }

    fn add(&mut self, place: Result<CandidatePlace, Box<CandidateSpot>>) {
        match place {
            Ok(place) => self.places.push(place),
            Err(spot) => self.unmeasured.push(*spot),
        }
    }

    /// The best place that is worth it and that nothing speaks against.
    pub fn best(&self) -> Option<&CandidatePlace> {
        let good = |place: &&CandidatePlace| place.spot.warnings.is_empty();
        let mut good = self.places.iter().filter(good);
        good.find(|place| place.pays())
    }
}

/// Of the directory of the data.
struct DataDirectory {
    device: u64,
    ground: BackingStore,
    sync_us: f64,
}

/// Measures the directory of the data and those that are named `beside` it, and lists the others.
pub fn find(directory: &Path, beside: &[PathBuf]) -> PoolCandidates {
    let sync = measure(directory, PageDurability::Appended);
    let (mut sync, own) = match (sync, disk_mounts::mount_of(directory)) {
        (Ok(sync), Some(own)) => (sync, own),
        (Ok(_), None) => return PoolCandidates::without(beside, "is on no disk that is known"),
        (Err(error), _) => {
            return PoolCandidates::without(beside, &format!("cannot be measured: {error}"));
        }
    };
    let data = DataDirectory {
        device: own.device,
        ground: BackingStore::of_device(own.device),
        sync_us: percentile(&mut sync, 0.5),
    };
    let mut found = PoolCandidates {
        sync_us: Some(data.sync_us),
        unused: disk_mounts::unused(),
        ..PoolCandidates::default()
    };
    let mut own = CandidateSpot::of(&own, &data);
    own.directory = directory.to_owned();
    // It is its own disk, whatever is known of that.
    own.same_disk = Some(true);
    found.add(measured(own, &data));
    let mut known = vec![data.device];
    for named in beside {
        known.extend(fs::metadata(named).map(|found| found.dev()));
        found.add(match CandidateSpot::at(named, &data) {
            Ok(spot) if spot.in_memory => Err(Box::new(spot)),
            Ok(spot) => measured(spot, &data),
            Err((directory, why)) => Err(Box::new(CandidateSpot::unknown(directory, why))),
        });
    }
    let others = disk_mounts::mounts().into_iter().filter(|other| {
        !other.is_dax && !known.contains(&other.device) && free(&other.point) >= FREE
    });
    let others = others.map(|mount| CandidateSpot::of(&mount, &data));
    found.unmeasured.extend(others);
    let by_gain = |one: &CandidatePlace, other: &CandidatePlace| other.gain.total_cmp(&one.gain);
    found.places.sort_by(by_gain);
    found
}

/// A place with its figures; or why it has none.
fn measured(
    mut spot: CandidateSpot,
    data: &DataDirectory,
) -> Result<CandidatePlace, Box<CandidateSpot>> {
    let mut commits = match measure(&spot.directory, PageDurability::InPlace) {
        Ok(commits) => commits,
        Err(error) => {
            let needed = match error.kind() {
                io::ErrorKind::StorageFull => ": a measurement needs 1 MiB free there",
                _ => "",
            };
            spot.trouble = Some(format!("it cannot be measured: {error}{needed}"));
            return Err(Box::new(spot));
        }
    };
    let commit_us = percentile(&mut commits, 0.5);
    if commit_us < TOO_FAST_US && !spot.in_memory {
        spot.warnings.push(
            "no disk has a page safe so quickly: it keeps it in memory, or says so too early"
                .to_owned(),
        );
    }
    Ok(CandidatePlace {
        spot,
        commit_us,
        commit_p99_us: percentile(&mut commits, 0.99),
        gain: data.sync_us / commit_us,
    })
}

/// A commit of a page to a pool on a disk in this directory: the median, µs.
pub fn commit_us(directory: &Path) -> io::Result<f64> {
    measure(directory, PageDurability::InPlace).map(|mut times| percentile(&mut times, 0.5))
}

fn free(directory: &Path) -> u64 {
    rustix::fs::statvfs(directory).map_or(0, |found| found.f_bavail * found.f_frsize)
}

/// Each page's time, µs.
fn measure(directory: &Path, how: PageDurability) -> io::Result<Vec<f64>> {
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
        let found = find(dir.path(), &[]);
        // Nothing can be said of file systems that are on no device.
        if disk_mounts::mount_of(dir.path()).is_none() {
            return;
        }
        let own = found
            .places
            .iter()
            .find(|place| place.spot.directory == dir.path());
        let own = own.unwrap();
        assert!(own.spot.same_disk == Some(true) && own.commit_us > 0.0);
        assert!(found.sync_us.unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
