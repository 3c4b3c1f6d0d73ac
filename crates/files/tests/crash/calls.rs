//! Calls that do more than write, before a power cut: unlink, truncate, rename, an open with
//! truncation, a write by a signal handler.

use crate::{
    APPEND, OTHER_BOOT, RDWR,
    common::{Lab, SEGMENT, content, holds},
};
use std::{
    fs::{self, File},
    io::Write,
    time::Duration,
};

#[test]
fn a_file_written_to_without_a_name_lets_others_be_replayed() {
    let lab = Lab::new();
    let mut run = lab.run();
    let (path, other) = (lab.data("a.log"), lab.data("b.log"));
    run.open("a", &path, APPEND);
    run.open("b", &other, APPEND);
    run.call("write a 1 3000").unwrap();
    run.call(format!("unlink {}", path.display())).unwrap();
    let mut expected = Vec::new();
    // So much that the segment with the unlink is drained.
    for i in 0..60 {
        run.call(format!("write a {i} 3000")).unwrap();
        run.call(format!("write b {i} 3000")).unwrap();
        expected.extend(content(i, 3000));
    }
    run.kill_both();
    lab.power_cut();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    // The drain may have synced all of it and not released it yet.
    let outcome = &reports[0]["outcome"];
    assert!(outcome == "replayed" || outcome == "synced", "{reports:?}");
    assert!(fs::read(&other).unwrap() == expected);
}

/// Promise (files): A truncation that the kernel refused never happens.
#[test]
fn a_truncation_the_kernel_refuses_is_not_done_by_a_recovery() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(RDWR);
    run.calls(["write a 1 3000", "truncate a 2000"]);
    // Larger than any file system's files, and than what the kernel takes for a size.
    for bytes in [i64::MAX as u64, u64::MAX] {
        run.call(format!("truncate a {bytes}")).unwrap_err();
    }
    run.kill_both();
    lab.power_cut();
    assert_ne!(lab.recover(Some(OTHER_BOOT), &[])[0]["outcome"], "refused");
    assert!(fs::read(&path).unwrap() == content(1, 3000)[..2000]);
    assert_eq!(lab.lanes(), 0);
}

/// Promise: as `after_a_power_cut_everything_acknowledged_is_replayed`.
#[test]
fn what_was_cut_off_and_is_there_again_is_no_clones() {
    let lab = Lab::new();
    let (path, filling) = (lab.data("a.log"), lab.data("b.log"));
    // More than a pipe takes.
    fs::write(&path, content(1, 200_000)).unwrap();
    let mut run = lab.run();
    run.open("a", &path, RDWR);
    run.open("b", &filling, APPEND);
    // The disk has all of it until the power goes.
    let _syncs = lab.slow_syncs(&path);
    run.call("truncate a 30000").unwrap();
    for _ in 0..2 * SEGMENT / 3000 {
        run.call("write b 3 3000").unwrap();
    }
    // In another segment, which says that the file had so many bytes.
    run.calls(["pwrite a 30000 2 9000", "pwrite a 39000 3 500"]);
    run.kill_both();
    lab.power_cut();
    assert_eq!(fs::read(&path).unwrap().len(), 200_000);
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    let found = fs::read(&path).unwrap();
    let left = &content(1, 200_000)[..30_000];
    assert!(found == [left, &content(2, 9000), &content(3, 500)].concat());
}

/// Promise: as `after_a_power_cut_everything_acknowledged_is_replayed`.
#[test]
fn what_was_written_before_the_first_sync_is_no_clones() {
    for names in ["touch a -5", "truncate a 40000"] {
        let lab = Lab::new();
        let path = lab.data("a.log");
        let mut run = lab.run();
        assert_eq!(run.open_only("a", &path, RDWR), 1);
        // The file's first sync has these: the lane has nothing of them.
        run.calls(["pwrite a 0 1 9000", "pwrite a 9000 2 31000", "sync a"]);
        // The first record of the file in the lane is none of a write.
        run.calls([names, "pwrite a 8000 3 9000", "pwrite a 17000 4 500"]);
        run.kill_both();
        lab.power_cut();
        assert_eq!(fs::read(&path).unwrap().len(), 40_000, "{names}");
        lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
        let found = fs::read(&path).unwrap();
        assert!(found[8000..17_500] == [content(3, 9000), content(4, 500)].concat());
        assert!(found[..8000] == content(1, 9000)[..8000]);
        assert!(found[17_500..] == content(2, 31_000)[8500..]);
    }
}

