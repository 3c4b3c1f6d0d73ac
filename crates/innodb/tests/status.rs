//! The status that a server's process writes of its cache agrees with its work.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_innodb::{CacheStatus, ENV_FLASH, PAGE_BYTES, Settings, WritePolicy};
use rustix::{
    fd::{AsFd, AsRawFd},
    fs::OFlags,
};
use std::{
    fs::{self, OpenOptions},
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};
use support::{RUN, STATUS, Server, World};

/// Pages that are read in a row before those that follow pass the cache by.
const ROW: u64 = 32;
/// Pages of a file that is read from its beginning.
const SCANNED: u64 = 40;

/// The first status for which `is` holds. One is written every second.
fn until(server: &Server, is: impl Fn(&CacheStatus) -> bool) -> CacheStatus {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        let status = CacheStatus::read(&server.dir.join(STATUS));
        match status {
            Ok(status) if is(&status) => return status,
            status => assert!(Instant::now() < limit, "{status:?}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn flash() -> PathBuf {
    std::env::var_os(ENV_FLASH).unwrap().into()
}

/// As the command does it: what is in force then.
fn set(wanted: Settings) -> Settings {
    let kept = wanted.or(Settings::kept(&flash()).unwrap());
    kept.keep(&flash()).unwrap();
    forebay_innodb::set_running(&flash(), &wanted).unwrap()
}

/// Three pages, of which one is written once more: two groups go to flash, and four slots are used.
fn write(server: &Server) {
    for number in [1, 2, 3] {
        server.write(number, 10);
    }
    server.sync();
    server.write(3, 20);
    server.sync();
}

/// Reads the pages of a file that the cache has nothing of, one after the other.
fn scan(server: &Server) {
    let path = server.dir.join("data/scanned.ibd");
    // As long as what is read ahead at once.
    fs::write(&path, support::blank_file(64 * PAGE_BYTES)).unwrap();
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).open(&path).unwrap();
    forebay_innodb::opened(file.as_fd(), path.as_os_str().as_bytes(), OFlags::RDWR).unwrap();
    for number in 0..SCANNED {
        let (mut to, at) = (support::page(1), number * PAGE_BYTES as u64);
        let read = forebay_innodb::read(file.as_raw_fd(), &mut to, at, &mut |to, at| {
            Ok(file.read_at(to, at).unwrap())
        });
        assert_eq!(read, Ok(PAGE_BYTES));
    }
}

#[test]
fn a_server_says_in_which_run_and_when_it_says_it() {
    let name = "a_server_says_in_which_run_and_when_it_says_it";
    let world = World::after(name, "{}", |server| {
        let now = until(&server, |_| true);
        assert!(now.is_current() && now.pid == std::process::id(), "{now:?}");
    });
    let dir = world.unwrap().dir;
    let path = dir.path().join(STATUS);
    assert!(CacheStatus::of_run(&path, RUN.parse().unwrap()).is_some());
}

#[test]
fn hits_versions_bytes_and_scans_are_those_that_there_were() {
    let name = "hits_versions_bytes_and_scans_are_those_that_there_were";
    World::after(name, "{}", |server| {
        // What making the cache warm has written is not counted here.
        let before = until(&server, |_| true);
        write(&server);
        scan(&server);
        assert_eq!([3, 1, 9].map(|number| server.read(number)), [20, 10, 0]);
        let now = until(&server, |now| now.hits + now.misses == SCANNED + 3);
        assert_eq!((now.hits, now.misses), (2, SCANNED + 1));
        let past = SCANNED - (ROW - 1);
        assert_eq!((now.bypassed, now.read_ahead), (past, past));
        assert_eq!((now.pages, now.dirty_pages, now.slots_used), (3, 3, 4));
        assert_eq!((now.enqueued, now.admitted, now.second_chances), (4, 0, 0));
        let bytes = 4 * PAGE_BYTES as u64;
        assert_eq!(now.page_bytes, bytes);
        assert_eq!(now.flash_bytes - before.flash_bytes, bytes);
        assert_eq!(now.flash_syncs - before.flash_syncs, 2);
        assert_eq!(
            (now.home_pages, now.home_batches, now.home_syncs),
            (0, 0, 0)
        );
        assert!(now.is_well() && now.around_pages == 0, "{now:?}");
    });
}

#[test]
fn a_status_counts_batches_pages_and_syncs_written_through() {
    let name = "a_status_counts_batches_pages_and_syncs_written_through";
    World::after(name, r#"{"policy":"through"}"#, |server| {
        write(&server);
        let now = until(&server, |now| now.slots_used == 4 && now.dirty_pages == 0);
        assert_eq!(
            (now.home_pages, now.home_batches, now.home_syncs),
            (4, 2, 2)
        );
        assert_eq!((now.pages, now.enqueued), (3, 4));
        assert_eq!((now.around_pages, now.dropped_versions), (0, 0));
    });
}

#[test]
fn pages_around_flash_are_counted_and_none_is_written_to_it() {
    let name = "pages_around_flash_are_counted_and_none_is_written_to_it";
    World::after(name, r#"{"policy":"around"}"#, |server| {
        let before = until(&server, |_| true);
        write(&server);
        let now = until(&server, |now| now.around_pages == 4 && now.dirty_pages == 0);
        assert_eq!((now.home_pages, now.home_batches), (4, 2));
        assert_eq!(now.flash_bytes, before.flash_bytes);
    });
}

#[test]
fn pages_that_leave_are_in_the_files_or_superseded() {
    let name = "pages_that_leave_are_in_the_files_or_superseded";
    World::after(name, "{}", |server| {
        write(&server);
        let settings = Settings {
            low: Some(0),
            high: Some(0),
            ..Settings::default()
        };
        let set = set(settings);
        assert_eq!((set.low, set.high), (Some(0), Some(0)));
        let now = until(&server, |now| now.enqueued == 4 && now.slots_used == 0);
        assert_eq!((now.home_pages, now.home_batches), (3, 1));
        assert_eq!((now.dropped_versions, now.pages), (1, 0));
        assert_eq!((now.settings.low, now.settings.high), (Some(0), Some(0)));
    });
}

#[test]
fn what_a_command_does_not_name_stays_as_it_was_set() {
    let name = "what_a_command_does_not_name_stays_as_it_was_set";
    World::after(name, r#"{"policy":"through"}"#, |server| {
        let before = until(&server, |now| now.pid == std::process::id());
        assert_eq!(before.settings.policy, Some(WritePolicy::Through));
        let limit = Settings {
            home_bytes_per_second: Some(1 << 20),
            ..Settings::default()
        };
        assert_eq!(set(limit).policy, Some(WritePolicy::Through));
        let now = until(&server, |now| now.settings.include(&limit));
        assert_eq!(now.settings.policy, Some(WritePolicy::Through));
    });
}
