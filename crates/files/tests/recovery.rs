//! A recovery brings what was acknowledged to the right files, with the right times, by the right hands, and says what it could not.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
use common::{Lab, Running, content};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, SystemTime},
};

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";
/// Longer than the slack in which a change counts as the database's.
const LATER: Duration = Duration::from_millis(300);

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// The modification time is what it was when the program had written last; records have the clock's next tick at the latest.
#[track_caller]
fn same_time(path: &Path, expected: SystemTime) {
    let found = modified(path);
    let apart = found
        .duration_since(expected)
        .unwrap_or_else(|e| e.duration());
    assert!(
        apart < Duration::from_millis(60),
        "{}: {apart:?} apart",
        path.display()
    );
}

fn set_modified(path: &Path, time: SystemTime) {
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

#[track_caller]
fn why(reports: &[Value]) -> &str {
    assert_eq!(reports[0]["outcome"], "refused", "{reports:?}");
    let files = reports[0]["files"].as_array().unwrap();
    let reasons = files.iter().find_map(|file| file["refused"].as_str());
    reasons.unwrap()
}

/// A run with one file, written to and acknowledged, of which a cut leaves nothing.
fn written(lab: &Lab) -> Running {
    let mut run = lab.run();
    assert_eq!(run.open("a", &lab.data("a.log"), APPEND), 1);
    run.call("write a 1 3000").unwrap();
    run.call("sync a").unwrap();
    run
}

#[test]
fn what_the_page_cache_lost_in_the_same_boot_is_written_from_the_pool() {
    let lab = Lab::new();
    let run = written(&lab);
    run.kill_both();
    let path = lab.data("a.log");
    let then = modified(&path);
    lab.power_cut();
    let reports = lab.recover(None, &[]);
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    assert!(fs::read(&path).unwrap() == content(1, 3000));
    same_time(&path, then);
    assert_eq!(lab.lanes(), 0);
}

/// Mounts an image anew after what a device that goes away does to a file system: what it had in memory is gone. False if a process elsewhere,
/// in a mount namespace of its own, keeps the old file system.
fn lose_what_is_in_memory(image: &Path, at: &Path) -> bool {
    // FS_IOC_SHUTDOWN, without writing the journal.
    let script = "import fcntl, os, struct, sys\n\
                  fcntl.ioctl(os.open(sys.argv[1], 0), 0x8004587D, struct.pack('I', 2))";
    let mut shut = Command::new("python3");
    let shut = shut.args(["-c", script]).arg(at);
    succeed(shut).unwrap();
    succeed(Command::new("umount").arg(at)).unwrap();
    let is_kept = || {
        let devices = Command::new("losetup").arg("-j").arg(image).output();
        !devices.unwrap().stdout.is_empty()
    };
    for _ in 0..500 {
        if !is_kept() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    if is_kept() {
        println!("skipped: another process keeps the file system mounted");
        return false;
    }
    mount(image, at).unwrap();
    true
}

fn mount(image: &Path, at: &Path) -> Result<(), String> {
    succeed(
        Command::new("mount")
            .args(["-o", "loop"])
            .arg(image)
            .arg(at),
    )
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(common::output_of(&output)),
    }
}

/// A mounted image, unmounted whatever becomes of the test.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = succeed(Command::new("umount").args(["-l"]).arg(&self.0));
    }
}

