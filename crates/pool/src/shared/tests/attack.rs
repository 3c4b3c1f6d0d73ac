//! Attacks on a shared lane: an attacker, or a member that is out of its mind.

use super::*;
use crate::{
    AppendError,
    media::{wait, wake},
    shared::state::SharedState,
};
use rustix::io::pwrite;

#[test]
fn waking_wakes_every_sleeper_and_not_one_only() {
    let counter = AtomicU32::new(0);
    let (told, woken) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..5 {
            let (told, counter) = (told.clone(), &counter);
            scope.spawn(move || {
                // Sleeps for no reason are over at once.
                for _ in 0..3 {
                    wait(counter, 0, Duration::from_secs(40));
                }
                told.send(()).unwrap();
            });
        }
        thread::sleep(Duration::from_millis(100));
        wake(&counter);
        for _ in 0..5 {
            woken.recv_timeout(Duration::from_secs(30)).unwrap();
        }
    });
}

#[test]
fn a_segment_full_to_its_last_line_is_kept_till_another_is_open() {
    let (_dir, pool) = pool(3);
    let lane = lane(&pool, 3);
    let per_segment = (SEGMENT - 64) / record_bytes(1000);
    assert_eq!(per_segment * record_bytes(1000), SEGMENT - 64);
    for number in 0..per_segment {
        append(lane.member(), number, 1000).unwrap();
    }
    assert_eq!(lane.complete(), []);
    lane.release(SEGMENT);
    append(lane.member(), per_segment, 1000).unwrap();
    assert_eq!(lane.complete().len(), 1);
    lane.release(SEGMENT);
    append(lane.member(), per_segment + 1, 1000).unwrap();
    drop(lane);
    assert_eq!(recovered(&pool), [per_segment, per_segment + 1]);
}

#[test]
fn a_lane_of_one_segment_gets_two() {
    let (_dir, pool) = pool(3);
    let lane = lane(&pool, 1);
    assert_eq!(lane.usage().segments, 2);
    for number in 0..100 {
        append(lane.member(), number, 1000).unwrap();
        for segment in lane.complete() {
            lane.release(segment.end);
        }
    }
}

/// Member 1 dies with a hole of its own.
fn with_a_hole(lane: &SharedLane, pool: &Pool) {
    quietly();
    let dead = pool.join(lane.state_fd(), 1).unwrap();
    assert!(dying("shared:claimed", 1, || drop(append(&dead, 1, 100))));
}

/// Promise (shared): The owner of a shared lane never waits for a member.
#[test]
fn an_owner_ends_a_segment_behind_a_hole_without_waiting() {
    let (_dir, pool) = pool(4);
    let lane = lane(&pool, 4);
    append(lane.member(), 0, 100).unwrap();
    with_a_hole(&lane, &pool);
    assert_eq!(lane.seal().unwrap(), Some(SEGMENT));
    assert_eq!(lane.complete(), []);
    assert!(lane.bury(1));
    assert_eq!(lane.complete().len(), 1);
    append(lane.member(), 2, 100).unwrap();
    drop(lane);
    assert_eq!(recovered(&pool), [0, 2]);
}

/// Promise (shared): A member whose owner is gone does not wait forever once one of the members has
/// abandoned the lane.
#[test]
fn appends_behind_a_hole_end_when_an_orphan_lane_is_abandoned() {
    let (_dir, pool) = pool(4);
    let lane = lane(&pool, 4);
    with_a_hole(&lane, &pool);
    let (started, started_all) = mpsc::channel();
    thread::scope(|scope| {
        let waiting: Vec<_> = (2..6)
            .map(|number| {
                let member = pool.join(lane.state_fd(), number).unwrap();
                let started = started.clone();
                scope.spawn(move || {
                    let started = std::cell::Cell::new(Some(started));
                    steps::hook(move |step| {
                        if let Some(told) = started.take().filter(|_| step == "shared:written") {
                            told.send(()).unwrap();
                        }
                    });
                    append(&member, u64::from(number), 100)
                })
            })
            .collect();
        drop(started);
        let _ = started_all.iter().count();
        lane.member().abandon();
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), Err(AppendError::Closed));
        }
    });
    assert_eq!(append(lane.member(), 9, 100), Err(AppendError::Closed));
}

#[test]
fn a_member_of_another_pool_is_refused() {
    let ((_one, pool_a), (_two, pool_b)) = (pool(2), pool(2));
    let lane = lane(&pool_a, 2);
    let error = pool_b.join(lane.state_fd(), 1).err().unwrap().to_string();
    assert!(error.contains("the shared lane is in pool"), "{error}");
    for number in [0, 1 << 20] {
        assert!(pool_a.join(lane.state_fd(), number).is_err());
    }
}

/// Everything that an owner does.
fn owner_does_all(lane: &SharedLane) {
    let _ = (lane.prepare(), lane.usage(), lane.seal(), lane.turned());
    let _ = (lane.bury(3), lane.grow(), lane.shrink(), lane.commit());
    lane.records(|_| {});
    if let Some(last) = lane.complete().last() {
        lane.release(last.end);
    }
    lane.release(u64::MAX);
    lane.prepare();
    let _ = (lane.bury(4), lane.usage(), lane.complete());
}

/// Promise (shared): Nonsense that a member writes into the shared memory makes neither the owner
/// nor another member panic, and never makes the owner wait forever.
#[test]
fn nonsense_in_shared_memory_stops_no_owner_nor_panics_a_member() {
    let mut random = 0x5EED_u64;
    let mut next = || {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        random >> 20
    };
    for round in 0..440 {
        let (_dir, pool) = match round < 400 {
            true => pool(6),
            false => disk_pool(6),
        };
        let lane = lane(&pool, 4);
        let member = pool.join(lane.state_fd(), 1).unwrap();
        for number in 0..20 {
            append(&member, number, 700).unwrap();
            lane.prepare();
        }
        // Of the first page, which holds tail, mark and slots, mostly one word; or many words
        // anywhere.
        let (words, reach) = if round % 2 == 0 {
            (1, 200)
        } else {
            (300, size_of::<SharedState>() / 8)
        };
        for _ in 0..words {
            // Behind the version.
            let at = 8 + next() % (reach as u64 - 1) * 8;
            let tail = lane.usage().tail;
            let word = match next() % 6 {
                0 => u64::MAX - next() % 3,
                1 => next() << 40 | next(),
                2 => tail.wrapping_add(next() % 8192),
                3 => tail.wrapping_sub(next() % 65536),
                4 => 1 << (next() % 64),
                _ => 0,
            };
            pwrite(lane.state_fd(), &word.to_le_bytes(), at).unwrap();
        }
        owner_does_all(&lane);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (member, over) = (&member, &over);
            scope.spawn(move || {
                for number in 0..10 {
                    let segment = member.segment();
                    let _ = segment.map(|segment| {
                        let lsn = member.append_in(segment, 7, &[IoSlice::new(&[number; 300])]);
                        let _ = lsn.map(|lsn| member.commit(lsn.unwrap_or(u64::MAX)));
                        member.next_segment(segment)
                    });
                }
                over.store(true, SeqCst);
            });
            for turn in 0.. {
                owner_does_all(&lane);
                // It may wait for a record that there is not: then the owner ends it.
                if over.load(SeqCst) {
                    break;
                }
                if turn > 3 {
                    lane.member().abandon();
                }
            }
        });
        lane.close();
        owner_does_all(&lane);
        let _ = lane.give_back();
    }
}
