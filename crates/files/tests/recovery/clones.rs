//! A clone of the file's volume, or a snapshot: its files have the same identities, and get no
//! records of the original, which gets all of them when it is back.

use crate::{
    LATER, OTHER_BOOT, RDWR,
    common::{Lab, Running, content, disk::Disk, put_back},
    why,
};
use std::{
    fs,
    io::Write,
    ops::Range,
    path::{Path, PathBuf},
    thread,
};

const FILE_SYSTEMS: [(&[&str], u64); 2] =
    [(&["mkfs.ext4", "-q"], 64), (&["mkfs.xfs", "-q", "-f"], 320)];
/// What the original's run has acknowledged before the clone was made, and after.
const BEFORE: u64 = 4;
const AFTER: u64 = 36;

/// A run that was killed, whose volume was cloned meanwhile.
struct Cloned {
    original: Disk,
    clone: Disk,
    /// Writes that were acknowledged.
    all: u64,
    /// Last: what is mounted in it goes before.
    lab: Lab,
}

/// How the clone was used: a program has written to it by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Used {
    No,
    Yes,
}

impl Cloned {
    fn new(make: &[&str], megabytes: u64, used: Used) -> Option<Self> {
        Self::of(make, megabytes, used, BEFORE)
    }

    /// With so many writes before the clone is made; of many, the first segments are released.
    fn of(make: &[&str], megabytes: u64, used: Used, before: u64) -> Option<Self> {
        let lab = Lab::new();
        let original = Disk::mount(&lab, make, megabytes)?;
        fs::create_dir(lab.data("d")).unwrap();
        let mut run = lab.run();
        let path = lab.data("d/a.log");
        assert_eq!(run.open("a", &path, RDWR | libc::O_APPEND), 1);
        let write = |run: &mut Running, seeds: Range<u64>| {
            for seed in seeds {
                run.call(format!("write a {seed} 700")).unwrap();
                run.call("sync a").unwrap();
            }
        };
        if before > BEFORE {
            write(&mut run, 0..before);
            thread::sleep(LATER);
        }
        // It would drain what there is.
        run.stop_supervisor();
        if before == BEFORE {
            write(&mut run, 0..before);
        }
        let clone = original.cloned(&lab.home.path().join("clone"));
        if used == Used::Yes {
            let cloned = clone.at.join("d/a.log");
            let mut log = fs::File::options().append(true).open(cloned).unwrap();
            log.write_all(&content(777, 5000)).unwrap();
            log.sync_all().unwrap();
            thread::sleep(LATER / 10);
        }
        write(&mut run, before..before + AFTER);
        run.kill_both();
        Some(Self {
            original,
            clone,
            all: before + AFTER,
            lab,
        })
    }

    /// A recovery with the clone in the original's place: its reports. Nothing comes into the
    /// clone.
    fn recover_in_place(&mut self, boot: Option<&str>) -> Vec<serde_json::Value> {
        self.original.shut_down();
        self.original.unmount();
        self.clone.unmount();
        let at = self.lab.home.path().join("data");
        self.clone.mount_at(&at);
        let before = read(&self.clone, "d/a.log");
        let reports = self.lab.recover(boot, &[]);
        assert!(
            why(&reports).contains("a clone or a snapshot"),
            "{reports:?}"
        );
        assert!(read(&self.clone, "d/a.log") == before);
        self.clone.unmount();
        reports
    }

    /// It has what was acknowledged, and the pool nothing any more, once it is back: `boot` is the
    /// recovery's.
    fn check_whole(mut self, boot: Option<&str>) {
        let at = self.lab.home.path().join("data");
        self.original.mount_at(&at);
        let reports = self.lab.recover(boot, &[]);
        assert_ne!(reports[0]["outcome"], "refused", "{reports:?}");
        let all: Vec<u8> = (0..self.all).flat_map(|seed| content(seed, 700)).collect();
        assert!(fs::read(self.lab.data("d/a.log")).unwrap() == all);
        assert_eq!(self.lab.lanes(), 0);
    }
}

fn read(disk: &Disk, name: &str) -> Vec<u8> {
    fs::read(disk.at.join(name)).unwrap()
}