fn survives_a_shutdown_of(make: &[&str], megabytes: u64) {
    let lab = Lab::new();
    let image = lab.home.path().join("image");
    fs::File::create(&image)
        .unwrap()
        .set_len(megabytes << 20)
        .unwrap();
    let at = lab.home.path().join("data");
    let made = succeed(Command::new(make[0]).args(&make[1..]).arg(&image));
    if let Err(e) = made.and_then(|()| mount(&image, &at)) {
        println!(
            "skipped: {} on a loop device is not to be had here: {e}",
            make[0]
        );
        return;
    }
    let _mounted = Mounted(at.clone());
    let run = written(&lab);
    run.kill_both();
    let path = lab.data("a.log");
    let then = modified(&path);
    if !lose_what_is_in_memory(&image, &at) {
        return;
    }
    assert!(
        fs::read(&path).unwrap() != content(1, 3000),
        "nothing was lost: the test proves nothing"
    );
    let reports = lab.recover(None, &[]);
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    assert!(fs::read(&path).unwrap() == content(1, 3000));
    same_time(&path, then);
    assert_eq!(lab.lanes(), 0);

    // Mounted anew and written to by others: the page cache is no witness any more.
    let run = written(&lab);
    run.kill_both();
    if !lose_what_is_in_memory(&image, &at) {
        return;
    }
    thread::sleep(LATER);
    fs::write(&path, b"changed").unwrap();
    let reports = lab.recover(None, &[]);
    assert!(why(&reports).contains("was changed"), "{reports:?}");
    assert_eq!(fs::read(&path).unwrap(), b"changed");
    assert_eq!(lab.lanes(), 1);
}

#[test]
fn a_file_system_that_was_shut_down_and_mounted_again_gets_what_was_acknowledged() {
    survives_a_shutdown_of(&["mkfs.ext4", "-q"], 64);
}

#[test]
fn an_xfs_that_was_shut_down_and_mounted_again_gets_what_was_acknowledged() {
    survives_a_shutdown_of(&["mkfs.xfs", "-q", "-f"], 320);
}

