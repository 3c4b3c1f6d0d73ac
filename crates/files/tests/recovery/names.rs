//! Names: a file is found by whatever name it has left, and what is not found is refused, and said
//! when force passes over it.

use crate::{
    APPEND, OTHER_BOOT,
    common::{Lab, content},
    modified,
    times::numbers_mounts,
    why,
};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// After so long a test waits for what never comes.
const LIMIT: Duration = Duration::from_secs(60);

/// What becomes of the only file after `calls` and a power cut, for an ordinary user, who can find
/// it by its names alone.
fn after(calls: &[&str], then: impl FnOnce(&Lab)) -> (Lab, Vec<Value>) {
    after_in(Lab::of_an_ordinary_user(), calls, then)
}

/// Makes directories of the laboratory's user.
fn directories(lab: &Lab, names: &[&str]) {
    for name in names {
        let path = lab.data(name);
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::chown(path, lab.user, lab.user).unwrap();
    }
}

/// The same in a laboratory of such a user.
fn after_in(lab: Lab, calls: &[&str], then: impl FnOnce(&Lab)) -> (Lab, Vec<Value>) {
    directories(&lab, &["d", "other"]);
    let mut run = lab.run();
    let path = lab.data("d/a.log");
    assert_eq!(run.open("a", &path, APPEND), 1);
    run.calls(["write a 1 3000", "sync a"]);
    let data = lab.home.path().join("data");
    for call in calls {
        // `refused` calls are made to fail.
        let (call, mode) = match call.strip_prefix("refused ") {
            Some(call) => (call, 0o500),
            None => (*call, 0o755),
        };
        fs::set_permissions(lab.data("d"), fs::Permissions::from_mode(mode)).unwrap();
        let done = run.call(call.replace('@', data.to_str().unwrap()));
        let is_killed = call.contains("killed");
        assert_eq!(done.is_ok(), mode == 0o755 && !is_killed, "{call}");
        fs::set_permissions(lab.data("d"), fs::Permissions::from_mode(0o755)).unwrap_or_default();
    }
    run.kill_both();
    cut_all(&data);
    then(&lab);
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    (lab, reports)
}

/// A power cut leaves nothing in the files of a directory.
fn cut_all(directory: &Path) {
    let names = Command::new("find")
        .arg(directory)
        .args(["-type", "f"])
        .output()
        .unwrap();
    for name in String::from_utf8(names.stdout).unwrap().lines() {
        let file = fs::File::options().write(true).open(name).unwrap();
        let time = modified(Path::new(name));
        file.set_len(0).unwrap();
        file.set_modified(time).unwrap();
    }
}

/// Far away, where an ordinary user finds nothing.
fn move_away(lab: &Lab, name: &str) {
    fs::create_dir_all(lab.home.path().join("x/y/z")).unwrap();
    fs::rename(lab.data(name), lab.home.path().join("x/y/z/q")).unwrap();
}

fn is_replayed_to(name: &str, calls: &[&str]) {
    is_replayed_in(Lab::of_an_ordinary_user(), name, calls);
}

fn is_replayed_in(lab: Lab, name: &str, calls: &[&str]) {
    let (lab, reports) = after_in(lab, calls, |_| {});
    assert_eq!(reports[0]["outcome"], "replayed", "{calls:?}: {reports:?}");
    let found = fs::read(lab.data(name)).unwrap();
    assert!(
        found == content(1, 3000),
        "{calls:?}: {} bytes",
        found.len()
    );
}

/// Promise (recovery): A recovery finds a file by whatever name it has left, also in a directory
/// that was renamed, and also without privileges.
#[test]
fn a_file_that_lost_one_of_two_names_is_found_by_the_other() {
    is_replayed_to("other/b", &["link @/d/a.log @/other/b", "unlink @/d/a.log"]);
}

#[test]
fn a_file_that_gets_a_third_name_is_plain_and_wholly_on_disk() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.call("write a 1 3000").unwrap();
    for name in ["b", "c"] {
        let link = lab.data(name);
        let call = format!("link {} {}", path.display(), link.display());
        run.call(call).unwrap();
    }
    assert_eq!(run.call("write a 2 10"), Ok(10));
    assert_eq!(run.call("absorbs a"), Ok(0));
    assert_eq!(fs::read(lab.synced(&path)).unwrap(), content(1, 3000));
    run.end();
}

