//! Power cuts: at every store and fence of members, their deaths, their burial, segments prepared,
//! begun, released, taken and given back.
//!
//! `FOREBAY_SEED=n` repeats the choices of a failure, though not the interleaving of its threads.

use super::{known::*, *};
use crate::media::{Media, SimMedia};
use forebay_random::Rng;
use std::sync::Arc;

const WORKERS: u64 = 3;

/// Runs `test` with seeds, and prints the one that fails.
fn with_seeds(count: u64, test: impl Fn(&mut Rng)) {
    quietly();
    let given = std::env::var("FOREBAY_SEED").ok();
    let cases = std::env::var("PROPTEST_CASES").map_or(256, |n| n.parse().unwrap());
    let first = given.map_or_else(
        || {
            let now = std::time::SystemTime::now();
            now.duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_nanos() as u64
        },
        |seed| seed.parse().unwrap(),
    );
    for seed in (0..(count * cases / 256).max(1)).map(|n| first.wrapping_add(n)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(&mut Rng(seed)))) {
            eprintln!("FOREBAY_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// A worker appends under one member's number after another, and dies now and then.
fn work(
    sim: &SimMedia,
    pool: &Pool,
    lane: &SharedLane,
    worker: u64,
    seed: u64,
    died: &mpsc::Sender<u32>,
) {
    let mut rng = Rng(seed);
    let mut turn = 0;
    for life in 0..3 {
        // A thread each: what a dead one stored without a fence stays in flight.
        thread::scope(|scope| {
            scope.spawn(|| {
                let number = (worker * 3 + life + 1) as u32;
                let member = pool.join(lane.state_fd(), number).unwrap();
                let (mut left, mut pace) = (4 + rng.below(80), Rng(rng.below(1 << 40)));
                steps::hook(move |_| {
                    left -= 1;
                    if left == 0 {
                        panic_any(Died);
                    }
                    if pace.below(3) == 0 {
                        thread::sleep(Duration::from_micros(pace.below(300)));
                    }
                });
                let done = catch_unwind(AssertUnwindSafe(|| {
                    for _ in 0..1 + rng.below(6) {
                        let id = worker << 32 | turn;
                        turn += 1;
                        let most = if rng.below(3) == 0 { 2000 } else { 200 };
                        let bytes = payload(id, rng.below(most));
                        let lsn = member.append(7, &[IoSlice::new(&bytes)]).unwrap();
                        if rng.below(4) > 0 {
                            member.commit(lsn + 1).unwrap();
                            sim.note(id);
                        } else if !member.needs_commit() {
                            sim.note(id);
                        }
                    }
                }));
                steps::unhook();
                if let Err(thrown) = done {
                    assert!(thrown.is::<Died>());
                    died.send(number).unwrap();
                }
            });
        });
    }
}

/// The owner buries, drains, releases, takes segments and gives them back.
fn own(
    sim: &SimMedia,
    lane: &SharedLane,
    rng: &mut Rng,
    graves: &mpsc::Receiver<u32>,
    over: &AtomicBool,
) {
    let mut unburied: Vec<u32> = Vec::new();
    let has_drain = rng.below(4) != 0;
    while !over.load(SeqCst) {
        unburied.extend(graves.try_iter());
        unburied.retain(|member| !lane.bury(*member));
        match rng.below(6) {
            0 => drop(lane.grow()),
            1 => drop(lane.shrink()),
            2 => drop(lane.seal()),
            _ => {}
        }
        if has_drain && let Some(last) = lane.complete().last() {
            lane.records(|record| {
                if record.header.lsn < last.end {
                    sim.note(DRAINED | number_of(record.payload));
                }
            });
            lane.release(last.end);
        } else if !has_drain {
            // Or its members wait for ever.
            let _ = lane.grow();
            if !lane.prepare() && lane.usage().segments_used == lane.usage().segments {
                lane.close();
            }
        }
        lane.prepare();
        lane.wait(lane.turned(), Duration::from_micros(200));
    }
}

/// One run of a shared lane with three members at a time.
fn run(sim: &Arc<SimMedia>, rng: &mut Rng) {
    let pool = open(sim);
    let options = ClaimOptions::new().segments(2 + rng.below(3) as u16);
    let lane = pool.claim_shared(OWNER, &options).unwrap();
    let (died, graves) = mpsc::channel();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (seed, died) = (rng.below(1 << 50), died.clone());
                let (pool, lane) = (&pool, &lane);
                scope.spawn(move || {
                    let work = || work(sim, pool, lane, worker, seed, &died);
                    // A lane that is closed ends them.
                    let _ = catch_unwind(AssertUnwindSafe(work));
                })
            })
            .collect();
        let (lane, over) = (&lane, &over);
        let mut own_rng = Rng(rng.below(1 << 50));
        scope.spawn(move || own(sim, lane, &mut own_rng, &graves, over));
        for worker in workers {
            worker.join().unwrap();
        }
        over.store(true, SeqCst);
    });
}

