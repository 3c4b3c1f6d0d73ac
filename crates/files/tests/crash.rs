//! Nothing acknowledged is lost, whatever dies: the database, the supervisor, both, the machine, the recovery.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
use common::{Lab, Rng, Running, content, seed};
use std::{collections::BTreeMap, fs, thread, time::Duration};

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
/// Longer than the slack in which a change counts as the database's.
const LATER: Duration = Duration::from_millis(300);
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";

#[test]
fn when_the_database_is_killed_its_files_are_synced_and_its_lane_goes_back() {
    let lab = Lab::new();
    let mut run = lab.run();
    run.open("a", &lab.data("a.log"), APPEND);
    run.call("write a 1 3000").unwrap();
    run.call("sync a").unwrap();
    run.kill_database();
    let status = run.end();
    assert_eq!(status["lane"]["left"], serde_json::Value::Null);
    assert_eq!(fs::read(lab.data("a.log")).unwrap(), content(1, 3000));
    assert_eq!(lab.lanes(), 0);
}

#[test]
fn when_both_are_killed_a_recovery_in_the_same_boot_syncs_and_rewrites_nothing() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, APPEND);
    run.call("write a 1 3000").unwrap();
    run.call("sync a").unwrap();
    run.kill_both();
    assert_eq!(lab.lanes(), 1);
    // Another process changes the file later: in the same boot that is the truth.
    thread::sleep(LATER);
    fs::write(&path, b"changed").unwrap();
    let reports = lab.recover(None, &[]);
    assert_eq!(reports[0]["outcome"], "synced");
    assert_eq!(fs::read(&path).unwrap(), b"changed");
    assert_eq!(lab.lanes(), 0);
    assert!(lab.recover(None, &[]).is_empty());
}

#[test]
fn after_a_power_cut_everything_acknowledged_is_replayed() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, APPEND);
    run.call("write a 1 3000").unwrap();
    run.call("sync a").unwrap();
    run.kill_both();
    lab.power_cut();
    assert_eq!(fs::read(&path).unwrap(), b"");
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(reports[0]["outcome"], "replayed");
    assert_eq!(fs::read(&path).unwrap(), content(1, 3000));
    assert_eq!(lab.lanes(), 0);
}

#[test]
fn a_file_that_was_changed_since_is_not_touched_without_force() {
    for (options, left) in [(&["--force"][..], "forced"), (&["--discard"], "changed")] {
        let lab = Lab::new();
        let mut run = lab.run();
        let (path, untouched) = (lab.data("a.log"), lab.data("b.log"));
        run.open("a", &path, APPEND);
        run.open("b", &untouched, APPEND);
        run.call("write a 1 3000").unwrap();
        run.call("write b 2 3000").unwrap();
        run.kill_both();
        lab.power_cut();
        fs::write(&path, b"changed").unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(later)
            .unwrap();
        let reports = lab.recover(Some(OTHER_BOOT), &[]);
        assert_eq!(reports[0]["outcome"], "refused");
        let reason = reports[0]["files"][0]["refused"].as_str().unwrap();
        assert!(
            reason.contains("was changed") && reason.contains("--force"),
            "{reason}"
        );
        // Nor is the other file of the lane: a lane is replayed as a whole.
        assert_eq!(fs::read(&path).unwrap(), b"changed");
        assert_eq!(fs::read(&untouched).unwrap(), b"");
        assert_eq!(lab.lanes(), 1);
        lab.recover(Some(OTHER_BOOT), options);
        let found = fs::read(&path).unwrap();
        match left {
            "forced" => assert_eq!(found, content(1, 3000)),
            _ => assert_eq!(found, b"changed"),
        }
        assert_eq!(lab.lanes(), 0);
    }
}

#[test]
fn a_missing_file_is_told_and_kept_unless_the_database_removed_it_itself() {
    let lab = Lab::new();
    let mut run = lab.run();
    let (path, removed) = (lab.data("a.log"), lab.data("b.log"));
    run.open("a", &path, APPEND);
    run.open("b", &removed, APPEND);
    run.call("write a 1 300").unwrap();
    run.call("write b 2 300").unwrap();
    run.call(format!("unlink {}", removed.display())).unwrap();
    run.kill_both();
    lab.power_cut();
    let aside = lab.data("aside");
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    // On another file system it is another file.
    fs::copy(&path, home.path().join("a.log")).unwrap();
    fs::rename(&path, &aside).unwrap();
    fs::remove_file(&aside).unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(reports[0]["outcome"], "refused");
    let files = reports[0]["files"].as_array().unwrap();
    assert!(files[0]["refused"].as_str().unwrap().contains("missing"));
    assert_eq!(files[1]["refused"], serde_json::Value::Null);
    assert_eq!(lab.lanes(), 1);
    lab.recover(Some(OTHER_BOOT), &["--force"]);
    assert_eq!(lab.lanes(), 0);
}

