use super::*;
use crate::extents::has_unwritten;
use std::{
    fs,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

#[test]
fn ranges_that_touch_are_one_and_pieces_are_whole() {
    let piece = |from, to| from * PIECE..to * PIECE;
    assert_eq!(merged([5..6, 3..4, 0..0]), [piece(0, 1)]);
    assert_eq!(
        merged([PIECE * 3..PIECE * 3 + 1, 0..PIECE]),
        [piece(0, 1), piece(3, 4)]
    );
    assert_eq!(merged([ALL]), [ALL]);
    assert_eq!(merged_exactly([4..6, 1..3, 3..4, 9..9]), [1..6, 9..9]);
}

#[test]
fn an_extent_that_was_allocated_and_not_written_is_found() {
    let dir = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(dir.path().join("a"))
        .unwrap();
    let room = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20);
    if room.is_err() || !has_unwritten(file.as_fd(), &(0..1)) {
        println!("skipped: this file system does not say what is unwritten");
        return;
    }
    // Far more extents than are asked for at a time.
    for at in (0..1 << 20).step_by(8192) {
        file.write_all_at(&[1; 4096], at).unwrap();
    }
    file.sync_all().unwrap();
    let written = (0..1 << 20).step_by(8192).map(|at| at..at + 4096);
    assert_eq!(check_ranges(&file, written), Ok(()));
    assert_eq!(check(&file, &[((1 << 20) - 8192, &[1; 4096])]), Ok(()));
    assert_eq!(
        check(&file, &[((1 << 20) - 8192, &[1; 4097])]),
        Err(Errno::IO)
    );
    assert!(has_unwritten(file.as_fd(), &(4096..1 << 20)));
}

/// A file system whose disk has no room, though it has: a sparse image on a small tmpfs, which is full.
struct Thin {
    home: TempDir,
    device: String,
    options: &'static str,
}