/// The words in flight that arrived: none, all, few, half, or most.
fn subset(rng: &mut Rng, kind: u64) -> impl FnMut() -> bool + use<> {
    let arrive = [0, 16, 2, 8, 14][kind as usize];
    let mut rng = Rng(rng.below(1 << 60));
    move || rng.below(16) < arrive
}

/// Cuts the power at every point of what `sim` has recorded.
fn cut_everywhere(sim: &SimMedia, before: &Known, rng: &mut Rng, kinds: u64) {
    let images = sim.crash_images();
    let mut moment = images.start();
    let (mut known, mut notes) = (before.clone(), 0);
    loop {
        known.learn(images.notes_before(moment.point()).skip(notes));
        notes = images.notes_before(moment.point()).count();
        for n in 0..kinds {
            let kind = if kinds == 1 { rng.below(5) } else { n };
            let image = moment.image(subset(rng, kind));
            let pool = open(&Arc::new(sim.of_its_kind(image)));
            known.judge(&claim(&pool).1);
        }
        if !moment.step() {
            return;
        }
    }
}

fn one_generation(on: On, seeds: u64) {
    with_seeds(seeds, |rng| {
        let sim = new_pool(on);
        run(&sim, rng);
        cut_everywhere(&sim, &Known::default(), rng, 5);
    });
}

/// Promise (shared): A shared lane survives a power cut while members die and are buried, and while
/// segments are prepared, begun, released, taken and given back.
/// Promise (shared): When `Member::append` returns, the record and every record below it in the
/// shared lane survive a power cut, whichever process wrote them.
#[test]
fn any_members_acknowledged_records_survive_any_power_cut() {
    one_generation(On::Memory, 12);
}

#[test]
fn records_any_member_committed_to_a_disk_survive_power_cuts() {
    one_generation(On::Disk, 4);
}

/// Recovers, appends, drains, and gives the lane back if it is empty; then another run begins.
fn second_session(sim: &Arc<SimMedia>, known: &Known, rng: &mut Rng) {
    let pool = open(sim);
    let (lane, found) = claim(&pool);
    known.judge(&found);
    found.iter().for_each(|number| sim.note(*number));
    lane.set_stalled("there is no drain".into());
    for turn in 0..rng.below(4) {
        let id = 10 << 32 | turn;
        let bytes = payload(id, rng.below(300));
        if let Ok(lsn) = lane.append(7, &[IoSlice::new(&bytes)]) {
            lane.commit(lsn + 1).unwrap();
            sim.note(id);
        }
    }
    if rng.below(3) > 0 {
        lane.seal();
        while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
            let header = crate::format::segment::SegmentHeader::decode(sealed.bytes()).unwrap();
            let records =
                crate::format::segment::RecordWalk::new(sealed.bytes(), header, lane.epoch());
            records.for_each(|record| sim.note(DRAINED | number_of(record.payload)));
            sealed.release();
        }
        if lane.remove() {
            // A new log: its numbers begin above.
            let lane = pool.claim_shared(OWNER, &ClaimOptions::new()).unwrap();
            for turn in 0..4 {
                let id = 11 << 32 | turn;
                let bytes = payload(id, rng.below(2000));
                let lsn = lane.member().append(7, &[IoSlice::new(&bytes)]).unwrap();
                lane.member().commit(lsn + 1).unwrap();
                sim.note(id);
                let _ = lane.grow();
                let _ = lane.shrink();
            }
        }
    }
}

