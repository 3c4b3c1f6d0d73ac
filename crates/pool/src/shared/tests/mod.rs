//! Every moment at which a member can die, beside every moment at which another can stand still;
//! and many at random.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod attack;
mod explore;
mod kills;
mod known;
mod locks;
mod power;
mod stopped;

use super::{Member, SharedLane};
use crate::{ClaimOptions, Pool, PoolOptions, format::record::record_bytes, steps};
use std::{
    collections::BTreeSet,
    io::IoSlice,
    panic::{AssertUnwindSafe, catch_unwind, panic_any},
    sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc,
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;
use uuid::Uuid;

const OWNER: Uuid = Uuid::from_u128(0x0A);
const SEGMENT: u64 = 16 << 10;

/// Thrown at a member's death.
struct Died;

fn pool(segments: u64) -> (TempDir, Pool) {
    let dir = tempfile::tempdir().unwrap();
    let options = PoolOptions::new()
        .size((segments + 2) * SEGMENT)
        .segment_size(SEGMENT)
        .lanes(2)
        .emulated(true);
    let pool = options.create(dir.path().join("pool")).unwrap();
    (dir, pool)
}

/// The directory of this program: on a disk.
fn target() -> std::path::PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().to_owned()
}

/// On a disk, of which nothing in memory is a part.
fn disk_pool(segments: u64) -> (TempDir, Pool) {
    let dir = tempfile::tempdir_in(target()).unwrap();
    let options = PoolOptions::new()
        .size((segments + 2) * SEGMENT)
        .segment_size(SEGMENT)
        .lanes(2)
        .on_disk(true);
    let pool = options.create(dir.path().join("pool")).unwrap();
    (dir, pool)
}

fn lane(pool: &Pool, buffers: u16) -> SharedLane {
    let options = ClaimOptions::new().segments(buffers);
    pool.claim_shared(OWNER, &options).unwrap()
}

fn append(member: &Member, number: u64, bytes: usize) -> Result<u64, crate::AppendError> {
    let mut payload = vec![number as u8; bytes.max(8)];
    payload[..8].copy_from_slice(&number.to_le_bytes());
    member.append(7, &[IoSlice::new(&payload)])
}

/// The numbers of the records that a recovery finds; all are whole.
fn recovered(pool: &Pool) -> Vec<u64> {
    let (_lane, recovered) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    let number = |payload: &[u8]| {
        let number = u64::from_le_bytes(payload[..8].try_into().unwrap());
        assert!(payload[8..].iter().all(|byte| *byte == number as u8));
        number
    };
    recovered.records().map(|r| number(r.payload)).collect()
}

/// Runs `work` on this thread, which dies the `count`-th time that it passes `step`. True if it
/// did.
fn dying(step: &'static str, mut count: u32, work: impl FnOnce()) -> bool {
    steps::hook(move |passed| {
        if passed == step {
            count -= 1;
            if count == 0 {
                panic_any(Died);
            }
        }
    });
    let done = catch_unwind(AssertUnwindSafe(work));
    steps::unhook();
    done.is_err_and(|thrown| thrown.is::<Died>())
}

const APPENDING: [&str; 5] = [
    "shared:announced",
    "shared:reserved",
    "shared:claimed",
    "shared:written",
    "shared:published",
];
const TURNING: [&str; 6] = [
    "shared:turn-announced",
    "shared:turned",
    "shared:turn-claimed",
    "shared:turn-voided",
    "shared:turn-half",
    "shared:published",
];

/// Steps at which a writer has announced itself, and its reservation cannot be told.
const UNCLAIMED: [&str; 4] = [
    "shared:announced",
    "shared:reserved",
    "shared:turn-announced",
    "shared:turned",
];

fn quietly() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<Died>() {
                default(info);
            }
        }));
    });
}

