//! Promises of a server's file functions about its page files, each in a process of its own that is
//! killed at its end. A call that the kernel refuses changes nothing, one that it does is not
//! undone, and acknowledged writes are durable.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_innodb::{CacheStatus, PAGE_BYTES};
use rustix::{
    fd::{AsFd, AsRawFd},
    fs::{CWD, FallocateFlags, OFlags, unlink},
    io::Errno,
};
use std::{
    ffi::{CString, OsStr},
    fs::{self, OpenOptions},
    os::unix::{ffi::OsStrExt, fs::FileExt, fs::OpenOptionsExt},
    time::{Duration, Instant},
};
use support::{PAGES, STATUS, World, page};

/// Promise (flash-run): A truncation, a hole and an `open` with `O_TRUNC` that the kernel refuses
/// change no page.
#[test]
fn a_truncation_the_kernel_refuses_leaves_every_page_as_it_was() {
    let name = "a_truncation_the_kernel_refuses_leaves_every_page_as_it_was";
    let after = World::after(name, "{}", |server| {
        server.write(5, 50);
        server.sync();
        server.write(6, 60);
        let refuse = &mut || Err(Errno::PERM);
        let fd = server.table.as_raw_fd();
        let refused = forebay_innodb::truncate(fd, 0, refuse);
        assert_eq!(refused, Err(Errno::PERM));
        assert_eq!((server.read(5), server.read(6)), (50, 60));
        server.write(7, 70);
        server.sync();
        let refused = forebay_innodb::truncate_path(CWD, &server.path(), 0, refuse);
        assert_eq!(refused, Err(Errno::PERM));
        assert_eq!(server.read(7), 70);
    });
    let Some(world) = after else { return };
    world.flush();
    for (number, byte) in [(5, 50), (6, 60), (7, 70)] {
        assert_eq!(world.home(number), page(byte));
    }
}

const PUNCH_AND_KEEP_SIZE: i32 = 3;

/// Promise (flash-run): Pages that were cut off or punched out are not back after a kill: the file
/// has zeros there, or the bytes written since.
#[test]
fn truncated_pages_stay_away_after_a_kill_and_leave_zeros() {
    let name = "truncated_pages_stay_away_after_a_kill_and_leave_zeros";
    let after = World::after(name, "{}", |server| {
        // The second time it only looks.
        if server.read(5) == 0 {
            for (number, byte) in [(5, 50), (8, 80), (9, 90)] {
                server.write(number, byte);
            }
            server.sync();
            server.write(10, 100);
            server.set_pages(6);
            server.set_pages(PAGES);
            server.write(9, 91);
            server.sync();
        }
        let found = [5, 8, 9, 10].map(|number| server.read(number));
        assert_eq!(found, [50, 0, 91, 0]);
    });
    let Some(world) = after else { return };
    world.run(name, "{}");
    world.flush();
    for (number, byte) in [(5, 50), (8, 0), (9, 91), (10, 0)] {
        assert_eq!(world.home(number), page(byte), "{number}");
    }
}

/// Promise: as `truncated_pages_stay_away_after_a_kill_and_leave_zeros`.
#[test]
fn pages_that_were_punched_out_are_zeros_also_after_a_kill() {
    let name = "pages_that_were_punched_out_are_zeros_also_after_a_kill";
    let after = World::after(name, "{}", |server| {
        // The second time it only looks.
        if server.read(5) == 0 {
            for (number, byte) in [(5, 50), (6, 60), (7, 70)] {
                server.write(number, byte);
            }
            server.sync();
            server.write(8, 80);
            let [offset, bytes] = [6, 3].map(|pages| pages * PAGE_BYTES as u64);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let punch = &mut || rustix::fs::fallocate(&server.table, flags, offset, bytes);
            let fd = server.table.as_raw_fd();
            forebay_innodb::allocate(fd, PUNCH_AND_KEEP_SIZE, [offset, bytes], punch).unwrap();
            server.write(7, 71);
            server.sync();
        }
        let found = [5, 6, 7, 8].map(|number| server.read(number));
        assert_eq!(found, [50, 0, 71, 0]);
    });
    let Some(world) = after else { return };
    world.run(name, "{}");
    world.flush();
    for (number, byte) in [(5, 50), (6, 0), (7, 71), (8, 0)] {
        assert_eq!(world.home(number), page(byte), "{number}");
    }
}

