//! `forebay doctor DIR`: whether a pool holds what belongs into the files of a directory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox,
    databases::{PATIENCE, small_pool},
};
use forebay_bench::processes::Watched;
use rustix::{
    fs::{XattrFlags, inotify},
    io::Errno,
    process::Signal,
};
use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
};

/// `python3 -c script` in a directory `data` with `*.log` absorbed into `pool`.
fn python_command(sandbox: &Sandbox, pool: &Path, script: &str) -> Command {
    let mut command = sandbox.command("run --absorb *.log --pool");
    let script = format!(
        "import os, signal\nos.makedirs('data/below', exist_ok=True)\n\
         fd = os.open('data/below/a.log', os.O_RDWR | os.O_CREAT, 0o600); os.fsync(fd); os.write(fd, b'a' * 100); os.fsync(fd)\n{script}"
    );
    command.arg(pool).args(["--", "python3", "-c", &script]);
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    command
}

/// Runs it.
fn python(sandbox: &Sandbox, pool: &Path, script: &str) -> Ran {
    Ran::of(python_command(sandbox, pool, script).output().unwrap())
}

const MARK: &str = "user.forebay.pools";
const KILL_BOTH: &str =
    "os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)";

/// Promise (guards): A directory names the pool that may hold records of its files until that is
/// recovered, also if it was made or renamed during the run.
#[test]
fn a_directory_names_the_pool_with_its_records_until_recovery() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let shown = pool.path().display().to_string();
    python(&sandbox, pool.path(), KILL_BOTH);
    let ran = sandbox.run("doctor data");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    for words in [&*shown, "forebay recover", "data/below"] {
        assert!(ran.text().contains(words), "{words}: {}", ran.text());
    }
    let report = sandbox.run("doctor --json data").json();
    assert_eq!(report["is_harmless"], false);
    assert_eq!(report["pools"][0]["state"], "holds");
    assert_eq!(report["pools"][0]["pool"], *shown);

    let mut recover = sandbox.command("recover --pool");
    Ran::of(recover.arg(pool.path()).output().unwrap()).ok();
    let ran = sandbox.run("doctor data").ok();
    assert!(ran.text().contains("no pool holds"), "{}", ran.text());
}

#[test]
fn an_orderly_end_leaves_no_mark_and_a_running_program_is_said() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    // Asked while it runs.
    let script = format!(
        "import subprocess, sys\n\
         said = subprocess.run(['{}', 'doctor', 'data'], capture_output=True, text=True)\n\
         assert said.returncode == 1 and 'is running' in said.stdout, said",
        common::FOREBAY
    );
    python(&sandbox, pool.path(), &script).ok();
    drop(pool);
    let report = sandbox.json("doctor --json data");
    assert_eq!(report["pools"], serde_json::json!([]));
}

#[test]
fn a_pool_that_is_gone_is_told_too() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    python(&sandbox, pool.path(), KILL_BOTH);
    fs::remove_file(pool.path()).unwrap();
    let ran = sandbox.run("doctor data");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.text().contains("--lift"), "{}", ran.text());
}

/// `forebay recover --for data`.
fn recover_for_data(sandbox: &Sandbox) -> Ran {
    sandbox.run("recover --for data")
}

/// Promise: as `a_directory_names_the_pool_with_its_records_until_recovery`.
#[test]
fn a_directory_recreated_during_a_run_is_marked_as_the_first() {
    for made_anew in [
        "import shutil; shutil.rmtree('data/below')",
        "os.rename('data/below', 'data/before')",
    ] {
        let sandbox = Sandbox::new();
        let pool = small_pool();
        let again = format!(
            "os.close(fd)\n{made_anew}\nos.mkdir('data/below')\n\
             fd = os.open('data/below/b.log', os.O_RDWR | os.O_CREAT, 0o600); os.write(fd, b'b' * 100); os.fsync(fd)\n{KILL_BOTH}"
        );
        python(&sandbox, pool.path(), &again);
        let report = sandbox.run("doctor --json data/below").json();
        assert_eq!(report["is_harmless"], false, "{made_anew}: {report}");
        assert_eq!(report["pools"][0]["state"], "holds");
        let ran = sandbox.json("recover --json --for data/below");
        let shown = pool.path().display().to_string();
        assert_eq!(ran["pools"][0]["pool"], shown, "{made_anew}: {ran}");
        sandbox.run("doctor data").ok();
    }
}

