//! Members that are processes, killed at random moments and at every step.
//!
//! A member is this test's own program, started once more with [`ROLE`] set: it inherits the pool's
//! open file, its memory if it is on a disk, and the lane's state. `FOREBAY_KILLS=n` says how many
//! are killed in each test.

use super::*;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open},
    time::Timespec,
};
use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Instant,
};

const COMMITTING: [&str; 7] = [
    "shared:commit-begun",
    "shared:commit-led",
    "shared:commit-filled",
    "shared:commit-written",
    "shared:commit-reached",
    "shared:commit-done",
    "shared:commit-left",
];

/// Set in a member's process: pool, its memory or `none`, state, ledger, number, step and count at
/// which it kills itself.
const ROLE: &str = "FOREBAY_TEST_MEMBER";

/// Appends for ever; each record's number is in the ledger once it is acknowledged. Not a test by
/// itself.
#[test]
fn member_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let words: Vec<&str> = role.split(' ').collect();
    let open = |fd: &str| {
        let path = format!("/proc/self/fd/{fd}");
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap()
    };
    // A mapping of its own; the inherited descriptor keeps the lane's lock.
    let memory = Some(words[1]).filter(|memory| *memory != "none");
    let pool = PoolOptions::new()
        .open_shared(
            "inherited",
            open(words[0]),
            memory.map(|fd| open(fd).into()),
        )
        .unwrap();
    let number: u32 = words[4].parse().unwrap();
    let member = pool.join(open(words[2]).as_fd(), number).unwrap();
    let mut ledger = OpenOptions::new().append(true).open(words[3]).unwrap();
    let (step, mut count) = (words[5].to_owned(), words[6].parse::<u32>().unwrap());
    steps::hook(move |passed| {
        if passed == step {
            count -= 1;
            if count == 0 {
                kill_process(getpid(), Signal::KILL).unwrap();
            }
        }
    });
    for turn in 0_u64.. {
        let id = u64::from(number) << 32 | turn;
        let bytes = (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
        let lsn = append(&member, id, bytes).unwrap();
        member.commit(lsn + 1).unwrap();
        ledger.write_all(&id.to_le_bytes()).unwrap();
    }
}

/// A member's process and the descriptor that says when it is gone.
struct Process {
    child: Child,
    pidfd: OwnedFd,
    number: u32,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A child inherits all that another test is about to hand on: one such test at a time.
pub(super) static ALONE: Mutex<()> = Mutex::new(());

/// The state that members inherit.
struct Run {
    pool: OwnedFd,
    memory: Option<OwnedFd>,
    state: OwnedFd,
    ledger: PathBuf,
}

impl Run {
    fn new(pool: &Pool, lane: &SharedLane, ledger: PathBuf) -> Self {
        File::create(&ledger).unwrap();
        // These copies are not closed when a program is executed.
        let memory = pool.shared_memory().map(|fd| rustix::io::dup(fd).unwrap());
        let pool = rustix::io::dup(pool.descriptor().unwrap()).unwrap();
        let state = rustix::io::dup(lane.state_fd()).unwrap();
        Self {
            pool,
            memory,
            state,
            ledger,
        }
    }

    fn start(&self, number: u32, step: &str, count: u64) -> Process {
        let (pool, state) = (self.pool.as_raw_fd(), self.state.as_raw_fd());
        let memory = self.memory.as_ref().map(|fd| fd.as_raw_fd().to_string());
        let memory = memory.as_deref().unwrap_or("none");
        let ledger = self.ledger.display();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "shared::tests::kills::member_process",
                "--nocapture",
            ])
            .env(
                ROLE,
                format!("{pool} {memory} {state} {ledger} {number} {step} {count}"),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        Process {
            child,
            pidfd,
            number,
        }
    }

    fn acknowledged(&self) -> BTreeSet<u64> {
        let bytes = std::fs::read(&self.ledger).unwrap();
        let words = bytes.chunks_exact(8);
        words
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }
}

fn is_gone(pidfd: &OwnedFd) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)).unwrap() == 1
}

/// The records that are durable elsewhere.
#[derive(Default)]
struct Drained {
    records: Vec<u64>,
    /// Their end. On a disk the lane may keep it for a while: see [`SharedLane::release`].
    end: u64,
}

/// Takes complete segments into `drained`, and releases them.
fn drain(lane: &SharedLane, drained: &mut Drained) {
    if let Some(last) = lane.complete().last() {
        lane.records(|record| {
            if (drained.end..last.end).contains(&record.header.lsn) {
                let number = record.payload[..8].try_into().unwrap();
                drained.records.push(u64::from_le_bytes(number));
            }
        });
        drained.end = last.end;
        lane.release(last.end);
    }
    lane.prepare();
}

/// A seeded sequence of numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The owner, beside burying: a supervisor does that in another thread.
fn own(lane: &SharedLane, over: &AtomicBool, drained: &mut Drained) {
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    while !over.load(SeqCst) {
        let seen = lane.turned();
        match numbers.below(50) {
            0 => drop(lane.grow()),
            1 => drop(lane.shrink()),
            2 => drop(lane.seal()),
            3 => lane.commit().unwrap(),
            _ => {}
        }
        drain(lane, drained);
        lane.wait(seen, Duration::from_micros(100));
    }
}