/// Promise (recovery): A recovery reports and refuses a file that it does not find, and names each
/// file that `--force` passes over.
#[test]
fn a_file_that_kept_its_name_or_lost_another_must_be_there() {
    for calls in [
        &["link @/d/a.log @/other/b", "unlink @/other/b"][..],
        &["refused unlink @/d/a.log"],
    ] {
        let (lab, reports) = after(calls, |lab| move_away(lab, "d/a.log"));
        assert!(why(&reports).contains("missing"), "{calls:?}: {reports:?}");
        assert_eq!(lab.lanes(), 1);
    }
}

/// Promise: as `a_file_that_lost_one_of_two_names_is_found_by_the_other`.
/// Promise: as `a_renamed_file_is_found_and_the_replaced_one_may_be_missing`.
#[test]
fn a_file_whose_directory_was_renamed_is_found_in_it() {
    is_replayed_to("e/a.log", &["rename @/d @/e"]);
    is_replayed_to("other/e/a.log", &["rename @/d @/other/e"]);
    is_replayed_to("e/a.log", &["refused unlink @/d/a.log", "rename @/d @/e"]);
    is_replayed_to(
        "other/e/a.log",
        &[
            "link @/d/a.log @/other/b",
            "unlink @/other/b",
            "rename @/d @/other/e",
        ],
    );
    // By another process.
    let (lab, reports) = after(&[], |lab| {
        fs::rename(lab.data("d"), lab.data("moved")).unwrap();
    });
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    assert!(fs::read(lab.data("moved/a.log")).unwrap() == content(1, 3000));
}

/// Promise: as `a_file_that_lost_one_of_two_names_is_found_by_the_other`.
#[test]
fn a_file_is_found_in_a_directory_renamed_while_it_was_written() {
    let lab = Lab::of_an_ordinary_user();
    directories(&lab, &["d", "other"]);
    let mut run = lab.run();
    assert_eq!(run.open("a", &lab.data("d/a.log"), APPEND), 1);
    run.call("write a 1 3000").unwrap();
    let (from, to) = (lab.data("d"), lab.data("other/e"));
    let held = lab.data("held");
    let rename = format!("rename {} {}", from.display(), to.display());
    run.call(format!("begin other slowly {} {rename}", held.display()))
        .unwrap();
    let begun = Instant::now();
    while !held.exists() {
        assert!(begun.elapsed() < LIMIT, "it is not renamed");
        thread::sleep(Duration::from_millis(1));
    }
    // More than the pool holds: no segment is left that was there before.
    for seed in 0..150 {
        run.call(format!("write a {seed} 30000")).unwrap();
    }
    fs::remove_file(held).unwrap();
    assert_eq!(run.call("end other"), Ok(0));
    run.kill_both();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_ne!(reports[0]["outcome"], "refused", "{reports:?}");
    assert_eq!(lab.lanes(), 0);
}

/// Promise: as `a_file_that_lost_one_of_two_names_is_found_by_the_other`.
#[test]
fn a_file_is_found_in_a_directory_exchanged_for_another() {
    for call in ["exchange @/d @/far/e", "exchange @/far/e @/d"] {
        let lab = Lab::of_an_ordinary_user();
        directories(&lab, &["far", "far/e"]);
        is_replayed_in(lab, "far/e/a.log", &[call]);
    }
    // A file is plain before.
    let (lab, reports) = after(&["exchange @/d/a.log @/other"], |_| {});
    let refused = reports.iter().any(|one| one["outcome"] == "refused");
    assert!(!refused, "{reports:?}");
    let synced = fs::read(lab.synced(&lab.data("d/a.log"))).unwrap();
    assert!(synced == content(1, 3000));
}

/// Promise: as `a_file_that_lost_one_of_two_names_is_found_by_the_other`.
#[test]
fn a_pool_on_a_disk_finds_files_of_a_directory_renamed_unsynced() {
    let lab = || Lab::on_disk().given_to_an_ordinary_user();
    is_replayed_in(lab(), "other/e/a.log", &["rename @/d @/other/e"]);
    is_replayed_in(lab(), "other/b", &["rename @/d/a.log @/other/b"]);
}

