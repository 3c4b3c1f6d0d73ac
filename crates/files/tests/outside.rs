//! Processes outside the run that open what it absorbs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Lab, Running, content, holds};
use forebay_files::supervisor::status_of_running;
use rustix::process::{Pid, Signal};
use std::{
    fs,
    os::unix::{fs::FileExt, process::CommandExt},
    path::Path,
    process::Command,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";

/// A lab whose supervisor may have the kernel ask it; none where the tests are an ordinary user's.
fn of_root() -> Option<Lab> {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: fanotify's permission events are root's");
    }
    is_root.then(Lab::new)
}

/// A process outside: this one. Opens the file, writes newer bytes, and syncs them.
fn writes_newer_bytes(path: &Path) -> JoinHandle<()> {
    let path = path.to_owned();
    thread::spawn(move || {
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&content(2, 300), 0).unwrap();
        file.sync_all().unwrap();
    })
}

/// The database works on the file until the other is done.
fn work_beside<T>(run: &mut Running, other: &JoinHandle<T>) {
    while !other.is_finished() {
        run.call("sync a").unwrap();
    }
}

/// All is killed and the power is cut: what is in the file after the recovery. What was in it is on
/// the disk.
fn cut(lab: &Lab, run: Running, path: &Path) -> Vec<u8> {
    fs::copy(path, lab.synced(path)).unwrap();
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    fs::read(path).unwrap()
}

fn outside_writer(lab: &Lab) -> String {
    let running = status_of_running(&lab.home.path().join("run")).unwrap();
    let said = serde_json::to_value(running.statuses[0].outside_writer).unwrap();
    said.as_str().unwrap().to_owned()
}

fn signal(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Promise (processes): A process outside the run that opens an absorbed file for writing gets it
/// when it is plain, if the supervisor has `CAP_SYS_ADMIN`.
#[test]
fn bytes_a_process_outside_synced_at_once_survive_a_power_cut() {
    for _ in 0..5 {
        let Some(lab) = of_root() else { return };
        let path = lab.data("a.log");
        let mut run = lab.run();
        assert_eq!(outside_writer(&lab), "waits");
        assert_eq!(run.open("a", &path, RDWR), 1);
        run.call("pwrite a 0 1 300").unwrap();
        let stranger = writes_newer_bytes(&path);
        work_beside(&mut run, &stranger);
        stranger.join().unwrap();
        assert_eq!(cut(&lab, run, &path), content(2, 300));
    }
}

/// Promise (processes): A recovery writes nothing older over the bytes of a process outside the
/// run, whatever name and mount namespace that process used.
#[test]
fn an_outsiders_bytes_survive_by_any_name_and_mount_namespace() {
    let Some(lab) = of_root() else { return };
    let path = lab.data("a.log");
    let newer = lab.home.path().join("newer");
    fs::write(&newer, content(2, 300)).unwrap();
    let elsewhere = lab.home.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut run = lab.run();
    assert_eq!(run.open("a", &path, RDWR), 1);
    run.call("pwrite a 0 1 300").unwrap();
    let script =
        r#"mount --bind "$1" "$2" && exec dd if="$3" of="$2/a.log" conv=notrunc,fsync status=none"#;
    let mut stranger = Command::new("unshare");
    stranger.args(["--mount", "sh", "-c", script, "sh"]).args([
        &lab.home.path().join("data"),
        &elsewhere,
        &newer,
    ]);
    let stranger = thread::spawn(move || stranger.status().unwrap());
    work_beside(&mut run, &stranger);
    assert!(stranger.join().unwrap().success());
    assert_eq!(cut(&lab, run, &path), content(2, 300));
}

/// Promise (processes): Readers of an absorbed file neither wait nor make it plain.
#[test]
fn readers_of_an_absorbed_file_neither_wait_nor_make_it_plain() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(RDWR);
    run.call("pwrite a 0 1 300").unwrap();
    // A database that is stopped could let go of nothing.
    signal(run.database, Signal::STOP);
    holds(&path, &[(1, 300)]);
    let copied = Command::new("cat").arg(&path).output().unwrap();
    assert_eq!(copied.stdout, content(1, 300));
    signal(run.database, Signal::CONT);
    run.call("pwrite a 0 3 300").unwrap();
    assert_eq!(run.call("absorbs a"), Ok(1));
    run.end();
}

/// Promise (processes): A process outside waits forever neither for a database that is stopped nor
/// for a supervisor that is killed.
#[test]
fn outsiders_outwait_a_stopped_database_and_keep_newer_bytes() {
    let Some(lab) = of_root() else { return };
    let (mut run, path) = lab.run_with_log(RDWR);
    run.call("pwrite a 0 1 300").unwrap();
    signal(run.database, Signal::STOP);
    writes_newer_bytes(&path).join().unwrap();
    assert_eq!(cut(&lab, run, &path), content(2, 300));
}

/// Promise: as `outsiders_outwait_a_stopped_database_and_keep_newer_bytes`.
#[test]
fn who_waits_for_a_supervisor_that_is_killed_goes_on() {
    let Some(lab) = of_root() else { return };
    let (mut run, path) = lab.run_with_log(RDWR);
    run.call("pwrite a 0 1 300").unwrap();
    run.stop_supervisor();
    let stranger = writes_newer_bytes(&path);
    let begun = Instant::now();
    let is_asleep = || {
        // It is in its open, and not only about to be.
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let calls =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("wchan")).ok());
        calls.into_iter().any(|call| call.contains("fanotify"))
    };
    while !is_asleep() && !stranger.is_finished() && begun.elapsed() < Duration::from_secs(2) {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!stranger.is_finished());
    run.kill_supervisor();
    stranger.join().unwrap();
    run.call("sync a").unwrap();
    assert_eq!(run.call("absorbs a"), Ok(0));
    run.kill_database();
}

/// Promise (processes): Without `CAP_SYS_ADMIN` the supervisor makes a file that a process outside
/// opened plain a moment later, and `forebay run`, `--explain` and `status` say so.
#[test]
fn a_supervisor_without_rights_sees_an_open_late_and_says_so() {
    let lab = Lab::of_an_ordinary_user();
    let path = lab.data("a.log");
    let mut run = lab.run();
    assert_eq!(outside_writer(&lab), "noticed_later");
    assert_eq!(run.open("a", &path, RDWR), 1);
    let mut stranger = Command::new("sh");
    // Its own user's: at another's it may not look.
    if let Some(user) = lab.user {
        stranger.uid(user).gid(user);
    }
    let script = r#"cat "$1" >&2 && exec sleep 60 >> "$1""#;
    let mut stranger = stranger
        .args(["-c", script, "sh"])
        .arg(&path)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let mut is_plain = false;
    while !is_plain && begun.elapsed() < Duration::from_secs(20) {
        run.call("pwrite a 0 1 10").unwrap();
        is_plain = run.call("absorbs a") == Ok(0);
    }
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(is_plain);
    run.end();
}
