//! Shared by the tests: a directory of their own, and the program run in it.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

pub mod agents;
pub mod cut;
pub mod databases;
pub mod disk;
pub mod image;
pub mod live_system;
pub mod mariadb;
pub mod postgres;
pub mod pty;
pub mod recovered;
mod sandbox;
pub mod storm;
pub mod writers;

pub use sandbox::{Ran, Sandbox, pools_on_disk};

use forebay_bench::processes::find_program;
use forebay_measure::processes::Watched;
use rustix::process::Signal;
use std::{
    fs::{self, DirEntry},
    io,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

const _: () = assert!(
    forebay_pool::failpoint::BUILT_IN,
    "built without `failpoints`"
);

/// The program under test.
pub const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

/// A command that writes zeros to a log, each write synced: `programs/zeros.py`.
pub const ZEROS: &str = concat!(
    "python3 ",
    env!("CARGO_MANIFEST_DIR"),
    "/tests/programs/zeros.py"
);

/// Options of a Redis that acknowledges what is durable, and has nothing else to write.
pub const DURABLE_REDIS: [&str; 6] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--save",
    "",
];

/// The processes that all threads of a process started.
pub fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    (lists.iter())
        .flat_map(|list| list.split_whitespace())
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// True if a program is installed, as in CI each is; says which one it is if not.
pub fn have(program: &str) -> bool {
    is_there(find_program(program).is_some(), program)
}

/// True if what is `found` is `needed`, as in CI everything is; says what is not installed if not.
#[track_caller]
pub fn is_there(found: bool, needed: &str) -> bool {
    if !found {
        skip(&format!("{needed} is not installed: scripts/setup.sh test"));
    }
    found
}

/// A test is left out for what is `lacking`, which in CI is an error.
#[track_caller]
pub fn skip(lacking: &str) {
    assert!(std::env::var_os("CI").is_none(), "{lacking}");
    println!("skipped: {lacking}");
}

/// A program that was looked for, which in CI must be found; says why it was not.
#[track_caller]
pub fn installed(found: Result<PathBuf, String>) -> Option<PathBuf> {
    found.inspect_err(|why| skip(why)).ok()
}

/// What a program says, which succeeds.
#[track_caller]
pub fn said_by(program: &mut Command) -> String {
    let said = program.output().unwrap();
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

/// True if this is root, who alone can do `this`; says so if not.
pub fn root_can(this: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root can {this}");
    }
    is_root
}

/// Stops processes, each between two system calls.
pub fn stop(processes: &[Watched]) {
    for process in processes {
        process.signal(Signal::STOP);
    }
    let begun = Instant::now();
    for process in processes {
        let tasks = format!("/proc/{}/task", process.pid());
        let runs = |task: io::Result<DirEntry>| {
            let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
            let state = (stat.ok()).and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
            state.is_some_and(|state| !"TZX".contains(state))
        };
        while fs::read_dir(&tasks).is_ok_and(|mut tasks| tasks.any(runs)) {
            assert!(begun.elapsed() < databases::PATIENCE, "{tasks} goes on");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Builds one of `tests/programs`, `name.c`, as `name` in a directory.
pub fn build(name: &str, into: &Path) {
    let source = format!("{}/tests/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    let built = compiler
        .args(["-pthread", "-o", name, &source])
        .current_dir(into);
    assert!(built.status().unwrap().success());
}

/// Builds one of them as a library, `name.so`.
pub fn build_library(name: &str, into: &Path) {
    let source = format!("{}/tests/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    let built = compiler
        .args(["-shared", "-fPIC", "-o", &format!("{name}.so"), &source])
        .current_dir(into);
    assert!(built.status().unwrap().success());
}

/// Copies a program, by one of its own. Had this process the copy open for writing, so would a
/// child that another thread starts at that moment, and the copy could not be executed.
pub fn copy(program: &str, to: &Path) {
    let copied = Command::new("cp").arg(program).arg(to).status().unwrap();
    assert!(copied.success());
}

/// Copies the program under test, and the library that it finds, to where other users can reach
/// them.
pub fn copy_forebay(to: &Path) {
    let dir = Path::new(FOREBAY).parent().unwrap();
    let places = ["libforebay.so", "deps/libforebay.so"].map(|place| dir.join(place));
    let built = places.iter().filter(|place| place.exists());
    let newest = built.max_by_key(|place| place.metadata().unwrap().modified().unwrap());
    copy(newest.unwrap().to_str().unwrap(), &to.join("libforebay.so"));
    copy(FOREBAY, &to.join("forebay"));
}