/// Starts processes, three at a time, until so many are dead and buried: how many it has started.
/// The rest are killed in the end.
fn kill_until(kills: u32, lane: &SharedLane, run: &Run, steps: &[&str], passes: u64) -> u32 {
    let mut numbers = Numbers(0x2545_F491_4F6C_DD1D);
    let mut unburied = Vec::new();
    let mut living: Vec<Process> = Vec::new();
    let (mut started, mut buried) = (0, 0);
    let mut progress = (Instant::now(), 0);
    while buried < kills {
        while living.len() < 3 {
            started += 1;
            let step = steps[started as usize % steps.len()];
            // Some live until they are killed from outside.
            let of_turning = step.starts_with("shared:turn");
            let count = 1 + numbers.below(if of_turning { 3 } else { passes });
            let step = if numbers.below(4) == 0 { "never" } else { step };
            living.push(run.start(started, step, count));
        }
        if numbers.below(500) == 0 {
            let at = numbers.below(3) as usize;
            living[at].child.kill().unwrap();
        }
        living.retain_mut(|process| {
            let gone = is_gone(&process.pidfd);
            if gone {
                let status = process.child.wait().unwrap();
                assert!(!status.success() && status.code().is_none(), "{status}");
                unburied.push(process.number);
            }
            !gone
        });
        unburied.retain(|member| {
            let done = lane.bury(*member);
            buried += u32::from(done);
            !done
        });
        thread::sleep(Duration::from_micros(100));
        let now = lane.usage().tail + u64::from(buried);
        if now > progress.1 {
            progress = (Instant::now(), now);
        }
        assert!(
            progress.0.elapsed() < Duration::from_secs(60),
            "the survivors hang"
        );
    }
    started
}

/// Promise: as `a_members_death_beside_a_drain_and_a_waiter_costs_nothing`.
#[test]
fn a_process_killed_anywhere_loses_nothing_and_stops_no_other() {
    let steps: Vec<&str> = APPENDING.into_iter().chain(TURNING).collect();
    kill_many(150, &steps, 200, pool(8));
}

/// Promise: as `a_members_death_in_a_commit_to_a_disk_costs_nothing`.
#[test]
fn a_process_killed_in_a_commit_to_a_disk_loses_nothing() {
    let steps = APPENDING.into_iter().chain(TURNING).chain(COMMITTING);
    kill_many(100, &steps.collect::<Vec<_>>(), 40, disk_pool(8));
}

/// Kills `kills` processes, or as many as the environment says: at one of `steps`, passed up to
/// `passes` times, or from outside.
fn kill_many(kills: u32, steps: &[&str], passes: u64, (dir, pool): (TempDir, Pool)) {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let kills = std::env::var("FOREBAY_KILLS").map_or(kills, |n| n.parse::<u32>().unwrap());
    let lane = lane(&pool, 4);
    let run = Run::new(&pool, &lane, dir.path().join("ledger"));
    let (over, mut drained) = (AtomicBool::new(false), Drained::default());
    let started = thread::scope(|scope| {
        let owner = scope.spawn(|| own(&lane, &over, &mut drained));
        let killing = || kill_until(kills, &lane, &run, steps, passes);
        let started = catch_unwind(AssertUnwindSafe(killing));
        over.store(true, SeqCst);
        owner.join().unwrap();
        started.unwrap_or_else(|thrown| std::panic::resume_unwind(thrown))
    });
    // All are killed, and the owner's part of it is dropped: as after the end of the whole run.
    let acknowledged = run.acknowledged();
    let path = pool.path().to_owned();
    drop((lane, run, pool));
    // What was in memory only, of a pool on a disk, is gone with them.
    let pool = PoolOptions::new().open(path).unwrap();
    let (_lane, recovered) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    let (mut found, end) = (drained.records, drained.end);
    for record in recovered.records().filter(|r| r.header.lsn >= end) {
        found.push(u64::from_le_bytes(record.payload[..8].try_into().unwrap()));
    }
    let set: BTreeSet<u64> = found.iter().copied().collect();
    assert_eq!(set.len(), found.len(), "one is there twice");
    assert!(acknowledged.is_subset(&set), "acknowledged and lost");
    assert!(set.len() - acknowledged.len() <= started as usize);
    assert!(acknowledged.len() > kills as usize);
    eprintln!(
        "{} records acknowledged by {started} processes, of which {kills} were killed and buried before the rest",
        acknowledged.len()
    );
}

/// Promise (shared): A recovery refuses a shared lane while a living member has the pool's open
/// file, and takes the lane at once when none has.
#[test]
fn a_lane_is_recovered_once_no_living_member_has_the_open_file() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let (dir, pool) = pool(8);
    let path = pool.path().to_owned();
    let lane = lane(&pool, 4);
    let run = Run::new(&pool, &lane, dir.path().join("ledger"));
    let mut members: Vec<Process> = (1..3).map(|number| run.start(number, "never", 1)).collect();
    while run.acknowledged().len() < 10 {
        thread::yield_now();
    }
    let ledger = run.ledger.clone();
    // The owner is gone: it has neither the lane nor the open file any more.
    drop((lane, run, pool));
    let pool = PoolOptions::new().open(&path).unwrap();
    let options = ClaimOptions::new();
    while let Some(member) = members.pop() {
        let error = pool.claim(OWNER, &options).err().unwrap();
        assert!(
            matches!(error.kind, crate::PoolErrorKind::InUse { .. }),
            "{error}"
        );
        drop(member);
    }
    let found: BTreeSet<u64> = recovered(&pool).into_iter().collect();
    let bytes = std::fs::read(ledger).unwrap();
    for word in bytes.chunks_exact(8) {
        assert!(found.contains(&u64::from_le_bytes(word.try_into().unwrap())));
    }
}