fn run(words: &[&str], paths: &[&Path]) -> Result<String, String> {
    let done = Command::new(words[0])
        .args(&words[1..])
        .args(paths)
        .output();
    let done = done.map_err(|e| format!("{words:?}: {e}"))?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
        false => Err(format!(
            "{words:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        )),
    }
}

impl Thin {
    fn new(make: &[&str], options: &'static str) -> Result<Self, String> {
        let mut thin = Self {
            home: tempfile::tempdir_in("/dev/shm").map_err(|e| e.to_string())?,
            device: String::new(),
            options,
        };
        for name in ["lower", "disk"] {
            fs::create_dir(thin.at(name)).unwrap();
        }
        run(
            &["mount", "-t", "tmpfs", "-o", "size=96m", "none"],
            &[&thin.at("lower")],
        )?;
        let image = thin.at("lower/image");
        File::create(&image).unwrap().set_len(400 << 20).unwrap();
        run(make, &[&image])?;
        thin.device = run(&["losetup", "-f", "--show"], &[&image])?;
        // So that a part of what is written back fails, and not all at once.
        let small = format!("/sys/block/{}/queue/max_sectors_kb", &thin.device[5..]);
        fs::write(small, "4").map_err(|e| e.to_string())?;
        thin.mount()?;
        // The journal gets its place.
        for round in 0..300 {
            let file = File::create(thin.at("disk").join(format!("f{}", round % 7))).unwrap();
            file.write_all_at(&[7; 5000], 0).unwrap();
            file.sync_all().unwrap();
        }
        Ok(thin)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn mount(&self) -> Result<(), String> {
        let mut words = vec!["mount"];
        if !self.options.is_empty() {
            words.extend(["-o", self.options]);
        }
        run(&words, &[Path::new(&self.device), &self.at("disk")]).map(drop)
    }

    /// What is on the disk, and nothing that is in memory.
    fn mount_again(&self) {
        run(&["umount"], &[&self.at("disk")]).unwrap();
        self.mount().unwrap();
    }

    /// Leaves so many bytes.
    fn fill(&self, left: u64) {
        let free = rustix::fs::statvfs(self.at("lower")).unwrap();
        let file = File::create(self.at("lower/ballast")).unwrap();
        let bytes = free.f_bavail * free.f_frsize - left;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
    }

    fn make_room(&self) {
        fs::remove_file(self.at("lower/ballast")).unwrap();
    }
}

impl Drop for Thin {
    fn drop(&mut self) {
        let _ = run(&["umount", "-l"], &[&self.at("disk")]);
        if !self.device.is_empty() {
            // It keeps the limit when it is another file's.
            let queue = format!("/sys/block/{}/queue", &self.device[5..]);
            let most = fs::read(format!("{queue}/max_hw_sectors_kb"));
            let _ = most.and_then(|most| fs::write(format!("{queue}/max_sectors_kb"), most));
            let _ = run(&["losetup", "-d", &self.device], &[]);
        }
        let _ = run(&["umount", "-l"], &[&self.at("lower")]);
    }
}

const RECORD: usize = 4096;
const AT_ONCE: u64 = 126;

fn record(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(RECORD / 8)
}

/// Appends records until a sync fails: how many were synced before, and how many there are.
fn fails(log: &File) -> (u64, u64) {
    let mut end = 0;
    loop {
        for number in end..end + AT_ONCE {
            log.write_all_at(&record(number), number * RECORD as u64)
                .unwrap();
        }
        let synced = end;
        end += AT_ONCE;
        if log.sync_data().is_err() {
            return (synced, end);
        }
        assert!(end < 4000, "the disk does not get full");
    }
}

/// What is written again `by`, after a sync of it failed, is on the disk when that has succeeded: how many records are not.
fn lost(
    make: &[&str],
    options: &'static str,
    by: impl Fn(&File, &[(u64, &[u8])]),
) -> Option<usize> {
    let thin = match Thin::new(make, options) {
        Ok(thin) => thin,
        Err(why) => {
            println!("skipped: {why}");
            return None;
        }
    };
    let path = thin.at("disk").join("a.log");
    let create = || {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
    };
    let log = create().unwrap();
    thin.fill(2 << 20);
    let (synced, end) = fails(&log);
    thin.make_room();
    if options.contains("remount-ro") {
        let again = ["mount", "-o", "remount,rw"];
        let _ = run(&again, &[&thin.at("disk")]);
    }
    let records: Vec<Vec<u8>> = (synced..end).map(record).collect();
    let parts = (synced..)
        .zip(&records)
        .map(|(number, bytes)| (number * RECORD as u64, &bytes[..]));
    by(&create().unwrap(), &parts.collect::<Vec<_>>());
    drop(log);
    thin.mount_again();
    let found = fs::read(&path).unwrap();
    let is_there = |number: &u64| {
        let at = *number as usize * RECORD;
        found.get(at..at + RECORD) == Some(&record(*number)[..])
    };
    Some((0..end).filter(|number| !is_there(number)).count())
}

const KINDS: [(&[&str], &str); 3] = [
    (
        &["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4"],
        "errors=continue",
    ),
    (
        &["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4"],
        "errors=remount-ro",
    ),
    (&["mkfs.xfs", "-q"], ""),
];

/// Promise (disks): Bytes that are written again after a failed write-back are on the disk once a
/// sync succeeded: of files, the store's log and a flash cache's homes.
#[test]
fn what_is_written_again_after_a_failed_write_back_is_on_the_disk() {
    for (make, options) in KINDS {
        let again = |file: &File, parts: &[(u64, &[u8])]| {
            write(file, parts).unwrap();
            file.sync_data().unwrap();
            check(file, parts).unwrap();
        };
        let lost = lost(make, options, again);
        assert!(
            lost.is_none_or(|lost| lost == 0),
            "{make:?} {options}: {lost:?} are lost"
        );
    }
}

/// Control: the same bytes over the same pages, which a sync then says are there.
///
/// Promise: as `what_is_written_again_after_a_failed_write_back_is_on_the_disk`.
#[test]
fn control_pages_that_stay_are_not_on_the_disk_and_the_check_says_so() {
    let (make, options) = KINDS[0];
    let is_seen = std::cell::Cell::new(false);
    let again = |file: &File, parts: &[(u64, &[u8])]| {
        for (at, bytes) in parts {
            file.write_all_at(bytes, *at).unwrap();
        }
        file.sync_data().unwrap();
        is_seen.set(check(file, parts).is_err());
    };
    match lost(make, options, again) {
        // This kernel's file system does better.
        None | Some(0) => println!("skipped: nothing is lost"),
        Some(_) => assert!(
            is_seen.get(),
            "records are lost, and the check has not seen it"
        ),
    }
}

/// Promise: as `what_is_written_again_after_a_failed_write_back_is_on_the_disk`.
#[test]
fn a_file_that_was_written_again_by_its_owner_is_on_the_disk() {
    for (make, options) in KINDS {
        let again = |file: &File, parts: &[(u64, &[u8])]| {
            let owner = Rewritten::default();
            let failed = owner.sync(file, |_| Err(Errno::IO.into()));
            assert!(failed.is_err());
            for _ in 0..2 {
                for (at, bytes) in parts {
                    owner.write(file, bytes, *at).unwrap();
                }
                owner.sync(file, File::sync_data).unwrap();
                assert!(owner.ranges.lock().is_empty());
            }
        };
        let lost = lost(make, options, again);
        assert!(
            lost.is_none_or(|lost| lost == 0),
            "{make:?} {options}: {lost:?} are lost"
        );
    }
}
