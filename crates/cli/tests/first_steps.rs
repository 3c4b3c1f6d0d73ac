//! First steps of a new user: making a pool for a database's user, taking it away again, a command
//! line without `--`, a pool of somebody else's, and a status where nothing runs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox, databases::PATIENCE, pty::PtyScreen};
use forebay_pool::{ClaimOptions, PoolOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader, IoSlice},
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: not root");
    }
    is_root
}

#[test]
fn a_pool_is_made_for_the_user_who_is_named() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox
        .run("pool create p --emulated --size 32MiB --owner nobody")
        .ok();
    let found = fs::metadata(sandbox.file("p")).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (NOBODY, 0o600));
    sandbox
        .run("pool create q --emulated --owner no-such-user")
        .fails(2, &["no user no-such-user"]);
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 1);
}

#[test]
fn nothing_is_left_of_a_pool_that_was_interrupted() {
    let sandbox = Sandbox::on_disk();
    let owners: &[&str] = match is_root() {
        true => &["", "--owner nobody"],
        false => &[""],
    };
    let signals = [Signal::INT, Signal::TERM, Signal::HUP];
    let all = signals
        .into_iter()
        .flat_map(|signal| owners.iter().map(move |owner| (signal, owner)));
    for (signal, owner) in all {
        let mut making = sandbox
            .command(&format!("pool create p --disk --size 2GiB {owner}"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while fs::read_dir(sandbox.path()).unwrap().count() == 0 {
            assert!(begun.elapsed() < PATIENCE, "nothing is made");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(20));
        kill_process(Pid::from_child(&making), signal).unwrap();
        assert_eq!(making.wait().unwrap().code(), Some(128 + signal.as_raw()));
        assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_terminal_shows_how_far_a_pool_is_until_it_is_interrupted() {
    let sandbox = Sandbox::on_disk();
    let command = sandbox.command("pool create p --disk --size 2GiB");
    let mut screen = PtyScreen::start(&command, 24, 80);
    screen.until("a bar", |text| {
        text.contains("making the pool [") && text.contains("/2.00 GiB")
    });
    screen.press("\x03");
    assert_eq!(screen.ended().code(), Some(130), "{}", screen.text());
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
}

#[test]
fn a_pool_is_removed_once_it_holds_nothing_and_nobody_uses_it() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let pool = PoolOptions::new().open(sandbox.file("p")).unwrap();
    let claim = ClaimOptions::new().label("the tests' lane");
    let (lane, recovered) = pool.claim(Uuid::new_v4(), &claim).unwrap();
    drop(recovered);
    lane.append(1, &[IoSlice::new(&[1; 100])]).unwrap();
    sandbox
        .run("pool remove p")
        .fails(1, &["is used by the tests' lane"]);
    drop((lane, pool));
    sandbox
        .run("pool remove p")
        .fails(1, &["holds 1 records", "forebay recover --pool"]);
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 1);
    sandbox
        .run("pool create empty --emulated --size 32MiB")
        .ok();
    let early = PoolOptions::new()
        .emulated(true)
        .open(sandbox.file("empty"));
    let removed = sandbox.json("pool remove empty --json");
    assert_eq!(removed["removed"], "empty");
    // Who had it open writes nothing to what has no name any more.
    let late = early.unwrap().claim(Uuid::new_v4(), &ClaimOptions::new());
    assert!(late.err().unwrap().to_string().contains("was removed"));
    fs::write(sandbox.file("notes"), "mine").unwrap();
    sandbox.run("pool remove notes").fails(1, &["notes"]);
    sandbox.run("pool remove empty").fails(1, &["empty"]);
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 2);
}

#[test]
fn a_pool_of_another_user_is_named_with_its_owner() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.let_in();
    sandbox.pool();
    // Other users may not reach the tests' own program.
    common::copy_forebay(sandbox.path());
    fs::create_dir(sandbox.file("run")).unwrap();
    chown(sandbox.file("run"), Some(NOBODY), Some(NOBODY)).unwrap();
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(sandbox.file("forebay"));
        command
            .args(words)
            .current_dir(sandbox.path())
            .uid(NOBODY)
            .gid(NOBODY);
        command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        Ran::of(command.output().unwrap())
    };
    for words in [
        &["pool", "status", "p"][..],
        &["run", "--pool", "p", "--absorb", "*.log", "--", "true"],
    ] {
        as_nobody(words).fails(1, &["belongs to root", "chown nobody p"]);
    }
}