#[test]
fn an_emulated_pool_of_another_boot_is_written_nowhere_without_force() {
    for options in [&["--discard"][..], &["--force"]] {
        let lab = Lab::new();
        let run = written(&lab);
        run.kill_both();
        lab.power_cut();
        // The disk has newer bytes than the pool, and their time lies before the pool's last record.
        let path = lab.data("a.log");
        let then = modified(&path);
        fs::write(&path, b"newer").unwrap();
        set_modified(&path, then);
        let reports = lab.recover_really(OTHER_BOOT, &[]).unwrap();
        let why = why(&reports);
        assert!(why.contains("emulated"), "{why}");
        assert!(
            why.contains("--discard") && why.contains("--force"),
            "{why}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(lab.lanes(), 1);
        let reports = lab.recover_really(OTHER_BOOT, options).unwrap();
        if options[0] == "--force" {
            assert_eq!(reports[0]["outcome"], "replayed");
            assert!(fs::read(&path).unwrap().starts_with(&content(1, 3000)));
        } else {
            assert_eq!(reports[0]["outcome"], "discarded");
            assert_eq!(fs::read(&path).unwrap(), b"newer");
        }
        assert_eq!(lab.lanes(), 0);
    }
    // Where the files hold what it says, nothing is lost with it.
    let lab = Lab::new();
    written(&lab).kill_both();
    let reports = lab.recover_really(OTHER_BOOT, &[]).unwrap();
    assert_eq!(reports[0]["outcome"], "synced");
    assert_eq!(lab.lanes(), 0);
}

#[test]
fn a_recovery_by_root_writes_only_what_the_pools_owner_may() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let lab = Lab::new();
    written(&lab).kill_both();
    lab.power_cut();
    let path = lab.data("a.log");
    let nobody = 65_534;
    for file in [
        lab.home.path().to_owned(),
        lab.home.path().join("data"),
        lab.pool(),
    ] {
        std::os::unix::fs::chown(file, Some(nobody), Some(nobody)).unwrap();
    }
    // Root's own: whose pool it is may not write to it.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert!(why(&reports).contains("cannot be opened"), "{reports:?}");
    assert_eq!(fs::read(&path).unwrap(), b"");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert!(
        why(&reports).contains("cannot be written to"),
        "{reports:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"");
    // Nor if it may write to it, but not get there.
    std::os::unix::fs::chown(&path, Some(nobody), Some(nobody)).unwrap();
    std::os::unix::fs::chown(lab.home.path(), Some(0), Some(0)).unwrap();
    fs::set_permissions(lab.home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert!(why(&reports).contains("missing"), "{reports:?}");
    assert_eq!(fs::read(&path).unwrap(), b"");
    fs::set_permissions(lab.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    assert!(fs::read(&path).unwrap() == content(1, 3000));
    assert_eq!(lab.lanes(), 0);
}

#[test]
fn a_pool_that_anybody_may_write_to_is_not_recovered() {
    let lab = Lab::new();
    written(&lab).kill_both();
    lab.power_cut();
    fs::set_permissions(lab.pool(), fs::Permissions::from_mode(0o666)).unwrap();
    let why = lab.recover_really(OTHER_BOOT, &["--force"]).unwrap_err();
    assert!(why.contains("chmod go-w"), "{why}");
    assert_eq!(fs::read(lab.data("a.log")).unwrap(), b"");
}

#[test]
fn a_symbolic_link_at_a_files_name_is_not_followed() {
    let lab = Lab::of_an_ordinary_user();
    written(&lab).kill_both();
    lab.power_cut();
    let (path, elsewhere) = (lab.data("a.log"), lab.home.path().join("a.log"));
    fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert!(why(&reports).contains("missing"), "{reports:?}");
    assert_eq!(fs::read(&elsewhere).unwrap(), b"");
}

/// What becomes of the only file after `calls` and a power cut, for an ordinary user, who can find it by its names alone.
fn after(calls: &[&str], then: impl FnOnce(&Lab)) -> (Lab, Vec<Value>) {
    let lab = Lab::of_an_ordinary_user();
    fs::create_dir(lab.data("d")).unwrap();
    fs::create_dir(lab.data("other")).unwrap();
    if let Some(user) = lab.user {
        for directory in ["d", "other"] {
            std::os::unix::fs::chown(lab.data(directory), Some(user), Some(user)).unwrap();
        }
    }
    let mut run = lab.run();
    let path = lab.data("d/a.log");
    assert_eq!(run.open("a", &path, APPEND), 1);
    run.call("write a 1 3000").unwrap();
    let data = lab.home.path().join("data");
    for call in calls {
        // `refused` calls are made to fail.
        let (call, mode) = match call.strip_prefix("refused ") {
            Some(call) => (call, 0o500),
            None => (*call, 0o755),
        };
        fs::set_permissions(lab.data("d"), fs::Permissions::from_mode(mode)).unwrap();
        let done = run.call(call.replace('@', data.to_str().unwrap()));
        assert_eq!(done.is_ok(), mode == 0o755, "{call}");
        fs::set_permissions(lab.data("d"), fs::Permissions::from_mode(0o755)).unwrap_or_default();
    }
    run.call("sync a").unwrap();
    run.kill_both();
    let names = Command::new("find")
        .arg(&data)
        .args(["-type", "f"])
        .output()
        .unwrap();
    for name in String::from_utf8(names.stdout).unwrap().lines() {
        let file = fs::File::options().write(true).open(name).unwrap();
        let time = modified(Path::new(name));
        file.set_len(0).unwrap();
        file.set_modified(time).unwrap();
    }
    then(&lab);
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    (lab, reports)
}

fn is_replayed_to(name: &str, calls: &[&str]) {
    let (lab, reports) = after(calls, |_| {});
    assert_eq!(reports[0]["outcome"], "replayed", "{calls:?}: {reports:?}");
    let found = fs::read(lab.data(name)).unwrap();
    assert!(
        found == content(1, 3000),
        "{calls:?}: {} bytes",
        found.len()
    );
}

#[test]
fn a_file_that_lost_one_of_two_names_is_found_by_the_other() {
    is_replayed_to("other/b", &["link @/d/a.log @/other/b", "unlink @/d/a.log"]);
}

#[test]
fn a_file_that_gets_a_third_name_is_plain_and_all_of_it_on_the_disk() {
    let lab = Lab::new();
    let path = lab.data("a.log");
    let mut run = lab.run();
    assert_eq!(run.open("a", &path, APPEND), 1);
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

#[test]
fn a_file_that_lost_another_name_or_kept_its_own_may_not_be_missing() {
    for calls in [
        &["link @/d/a.log @/other/b", "unlink @/other/b"][..],
        &["refused unlink @/d/a.log"],
    ] {
        let (lab, reports) = after(calls, |lab| {
            // Far away, where an ordinary user finds nothing.
            fs::create_dir_all(lab.home.path().join("x/y/z")).unwrap();
            fs::rename(lab.data("d/a.log"), lab.home.path().join("x/y/z/q")).unwrap();
        });
        assert!(why(&reports).contains("missing"), "{calls:?}: {reports:?}");
        assert_eq!(lab.lanes(), 1);
    }
}

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

#[test]
fn a_file_that_lost_its_last_name_keeps_no_recovery_from_ending() {
    let (lab, reports) = after(&["unlink @/d/a.log"], |_| {});
    assert_ne!(reports[0]["outcome"], "refused", "{reports:?}");
    assert_eq!(reports[0]["files"][0]["note"], Value::Null);
    assert_eq!(lab.lanes(), 0);
}

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

#[test]
fn what_moves_a_files_time_without_changing_it_keeps_no_lane_from_being_replayed() {
    for call in ["touch a 5000", "touch a -5000", "room a 65536"] {
        let lab = Lab::new();
        let mut run = written(&lab);
        thread::sleep(LATER);
        run.call(call).unwrap();
        run.kill_both();
        let path = lab.data("a.log");
        let then = modified(&path);
        lab.power_cut();
        let reports = lab.recover(Some(OTHER_BOOT), &[]);
        assert_eq!(reports[0]["outcome"], "replayed", "{call}: {reports:?}");
        assert!(fs::read(&path).unwrap() == content(1, 3000));
        same_time(&path, then);
    }
}

#[test]
fn a_file_that_may_only_be_appended_to_gets_what_it_lacks() {
    for boot in [None, Some(OTHER_BOOT)] {
        let lab = Lab::new();
        written(&lab).kill_both();
        let path = lab.data("a.log");
        lab.power_cut();
        let then = modified(&path);
        fs::write(&path, &content(1, 3000)[..1000]).unwrap();
        set_modified(&path, then);
        if let Err(e) = succeed(Command::new("chattr").arg("+a").arg(&path)) {
            println!("skipped: no append-only files here: {e}");
            return;
        }
        let cut = lab.cut(boot, 2);
        let reports = lab.recover(boot, &[]);
        succeed(Command::new("chattr").arg("-a").arg(&path)).unwrap();
        assert!(cut);
        assert_ne!(reports[0]["outcome"], "refused", "{reports:?}");
        assert!(fs::read(&path).unwrap() == content(1, 3000));
        assert_eq!(lab.lanes(), 0);
    }
}

#[test]
fn a_file_that_cannot_be_written_to_needs_only_a_sync_in_the_same_boot() {
    for mode in [0o444, 0o000] {
        let lab = Lab::of_an_ordinary_user();
        written(&lab).kill_both();
        fs::set_permissions(lab.data("a.log"), fs::Permissions::from_mode(mode)).unwrap();
        let reports = lab.recover(None, &[]);
        assert_eq!(reports[0]["outcome"], "synced", "{mode:o}: {reports:?}");
        assert_eq!(lab.lanes(), 0);
    }
    // Unlinked, it needs nothing.
    let lab = Lab::of_an_ordinary_user();
    let mut run = written(&lab);
    fs::set_permissions(lab.data("a.log"), fs::Permissions::from_mode(0o555)).unwrap();
    run.call(format!("unlink {}", lab.data("a.log").display()))
        .unwrap();
    run.kill_both();
    assert_eq!(lab.recover(None, &[])[0]["outcome"], "synced");
    assert_eq!(lab.lanes(), 0);
}

#[test]
fn a_file_keeps_the_times_that_the_program_gave_it() {
    let hour = Duration::from_secs(3600);
    // The database ends; is killed; both are; and the same with a power cut behind it.
    for way in ["ends", "killed", "both", "cut"] {
        let lab = Lab::new();
        let mut run = written(&lab);
        run.call("touch a -3600").unwrap();
        let path = lab.data("a.log");
        let then = modified(&path);
        assert!(then < SystemTime::now() - hour / 2);
        match way {
            "ends" => drop(run.end()),
            "killed" => {
                run.kill_database();
                run.end();
            }
            _ => run.kill_both(),
        }
        if way == "cut" {
            lab.power_cut();
            lab.recover(Some(OTHER_BOOT), &[]);
        } else {
            lab.recover(None, &[]);
        }
        assert!(fs::read(&path).unwrap() == content(1, 3000));
        assert_eq!(modified(&path), then, "{way}");
        assert_eq!(lab.lanes(), 0);
    }
}

#[test]
fn a_recovery_in_the_same_boot_may_be_cut_anywhere_and_the_power_with_it() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, RDWR);
    for i in 0..4u64 {
        run.call(format!("pwrite a {} {i} 500", i * 400)).unwrap();
    }
    run.kill_both();
    let then = modified(&path);
    let expected = fs::read(&path).unwrap();
    let pool = lab.home.path().join("pool.before");
    fs::copy(lab.pool(), &pool).unwrap();
    // Later than any slack: only the mark tells whose changes these are.
    thread::sleep(LATER);
    for (boot, steps) in (0..2).flat_map(|boot| (1..30).map(move |steps| (boot, steps))) {
        fs::copy(&pool, lab.pool()).unwrap();
        fs::write(&path, &expected).unwrap();
        set_modified(&path, then);
        let is_cut = lab.cut(None, steps);
        if boot == 1 {
            // Its time is on the disk, its content is not.
            lab.power_cut();
        }
        if is_cut {
            let boot = (boot == 1).then_some(OTHER_BOOT);
            let reports = lab.recover(boot, &[]);
            assert_ne!(reports[0]["outcome"], "refused", "{steps}: {reports:?}");
            assert!(fs::read(&path).unwrap() == expected, "{steps}");
        }
        assert_eq!(lab.lanes(), 0);
        same_time(&path, then);
        if !is_cut {
            assert!(steps > 5, "only {steps} steps");
            break;
        }
    }
}

#[test]
fn a_replay_that_took_long_and_was_cut_knows_its_own_changes() {
    let lab = Lab::new();
    let mut run = lab.run();
    let paths = [lab.data("a.log"), lab.data("b.log")];
    for (name, path) in ["a", "b"].iter().zip(&paths) {
        run.open(name, path, APPEND);
        for i in 0..4 {
            run.call(format!("write {name} {i} 700")).unwrap();
        }
    }
    run.kill_both();
    lab.power_cut();
    thread::sleep(LATER);
    // It hangs for so long in the first file, and is cut in the second.
    let mut command = lab.recover_command(&[]);
    command
        .env("FOREBAY_TEST_BOOT_ID", OTHER_BOOT)
        .env("FOREBAY_TEST_POOL_SURVIVED", "1")
        .env("FOREBAY_TEST_CUT_REPLAY", "3:12000,12");
    assert!(!command.output().unwrap().status.success());
    assert!(!fs::read(&paths[1]).unwrap().is_empty(), "cut too early");
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    let expected: Vec<u8> = (0..4).flat_map(|i| content(i, 700)).collect();
    for path in &paths {
        assert!(fs::read(path).unwrap() == expected);
    }
}

#[test]
fn nobody_who_opens_a_file_without_waiting_is_kept_out_at_its_clients_end() {
    let mut refused = 0;
    for _ in 0..10 {
        let lab = Lab::new();
        let mut run = written(&lab);
        let path = lab.data("a.log");
        let stop = Arc::new(AtomicBool::new(false));
        let opener = {
            let (path, stop) = (path.clone(), Arc::clone(&stop));
            thread::spawn(move || {
                let mut refused = 0;
                while !stop.load(Relaxed) {
                    let open = fs::File::options()
                        .read(true)
                        .custom_flags(libc::O_NONBLOCK)
                        .open(&path);
                    refused += u64::from(open.is_err());
                }
                refused
            })
        };
        run.kill_database();
        run.end();
        stop.store(true, Relaxed);
        refused += opener.join().unwrap();
        assert!(fs::read(&path).unwrap() == content(1, 3000));
    }
    assert_eq!(refused, 0);
}
