//! The model alone, by a clock that the test sets: what requests cost, how they queue up, what
//! memory saves, what a sync pays for.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_device::{Device, Devices, FileKey, Mode, Placed, Profile};
use std::path::{Path, PathBuf};

const US: u64 = 1000;
const PLAIN: Mode = Mode {
    direct: false,
    synced: false,
};
const DIRECT: Mode = Mode {
    direct: true,
    synced: false,
};
const SYNCED: Mode = Mode {
    direct: false,
    synced: true,
};
const PAGE: u64 = 4096;

/// 100 µs and 4.096 MB/s to read (a page is 1 ms), 200 µs and 40.96 MB/s to write (0.1 ms).
fn profile(more: &str) -> Profile {
    let text = format!(
        "read = {{ random_us = 100, sequential_us = 10, mb_s = 4.096 }}\nwrite = {{ random_us = 200, mb_s = 40.96 }}\n{more}"
    );
    Profile::parse(&text, Path::new("test")).unwrap()
}

fn devices(profile: Profile) -> Devices {
    let dir = PathBuf::from("/emulated");
    Devices::create(vec![Placed { dir, profile }]).unwrap()
}

const FILE: FileKey = FileKey::new(1, 2);

const READ_PAGE: u64 = 1100 * US;
const WRITE_PAGE: u64 = 300 * US;

#[test]
fn a_request_costs_its_place_and_its_bytes() {
    let devices = devices(profile(""));
    let device = devices.get(0).unwrap();
    assert_eq!(device.read(FILE, 8 * PAGE, PAGE, DIRECT, 0), READ_PAGE);
    // Where the last ended.
    let now = 5000 * US;
    assert_eq!(
        device.read(FILE, 9 * PAGE, 2 * PAGE, DIRECT, now),
        now + 2010 * US
    );
    let now = 10_000 * US;
    assert_eq!(device.write(FILE, 0, PAGE, DIRECT, now), now + WRITE_PAGE);
    assert_eq!(device.read(FILE, 0, 0, DIRECT, now), now);
}

#[test]
fn requests_to_one_channel_wait_for_each_other() {
    let devices = devices(profile(""));
    let device = devices.get(0).unwrap();
    assert_eq!(device.read(FILE, 0, PAGE, DIRECT, 0), READ_PAGE);
    assert_eq!(device.read(FILE, 8 * PAGE, PAGE, DIRECT, 0), 2 * READ_PAGE);
    // After a pause no request waits for another.
    let now = 10 * READ_PAGE;
    assert_eq!(device.read(FILE, 0, PAGE, DIRECT, now), now + READ_PAGE);
}

#[test]
fn several_channels_overlap_fixed_times_and_share_the_bandwidth() {
    let devices = devices(profile("channels = 4"));
    let device = devices.get(0).unwrap();
    let done: Vec<u64> = (0..4)
        .map(|n| device.read(FILE, 100 * n * PAGE, PAGE, DIRECT, 0))
        .collect();
    assert_eq!(done, [READ_PAGE, 2000 * US, 3000 * US, 4000 * US]);
    // The fifth finds no channel free before the first is done.
    assert_eq!(device.read(FILE, 900 * PAGE, PAGE, DIRECT, 0), 5000 * US);
}

#[test]
fn what_was_read_or_written_is_in_memory() {
    let devices = devices(profile(""));
    let device = devices.get(0).unwrap();
    device.opened(FILE, 1 << 30);
    let done = device.read(FILE, 0, PAGE, PLAIN, 0);
    assert!(done > 0);
    assert_eq!(device.read(FILE, 100, 200, PLAIN, done), done);
    assert_eq!(device.write(FILE, 1 << 20, PAGE, PLAIN, done), done);
    assert_eq!(device.read(FILE, 1 << 20, PAGE, PLAIN, done), done);
    // Another file, another place, past the cache, and after it was dropped.
    assert!(device.read(FileKey::new(1, 3), 0, PAGE, PLAIN, done) > done);
    assert!(device.read(FILE, 64 << 20, PAGE, PLAIN, done) > done);
    assert!(device.read(FILE, 0, PAGE, DIRECT, done) > done);
    device.dropped(FILE, 0, u64::MAX / 2);
    assert!(device.read(FILE, 100, 200, PLAIN, done) > done);
    // What waits to be written cannot be dropped.
    assert_eq!(device.read(FILE, 1 << 20, PAGE, PLAIN, done), done);
    assert_eq!(devices.counts()[0].cached_reads, 3);
}