#[test]
fn what_members_append_is_recovered_in_order() {
    let (_dir, pool) = pool(4);
    let lane = lane(&pool, 4);
    let other = pool.join(lane.state_fd(), 1).unwrap();
    for number in 0..100 {
        let member = if number % 2 == 0 {
            lane.member()
        } else {
            &other
        };
        append(member, number, 200).unwrap();
        lane.prepare();
    }
    let mut seen = 0;
    lane.records(|record| {
        assert_eq!(record.payload[..8], u64::to_le_bytes(seen));
        seen += 1;
    });
    assert_eq!(seen, 100);
    drop((other, lane));
    assert_eq!(recovered(&pool), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_drained_lane_goes_round_and_is_given_back_when_empty() {
    let (_dir, pool) = pool(3);
    let lane = lane(&pool, 3);
    for number in 0..1000 {
        append(lane.member(), number, 300).unwrap();
        for segment in lane.complete() {
            lane.release(segment.end);
        }
        lane.prepare();
    }
    let end = lane.seal().unwrap().unwrap();
    assert!(lane.complete().iter().any(|segment| segment.end == end));
    lane.release(end);
    assert!(lane.give_back());
    drop(lane);
    assert_eq!(recovered(&pool), [0_u64; 0]);
}

#[test]
fn a_full_lane_has_members_wait_and_gives_no_segment_twice() {
    let (_dir, pool) = pool(2);
    let lane = lane(&pool, 2);
    let member = lane.member();
    let mut number = 0;
    loop {
        let segment = member.segment().unwrap();
        let payload = [0; 1000];
        let done = member.append_in(segment, 7, &[IoSlice::new(&payload)]);
        if done.unwrap().is_some() {
            number += 1;
        } else if member.next_segment(segment).unwrap().is_none() {
            break;
        }
        lane.prepare();
    }
    assert_eq!(number, 2 * (SEGMENT - 64) / record_bytes(1000));
    let first = lane.complete()[0];
    lane.release(first.end);
    assert_eq!(
        member.next_segment(first.end).unwrap(),
        Some(first.end + SEGMENT)
    );
}

/// A member dies at `dies`, another stands at `stands` meanwhile and goes on later: the owner fills
/// the hole, what was acknowledged is there, and the log goes on.
fn dies_beside(dies: &'static str, stands: &'static str, fill: usize) {
    let (_dir, pool) = pool(4);
    let lane = lane(&pool, 4);
    let [dead, still] = [1, 2].map(|number| pool.join(lane.state_fd(), number).unwrap());
    for number in 0..fill {
        append(lane.member(), number as u64, 400).unwrap();
    }
    let (reached, go) = (mpsc::channel(), mpsc::channel::<()>());
    let acknowledged = AtomicU64::new(0);
    thread::scope(|scope| {
        let (told, wait) = (reached.0, go.1);
        let (still, acknowledged) = (&still, &acknowledged);
        scope.spawn(move || {
            let mut once = Some((told.clone(), wait));
            steps::hook(move |passed| {
                if passed == stands
                    && let Some((told, wait)) = once.take()
                {
                    told.send(()).unwrap();
                    wait.recv().unwrap();
                }
            });
            append(still, 1000, 400).unwrap();
            acknowledged.store(1, SeqCst);
            steps::unhook();
            // It may not have passed that step.
            let _ = told.send(());
        });
        reached.1.recv().unwrap();
        let died = thread::scope(|scope| {
            let work = || dying(dies, 1, || drop(append(&dead, 2000, 400)));
            let thread = scope.spawn(work);
            // If it waits for the one that stands still, it is not to die.
            let deadline = std::time::Instant::now() + Duration::from_millis(300);
            while !thread.is_finished() && std::time::Instant::now() < deadline {
                thread::yield_now();
            }
            let waits = !thread.is_finished();
            if waits {
                // A thread that was only slow is beyond the step that waits.
                let _ = go.0.send(());
            }
            (thread.join().unwrap(), waits)
        });
        if died.0 && !died.1 {
            let buried = lane.bury(1);
            // First, or a failure would wait for it for ever.
            let _ = go.0.send(());
            assert!(
                buried || UNCLAIMED.contains(&stands),
                "{dies} beside {stands}"
            );
            while !lane.bury(1) {
                thread::yield_now();
            }
        } else if died.0 {
            while !lane.bury(1) {
                thread::yield_now();
            }
        } else {
            let _ = go.0.send(());
        }
    });
    assert_eq!(acknowledged.load(SeqCst), 1, "{dies} beside {stands}");
    append(lane.member(), 3000, 400).unwrap();
    drop((dead, still, lane));
    let found = recovered(&pool);
    let expected: BTreeSet<u64> = (0..fill as u64).chain([1000, 3000]).collect();
    let unacknowledged: BTreeSet<u64> = [2000].into();
    let found_set: BTreeSet<u64> = found.iter().copied().collect();
    assert_eq!(
        found.len(),
        found_set.len(),
        "{dies} beside {stands}: one twice"
    );
    assert!(expected.is_subset(&found_set), "{dies} beside {stands}");
    assert!(
        found_set.is_subset(&expected.union(&unacknowledged).copied().collect()),
        "{dies} beside {stands}"
    );
}

/// Promise: as `a_members_death_beside_a_drain_and_a_waiter_costs_nothing`.
#[test]
fn a_member_may_die_appending_beside_one_that_stands_anywhere() {
    quietly();
    for dies in APPENDING {
        for stands in APPENDING {
            dies_beside(dies, stands, 3);
        }
    }
}

/// Promise: as `a_members_death_beside_a_drain_and_a_waiter_costs_nothing`.
#[test]
fn a_member_may_die_leaving_a_full_segment_beside_any_other() {
    quietly();
    let full = ((SEGMENT - 64) / record_bytes(400)) as usize;
    for dies in TURNING.into_iter().chain(APPENDING) {
        for stands in TURNING.into_iter().chain(APPENDING) {
            dies_beside(dies, stands, full);
        }
    }
}

/// Promise: as `a_members_death_beside_a_drain_and_a_waiter_costs_nothing`.
#[test]
fn members_dying_at_random_cost_no_record_and_stop_no_other() {
    quietly();
    let (_dir, pool) = pool(4);
    let lane = lane(&pool, 4);
    let acknowledged = Mutex::new(BTreeSet::new());
    let drained = Mutex::new(Vec::new());
    let (numbers, members) = (AtomicU64::new(0), AtomicU32::new(0));
    let deaths = AtomicU32::new(0);
    let over = AtomicBool::new(false);
    let (died, graves) = mpsc::channel();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..6_u64)
            .map(|worker| {
                let (pool, lane, acknowledged) = (&pool, &lane, &acknowledged);
                let (numbers, members, deaths) = (&numbers, &members, &deaths);
                let died = died.clone();
                scope.spawn(move || {
                    let mut random = worker * 0x9E37_79B9 + 1;
                    for _ in 0..60 {
                        let number = members.fetch_add(1, SeqCst) + 1;
                        let member = pool.join(lane.state_fd(), number).unwrap();
                        let mut left = 20 + worker * 7 + random % 200;
                        steps::hook(move |_| {
                            left -= 1;
                            if left == 0 {
                                panic_any(Died);
                            }
                            if left % 17 == 0 {
                                thread::yield_now();
                            }
                        });
                        let _ = catch_unwind(AssertUnwindSafe(|| {
                            loop {
                                let number = numbers.fetch_add(1, SeqCst);
                                random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                                append(&member, number, (random >> 40) as usize % 1500).unwrap();
                                acknowledged.lock().unwrap().insert(number);
                            }
                        }));
                        steps::unhook();
                        deaths.fetch_add(1, Relaxed);
                        died.send(number).unwrap();
                    }
                })
            })
            .collect();
        drop(died);
        let (lane, over, drained) = (&lane, &over, &drained);
        let owner = scope.spawn(move || {
            let mut unburied: Vec<u32> = Vec::new();
            while !over.load(SeqCst) {
                let seen = lane.turned();
                unburied.extend(graves.try_iter());
                unburied.retain(|member| !lane.bury(*member));
                if let Some(last) = lane.complete().last() {
                    lane.records(|record| {
                        if record.header.lsn < last.end {
                            let number = record.payload[..8].try_into().unwrap();
                            drained.lock().unwrap().push(u64::from_le_bytes(number));
                        }
                    });
                    lane.release(last.end);
                }
                lane.prepare();
                lane.wait(seen, Duration::from_micros(200));
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        over.store(true, SeqCst);
        owner.join().unwrap();
    });
    drop(lane);
    let mut found = drained.into_inner().unwrap();
    found.extend(recovered(&pool));
    let set: BTreeSet<u64> = found.iter().copied().collect();
    assert_eq!(set.len(), found.len(), "one is there twice");
    let acknowledged = acknowledged.into_inner().unwrap();
    assert!(acknowledged.is_subset(&set));
    assert!(set.len() <= acknowledged.len() + deaths.load(SeqCst) as usize);
    assert_eq!(deaths.load(SeqCst), 360);
}