/// Promise (recovery): After a power cut a log ends where its last record does, though the disk has
/// the size of an append that no sync acknowledged, and zeros in the place of its bytes.
#[test]
fn zeros_of_an_unacknowledged_append_are_cut_off() {
    let written = content(1, 3000);
    let zeros = |bytes| vec![0; bytes];
    // What the disk has, its time, the boot, and what is there after the recovery.
    let before = Duration::ZERO;
    let later = Duration::from_secs(60);
    let ends = [
        ([&written[..], &zeros(130)], before, true, 3000),
        ([&written[..1000], &zeros(2130)], before, true, 3000),
        // Not where it is something else that was not acknowledged.
        ([&written[..], b"\0\0\0begun"], before, true, 3008),
        // Nor where others may have put them there.
        ([&written[..], &zeros(130)], later, true, 3130),
        ([&written[..], &zeros(130)], before, false, 3130),
    ];
    for (on_disk, later, is_other_boot, size) in ends {
        let lab = Lab::new();
        let (mut run, path) = lab.run_with_log(APPEND);
        run.call("write a 1 3000").unwrap();
        run.kill_both();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let disk = on_disk.concat();
        let mut file = File::options().write(true).open(&path).unwrap();
        file.write_all(&disk).unwrap();
        file.set_modified(modified + later).unwrap();
        drop(file);
        let boot = is_other_boot.then_some(OTHER_BOOT);
        // However often it is cut, and then not.
        let cuts = (1..30).take_while(|steps| lab.cut(boot, *steps)).count();
        assert!(cuts < 29 && lab.lanes() == 0);
        let found = fs::read(&path).unwrap();
        assert_eq!(found.len(), size, "after {cuts} cuts");
        assert!(found[..3000] == written);
    }
}

/// Promise: as `zeros_of_an_unacknowledged_append_are_cut_off`.
#[test]
fn zeros_that_a_lost_pool_does_not_know_stay() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.call("write a 1 3000").unwrap();
    run.kill_both();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(3130).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    // The pool was in memory that the machine has lost, and came back as it was some time before.
    lab.recover_really(OTHER_BOOT, &[]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 3130);
}

#[test]
fn a_signal_handlers_write_above_another_call_is_really_synced() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.calls([
        "write a 1 300",
        "interrupting write a 2 300",
        "write a 3 300",
    ]);
    assert_eq!(run.call("sync a"), Ok(0));
    run.call("write a 4 300").unwrap();
    run.kill_both();
    lab.recover(Some(OTHER_BOOT), &[]);
    let expected: Vec<u8> = (1..=4).flat_map(|i| content(i, 300)).collect();
    assert!(fs::read(&path).unwrap() == expected);
}

/// Promise (files): A file that was renamed, replaced, unlinked or truncated is as the database
/// left it, also if no descriptor of it was left in the process.
#[test]
fn a_renamed_file_is_found_and_the_replaced_one_may_be_missing() {
    for renamed in [true, false] {
        let lab = Lab::new();
        let mut run = lab.run();
        let (temporary, path) = (lab.data("new.log"), lab.data("a.log"));
        run.open("old", &path, APPEND);
        run.call("write old 1 300").unwrap();
        run.open("a", &temporary, APPEND);
        run.call("write a 2 300").unwrap();
        if renamed {
            let rename = format!("rename {} {}", temporary.display(), path.display());
            run.call(rename).unwrap();
            run.call("write a 3 300").unwrap();
        }
        run.kill_both();
        lab.power_cut();
        if renamed {
            // The cut left nothing of what was written since the first sync.
            fs::write(&path, b"").unwrap();
            fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(std::time::UNIX_EPOCH)
                .unwrap();
        }
        lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
        if renamed {
            holds(&path, &[(2, 300), (3, 300)]);
        } else {
            holds(&path, &[(1, 300)]);
            holds(&temporary, &[(2, 300)]);
        }
    }
}

/// Promise: as `a_renamed_file_is_found_and_the_replaced_one_may_be_missing`.
#[test]
fn an_open_that_truncates_voids_what_the_pool_had_of_the_file() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(RDWR);
    run.call("write a 1 3000").unwrap();
    run.open("again", &path, RDWR | libc::O_TRUNC);
    run.call("write again 2 300").unwrap();
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    holds(&path, &[(2, 300)]);

    // Also by a descriptor that cannot write.
    let mut run = lab.run();
    run.open("a", &path, RDWR);
    run.call("write a 3 3000").unwrap();
    run.open("read", &path, libc::O_RDONLY | libc::O_TRUNC);
    run.call("pwrite a 0 4 100").unwrap();
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    holds(&path, &[(4, 100)]);
}