#[test]
fn a_hole_the_kernel_refuses_leaves_every_page_as_it_was() {
    let name = "a_hole_the_kernel_refuses_leaves_every_page_as_it_was";
    let after = World::after(name, "{}", |server| {
        server.write(5, 50);
        server.sync();
        let range = [5, 1].map(|pages| pages * PAGE_BYTES as u64);
        let fd = server.table.as_raw_fd();
        let refuse = &mut || Err(Errno::OPNOTSUPP);
        let refused = forebay_innodb::allocate(fd, PUNCH_AND_KEEP_SIZE, range, refuse);
        assert_eq!(refused, Err(Errno::OPNOTSUPP));
        assert_eq!(server.read(5), 50);
    });
    let Some(world) = after else { return };
    world.flush();
    assert_eq!(world.home(5), page(50));
}

#[test]
fn a_file_whose_truncating_open_fails_keeps_its_pages() {
    let name = "a_file_whose_truncating_open_fails_keeps_its_pages";
    let after = World::after(name, "{}", |server| {
        server.write(5, 50);
        server.sync();
        // Before `open` with `O_TRUNC`; and then there is no descriptor left.
        forebay_innodb::truncating(CWD, &server.path(), OFlags::TRUNC).unwrap();
        assert_eq!(server.read(5), 50);
    });
    let Some(world) = after else { return };
    world.flush();
    assert_eq!(world.home(5), page(50));
}

/// Promise (flash-run): A file that is opened with `O_TRUNC` is as long as the writes to it since.
#[test]
fn a_file_truncated_by_its_open_grows_by_what_is_written_to_it() {
    let name = "a_file_truncated_by_its_open_grows_by_what_is_written_to_it";
    World::after(name, "{}", |server| {
        server.write(5, 50);
        server.sync();
        forebay_innodb::truncating(CWD, &server.path(), OFlags::TRUNC).unwrap();
        let mut options = OpenOptions::new();
        let again = options.read(true).write(true).truncate(true);
        let again = again.open(&server.path).unwrap();
        let path = server.path.as_os_str().as_bytes();
        forebay_innodb::opened(again.as_fd(), path, OFlags::TRUNC).unwrap();
        let at = (3 * PAGE_BYTES) as u64;
        let real = &mut |from: &[u8], at| Ok(again.write_at(from, at).unwrap());
        let written = forebay_innodb::write(again.as_fd(), &page(30), at, real);
        assert_eq!(written, Ok(PAGE_BYTES));
        assert_eq!(again.metadata().unwrap().len(), at + PAGE_BYTES as u64);
        assert_eq!(server.read(3), 30);
    });
}

/// Descriptors of this process that lead to files without a name.
fn deleted() -> usize {
    let fds = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
    links
        .filter(|link| link.as_os_str().as_bytes().ends_with(b"t.ibd (deleted)"))
        .count()
}

/// Promise (flash-run): A file that became plain and was removed takes no space once it is closed.
#[test]
fn an_unlinked_plain_file_takes_no_space_once_it_is_closed() {
    let name = "an_unlinked_plain_file_takes_no_space_once_it_is_closed";
    World::after(name, "{}", |server| {
        server.write(5, 50);
        server.sync();
        let path = server.path();
        // As before it is mapped.
        forebay_innodb::leave(server.table.as_raw_fd()).unwrap();
        let again = OpenOptions::new().read(true).open(&server.path).unwrap();
        forebay_innodb::opened(again.as_fd(), path.as_bytes(), OFlags::RDONLY).unwrap();
        forebay_innodb::unlink(CWD, &path, || unlink(&server.path)).unwrap();
        assert_eq!(deleted(), 3, "both, and the home");
        forebay_innodb::closing(server.table.as_raw_fd());
        drop(server.table);
        assert_eq!(deleted(), 2, "the program may have a lock by the other one");
        forebay_innodb::closing(again.as_raw_fd());
        drop(again);
        assert_eq!(deleted(), 0);
    });
}

