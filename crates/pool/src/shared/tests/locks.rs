//! Processes that share the pool's open file, and of which one is killed while it has a lock that
//! all processes wait for: it leaves none to the others.
//!
//! Each is this test's own program, started once more with [`ROLE`] set.

use super::{kills::ALONE, *};
use crate::media::{DescriptorSharing, LockGuard};
use rustix::process::{Signal, getpid, kill_process};
use std::{
    fs::{File, OpenOptions},
    io::{Write, stdin},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::process::ExitStatusExt,
    },
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::Instant,
};

/// The role of a process of these tests: `owner POOL LEDGER WORK STEP`, or `member NUMBER LEDGER
/// WORK STEP STATE MEMORY`. At STEP of WORK it kills itself.
const ROLE: &str = "FOREBAY_TEST_LOCKS";
/// The pool's and a disk's tables' (docs/pool-format.md, "Locks").
const MOMENTARY: [u32; 2] = [0, 1 << 20];
/// After so long a process waits for what never comes.
const LIMIT: Duration = Duration::from_secs(30);

/// Not a test by itself.
#[test]
fn process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["owner", pool, ledger, work, step] => own(pool, ledger, work, step),
        ["member", number, ledger, work, step, state, memory] => {
            let member = join(number.parse().unwrap(), state, memory);
            note(ledger);
            be_member(&member, ledger, work, step);
        }
        _ => panic!("{role}"),
    }
}

fn start(role: &str, input: Stdio) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shared::tests::locks::process", "--nocapture"])
        .env(ROLE, role)
        .stdin(input)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn note(ledger: &str) {
    let mut ledger = OpenOptions::new().append(true).open(ledger).unwrap();
    ledger.write_all(b".").unwrap();
}