#[test]
fn another_file_at_the_same_path_is_not_written_to() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, APPEND);
    run.call("write a 1 300").unwrap();
    run.kill_both();
    lab.power_cut();
    fs::rename(&path, lab.data("moved")).unwrap();
    fs::write(&path, b"another").unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(fs::read(&path).unwrap(), b"another");
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    assert_eq!(fs::read(lab.data("moved")).unwrap(), content(1, 300));
}

#[test]
fn a_replay_that_is_cut_anywhere_is_repeated_and_ends_the_same() {
    let lab = Lab::new();
    let mut run = lab.run();
    let paths = [lab.data("a.log"), lab.data("b.log")];
    run.open("a", &paths[0], APPEND);
    run.open("b", &paths[1], RDWR);
    let mut expected = [Vec::new(), vec![0; 4000]];
    for i in 0..12u64 {
        run.call(format!("write a {i} 700")).unwrap();
        expected[0].extend(content(i, 700));
        run.call(format!("pwrite b {} {i} 1000", i * 250)).unwrap();
        let at = i as usize * 250;
        expected[1][at..at + 1000].copy_from_slice(&content(i, 1000));
    }
    expected[1].truncate(11 * 250 + 1000);
    run.kill_both();
    lab.power_cut();
    // Later than any slack: only the mark of the replay tells whose changes these are.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let pool = lab.home.path().join("pool.before");
    fs::copy(lab.pool(), &pool).unwrap();
    for first in 1.. {
        fs::copy(&pool, lab.pool()).unwrap();
        lab.power_cut();
        if !lab.cut(Some(OTHER_BOOT), first) {
            assert_eq!(lab.lanes(), 0);
            assert!(first > 24, "cut only {first} times");
            break;
        }
        assert_eq!(lab.lanes(), 1);
        lab.cut(Some(OTHER_BOOT), first * 7 % 11 + 1);
        let mut said = Vec::new();
        if lab.lanes() == 1 {
            said = lab.recover(Some(OTHER_BOOT), &[]);
        }
        for (path, expected) in paths.iter().zip(&expected) {
            let content = fs::read(path).unwrap();
            assert!(content == *expected, "cut at step {first}: {said:?}");
        }
        assert_eq!(lab.lanes(), 0);
    }
    fs::copy(&pool, lab.pool()).unwrap();
    lab.power_cut();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    for (path, expected) in paths.iter().zip(expected) {
        assert!(fs::read(path).unwrap() == expected, "{}", path.display());
    }
    assert_eq!(lab.lanes(), 0);
}

#[test]
fn when_the_supervisor_is_killed_the_database_goes_on_and_drains_itself() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, APPEND);
    run.call("write a 0 5000").unwrap();
    run.kill_supervisor();
    let mut expected = content(0, 5000);
    for i in 1..100 {
        run.call(format!("write a {i} 5000")).unwrap();
        run.call("sync a").unwrap();
        expected.extend(content(i, 5000));
    }
    // New files are plain.
    assert_eq!(run.open("b", &lab.data("b.log"), APPEND), 0);
    run.kill_both();
    lab.recover(None, &[]);
    assert!(fs::read(&path).unwrap() == expected);
    assert_eq!(lab.lanes(), 0);
}

#[test]
fn a_failed_sync_costs_no_acknowledged_byte_and_once_it_succeeds_all_goes_on() {
    let begin: [fn(&Lab) -> Running; 2] = [Lab::run, Lab::run_unheard];
    for (errno, begin) in [libc::EIO, libc::ENOSPC].into_iter().zip(begin) {
        let lab = Lab::new();
        let mut run = begin(&lab);
        let path = lab.data("a.log");
        run.open("a", &path, APPEND);
        run.open("b", &lab.data("b.log"), APPEND);
        lab.inject(errno, 1);
        let mut expected = Vec::new();
        for i in 0..100 {
            run.call(format!("write a {i} 5000")).unwrap();
            run.call("write b 1 10").unwrap();
            expected.extend(content(i, 5000));
            assert_eq!(run.call("sync a"), Ok(0));
        }
        run.end();
        assert!(fs::read(&path).unwrap() == expected);
        assert_eq!(lab.lanes(), 0);
    }
}