#[test]
fn a_program_is_run_without_dashes_before_it() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let mut command = sandbox.command("run --pool p --profile generic --absorb *.log sh -c");
    command.arg("echo \"$0 $1\"; exit 7").args(["--pool", "-x"]);
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(7), "{}", ran.stderr);
    assert_eq!(ran.text(), "--pool -x\n");
    sandbox
        .run("run --no-such-option sh")
        .fails(2, &["--no-such-option"]);
}

#[test]
fn a_clean_end_says_that_all_is_synced() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let run = |script: &str| {
        let line = "run --pool p --profile generic --absorb *.log -- python3 -c";
        let mut command = sandbox.command(line);
        command
            .arg(script)
            .env("FOREBAY_RUN_DIR", sandbox.file("run"));
        Ran::of(command.output().unwrap()).ok().stderr
    };
    let said = run("import os
fd = os.open('a.log', os.O_WRONLY | os.O_CREAT)
os.fsync(fd)
os.write(fd, b'acknowledged')
os.fsync(fd)");
    for words in [
        "synced write to 1 absorbed file is on the disk",
        "2 syncs were saved",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let check = sandbox.json("pool check p --json");
    assert!(check["lanes"].as_array().unwrap().is_empty(), "{check}");
    assert!(!run("pass").contains("is on the disk"));
}

#[test]
fn a_clean_end_vouches_for_no_file_that_became_plain() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let written = |names: &str| {
        let script = "import os, sys, time
for name in sys.argv[1:]:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT)
    os.write(fd, b'absorbed')
    os.fsync(fd)
open('ready', 'w').close()
while not os.path.exists('opened'):
    time.sleep(0.02)
os.write(fd, b'after that')";
        let line = "run --pool p --profile generic --absorb *.log -- python3 -c";
        let mut command = sandbox.command(line);
        command
            .arg(script)
            .args(names.split(' '))
            .env("FOREBAY_RUN_DIR", sandbox.file("run"))
            .stderr(std::process::Stdio::piped());
        let run = command.spawn().unwrap();
        while !sandbox.file("ready").exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        // The last one, by somebody outside.
        let last = sandbox.file(names.rsplit(' ').next().unwrap());
        let outside = std::fs::OpenOptions::new().append(true).open(last).unwrap();
        std::fs::write(sandbox.file("opened"), "").unwrap();
        let ran = Ran::of(run.wait_with_output().unwrap());
        drop(outside);
        for it in ["ready", "opened"] {
            std::fs::remove_file(sandbox.file(it)).unwrap();
        }
        ran.stderr
    };
    let said = written("stays.log plain.log");
    for words in [
        "synced write to 1 absorbed file is on the disk",
        "; 1 became plain",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let said = written("alone.log");
    assert!(
        said.contains("has ended: 1 absorbed file became plain"),
        "{said}"
    );
    assert!(!said.contains("is on the disk"), "{said}");
}

#[test]
fn a_status_without_a_run_says_where_it_looked() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command("status");
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let text = Ran::of(command.output().unwrap()).ok().text();
    for words in [
        "nothing runs under forebay",
        "run, by their notes",
        "/dev/shm",
        "FOREBAY_RUN_DIR",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_watched_status_has_no_control_codes_in_a_pipe() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command("status --watch");
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let mut watching = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let lines: Vec<String> = lines.take(4).map(Result::unwrap).collect();
    watching.kill().unwrap();
    watching.wait().unwrap();
    assert!(
        lines
            .iter()
            .filter(|line| line.starts_with("nothing runs"))
            .count()
            == 2,
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| !line.contains('\x1b')), "{lines:?}");
}
