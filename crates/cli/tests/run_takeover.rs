//! PostgreSQL under `forebay run`: its supervisor and one of its processes are killed together. The
//! postmaster, which absorbs nothing, ends all others and begins new ones, which are no members
//! either; they go on plainly, and a power cut after that costs nothing and leaves nothing to
//! decide.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    databases::{PATIENCE, boot_anew, goes_on, moment, random, small_pool},
    disk::Disk,
    postgres::{backend, check, launch_on, make_table, processes, wait_gone, write_some},
    stop,
    writers::{Writer, all_write},
};
use forebay_bench::{
    data::Random,
    postgres::{client::Connection, server::Server},
    sql::Client,
};
use forebay_measure::processes::Watched;
use forebay_pool::{LaneCheck, PoolOptions};
use rustix::process::Signal;
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Kills the supervisor and a process of the server's at once, amid its work, and waits until the
/// server serves again.
fn kill_both(server: &Server, writers: &mut [Writer], random: &mut Random) {
    let (done, all) = (AtomicBool::new(false), AtomicU64::new(0));
    let wait = moment(random, 300);
    let mut is_stuck = false;
    thread::scope(|scope| {
        // Each until its process ends with all others.
        all_write::<Connection>(scope, writers, server.socket(), (&done, &all));
        let mut victim = Connection::connect(server.socket()).unwrap();
        let process = backend(&mut victim);
        is_stuck |= !goes_on(&all);
        thread::sleep(wait);
        server.outer().signal(Signal::KILL);
        process.signal(Signal::KILL);
        assert!(process.wait_gone(PATIENCE));
        // One that could connect only after that has no process that ends.
        done.store(true, Relaxed);
    });
    assert!(!is_stuck, "no transactions before");
    assert!(server.outer().wait_gone(PATIENCE));
    let begun = Instant::now();
    while Connection::connect(server.socket()).is_err() {
        assert!(begun.elapsed() < PATIENCE, "it does not begin again");
        thread::sleep(Duration::from_millis(5));
    }
    println!(
        "{} acknowledged; it serves after {:?}",
        all.into_inner(),
        begun.elapsed()
    );
}

/// Cuts the file system off amid the work of a server without a supervisor, and ends its processes.
fn cut_off(server: &Server, writers: &mut [Writer], disk: &Disk, random: &mut Random) {
    let all = AtomicU64::new(0);
    let wait = moment(random, 500);
    let mut is_stuck = false;
    thread::scope(|scope| {
        for writer in writers {
            let all = &all;
            let write = move || {
                writer.write::<Connection>(server.socket(), &AtomicBool::new(false), all);
            };
            scope.spawn(write);
        }
        is_stuck |= !goes_on(&all);
        thread::sleep(wait);
        let left = processes(server.launch());
        // A sync that a cut finds in the middle may succeed and have lost what it synced, whatever
        // Forebay does.
        stop(&left);
        disk.cut();
        left.iter().for_each(|one| one.signal(Signal::KILL));
        wait_gone(server, &left);
    });
    assert!(!is_stuck, "no transactions after it began again");
}

/// Records in the pool that a recovery would have to decide about. A lane that a member settled
/// before it ended has none, and is there.
fn records(pool: &Path) -> u64 {
    let pool = PoolOptions::new().open(pool).unwrap();
    let lanes = pool.lanes().into_iter();
    let records = lanes.map(|lane| match pool.check_lane(lane.lane) {
        LaneCheck::Whole { records, .. } => records,
        other => panic!("{other:?}"),
    });
    records.sum()
}

/// On a file system of this kind, so many times and once more.
fn rounds(kind: &str, rounds: usize) {
    let mut random = random(kind);
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let Some(mut disk) = Disk::make(sandbox.path(), kind) else {
        return;
    };
    let Some(mut launch) = launch_on(&disk, &sandbox, &pool) else {
        return;
    };
    let mut writers = Writer::several(4, &mut random);
    for round in 0..rounds {
        boot_anew(&mut launch.environment, round);
        let server = Server::start(&launch).unwrap();
        match round {
            0 => make_table(&server),
            _ => check(&server, &mut writers),
        }
        disk.sync();
        kill_both(&server, &mut writers, &mut random);
        check(&server, &mut writers);
        // Long enough for a replay to see that the files were changed later.
        thread::sleep(Duration::from_millis(300));
        write_some(&server, &mut writers, 50);
        let left = records(pool.path());
        assert_eq!(left, 0, "not settled: {}", server.output());
        cut_off(&server, &mut writers, &disk, &mut random);
        drop(server);
        disk.mount_again();
    }
    boot_anew(&mut launch.environment, rounds);
    let server = Server::start(&launch).unwrap();
    check(&server, &mut writers);
    server.stop().unwrap();
}

/// Promise (processes): The first process that would write past a lane settles it once supervisor
/// and members were killed: a later power cut costs nothing and leaves nothing to decide.
#[test]
fn a_cut_after_supervisor_and_backend_die_costs_nothing_on_ext4() {
    rounds("ext4", 2);
}

/// Promise: as `a_cut_after_supervisor_and_backend_die_costs_nothing_on_ext4`.
#[test]
fn a_cut_after_supervisor_and_backend_die_costs_nothing_on_xfs() {
    rounds("xfs", 2);
}

/// A program whose first process absorbs nothing, and has a lock on a file that its child writes
/// to. It says when the child was promised something; then it goes on alone, writes past the lane
/// to the other file, and says so.
const LOCKING: &str = r#"
import fcntl, os, sys
child = os.fork()
if child == 0:
    for name in "a.log", "b.log":
        file = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(file, b"promised")
        os.fsync(file)
    print("promised", os.getpid(), flush=True)
    sys.stdin.readline()
    os._exit(0)
os.waitpid(child, 0)
lock = os.open("b.log", os.O_RDONLY)
fcntl.lockf(lock, fcntl.LOCK_SH)
before = sorted(os.listdir("/proc/self/fd"))
file = os.open("a.log", os.O_WRONLY | os.O_APPEND)
os.write(file, b", and more")
os.fsync(file)
os.close(file)
print("same" if sorted(os.listdir("/proc/self/fd")) == before else "other", flush=True)
sys.stdin.readline()
"#;

/// Promise (processes): A process that takes a lane over keeps its locks and descriptors.
#[test]
fn who_takes_the_lane_over_keeps_its_locks_and_descriptors() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let mut command = sandbox.command("run --absorb *.log --pool");
    let mut forebay = command
        .arg(pool.path())
        .args(["--", "python3", "-c", LOCKING])
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let input = forebay.stdin.take();
    let mut lines = BufReader::new(forebay.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let promised = line();
    let child = promised.strip_prefix("promised ").unwrap();
    let child = Watched::of(child.parse().unwrap()).unwrap();
    forebay.kill().unwrap();
    forebay.wait().unwrap();
    child.signal(Signal::KILL);
    assert_eq!(line(), "same");
    assert_eq!(records(pool.path()), 0);
    assert_eq!(
        fs::read(sandbox.file("a.log")).unwrap(),
        b"promised, and more"
    );
    let other = "import fcntl; fcntl.lockf(open('b.log', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)";
    let locked = Command::new("python3")
        .args(["-c", other])
        .current_dir(sandbox.path())
        .stderr(Stdio::null())
        .status();
    assert!(
        !locked.unwrap().success(),
        "the lock ended with the taking over"
    );
    // It reads the end of its standard input, and ends.
    drop(input);
    assert!(lines.next().is_none());
}