#[test]
fn a_write_that_is_refused_because_syncs_fail_has_changed_nothing() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, APPEND);
    lab.inject(libc::EIO, u64::MAX);
    let mut expected = Vec::new();
    let mut refused = 0;
    for i in 0.. {
        assert!(
            i < 2000,
            "more than the pool holds, and only {refused} refused"
        );
        match run.call(format!("write a {i} 5000")) {
            Ok(_) => expected.extend(content(i, 5000)),
            Err(errno) => {
                assert_eq!(errno, libc::EIO);
                refused += 1;
            }
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), expected.len() as u64);
        if refused == 3 {
            break;
        }
    }
    lab.inject(libc::EIO, 0);
    run.call("write a 1 5000").unwrap();
    expected.extend(content(1, 5000));
    assert_eq!(run.call("sync a"), Ok(0));
    assert!(fs::read(&path).unwrap() == expected);
    run.kill_both();
    lab.recover(Some(OTHER_BOOT), &[]);
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn what_is_acknowledged_while_syncs_fail_survives_a_power_cut() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, APPEND);
    let mut expected = Vec::new();
    lab.inject(libc::EIO, 1);
    for i in 0..30 {
        run.call(format!("write a {i} 5000")).unwrap();
        if run.call("sync a").is_ok() {
            expected.extend(content(i, 5000));
        }
    }
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn what_the_pool_had_no_room_for_is_not_overwritten_by_older_records() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, RDWR);
    let mut expected = Vec::new();
    let write = |file: &mut Vec<u8>, run: &mut Running, at: usize, seed: u64| {
        // Refused while the lane is full of what cannot be synced.
        let begun = std::time::Instant::now();
        while let Err(errno) = run.call(format!("pwrite a {at} {seed} 5000")) {
            assert_eq!(errno, libc::EIO);
            assert!(begun.elapsed().as_secs() < 20, "it is not synced again");
        }
        file.resize(file.len().max(at + 5000), 0);
        file[at..at + 5000].copy_from_slice(&content(seed, 5000));
    };
    lab.inject(libc::EIO, 1);
    // The lane holds about 25 of them.
    for i in 0..40 {
        write(&mut expected, &mut run, 3000 * (i as usize % 5), i);
    }
    run.call("truncate a 9000").unwrap();
    expected.truncate(9000);
    write(&mut expected, &mut run, 8000, 99);
    assert_eq!(run.call("sync a"), Ok(0));
    assert!(fs::read(&path).unwrap() == expected);
    // From here on everything is logged again.
    write(&mut expected, &mut run, 1000, 100);
    assert_eq!(run.call("sync a"), Ok(0));
    run.kill_both();
    lab.recover(Some(OTHER_BOOT), &[]);
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn after_a_failed_sync_a_recovery_in_the_same_boot_writes_again_or_refuses() {
    let full = |lab: &Lab| {
        let mut run = lab.run();
        run.open("a", &lab.data("a.log"), APPEND);
        lab.inject(libc::EIO, u64::MAX);
        let mut acknowledged = Vec::new();
        for i in 0..20 {
            run.call(format!("write a {i} 5000")).unwrap();
            acknowledged.extend(content(i, 5000));
        }
        while !lab.label().starts_with("failed:") {
            thread::sleep(Duration::from_millis(1));
        }
        (run, acknowledged)
    };
    // The database dies.
    let lab = Lab::new();
    let (mut run, acknowledged) = full(&lab);
    lab.inject(libc::EIO, 0);
    run.kill_database();
    assert_eq!(run.end()["lane"]["left"], serde_json::Value::Null);
    assert!(fs::read(lab.data("a.log")).unwrap() == acknowledged);
    assert_eq!(lab.lanes(), 0);

    // Both die, and somebody has the file open.
    let lab = Lab::new();
    let (run, acknowledged) = full(&lab);
    run.kill_both();
    let path = lab.data("a.log");
    let reader = fs::File::open(&path).unwrap();
    for _ in 0..2 {
        let reports = lab.recover(None, &[]);
        assert_eq!(reports[0]["outcome"], "refused");
        let why = reports[0]["files"][0]["refused"].as_str().unwrap();
        assert!(why.contains("open") && why.contains("--force"), "{why}");
    }
    drop(reader);
    // A process that another test is about to start has the reader until it becomes another program.
    let mut again = (0..100).map(|_| {
        let outcome = lab.recover(None, &[])[0]["outcome"].clone();
        (outcome != "refused").then_some(outcome)
    });
    assert_eq!(again.find_map(|outcome| outcome).unwrap(), "synced");
    assert!(fs::read(&path).unwrap() == acknowledged);
    assert_eq!(lab.lanes(), 0);

    // Both die, and the file is something else.
    let lab = Lab::new();
    let (run, acknowledged) = full(&lab);
    run.kill_both();
    let path = lab.data("a.log");
    fs::write(&path, b"changed").unwrap();
    let reports = lab.recover(None, &[]);
    assert_eq!(reports[0]["outcome"], "refused");
    assert_eq!(fs::read(&path).unwrap(), b"changed");
    assert_eq!(lab.lanes(), 1);
    assert_eq!(lab.recover(None, &["--force"])[0]["outcome"], "replayed");
    assert!(fs::read(&path).unwrap() == acknowledged);
    assert_eq!(lab.lanes(), 0);
}