fn noted(ledger: &str) -> u64 {
    std::fs::metadata(ledger).unwrap().len()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn end_of(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("a process does not end", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

fn die_at(step: &str) {
    let step = step.to_owned();
    steps::hook(move |passed| {
        if passed == step {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    });
}

/// The lane's owner: sends its open file to a member, which outlives it, and does `work`.
#[expect(
    clippy::zombie_processes,
    reason = "this process ends before its members"
)]
fn own(pool: &str, ledger: &str, work: &str, step: &str) {
    let pool = PoolOptions::new().open(pool).unwrap();
    let lane = lane(&pool, 3);
    // These copies are not closed when a program is executed.
    let inherited = |fd: BorrowedFd<'_>| rustix::io::dup(fd).unwrap();
    let (state, memory) = (
        inherited(lane.state_fd()),
        pool.shared_memory().map(inherited),
    );
    let memory = memory.as_ref().map(|fd| fd.as_raw_fd().to_string());
    let begin = |number: u32, work: &str| {
        let (state, memory) = (state.as_raw_fd(), memory.as_deref().unwrap_or("none"));
        let role = format!("member {number} {ledger} {work} {step} {state} {memory}");
        let child = start(&role, inherited(pool.descriptor().unwrap()).into());
        wait_until("no member joins", || noted(ledger) >= u64::from(number));
        child
    };
    if work == "exclude" {
        begin(1, "stand");
        wait_until("it does not stand there", || noted(ledger) >= 2);
        let looked = end_of(&mut begin(2, "look"));
        assert!(looked.success(), "{looked}");
        return;
    }
    begin(1, "stay");
    if work == "settle" {
        let settled = end_of(&mut begin(2, work));
        assert_eq!(settled.signal(), Some(Signal::KILL.as_raw()), "{settled}");
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    die_at(step);
    match work {
        "grow" => drop(lane.grow()),
        "release" => use_lane(&lane),
        _ => panic!("{work}"),
    }
}

/// By the very open file that the owner has.
fn join(number: u32, state: &str, memory: &str) -> Member {
    let open = |fd: &str| {
        let path = format!("/proc/self/fd/{fd}");
        (OpenOptions::new().read(true).write(true).open(path)).unwrap()
    };
    let pool = stdin().as_fd().try_clone_to_owned().unwrap();
    let memory = Some(memory).filter(|fd| *fd != "none");
    let pool = PoolOptions::new()
        .open_shared("inherited", pool.into(), memory.map(|fd| open(fd).into()))
        .unwrap();
    pool.join(open(state).as_fd(), number).unwrap()
}

/// Does `work`; or stays until the test is over.
fn be_member(member: &Member, ledger: &str, work: &str, step: &str) {
    match work {
        "settle" => die_at(step),
        "stand" => {
            let (step, ledger) = (step.to_owned(), ledger.to_owned());
            steps::hook(move |passed| {
                if passed == step {
                    note(&ledger);
                    stay(&ledger);
                }
            });
        }
        "look" => {
            let is_free = |lock| member.core.media.is_free(lock).unwrap();
            return assert_eq!(MOMENTARY.map(is_free), [false; 2]);
        }
        _ => return stay(ledger),
    }
    member.abandon();
    member.settle().unwrap();
}

fn stay(ledger: &str) {
    while Path::new(ledger).exists() {
        thread::sleep(Duration::from_millis(10));
    }
}

fn use_lane(lane: &SharedLane) {
    append(lane.member(), 1, 100).unwrap();
    let end = lane.seal().unwrap().unwrap();
    lane.release(end);
    assert_eq!(lane.usage().head, end);
}

/// The end of the owner of a lane in the pool at `path`, in which it or a member does `work`.
fn end_of_owner(path: &Path, work: &str, step: &str) -> ExitStatus {
    let ledger = path.with_file_name("ledger");
    File::create(&ledger).unwrap();
    let (pool, ledger) = (path.display(), ledger.display());
    let role = format!("owner {pool} {ledger} {work} {step}");
    end_of(&mut start(&role, Stdio::null()))
}

/// A process is killed at `step` of `work` in a pool whose open file another process has still: a
/// third one uses the pool as if nothing were.
fn leaves_no_lock((_dir, pool): (TempDir, Pool), work: &str, step: &str) {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let path = pool.path().to_owned();
    drop(pool);
    let status = end_of_owner(&path, work, step);
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{status}");
    let (told, done) = mpsc::channel();
    thread::spawn(move || {
        let pool = PoolOptions::new().open(path).unwrap();
        let options = ClaimOptions::new().segments(2);
        let lane = pool.claim_shared(Uuid::new_v4(), &options).unwrap();
        use_lane(&lane);
        assert!(lane.grow() && lane.shrink());
        let error = pool.claim(OWNER, &options).err().unwrap();
        let _ = told.send(error);
    });
    let error = done.recv_timeout(LIMIT).expect("it waits for a lock");
    // The member lives, and the lane is its own still.
    let refused = matches!(error.kind, crate::PoolErrorKind::InUse { .. });
    assert!(refused, "{error}");
}

/// Promise (shared): A process of a shared lane that is killed anywhere holds up no other lane of
/// the pool, although others have its open file.
#[test]
fn an_owner_killed_in_a_disks_tables_leaves_no_lock_to_a_member() {
    leaves_no_lock(disk_pool(8), "release", "disk:tables-locked");
}

/// Promise: as `an_owner_killed_in_a_disks_tables_leaves_no_lock_to_a_member`.
#[test]
fn an_owner_killed_growing_its_lane_leaves_no_pool_or_lane_lock() {
    leaves_no_lock(pool(8), "grow", "pool:segment-taken");
    leaves_no_lock(disk_pool(8), "grow", "pool:segment-taken");
}

/// Promise: as `an_owner_killed_in_a_disks_tables_leaves_no_lock_to_a_member`.
#[test]
fn a_member_killed_settling_the_lane_leaves_no_lock_to_another() {
    leaves_no_lock(disk_pool(8), "settle", "disk:tables-locked");
}

#[test]
fn a_settling_members_locks_exclude_other_members() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let (_dir, pool) = disk_pool(8);
    let status = end_of_owner(pool.path(), "exclude", "disk:tables-locked");
    assert!(status.success(), "{status}");
}

#[test]
fn a_lock_held_when_a_pool_is_first_shared_is_given_back() {
    for lock in MOMENTARY {
        let (_dir, pool) = disk_pool(8);
        let other = PoolOptions::new().open(pool.path()).unwrap();
        let held = LockGuard::take(&pool.core.media, lock, true).unwrap();
        let media = Arc::clone(&pool.core.media);
        let sharing = thread::spawn(move || media.share(DescriptorSharing::IsSent));
        // It waits for the lock. If it did not, it would be over soon.
        let soon = Instant::now() + Duration::from_millis(300);
        while !sharing.is_finished() && Instant::now() < soon {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!other.core.media.is_free(lock).unwrap());
        drop(held);
        wait_until("it waits for ever", || sharing.is_finished());
        sharing.join().unwrap().unwrap();
        assert!(other.core.media.is_free(lock).unwrap());
    }
}
