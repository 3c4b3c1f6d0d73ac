//! Absorbed files, and their fate while all goes well.
//!
//! Promise (files): A file is absorbed only after it and its directory were really synced, and is
//! drained before anything changes it that is not logged.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
use common::{Lab, SEGMENT, content, holds};
use forebay_files::supervisor::status_of_running;
use std::fs;

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";

#[test]
fn a_file_that_a_pattern_names_is_absorbed_and_others_are_plain() {
    let lab = Lab::new();
    let mut run = lab.run();
    assert_eq!(run.open_only("log", &lab.data("a.log"), APPEND), 1);
    assert_eq!(run.open("other", &lab.data("a.db"), RDWR), 0);
    assert_eq!(run.open("reader", &lab.data("a.log"), libc::O_RDONLY), 0);
    assert_eq!(run.call("write log 1 100"), Ok(100));
    assert_eq!(run.call("sync log"), Ok(0));
    // The kernel has it too.
    assert_eq!(fs::read(lab.data("a.log")).unwrap(), content(1, 100));
    let status = run.end();
    let file = &status["files"][0];
    assert_eq!(
        (&file["writes"], &file["bytes"], &file["syncs"]),
        (&1.into(), &100.into(), &1.into())
    );
    assert_eq!(lab.lanes(), 0);
}

#[test]
fn the_drain_syncs_files_behind_more_writes_than_the_lane_holds() {
    let lab = Lab::new();
    let mut run = lab.run();
    run.open("a", &lab.data("a.log"), APPEND);
    run.open("b", &lab.data("b.aof"), RDWR);
    let mut expected = Vec::new();
    for i in 0..200 {
        assert_eq!(run.call(format!("write a {i} 5000")), Ok(5000));
        expected.extend(content(i, 5000));
        // Larger than a record may be.
        assert_eq!(
            run.call(format!("pwrite b {} {i} 100000", i * 50)),
            Ok(100_000)
        );
    }
    assert_eq!(run.call("sync a"), Ok(0));
    let status = run.end();
    let guest = &status["lane"];
    assert!(
        guest["drained"].as_u64().unwrap() > 20_000_000 - 4 * SEGMENT,
        "{guest}"
    );
    assert!(guest["real_syncs"].as_u64().unwrap() > 20, "{guest}");
    assert_eq!(fs::read(lab.data("a.log")).unwrap(), expected);
    assert_eq!(lab.lanes(), 0);
}

#[test]
fn a_retired_file_is_drained_and_stays_plain_when_opened_again() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(RDWR | libc::O_DSYNC);
    assert_eq!(run.call("hidden a"), Ok(libc::O_DSYNC as usize));
    run.calls(["write a 1 1000", "retire a"]);
    assert_eq!(fs::read(lab.synced(&path)).unwrap(), content(1, 1000));
    // Its descriptor is known for the flag that the kernel does not have.
    assert_eq!(run.call("absorbs a"), Ok(1));
    assert_eq!(run.call("write a 2 1000"), Ok(1000));
    assert_eq!(run.open("again", &path, APPEND), 0);
    let status = run.end();
    assert_eq!(status["files"][0]["writes"], 1);
    holds(&path, &[(1, 1000), (2, 1000)]);
}

#[test]
fn a_file_opened_again_is_the_same_and_numbers_do_not_run_out() {
    let lab = Lab::new();
    let mut run = lab.run();
    let mut expected = Vec::new();
    for i in 0..600u64 {
        let path = lab.data(&format!("{}.log", i % 300));
        assert_eq!(run.open("f", &path, APPEND), 1, "{i}");
        run.call(format!("write f {i} 300")).unwrap();
        run.calls(["sync f", "close f"]);
        if i % 300 == 7 {
            expected.extend(content(i, 300));
        }
    }
    run.end();
    assert_eq!(fs::read(lab.data("7.log")).unwrap(), expected);
}

/// Promise: as `every_processs_synced_bytes_survive_a_power_cut_after_kills`.
#[test]
fn two_processes_that_absorb_one_file_have_all_writes_recovered() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.call("write a 1 100").unwrap();
    assert_eq!(run.open("other a", &path, APPEND), 1);
    run.calls(["other write a 2 100", "write a 3 100"]);
    assert_eq!(run.call("absorbs a"), Ok(1));
    // Any process's sync covers what any process wrote.
    run.call("sync a").unwrap();
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    holds(&path, &[(1, 100), (2, 100), (3, 100)]);
}

/// Promise: as `newer_bytes_synced_by_another_name_survive_a_power_cut`.
#[test]
fn a_file_that_one_process_retires_is_plain_for_all() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    assert_eq!(run.open("other a", &path, APPEND), 1);
    run.calls(["write a 1 100", "other retire a"]);
    assert_eq!(fs::read(lab.synced(&path)).unwrap(), content(1, 100));
    run.calls(["other write a 2 100", "write a 3 100"]);
    assert_eq!(run.call("absorbs a"), Ok(0));
    run.call("sync a").unwrap();
    // And in whichever process it is opened again.
    assert_eq!(run.open("again", &path, APPEND), 0);
    run.end();
    holds(&path, &[(1, 100), (2, 100), (3, 100)]);
}