/// Promise (flash-run): Pages on their way home are written and synced again when the kernel fails
/// a sync of their file, in whichever thread.
#[test]
fn a_sync_the_kernel_fails_counts_for_pages_on_their_way_home() {
    let name = "a_sync_the_kernel_fails_counts_for_pages_on_their_way_home";
    World::after(name, "{}", |server| {
        server.write(5, 50);
        let description = CString::new(server.dir.join("data/t.cfg").as_os_str().as_bytes());
        let description = description.unwrap();
        let exported = std::thread::scope(|threads| {
            let mut export = None;
            let synced = forebay_innodb::sync(server.table.as_raw_fd(), &mut || {
                let exporting = || forebay_innodb::exporting(CWD, &description);
                export = Some(threads.spawn(exporting));
                server.until_home_has(5, 50);
                Err(Errno::IO)
            });
            assert_eq!(synced, Err(Errno::IO));
            export.unwrap().join().unwrap()
        });
        // They are written once more, and synced.
        exported.unwrap();
        let begun = Instant::now();
        let batches =
            || CacheStatus::read(&server.dir.join(STATUS)).map_or(0, |status| status.home_batches);
        while batches() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "they are not");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

/// Promise (flash-run): A file that is opened while it is unlinked is not missed at the next start.
#[test]
fn a_file_opened_during_its_unlink_is_not_missed_after_a_kill() {
    let name = "a_file_opened_during_its_unlink_is_not_missed_after_a_kill";
    let after = World::after(name, "{}", |server| {
        let path = server.dir.join("data/new.ibd");
        fs::copy(&server.path, &path).unwrap();
        let link = CString::new(path.as_os_str().as_bytes()).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.unwrap();
        // A thread that unlinks it finds that the cache does not know it, and another one, which
        // has opened it, has the cache know it.
        std::thread::scope(|threads| {
            let mut opening = None;
            let unlinked = forebay_innodb::unlink(CWD, &link, || {
                let (fd, path) = (file.as_fd(), path.as_os_str().as_bytes());
                opening =
                    Some(threads.spawn(move || forebay_innodb::opened(fd, path, OFlags::RDWR)));
                std::thread::sleep(Duration::from_millis(200));
                unlink(&*link)
            });
            unlinked.unwrap();
            opening.unwrap().join().unwrap().unwrap();
        });
        let at = (5 * PAGE_BYTES) as u64;
        let written =
            forebay_innodb::write(file.as_fd(), &page(50), at, &mut |_, _| Ok(PAGE_BYTES));
        assert_eq!(written, Ok(PAGE_BYTES));
        forebay_innodb::sync(file.as_raw_fd(), &mut || Ok(())).unwrap();
    });
    let Some(world) = after else { return };
    world.flush();
}

#[test]
fn a_cache_whose_path_is_no_text_says_how_it_is_too() {
    let name = "a_cache_whose_path_is_no_text_says_how_it_is_too";
    let flash = OsStr::from_bytes(b"flash\xff").to_owned();
    let after = World::after_with(flash, name, "{}", |server| {
        let until = Instant::now() + Duration::from_secs(60);
        let status = loop {
            match CacheStatus::read(&server.dir.join(STATUS)) {
                Ok(status) => break status,
                Err(e) => assert!(Instant::now() < until, "{e}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.flash.ends_with("/flash\u{fffd}"), "{status:?}");
    });
    let Some(world) = after else { return };
    world.flush();
}

/// Promise (flash-run): A page written with `O_DSYNC` is durable when the write returns.
#[test]
fn a_page_written_with_o_dsync_is_durable_at_once() {
    let name = "a_page_written_with_o_dsync_is_durable_at_once";
    let after = World::after(name, "{}", |server| {
        let mut options = OpenOptions::new();
        let again = options.read(true).write(true);
        let again = again.custom_flags(libc::O_DSYNC);
        let again = again.open(&server.path).unwrap();
        let path = server.path.as_os_str().as_bytes();
        forebay_innodb::opened(again.as_fd(), path, OFlags::RDWR).unwrap();
        server.write(5, 50);
    });
    let Some(world) = after else { return };
    world.flush();
    assert_eq!(world.home(5), page(50));
}

/// Promise: as `written_through_a_checkpoint_has_every_page_at_home`.
#[test]
fn written_through_a_checkpoint_outlives_the_cache() {
    let name = "written_through_a_checkpoint_outlives_the_cache";
    let after = World::after(name, r#"{"policy":"through"}"#, |server| {
        server.write(5, 50);
        // The server syncs no file between the page and its checkpoint.
        forebay_innodb::sync_all().unwrap();
    });
    let Some(world) = after else { return };
    fs::remove_file(world.flash()).unwrap();
    let given_up = forebay_innodb::give_up(&[world.dir.path().join("data")]).unwrap();
    assert_eq!(given_up.lifted.len(), 1);
    assert_eq!(world.home(5), page(50));
}

/// Promise: as `copies_of_a_lost_cache_mend_torn_and_older_pages_alone`.
#[test]
fn pages_torn_on_their_way_around_a_lost_cache_are_rewritten() {
    let name = "pages_torn_on_their_way_around_a_lost_cache_are_rewritten";
    let after = World::after(name, r#"{"policy":"around"}"#, |server| {
        server.write(5, 50);
        server.sync();
    });
    let Some(world) = after else { return };
    let data = world.dir.path().join("data");
    // The power failed in the middle of the page.
    let table = OpenOptions::new().write(true).open(data.join("t.ibd"));
    let half = (5 * PAGE_BYTES + PAGE_BYTES / 2) as u64;
    table.unwrap().write_all_at(&[0; 4096], half).unwrap();
    for left in ["flash", "flash.lane"] {
        fs::remove_file(world.dir.path().join(left)).unwrap();
    }
    let given_up = forebay_innodb::give_up(std::slice::from_ref(&data)).unwrap();
    assert_eq!((given_up.pages, given_up.not_found), (1, 0));
    assert_eq!(world.home(5), page(50));
    assert!(!data.join("forebay.pages").exists());
}

#[test]
fn copies_from_before_a_flush_undo_no_write_without_the_cache() {
    let name = "copies_from_before_a_flush_undo_no_write_without_the_cache";
    let around = r#"{"policy":"around"}"#;
    const AT: u64 = 8 * PAGE_BYTES as u64;
    let after = World::after(name, around, |server| {
        let mut first = [0];
        server.system.read_exact_at(&mut first, AT).unwrap();
        // The second time it writes nothing.
        if first == [0] {
            let system = server.system.as_fd();
            let written =
                forebay_innodb::write(system, &page(50), AT, &mut |_, _| Err(Errno::NXIO));
            assert_eq!(written, Ok(PAGE_BYTES));
            forebay_innodb::sync(system.as_raw_fd(), &mut || Ok(())).unwrap();
        }
    });
    let Some(world) = after else { return };
    let data = world.dir.path().join("data");
    let kept = fs::read(data.join("forebay.pages")).unwrap();
    world.flush();
    fs::write(data.join("forebay.pages"), kept).unwrap();
    let system = OpenOptions::new()
        .read(true)
        .write(true)
        .open(data.join("ibdata1"));
    let system = system.unwrap();
    system.write_all_at(&page(60), AT).unwrap();
    world.run(name, around);
    let mut found = page(0);
    system.read_exact_at(&mut found, AT).unwrap();
    assert_eq!(found, page(60));
}