#[test]
fn memory_holds_as_much_as_the_profile_says() {
    let devices = devices(profile("[cache]\nmib = 1\nread_ahead_kib = 0"));
    let device = devices.get(0).unwrap();
    let read_all = |pages: u64| -> usize {
        (0..pages)
            .filter(|page| {
                let now = 1 << 50;
                device.read(FILE, page * PAGE, PAGE, PLAIN, now) > now
            })
            .count()
    };
    assert_eq!(read_all(64), 64);
    assert_eq!(read_all(64), 0);
    read_all(2048);
    // A quarter of a MiB was pushed out by 8 MiB.
    assert!(read_all(64) > 48);
}

#[test]
fn a_sequential_reader_gets_more_with_each_request() {
    let devices = devices(profile("[cache]\nread_ahead_kib = 16"));
    let device = devices.get(0).unwrap();
    device.opened(FILE, 12 * PAGE);
    let mut now = 1 << 40;
    for page in 0..12 {
        now = device.read(FILE, page * PAGE, PAGE, PLAIN, now);
    }
    let counts = devices.counts()[0];
    // Page 0 is where a new reader "goes on"; then 5 at a time, and no more than there are.
    assert_eq!((counts.reads, counts.read_bytes), (3, 12 * PAGE));
}

#[test]
fn every_read_is_charged_where_nothing_is_kept() {
    let devices = devices(profile("[cache]\nreads = false"));
    let device = devices.get(0).unwrap();
    let first = device.read(FILE, 0, 64, PLAIN, 0);
    assert!(device.read(FILE, 0, 64, PLAIN, first) > first);
    assert!(device.touch(FILE, 0, PAGE, first * 9) > first * 9);
    assert_eq!(devices.counts()[0].reads, 3);
}

#[test]
fn a_sync_pays_for_what_was_written_and_only_once() {
    let devices = devices(profile("journal = false"));
    let device = devices.get(0).unwrap();
    for page in 0..10 {
        assert_eq!(device.write(FILE, page * PAGE, PAGE, PLAIN, 0), 0);
        // The same page again is not more.
        assert_eq!(device.write(FILE, page * PAGE, PAGE, PLAIN, 0), 0);
    }
    // Rewriting goes back and forth: each is a run of its own as far as it is new.
    let done = device.sync(FILE, 10 * PAGE, true, 0);
    assert!(done >= 200 * US + 10 * 100 * US, "{done}");
    assert_eq!(devices.counts()[0].write_bytes, 10 * PAGE);
    assert_eq!(device.sync(FILE, 10 * PAGE, true, done), done);
    assert_eq!(device.sync(FILE, 10 * PAGE, false, done), done);
    // Clean pages can become dirty again.
    assert_eq!(device.write(FILE, 0, PAGE, PLAIN, done), done);
    assert_eq!(device.sync(FILE, 10 * PAGE, true, done), done + WRITE_PAGE);
    assert_eq!(devices.counts()[0].syncs, 2);
}

#[test]
fn scattered_pages_cost_a_request_each_and_contiguous_ones_one() {
    let together = devices(profile("journal = false"));
    let device = together.get(0).unwrap();
    for page in 0..8 {
        let _ = device.write(FILE, page * PAGE, PAGE, PLAIN, 0);
    }
    assert_eq!(device.sync(FILE, 8 * PAGE, true, 0), 200 * US + 800 * US);
    let apart = devices(profile("journal = false"));
    let device = apart.get(0).unwrap();
    device.opened(FILE, 1 << 30);
    for page in 0..8 {
        let _ = device.write(FILE, 9 * page * PAGE, PAGE, PLAIN, 0);
    }
    assert_eq!(device.sync(FILE, 1 << 30, true, 0), 8 * 200 * US + 800 * US);
}