/// Promise: as `newer_bytes_synced_by_another_name_survive_a_power_cut`.
#[test]
fn a_process_that_gave_up_absorbing_still_tells_those_that_do() {
    let lab = Lab::new();
    let (first, second) = (lab.data("a.log"), lab.data("b.log"));
    let mut run = lab.run();
    assert_eq!(run.open("a", &first, APPEND), 1);
    run.call("other give_up").unwrap();
    assert_eq!(run.open("other a", &first, APPEND), 0);
    run.call("write a 1 100").unwrap();
    assert_eq!(run.call("absorbs a"), Ok(0));
    // It had this one open before.
    assert_eq!(run.open("other b", &second, APPEND), 0);
    assert_eq!(run.open("b", &second, APPEND), 0);
    run.end();
}

#[test]
fn an_absorbed_file_is_absorbed_by_whatever_name_it_is_opened() {
    let lab = Lab::new();
    let (path, link) = (lab.data("a.log"), lab.data("a.dat"));
    let mut run = lab.run();
    run.open("a", &path, RDWR);
    fs::hard_link(&path, &link).unwrap();
    assert_eq!(run.open("link", &link, RDWR), 1);
    run.calls(["pwrite a 0 1 300", "pwrite link 0 2 200"]);
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    let expected = [content(2, 200), content(1, 300)[200..].to_vec()].concat();
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn a_file_that_one_process_closed_is_absorbed_for_the_next() {
    let lab = Lab::new();
    let path = lab.data("a.log");
    let mut run = lab.run();
    assert_eq!(run.open("other a", &path, APPEND), 1);
    run.calls(["other write a 1 100", "other close a"]);
    assert_eq!(run.open("a", &path, APPEND), 1);
    run.call("write a 2 100").unwrap();
    run.end();
    holds(&path, &[(1, 100), (2, 100)]);
}

/// Promise (files): An `open` that fails has truncated nothing.
#[test]
fn an_open_that_fails_to_make_a_file_plain_has_not_truncated_it() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.call("write a 1 300").unwrap();
    lab.inject(libc::EIO, u64::MAX);
    assert_eq!(run.call("retire a"), Err(libc::EIO));
    let truncating = libc::O_WRONLY | libc::O_TRUNC;
    let open = format!("open again {} {truncating}", path.display());
    assert_eq!(run.call(&open), Err(libc::EIO));
    holds(&path, &[(1, 300)]);
    lab.inject(libc::EIO, 0);
    // It is written again, and plain.
    assert_eq!(run.call("sync a"), Ok(0));
    assert_eq!(run.call(&open), Ok(0));
    assert!(fs::read(&path).unwrap().is_empty());
    run.end();
}

#[test]
fn the_status_of_more_files_than_a_message_holds_is_told() {
    let lab = Lab::new();
    let mut run = lab.run();
    let name = |i: u32| format!("{}{i}.log", "n".repeat(230));
    for i in 0..800 {
        assert_eq!(run.open("a", &lab.data(&name(i)), APPEND), 1);
        run.call("close a").unwrap();
    }
    let running = status_of_running(&lab.home.path().join("run")).unwrap();
    let files: Vec<_> = running.statuses.iter().flat_map(|one| &one.files).collect();
    assert_eq!(files.len(), 800);
    run.end();
}

/// Promise (files): A file with a path that the run has no room for stays plain, or is made plain
/// when it gets that, and keeps all.
#[test]
fn file_with_a_path_too_long_to_be_followed_is_plain() {
    let lab = Lab::new();
    let mut run = lab.run();
    let deep = (0..5).fold(lab.data(""), |path, _| path.join("d".repeat(220)));
    fs::create_dir_all(&deep).unwrap();
    assert_eq!(run.open_only("a", &deep.join("a.log"), APPEND), 0);
    let (short, long) = (lab.data("b.log"), deep.join("b.log"));
    assert_eq!(run.open("b", &short, APPEND), 1);
    run.calls(["write b 1 100", "sync b"]);
    let rename = format!("rename {} {}", short.display(), long.display());
    run.call(rename).unwrap();
    run.calls(["write b 2 100", "sync b", "write a 3 100", "sync a"]);
    let running = status_of_running(&lab.home.path().join("run")).unwrap();
    let mut files = running.statuses.iter().flat_map(|one| &one.files);
    assert!(files.all(|file| file.retired));
    run.kill_both();
    lab.recover(None, &[]);
    holds(&long, &[(1, 100), (2, 100)]);
    holds(&deep.join("a.log"), &[(3, 100)]);
    assert_eq!(lab.lanes(), 0);
}