/// Promise: as `a_renamed_file_is_found_and_the_replaced_one_may_be_missing`.
#[test]
fn a_file_losing_its_name_without_free_descriptors_is_on_disk() {
    for call in ["unlink @/d/a.log", "rename @/d/a.log @/other/b"] {
        let (lab, reports) = after(&["exhaust", call], |_| {});
        let refused = reports.iter().any(|one| one["outcome"] == "refused");
        assert!(!refused, "{call}: {reports:?}");
        assert_eq!(lab.lanes(), 0);
        let synced = fs::read(lab.synced(&lab.data("d/a.log"))).unwrap();
        assert!(synced == content(1, 3000), "{call}");
    }
    is_replayed_to("other/e/a.log", &["exhaust", "rename @/d @/other/e"]);
}

#[test]
fn a_file_that_lost_its_last_name_keeps_no_recovery_from_ending() {
    let (lab, reports) = after(&["unlink @/d/a.log"], |_| {});
    assert_ne!(reports[0]["outcome"], "refused", "{reports:?}");
    assert_eq!(reports[0]["files"][0]["note"], Value::Null);
    assert_eq!(lab.lanes(), 0);
}

/// A process that was killed when it was about to take the file's last name.
const KILLED: &str = "other killed unlink @/d/a.log";

/// Promise (recovery): Writes to a file after a killed process was about to remove it are not given
/// up with the file, which may be missing only where it was.
#[test]
fn a_file_whose_removal_was_cut_must_be_there_once_used_again() {
    let open = format!("open b @/d/a.log {APPEND}");
    for (call, kept) in [
        ("rename @/d/a.log @/d/b", "d/b"),
        ("link @/d/a.log @/d/b", "d/b"),
        (open.as_str(), "d/a.log"),
    ] {
        let (lab, reports) = after(&[KILLED, call], |lab| {
            move_away(lab, kept);
            let _ = fs::remove_file(lab.data("d/a.log"));
        });
        assert!(why(&reports).contains("missing"), "{call}: {reports:?}");
        assert_eq!(lab.lanes(), 1);
    }
}

/// Promise: as `a_file_whose_removal_was_cut_must_be_there_once_used_again`.
#[test]
fn a_file_whose_removal_was_cut_is_missing_only_where_it_was() {
    let (lab, reports) = after(&[KILLED], |lab| {
        fs::rename(lab.data("d"), lab.data("moved")).unwrap();
    });
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    assert!(fs::read(lab.data("moved/a.log")).unwrap() == content(1, 3000));

    let (lab, reports) = after(&[KILLED], |lab| move_away(lab, "d"));
    assert!(why(&reports).contains("missing"), "{reports:?}");
    assert_eq!(lab.lanes(), 1);
    // In this boot it is somewhere in a file system that is synced as a whole.
    fs::create_dir(lab.data("d")).unwrap();
    let reports = lab.recover(None, &[]);
    let note = reports[0]["files"][0]["note"].as_str().unwrap();
    let is_synced = note.contains("whole file system was synced");
    assert!(is_synced || !numbers_mounts(lab.home.path()), "{note}");
    assert_eq!(lab.lanes(), 0);

    let (lab, reports) = after(&[KILLED], |lab| {
        fs::remove_file(lab.data("d/a.log")).unwrap();
    });
    assert_ne!(reports[0]["outcome"], "refused", "{reports:?}");
    let note = reports[0]["files"][0]["note"].as_str().unwrap();
    assert!(note.contains("about to remove"), "{note}");
    assert_eq!(lab.lanes(), 0);
}

/// Promise: as `a_file_that_kept_its_name_or_lost_another_must_be_there`.
#[test]
fn what_force_passes_over_is_said() {
    let (lab, reports) = after(&[], |lab| fs::remove_file(lab.data("d/a.log")).unwrap());
    assert!(why(&reports).contains("missing"), "{reports:?}");
    let reports = lab.recover(Some(OTHER_BOOT), &["--force"]);
    let note = reports[0]["files"][0]["note"].as_str().unwrap();
    assert!(
        note.contains("3000 bytes") && note.contains("GIVEN UP"),
        "{note}"
    );
    assert_ne!(reports[0]["outcome"], "replayed");
}