/// A second session on what crashes at some points of a run left, itself cut at every point.
fn second_generation(
    on: On,
    rng: &mut Rng,
    next: impl Fn(&mut Rng, &dyn Fn(u64) -> Vec<u8>) -> Arc<SimMedia>,
) {
    let sim = new_pool(on);
    run(&sim, rng);
    let images = sim.crash_images();
    let mut moment = images.start();
    loop {
        for _ in 0..1 + rng.below(30) {
            if !moment.step() {
                return;
            }
        }
        let mut known = Known::default();
        known.learn(images.notes_before(moment.point()));
        let seed = rng.below(1 << 60);
        let sim = next(rng, &|kind| moment.image(subset(&mut Rng(seed), kind)));
        second_session(&sim, &known, rng);
        cut_everywhere(&sim, &known, rng, 1);
    }
}

/// Promise (shared): A shared lane that was recovered from one power cut survives the next at any
/// point.
#[test]
fn a_recovered_shared_lane_survives_a_power_cut_at_any_point() {
    with_seeds(6, |rng| {
        second_generation(On::Memory, rng, |rng, image| {
            Arc::new(SimMedia::from_image(image(rng.below(5))))
        });
    });
}

#[test]
fn a_shared_lane_recovered_on_a_disk_survives_the_next_cut() {
    with_seeds(3, |rng| {
        second_generation(On::Disk, rng, |rng, image| {
            Arc::new(SimMedia::disk(image(rng.below(5))))
        });
    });
}

/// Promise (shared): Records of killed members survive a power cut once a recovery has taken them,
/// although the killed members never fenced them.
#[test]
fn unfenced_records_of_killed_members_survive_once_recovered() {
    with_seeds(6, |rng| {
        second_generation(On::Memory, rng, |_, image| {
            let (durable, seen) = (image(0), image(1));
            let sim = Arc::new(SimMedia::from_image(durable.clone()));
            let media: &dyn Media = &*sim;
            thread::scope(|scope| {
                scope.spawn(|| {
                    for (at, line) in (0..).step_by(64).zip(seen.chunks(64)) {
                        if line != &durable[at..at + 64] {
                            media.store(at as u64, &[IoSlice::new(line)]);
                        }
                    }
                });
            });
            sim
        });
    });
}

#[test]
fn a_lane_takes_every_spare_segment_and_gives_all_but_two_back() {
    let (_dir, pool) = pool(9);
    let lane = lane(&pool, 2);
    let spare = pool.segments_free().unwrap();
    for _ in 0..spare {
        assert!(lane.grow());
    }
    assert!(!lane.grow());
    assert_eq!(lane.usage().segments as u64, 2 + spare);
    assert!(
        pool.claim(Uuid::from_u128(7), &ClaimOptions::new())
            .is_err()
    );
    // All are used, and come back.
    let per_segment = (SEGMENT - 64) / record_bytes(1000);
    let mut number = 0;
    while number < per_segment * (2 + spare) {
        append(lane.member(), number, 1000).unwrap();
        lane.prepare();
        number += 1;
    }
    assert!(!lane.shrink());
    lane.release(lane.complete().last().unwrap().end);
    while lane.shrink() {}
    assert_eq!(lane.usage().segments, 2);
    assert_eq!(pool.segments_free().unwrap(), spare);
    // Grown again, in slots that were left: still one log.
    assert!(lane.grow() && lane.grow());
    for number in number..number + 3 * per_segment {
        append(lane.member(), number, 1000).unwrap();
        lane.prepare();
    }
    let head = lane.usage().head;
    drop(lane);
    let first = head / SEGMENT * per_segment;
    assert_eq!(
        recovered(&pool),
        (first..number + 3 * per_segment).collect::<Vec<_>>()
    );
}