#[test]
fn a_file_that_is_written_to_after_it_lost_its_name_keeps_no_other_from_being_replayed() {
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

#[test]
fn a_truncation_that_the_kernel_refuses_changes_nothing_after_a_power_cut() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, RDWR);
    run.call("write a 1 3000").unwrap();
    run.call("truncate a 2000").unwrap();
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

#[test]
fn what_a_signal_handler_wrote_above_another_call_is_synced_really() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, APPEND);
    run.call("write a 1 300").unwrap();
    run.call("interrupting write a 2 300").unwrap();
    run.call("write a 3 300").unwrap();
    assert_eq!(run.call("sync a"), Ok(0));
    run.call("write a 4 300").unwrap();
    run.kill_both();
    lab.recover(Some(OTHER_BOOT), &[]);
    let expected: Vec<u8> = (1..=4).flat_map(|i| content(i, 300)).collect();
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn after_a_failed_sync_what_a_signal_handler_wrote_is_not_overwritten_by_what_is_older() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, RDWR);
    run.call("pwrite a 0 1 300").unwrap();
    assert_eq!(run.call("sync a"), Ok(0));
    lab.inject(libc::EIO, 1);
    run.call("interrupting pwrite a 0 2 300").unwrap();
    // What the disk has of it is not known, neither now nor later.
    for _ in 0..2 {
        assert_eq!(run.call("sync a"), Err(libc::EIO));
        assert!(fs::read(&path).unwrap() == content(2, 300));
    }
    run.end_with_something_left();
    assert!(fs::read(&path).unwrap() == content(2, 300));
    assert_eq!(lab.lanes(), 1);
    assert_eq!(lab.recover(None, &[])[0]["outcome"], "refused");
    assert!(fs::read(&path).unwrap() == content(2, 300));
}

#[test]
fn a_file_that_is_renamed_is_found_by_its_new_name_and_one_that_it_replaces_may_be_missing() {
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
        let reports = lab.recover(Some(OTHER_BOOT), &[]);
        assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
        if renamed {
            assert_eq!(
                fs::read(&path).unwrap(),
                [content(2, 300), content(3, 300)].concat()
            );
        } else {
            assert_eq!(fs::read(&path).unwrap(), content(1, 300));
            assert_eq!(fs::read(&temporary).unwrap(), content(2, 300));
        }
    }
}

#[test]
fn a_file_that_is_opened_with_truncation_keeps_nothing_of_what_the_pool_had_of_it() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, RDWR);
    run.call("write a 1 3000").unwrap();
    run.open("again", &path, RDWR | libc::O_TRUNC);
    run.call("write again 2 300").unwrap();
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(fs::read(&path).unwrap(), content(2, 300));

    // Also by a descriptor that cannot write.
    let mut run = lab.run();
    run.open("a", &path, RDWR);
    run.call("write a 3 3000").unwrap();
    run.open("read", &path, libc::O_RDONLY | libc::O_TRUNC);
    run.call("pwrite a 0 4 100").unwrap();
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(fs::read(&path).unwrap(), content(4, 100));
}

