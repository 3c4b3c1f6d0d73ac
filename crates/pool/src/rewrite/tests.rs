use super::*;
use crate::extents::has_unwritten;
use forebay_device::thin::ThinDisk;
use std::{fs, os::unix::fs::OpenOptionsExt};

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

/// Bytes written again `by`, after a sync of them failed, are on the disk when that has succeeded:
/// the number of records that are not.
fn lost(
    make: &[&str],
    options: Option<&'static str>,
    by: impl Fn(&File, &[(u64, &[u8])]),
) -> Option<usize> {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let mounted = home.path().join("disk");
    fs::create_dir(&mounted).unwrap();
    let disk = match ThinDisk::mount(home.path(), &mounted, make, options) {
        Ok(disk) => disk,
        Err(why) => {
            println!("skipped: {why}");
            return None;
        }
    };
    let path = mounted.join("a.log");
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
    disk.fill(2 << 20).unwrap();
    let (synced, end) = fails(&log);
    disk.make_room().unwrap();
    let records: Vec<Vec<u8>> = (synced..end).map(record).collect();
    let parts = (synced..)
        .zip(&records)
        .map(|(number, bytes)| (number * RECORD as u64, &bytes[..]));
    by(&create().unwrap(), &parts.collect::<Vec<_>>());
    drop(log);
    disk.mount_again().unwrap();
    let found = fs::read(&path).unwrap();
    let is_there = |number: &u64| {
        let at = *number as usize * RECORD;
        found.get(at..at + RECORD) == Some(&record(*number)[..])
    };
    Some((0..end).filter(|number| !is_there(number)).count())
}

const KINDS: [(&[&str], Option<&str>); 3] = [
    (
        &["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4"],
        Some("errors=continue"),
    ),
    (
        &["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4"],
        Some("errors=remount-ro"),
    ),
    (&["mkfs.xfs", "-q"], None),
];

/// Promise (disks): Bytes that are written again after a failed write-back are on the disk once a
/// sync succeeded: of files, the store's log and a flash cache's homes.
#[test]
fn bytes_rewritten_after_a_failed_write_back_are_on_the_disk() {
    for (make, options) in KINDS {
        let again = |file: &File, parts: &[(u64, &[u8])]| {
            write(file, parts).unwrap();
            file.sync_data().unwrap();
            check(file, parts).unwrap();
        };
        let lost = lost(make, options, again);
        assert!(
            lost.is_none_or(|lost| lost == 0),
            "{make:?} {options:?}: {lost:?} are lost"
        );
    }
}

/// Control: the same bytes over the same pages, which a sync then says are there.
///
/// Promise: as `bytes_rewritten_after_a_failed_write_back_are_on_the_disk`.
#[test]
fn control_pages_that_stay_miss_the_disk_and_the_check_says_so() {
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

/// Promise: as `bytes_rewritten_after_a_failed_write_back_are_on_the_disk`.
#[test]
fn a_file_that_was_written_again_by_its_owner_is_on_the_disk() {
    for (make, options) in KINDS {
        let again = |file: &File, parts: &[(u64, &[u8])]| {
            let owner = RewrittenFile::default();
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
            "{make:?} {options:?}: {lost:?} are lost"
        );
    }
}