/// Promise (guards): A run names the pool itself where a directory cannot.
#[test]
fn a_directory_that_cannot_be_marked_is_complained_of_once() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let below = sandbox.file("data/below");
    fs::create_dir_all(&below).unwrap();
    // Pools that were in memory, and are gone: as many as there is room for.
    let line = "/dev/shm/forebay-gone";
    let fits = |lines: usize| {
        let text = vec![line; lines].join("\n");
        rustix::fs::setxattr(&below, MARK, text.as_bytes(), XattrFlags::empty()).is_ok()
    };
    let lines_max = (1 << 14) / (line.len() + 1);
    assert!((1..=lines_max).rev().any(fits));
    let again = "fd = os.open('data/below/b.log', os.O_RDWR | os.O_CREAT, 0o600); os.write(fd, b'b'); os.fsync(fd)";
    let said = python(&sandbox, pool.path(), again).ok().stderr;
    assert_eq!(said.matches("cannot be marked").count(), 1, "{said}");
    let shown = pool.path().display().to_string();
    for words in ["data/below", MARK, "--lift", &shown] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// A program of a run with a log in `data` which is stopped, and whose supervisor is dead. It is
/// killed in the end.
struct Stopped(Watched);

impl Stopped {
    fn with(sandbox: &Sandbox, pool: &Path) -> Self {
        let pid = sandbox.file("pid");
        let stop = format!(
            "open({pid:?}, 'w').write(str(os.getpid()))\nos.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGSTOP)"
        );
        let mut command = python_command(sandbox, pool, &stop);
        // It has them still when its supervisor is dead.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        assert!(!command.status().unwrap().success());
        let pid = fs::read_to_string(pid).unwrap().parse().unwrap();
        Self(Watched::of(pid).unwrap())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.signal(Signal::KILL);
        assert!(self.0.wait_gone(PATIENCE));
    }
}

/// Promise: as `a_units_recovery_finds_its_directorys_pool_and_lifts_guards`.
#[test]
fn a_directory_is_not_recovered_while_a_runs_rest_uses_the_pool() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let stopped = Stopped::with(&sandbox, pool.path());
    let ran = recover_for_data(&sandbox);
    assert_eq!(ran.code, Some(1), "{}", ran.text());
    let shown = pool.path().display().to_string();
    for words in [&*shown, "is used by python3"] {
        assert!(ran.text().contains(words), "{words}: {}", ran.text());
    }
    drop(stopped);
    recover_for_data(&sandbox).ok();
}

/// Promise: as `a_units_recovery_finds_its_directorys_pool_and_lifts_guards`.
#[test]
fn a_pool_in_use_keeps_no_recovered_database_from_starting() {
    let sandbox = Sandbox::new();
    let other = Sandbox::new();
    let pool = small_pool();
    python(&sandbox, pool.path(), KILL_BOTH);
    let _other = Stopped::with(&other, pool.path());
    let ran = recover_for_data(&sandbox).ok();
    assert!(ran.text().contains("in use"), "{}", ran.text());
    let is_unmarked = || {
        let report = sandbox.json("doctor --json data");
        assert_eq!(report["pools"], serde_json::json!([]));
    };
    is_unmarked();
    // So it is at the end of a run of its own.
    python(&sandbox, pool.path(), "").ok();
    is_unmarked();
    assert_eq!(recover_for_data(&other).code, Some(1));
    let said = other.run("doctor data").fails(1, &[]).text();
    assert!(said.contains("is running"), "{said}");
}

/// Promise (guards): `forebay recover --for DIR` gives up nothing unless told to, and then only
/// pools that are gone.
#[test]
fn only_a_pool_that_is_gone_is_given_up_and_that_is_said() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("data");
    fs::create_dir(&data).unwrap();
    let [gone, damaged] = ["gone.pool", "damaged.pool"].map(|name| sandbox.file(name));
    fs::write(&damaged, "no pool any more").unwrap();
    let mark = format!("{}\n{}", gone.display(), damaged.display());
    rustix::fs::setxattr(&data, MARK, mark.as_bytes(), XattrFlags::empty()).unwrap();
    let lift = "recover --lift --json --for data";
    let report = sandbox.run(lift).fails(1, &[]).json();
    for (list, pool) in [("given_up", "gone.pool"), ("left", "damaged.pool")] {
        let said = report[list].as_array().unwrap();
        assert!(
            said.len() == 1 && said[0].to_string().contains(pool),
            "{report}"
        );
    }
    let report = sandbox.run("doctor --json data").fails(1, &[]).json();
    let left = report["pools"].as_array().unwrap();
    assert_eq!(left.len(), 1, "{report}");
    assert_eq!(left[0]["pool"], damaged.display().to_string());
    // As it says.
    fs::rename(&damaged, sandbox.file("aside")).unwrap();
    let said = sandbox.run("recover --lift --for data").ok().text();
    assert!(
        said.contains("given up") && said.contains("damaged.pool"),
        "{said}"
    );
    sandbox.run("doctor data").ok();
}