/// What the database's files hold, call by acknowledged call.
#[derive(Clone, Default, PartialEq, Eq)]
struct Model {
    /// By name: content.
    files: BTreeMap<String, Vec<u8>>,
}

/// One call of the random test.
#[derive(Clone, Debug)]
enum Call {
    Append(String, u64, usize),
    Write(String, usize, u64, usize),
    Truncate(String, usize),
}

impl Model {
    fn apply(&mut self, call: &Call) {
        match call.clone() {
            Call::Append(name, seed, bytes) => {
                self.files
                    .entry(name)
                    .or_default()
                    .extend(content(seed, bytes));
            }
            Call::Write(name, at, seed, bytes) => {
                let file = self.files.entry(name).or_default();
                file.resize(file.len().max(at + bytes), 0);
                file[at..at + bytes].copy_from_slice(&content(seed, bytes));
            }
            Call::Truncate(name, bytes) => self.files.entry(name).or_default().resize(bytes, 0),
        }
    }
}

fn random_call(rng: &mut Rng, model: &Model) -> Call {
    let names: Vec<&String> = model.files.keys().collect();
    let name = names[rng.below(names.len() as u64) as usize].clone();
    let size = model.files[&name].len() as u64;
    let bytes = |rng: &mut Rng| match rng.below(12) {
        0 => 30_000 + rng.below(60_000) as usize,
        1..4 => 1000 + rng.below(5000) as usize,
        _ => 1 + rng.below(300) as usize,
    };
    match rng.below(20) {
        0 => Call::Truncate(name, rng.below(size + 2000) as usize),
        1..5 => Call::Write(
            name,
            rng.below(size + 100) as usize,
            rng.below(1 << 30),
            bytes(rng),
        ),
        _ => Call::Append(name, rng.below(1 << 30), bytes(rng)),
    }
}

fn perform(run: &mut Running, call: &Call) {
    match call {
        Call::Append(name, seed, bytes) => run.send(&format!("write append-{name} {seed} {bytes}")),
        Call::Write(name, at, seed, bytes) => {
            run.send(&format!("pwrite at-{name} {at} {seed} {bytes}"));
        }
        Call::Truncate(name, bytes) => run.send(&format!("truncate at-{name} {bytes}")),
    }
}

#[test]
fn random_calls_survive_any_death_at_any_moment() {
    let seed = seed();
    for round in 0..12 {
        let mut rng = Rng(seed.wrapping_add(round * 1_000_003));
        let lab = Lab::new();
        let mut run = lab.run();
        let mut model = Model::default();
        for name in ["a.log", "b.aof", "c.log"] {
            for (prefix, flags) in [("append", APPEND), ("at", RDWR)] {
                assert_eq!(
                    run.open(&format!("{prefix}-{name}"), &lab.data(name), flags),
                    1
                );
            }
            model.files.insert(name.to_owned(), Vec::new());
        }
        let mut pending = None;
        let calls = 50 + rng.below(400);
        for _ in 0..calls {
            let call = random_call(&mut rng, &model);
            perform(&mut run, &call);
            let answer = run.answer().unwrap();
            assert!(answer.starts_with("ok"), "{call:?}: {answer}");
            model.apply(&call);
        }
        // One more, which nobody waits for.
        let last = random_call(&mut rng, &model);
        perform(&mut run, &last);
        pending.replace(last);
        let power = rng.below(3) != 0;
        run.kill_both();
        if power {
            lab.power_cut();
            lab.recover(Some(OTHER_BOOT), &[]);
        } else {
            lab.recover(None, &[]);
        }
        let mut after = model.clone();
        let last = pending.unwrap();
        after.apply(&last);
        for (name, before) in &model.files {
            let found = fs::read(lab.data(name)).unwrap();
            // A large write is several records: any number of them may be there.
            let after = &after.files[name];
            let whole = found == *before || found == *after;
            let part = matches!(last, Call::Append(..) | Call::Write(..))
                && found.len() >= before.len().min(after.len())
                && found.len() <= before.len().max(after.len())
                && (0..found.len())
                    .all(|i| before.get(i) == found.get(i) || after.get(i) == found.get(i));
            assert!(
                whole || part,
                "round {round}: {name} differs: {} bytes, expected {} or {}, last {last:?}",
                found.len(),
                before.len(),
                after.len()
            );
        }
        assert_eq!(lab.lanes(), 0);
    }
}