#[test]
fn a_log_that_rewrites_its_last_block_is_written_in_sequence() {
    let devices = devices(profile("journal = false"));
    let device = devices.get(0).unwrap();
    device.opened(FILE, 1 << 20);
    let _ = device.write(FILE, 0, PAGE, PLAIN, 0);
    for page in 0..7 {
        let _ = device.write(FILE, page * PAGE, 2 * PAGE, PLAIN, 0);
        // Nor does what is dirty already end the place.
        let _ = device.write(FILE, 0, PAGE, PLAIN, 0);
        let _ = device.write(FILE, (page + 1) * PAGE + 100, 200, PLAIN, 0);
    }
    assert_eq!(device.sync(FILE, 1 << 20, true, 0), 200 * US + 800 * US);
}

#[test]
fn growth_costs_a_journal_record_and_the_volatile_cache_a_flush() {
    let devices = devices(profile("flush_us = 50"));
    let device = devices.get(0).unwrap();
    device.opened(FILE, PAGE);
    let _ = device.write(FILE, 0, PAGE, PLAIN, 0);
    let in_place = device.sync(FILE, PAGE, true, 0);
    assert_eq!(in_place, WRITE_PAGE + 50 * US);
    let _ = device.write(FILE, PAGE, PAGE, PLAIN, in_place);
    let grown = device.sync(FILE, 2 * PAGE, true, in_place);
    assert_eq!(grown - in_place, 2 * WRITE_PAGE + 50 * US);
    // fsync commits the time of the change too.
    let _ = device.write(FILE, 0, PAGE, PLAIN, grown);
    assert_eq!(
        device.sync(FILE, 2 * PAGE, false, grown) - grown,
        2 * WRITE_PAGE + 50 * US
    );
    assert_eq!(devices.counts()[0].flushes, 3);
    let now = 1 << 40;
    assert_eq!(device.sync_directory(now) - now, WRITE_PAGE + 50 * US);
}

#[test]
fn a_synced_write_is_one_and_a_sync() {
    let devices = devices(profile(""));
    let device = devices.get(0).unwrap();
    assert_eq!(device.write(FILE, 0, 100, SYNCED, 0), 2 * WRITE_PAGE);
    assert_eq!(device.sync(FILE, 100, true, 1 << 40), 1 << 40);
}

#[test]
fn unseen_writes_are_noticed_by_the_files_size() {
    let devices = devices(profile("journal = false"));
    let device = devices.get(0).unwrap();
    device.opened(FILE, 0);
    assert_eq!(
        device.sync(FILE, 3 * PAGE - 5, true, 0),
        200 * US + 300 * US
    );
    assert_eq!(device.sync(FILE, 3 * PAGE - 5, true, 1 << 40), 1 << 40);
}

#[test]
fn lost_contents_are_neither_read_from_memory_nor_written_back() {
    let devices = devices(profile(""));
    let device = devices.get(0).unwrap();
    let _ = device.write(FILE, 0, PAGE, PLAIN, 0);
    device.emptied(FILE);
    assert_eq!(device.sync(FILE, 0, true, 0), 0);
    // The inode again, as another file's.
    device.opened(FILE, 1 << 20);
    assert!(device.read(FILE, 0, PAGE, PLAIN, 0) > 0);
}

#[test]
fn a_page_not_in_memory_is_read_before_a_part_is_changed() {
    let devices = devices(profile(""));
    let device = devices.get(0).unwrap();
    device.opened(FILE, 10 * PAGE);
    assert_eq!(device.write(FILE, 2 * PAGE + 7, 10, PLAIN, 0), READ_PAGE);
    let now = 1 << 40;
    assert_eq!(device.write(FILE, 4 * PAGE, PAGE, PLAIN, now), now);
    assert_eq!(device.write(FILE, 10 * PAGE, 10, PLAIN, now), now);
}

#[test]
fn allocated_room_is_neither_read_for_a_change_nor_written_back() {
    let devices = devices(profile("journal = false"));
    let device = devices.get(0).unwrap();
    device.opened(FILE, 0);
    device.resized(FILE, 1 << 20);
    // The end of one page and the beginning of the next.
    let mut now = 0;
    for at in 0..10 {
        now = device.write(FILE, at * 5000, 5000, PLAIN, now);
    }
    assert_eq!(now, 0);
    let bytes = 13 * PAGE;
    let transfer = (bytes as f64 / 40.96e6 * 1e9) as u64;
    assert_eq!(device.sync(FILE, 1 << 20, true, now), 200 * US + transfer);
}