/// For all kinds of file systems, in this boot and in another.
fn each(used: Used, check: impl Fn(Cloned, Option<&str>)) {
    for (make, megabytes) in FILE_SYSTEMS {
        for boot in [None, Some(OTHER_BOOT)] {
            if let Some(cloned) = Cloned::new(make, megabytes, used) {
                check(cloned, boot);
            }
        }
    }
}

/// Promise (recovery): The original of a clone or snapshot gets all its records when it is back in
/// its place.
/// Promise: as `a_clone_that_was_used_gets_nothing_in_its_originals_place`.
#[test]
fn a_clone_beside_its_original_that_is_away_gets_nothing() {
    for used in [Used::No, Used::Yes] {
        each(used, |cloned, boot| {
            cloned.original.shut_down();
            cloned.original.unmount();
            let before = read(&cloned.clone, "d/a.log");
            let reports = cloned.lab.recover(boot, &[]);
            assert!(why(&reports).contains("missing"), "{reports:?}");
            assert!(read(&cloned.clone, "d/a.log") == before);
            cloned.check_whole(Some(OTHER_BOOT));
        });
    }
}

/// Promise (recovery): A clone or snapshot of a log's volume gets no record while it is mounted
/// beside the original's place, nor in that place once a program has written to it.
#[test]
fn a_clone_that_was_used_gets_nothing_in_its_originals_place() {
    each(Used::Yes, |mut cloned, boot| {
        cloned.recover_in_place(boot);
        cloned.check_whole(Some(OTHER_BOOT));
    });
}

/// The lane's first records are in the middle of the log: the write before did not fit into the
/// segment that is released.
///
/// Promise: as `a_clone_that_was_used_gets_nothing_in_its_originals_place`.
#[test]
fn a_clone_gets_nothing_though_most_of_the_log_was_released() {
    let (make, megabytes) = FILE_SYSTEMS[0];
    let Some(mut cloned) = Cloned::of(make, megabytes, Used::Yes, 100) else {
        return;
    };
    let reports = cloned.recover_in_place(Some(OTHER_BOOT));
    let records = reports[0]["files"][0]["records"].as_u64().unwrap();
    assert!(records < cloned.all - 50, "nothing was released: {records}");
    cloned.check_whole(Some(OTHER_BOOT));
}

/// A snapshot that was not used is the volume as it was: what was acknowledged since belongs to it.
#[test]
fn a_snapshot_that_is_put_in_its_originals_place_gets_all() {
    each(Used::No, |mut cloned, boot| {
        cloned.original.unmount();
        cloned.clone.unmount();
        std::mem::swap(&mut cloned.original, &mut cloned.clone);
        cloned.check_whole(boot);
    });
}

/// The same file by another mount, and a copy of it by another inode.
#[test]
fn a_missing_file_is_not_searched_in_other_mounts_and_copies() {
    let Some(mut cloned) = Cloned::new(FILE_SYSTEMS[0].0, FILE_SYSTEMS[0].1, Used::No) else {
        return;
    };
    let home: PathBuf = cloned.lab.home.path().to_owned();
    let mirror = |name: &str| {
        let at = home.join(name).join("d");
        fs::create_dir_all(&at).unwrap();
        at.join("a.log")
    };
    let copy = mirror("copy");
    fs::copy(cloned.lab.data("d/a.log"), &copy).unwrap();
    put_back(&cloned.lab.data("d/a.log"), &copy);
    cloned.original.unmount();
    // Deeper than it was, and nearer.
    cloned.clone.unmount();
    for place in ["other/d", "clone", "other"] {
        let at = home.join(place);
        fs::create_dir_all(&at).unwrap();
        cloned.clone.mount_at(&at);
        is_missing(&cloned.lab, &at.join("d/a.log"));
        cloned.clone.unmount();
    }
    is_missing(&cloned.lab, &copy);
    cloned.check_whole(Some(OTHER_BOOT));
}

fn is_missing(lab: &Lab, near: &Path) {
    let before = fs::read(near).unwrap();
    for boot in [None, Some(OTHER_BOOT)] {
        let reports = lab.recover(boot, &[]);
        assert!(why(&reports).contains("missing"), "{reports:?}");
        assert!(fs::read(near).unwrap() == before, "{}", near.display());
    }
}