/// A flash cache's guard or its tablespace that is no file, in a copy somewhere below.
///
/// Promise (guards): `forebay recover --for DIR` recovers the pools although it cannot tell whether
/// anything newer is left, says so, and fails.
#[test]
fn a_pool_is_recovered_though_a_flash_guard_is_unreadable() {
    for (name, target) in [("ibdata1", "ibdata1"), ("forebay.guard", "elsewhere")] {
        let sandbox = Sandbox::new();
        let pool = small_pool();
        python(&sandbox, pool.path(), KILL_BOTH);
        let copy = sandbox.file("data/copy");
        fs::create_dir(&copy).unwrap();
        symlink(target, copy.join(name)).unwrap();
        let said = ["data/copy", name, "may have newer pages"];
        let report = sandbox.run("recover --json --for data");
        assert_eq!(report.code, Some(1), "{}", report.stderr);
        let report = report.json();
        let lanes = report["pools"][0]["lanes"].as_array().unwrap();
        assert!(!lanes.is_empty(), "{report}");
        let left = report["left"].as_array().unwrap();
        assert_eq!(left.len(), 1, "{report}");
        let left = left[0].as_str().unwrap();
        assert!(said.iter().all(|said| left.contains(said)), "{left}");
        // Nothing but that is left.
        let doctor = sandbox.run("doctor data");
        assert_eq!(doctor.code, Some(1), "{}", doctor.stderr);
        let text = doctor.text();
        assert!(said.iter().all(|said| text.contains(said)), "{text}");
        fs::remove_file(copy.join(name)).unwrap();
        sandbox.run("doctor data").ok();
    }
}

#[test]
fn a_guarded_tablespace_without_a_whole_guard_is_not_harmless() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("data");
    fs::create_dir(&data).unwrap();
    // What each sector of a guard's text begins with.
    fs::write(data.join("ibdata1"), "FOREBAY GUARD: \n").unwrap();
    for command in ["doctor data", "recover --for data"] {
        let _ = fs::remove_file(data.join("forebay.guard"));
        for guard in ["missing", "empty"] {
            let ran = sandbox.run(command);
            assert_eq!(ran.code, Some(1), "{command}, {guard}: {}", ran.stderr);
            for said in ["ibdata1 is guarded", "forebay.guard", "Put that back"] {
                assert!(ran.text().contains(said), "{command}: {}", ran.text());
            }
            fs::write(data.join("forebay.guard"), "").unwrap();
        }
    }
}

#[test]
fn what_a_mark_names_and_is_no_pool_is_not_even_opened() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("data");
    fs::create_dir(&data).unwrap();
    let named = sandbox.file("fifo");
    let made = Command::new("mkfifo").arg(&named).status().unwrap();
    assert!(made.success());
    let mark = named.as_os_str().as_encoded_bytes();
    rustix::fs::setxattr(&data, MARK, mark, XattrFlags::empty()).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &named, inotify::WatchFlags::OPEN).unwrap();
    for command in ["doctor data", "recover --for data"] {
        let ran = sandbox.run(command);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.text().contains("it is no pool"), "{}", ran.text());
        let mut events = [0; 256];
        let opened = rustix::io::read(&watch, &mut events);
        assert_eq!(opened, Err(Errno::AGAIN), "{command}");
    }
}

#[test]
fn an_unreadable_directory_is_named_but_for_lost_and_found() {
    let sandbox = Sandbox::new();
    sandbox.let_in();
    // The program under test may lie where another user cannot go.
    let program = sandbox.file("forebay");
    common::copy(common::FOREBAY, &program);
    let forebay = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).current_dir(sandbox.path());
        if rustix::process::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        Ran::of(command.output().unwrap())
    };
    let mode = |name: &str, mode| {
        fs::set_permissions(sandbox.file(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let closed = |name: &str| {
        fs::create_dir_all(sandbox.file(name)).unwrap();
        mode(name, 0);
    };
    closed("data/lost+found");
    forebay(&["doctor", "data"]).ok();
    forebay(&["recover", "--for", "data"]).ok();
    closed("data/closed");
    for words in [&["doctor", "data"][..], &["recover", "--for", "data"]] {
        let said = ["data/closed: ", "Repeat this as a user who may read it"];
        forebay(words).fails(1, &said);
    }
    // So that they can be removed.
    mode("data/closed", 0o700);
    mode("data/lost+found", 0o700);
}