#[test]
fn a_writer_who_is_faster_than_the_device_is_slowed_to_its_pace() {
    // 40.96 MB/s, and 8 MiB may wait.
    let devices = devices(profile("[cache]\ndirty_mib = 8"));
    let device = devices.get(0).unwrap();
    let (mut now, total) = (0, 256_u64 << 20);
    for at in (0..total).step_by(1 << 16) {
        now = device.write(FILE, at, 1 << 16, PLAIN, now);
    }
    let mb_s = (total as f64 / 1e6) / (now as f64 / 1e9);
    assert!((40.0..45.0).contains(&mb_s), "{mb_s} MB/s");
}

#[test]
fn files_that_a_writer_left_are_written_back_in_large_requests() {
    let devices = devices(profile("[cache]\ndirty_mib = 8"));
    let device = devices.get(0).unwrap();
    let (mut now, files, file_bytes) = (0, 40, 6_u64 << 20);
    for inode in 0..files {
        let file = FileKey::new(1, 1000 + inode);
        device.opened(file, 0);
        for at in (0..file_bytes).step_by(4096) {
            now = device.write(file, at, 4096, PLAIN, now);
        }
    }
    // A page at a time would be 13.7 MB/s.
    let mb_s = (files * file_bytes) as f64 / 1e6 / (now as f64 / 1e9);
    assert!((36.0..45.0).contains(&mb_s), "{mb_s} MB/s");
}

#[test]
fn two_processes_queue_up_at_one_device() {
    let devices = devices(profile(""));
    let (name, note) = devices.environment().unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["another_process", "--exact", "--nocapture"])
        .env(name, note)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let device: Device<'_> = devices.get(0).unwrap();
    assert_eq!(device.read(FILE, 0, PAGE, DIRECT, 0), 2 * READ_PAGE);
    assert_eq!(device.read(FILE, 50 * PAGE, PAGE, PLAIN, 1 << 40), 1 << 40);
}

/// Not a test by itself: what the other starts.
#[test]
fn another_process() {
    let Some(devices) = Devices::of_environment().unwrap() else {
        return;
    };
    let device = devices.get(0).unwrap();
    assert_eq!(device.read(FILE, 50 * PAGE, PAGE, PLAIN, 0), READ_PAGE);
}

#[test]
fn the_innermost_directory_has_a_files_device() {
    let placed = |dir: &str| Placed {
        dir: dir.into(),
        profile: profile(""),
    };
    let devices = Devices::create(vec![placed("/a"), placed("/a/b")]).unwrap();
    for (path, expected) in [
        ("/a/x", Some(0)),
        ("/a/b/x", Some(1)),
        ("/a/b", Some(1)),
        ("/a/bx", Some(0)),
        ("/ab", None),
        ("/", None),
    ] {
        assert_eq!(devices.holding(path.as_bytes()), expected, "{path}");
    }
    let twice = Devices::create(vec![placed("/a"), placed("/a")]).unwrap_err();
    assert!(twice.to_string().contains("/a has two devices"));
}

#[test]
fn a_wrong_command_line_is_refused_with_what_to_do() {
    let refused = |text: &str| Placed::parse(text).unwrap_err().to_string();
    assert!(refused("nvme").contains("DIR=PROFILE"));
    assert!(refused("/tmp=").contains("DIR=PROFILE"));
    assert!(refused("/tmp=floppy").contains("hdd-7200"));
    assert!(refused("/no/such/dir=nvme").contains("mkdir -p /no/such/dir"));
    assert!(refused("/dev/null=nvme").contains("not a directory"));
    assert!(refused("/tmp=/no/such.toml").contains("reading the device profile"));
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{}=nvme", dir.path().display());
    assert_eq!(Placed::parse(&text).unwrap().profile.name, "nvme");
}

#[test]
fn a_sync_of_a_file_stored_to_by_a_mapping_writes_a_page() {
    let devices = devices(profile("journal = false\nflush_us = 1000"));
    let device = devices.get(0).unwrap();
    device.opened(FILE, 8 * PAGE);
    assert_eq!(device.sync(FILE, 8 * PAGE, true, 0), 0);
    device.mapped_to_store(FILE);
    for turn in [10, 20] {
        let now = turn * READ_PAGE;
        let done = device.sync(FILE, 8 * PAGE, true, now);
        assert_eq!(done, now + WRITE_PAGE + 1000 * US);
    }
}
