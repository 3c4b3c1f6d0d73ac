//! Members that are processes, killed at random moments and at every step.
//!
//! A member is this test's own program, started once more with [`ROLE`] set: it inherits the pool's open file and the lane's state.
//! `FOREBAY_KILLS=n` says how many are killed.

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

/// Set in a member's process: pool, state, ledger, number, step and count at which it kills itself.
const ROLE: &str = "FOREBAY_TEST_MEMBER";

/// Appends for ever; each record's number is in the ledger once it is acknowledged. Not a test by itself.
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
    let pool = PoolOptions::new()
        .open_file("inherited", open(words[0]))
        .unwrap();
    let number: u32 = words[3].parse().unwrap();
    let member = pool.join(open(words[1]).as_fd(), number).unwrap();
    let mut ledger = OpenOptions::new().append(true).open(words[2]).unwrap();
    let (step, mut count) = (words[4].to_owned(), words[5].parse::<u32>().unwrap());
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
        append(&member, id, bytes).unwrap();
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
static ALONE: Mutex<()> = Mutex::new(());

/// What members inherit.
struct Run {
    pool: OwnedFd,
    state: OwnedFd,
    ledger: PathBuf,
}

impl Run {
    fn new(pool: &Pool, lane: &SharedLane, ledger: PathBuf) -> Self {
        File::create(&ledger).unwrap();
        // These copies are not closed when a program is executed.
        let pool = rustix::io::dup(pool.descriptor().unwrap()).unwrap();
        let state = rustix::io::dup(lane.state_fd()).unwrap();
        Self {
            pool,
            state,
            ledger,
        }
    }

    fn start(&self, number: u32, step: &str, count: u64) -> Process {
        let (pool, state) = (self.pool.as_raw_fd(), self.state.as_raw_fd());
        let ledger = self.ledger.display();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "shared::tests::kills::member_process",
                "--nocapture",
            ])
            .env(
                ROLE,
                format!("{pool} {state} {ledger} {number} {step} {count}"),
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

/// Takes complete segments into `drained`, and releases them.
fn drain(lane: &SharedLane, drained: &mut Vec<u64>) {
    if let Some(last) = lane.complete().last() {
        lane.records(|record| {
            if record.header.lsn < last.end {
                drained.push(u64::from_le_bytes(record.payload[..8].try_into().unwrap()));
            }
        });
        lane.release(last.end);
    }
    lane.prepare();
}

#[test]
fn processes_killed_at_every_step_and_at_any_moment_lose_nothing_and_stop_no_other() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let kills = std::env::var("FOREBAY_KILLS").map_or(150, |n| n.parse::<u32>().unwrap());
    let (dir, pool) = pool(8);
    let lane = lane(&pool, 4);
    let run = Run::new(&pool, &lane, dir.path().join("ledger"));
    let steps: Vec<&str> = APPENDING.into_iter().chain(TURNING).collect();
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let (mut drained, mut unburied) = (Vec::new(), Vec::new());
    let mut living: Vec<Process> = Vec::new();
    let (mut started, mut buried) = (0, 0);
    let mut progress = (Instant::now(), 0);
    while buried < kills {
        while living.len() < 3 {
            started += 1;
            let step = steps[started as usize % steps.len()];
            // Some live until they are killed from outside.
            let of_turning = step.starts_with("shared:turn");
            let count = if of_turning {
                1 + next(3)
            } else {
                1 + next(200)
            };
            let step = if next(4) == 0 { "never" } else { step };
            living.push(run.start(started, step, count));
        }
        if next(500) == 0 {
            let at = next(3) as usize;
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
        match next(50) {
            0 => drop(lane.grow()),
            1 => drop(lane.shrink()),
            2 => drop(lane.seal()),
            _ => {}
        }
        drain(&lane, &mut drained);
        lane.wait(lane.turned(), Duration::from_micros(100));
        let now = lane.usage().tail + u64::from(buried);
        if now > progress.1 {
            progress = (Instant::now(), now);
        }
        assert!(
            progress.0.elapsed() < Duration::from_secs(60),
            "the survivors hang"
        );
    }
    // All are killed, and the owner's part of it is dropped: as after the end of the whole run.
    drop(living);
    drop(lane);
    let acknowledged = run.acknowledged();
    let mut found = drained;
    found.extend(recovered(&pool));
    let set: BTreeSet<u64> = found.iter().copied().collect();
    assert_eq!(set.len(), found.len(), "one is there twice");
    assert!(acknowledged.is_subset(&set), "acknowledged and lost");
    assert!(set.len() - acknowledged.len() <= started as usize);
    assert!(acknowledged.len() > kills as usize);
    eprintln!(
        "{} records acknowledged by {started} processes",
        acknowledged.len()
    );
}

#[test]
fn a_lane_is_not_recovered_while_a_member_lives_that_has_the_open_file_and_is_at_once_when_none_does()
 {
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
    let Run {
        pool: inherited,
        state,
        ledger,
    } = run;
    // The owner is gone: it has neither the lane nor the open file any more.
    drop((lane, inherited, state, pool));
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
