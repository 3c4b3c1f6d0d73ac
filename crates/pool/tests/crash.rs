//! The pool's promise, at every point in time at which the power can fail: every acknowledged
//! record is recovered, byte for byte and in order, and nothing that was not appended ever appears.
//!
//! `FOREBAY_SEED=n` repeats the workloads of a failure (several threads: not their exact
//! interleaving).
//!
//! Promise (pool): A claim never refuses a pool that only crashed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_pool::{
    ClaimOptions, PoolOptions, RecordHeader,
    media::{Media, SimMedia},
};
use std::{
    io::IoSlice,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use support::{Known, Ledger, OWNERS, Plan, Rng, claim, open, session};

/// What a pool lies on: where an append is durable, and where that takes a commit.
const MEDIA: [Medium; 2] = [(memory, 48 << 10, 4096), (disk, 160 << 10, 16 << 10)];
/// How it is made, its bytes, and a segment's.
type Medium = (fn(usize) -> SimMedia, usize, u64);

fn memory(bytes: usize) -> SimMedia {
    SimMedia::new(bytes)
}

fn disk(bytes: usize) -> SimMedia {
    SimMedia::disk(vec![0; bytes])
}

/// Runs `test` with `workloads` seeds (fewer if `PROPTEST_CASES` says so), and prints the one that
/// fails.
fn with_seeds(workloads: u64, test: impl Fn(&mut Rng)) {
    let cases = std::env::var("PROPTEST_CASES").map_or(256, |n| n.parse().unwrap());
    let workloads = (workloads * cases / 256).max(1);
    let first = std::env::var("FOREBAY_SEED").map_or_else(
        |_| {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_nanos() as u64
        },
        |seed| seed.parse().unwrap(),
    );
    for seed in (0..workloads).map(|n| first.wrapping_add(n)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(&mut Rng(seed)))) {
            eprintln!("FOREBAY_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// A medium on which a pool is made; `on` says which.
fn made(on: usize) -> Arc<SimMedia> {
    let (medium, bytes, segment) = MEDIA[on];
    let sim = Arc::new(medium(bytes));
    PoolOptions::new()
        .size(bytes as u64)
        .segment_size(segment)
        .lanes(3)
        .create_on("sim", sim.clone())
        .unwrap();
    sim
}

fn new_pool(on: usize) -> Arc<SimMedia> {
    let sim = made(on);
    Arc::new(sim.of_its_kind(sim.image()))
}

/// Chooses which words in flight arrived: none, all, few, half, or most.
fn subset(rng: &mut Rng, kind: u64) -> impl FnMut() -> bool {
    let arrive = [0, 16, 2, 8, 14][kind as usize];
    let mut rng = Rng(rng.next());
    move || rng.below(16) < arrive
}

/// Recovers `image`, what became of `sim`, and judges every lane by what was `known`.
fn recover(sim: &SimMedia, image: Vec<u8>, known: &Known) {
    let pool = open(&Arc::new(sim.of_its_kind(image)));
    for owner in OWNERS {
        claim(&pool, owner, known, 2);
    }
}

/// Cuts the power at every point of what `sim` has recorded, with `subsets` choices of what
/// arrived.
fn cut_everywhere(sim: &SimMedia, before: &Known, ledger: &Ledger, rng: &mut Rng, subsets: u64) {
    let images = sim.crash_images();
    let mut moment = images.start();
    let mut known = before.clone();
    let mut notes = 0;
    loop {
        known.learn(ledger, images.notes_before(moment.point()).skip(notes));
        notes = images.notes_before(moment.point()).count();
        for n in 0..subsets {
            let kind = if subsets == 1 { rng.below(5) } else { n };
            recover(sim, moment.image(subset(rng, kind)), &known);
        }
        if !moment.step() {
            return;
        }
    }
}

/// Memory as a process finds it that starts after another one was killed: it sees what that one
/// stored without a fence, and the power may still fail.
#[expect(unsafe_code, reason = "stores to a medium by itself")]
fn after_a_kill(killed: &SimMedia, durable: Vec<u8>, seen: &[u8]) -> Arc<SimMedia> {
    let sim = Arc::new(killed.of_its_kind(durable.clone()));
    thread::scope(|scope| {
        scope.spawn(|| {
            let unit = if sim.needs_commit() { 512 } else { 64 };
            for (at, part) in (0..).step_by(unit).zip(seen.chunks(unit)) {
                if part == &durable[at..at + unit] {
                    continue;
                }
                match sim.needs_commit() {
                    true => sim.leave_in_flight(at as u64, part),
                    // SAFETY: no other thread has it yet.
                    false => unsafe { sim.stream(at as u64, &[IoSlice::new(part)], 0) },
                }
            }
        });
    });
    sim
}

fn first_generation(on: usize, rng: &mut Rng) -> (Arc<SimMedia>, Ledger) {
    let (sim, ledger) = (new_pool(on), Ledger::default());
    for number in 0..2 {
        let mut known = Known::default();
        let images = sim.crash_images();
        known.learn(&ledger, images.notes_before(images.points() - 1));
        let plan = Plan {
            session: number,
            writers: 3,
            records_each: 1 + rng.below(6),
        };
        session(&sim, &known, &ledger, rng, plan);
    }
    (sim, ledger)
}

fn one_generation(on: usize, workloads: u64) {
    with_seeds(workloads, |rng| {
        let (sim, ledger) = first_generation(on, rng);
        cut_everywhere(&sim, &Known::default(), &ledger, rng, 5);
    });
}

/// Promise (pool): When `Lane::append` returns, the record and every record below it in the lane
/// survive a power cut, byte for byte and in order, until the drain releases them.
/// Promise (pool): Recovery returns only records that this owner appended, each of them once, and
/// none without the record that its writer appended before it.
/// Promise (pool): Recovery returns an unacknowledged record whole or not at all.
#[test]
fn a_power_cut_leaves_every_acknowledged_record_and_no_other() {
    one_generation(0, 16);
}

/// Promise (pool): When `Lane::commit` returns, every record below it on the disk survives a power
/// cut at any moment, and again in the session after it.
#[test]
fn a_power_cut_leaves_every_record_committed_to_a_disk() {
    one_generation(1, 16);
}

/// A second session on what a crash at some points of the first left, itself cut at every point,
/// its claims included.
fn second_generation(
    on: usize,
    rng: &mut Rng,
    next: impl Fn(&SimMedia, &mut Rng, &dyn Fn(u64) -> Vec<u8>) -> Arc<SimMedia>,
) {
    let (sim, ledger) = first_generation(on, rng);
    let images = sim.crash_images();
    let mut moment = images.start();
    loop {
        for _ in 0..1 + rng.below(20) {
            if !moment.step() {
                return;
            }
        }
        let mut known = Known::default();
        known.learn(&ledger, images.notes_before(moment.point()));
        let seed = rng.next();
        let sim = next(&sim, rng, &|kind| {
            moment.image(subset(&mut Rng(seed), kind))
        });
        let ledger = Ledger::default();
        let plan = Plan {
            session: 100,
            writers: 2,
            records_each: 3,
        };
        session(&sim, &known, &ledger, rng, plan);
        cut_everywhere(&sim, &known, &ledger, rng, 1);
    }
}

fn cut_again(on: usize) {
    with_seeds(12, |rng| {
        second_generation(on, rng, |sim, rng, image| {
            Arc::new(sim.of_its_kind(image(rng.below(5))))
        });
    });
}

fn cut_after_a_kill(on: usize) {
    with_seeds(12, |rng| {
        second_generation(on, rng, |sim, _, image| {
            after_a_kill(sim, image(0), &image(1))
        });
    });
}

/// Promise (pool): A pool that was recovered survives the next power cut as well, in the middle of
/// the recovery or at any point of the session after it.
#[test]
fn a_recovered_pool_survives_a_power_cut_in_claim_and_session() {
    cut_again(0);
}

/// Promise: as `a_power_cut_leaves_every_record_committed_to_a_disk`.
#[test]
fn a_recovered_pool_on_a_disk_survives_the_next_power_cut() {
    cut_again(1);
}

/// Promise (pool): Records of a killed process survive a power cut once the next process has
/// recovered them, although the killed one never fenced them.
#[test]
fn unfenced_records_of_a_killed_process_survive_once_recovered() {
    cut_after_a_kill(0);
}

/// Promise (pool): A process that is killed while its writes are on their way to a disk costs no
/// committed record.
#[test]
fn disk_writes_in_flight_at_a_kill_survive_once_recovered() {
    cut_after_a_kill(1);
}

fn cut_while_made(on: usize) {
    with_seeds(8, |rng| {
        let sim = made(on);
        let images = sim.crash_images();
        let mut made = false;
        for point in 0..images.points() {
            for kind in 0..5 {
                let image = images.at(point, subset(rng, kind));
                let medium = Arc::new(sim.of_its_kind(image.clone()));
                match PoolOptions::new().open_on("sim", medium) {
                    Ok(_) => recover(&sim, image, &Known::default()),
                    Err(e) => assert!(e.to_string().contains("not a Forebay pool"), "{e}"),
                }
                made = point + 1 == images.points();
            }
        }
        assert!(made);
    });
}

/// Promise (pool): A power cut while a pool is made leaves no pool or a whole one.
#[test]
fn a_power_cut_in_making_a_pool_leaves_none_or_a_whole_one() {
    cut_while_made(0);
    cut_while_made(1);
}

/// Promise (pool): Opening a pool repairs one damaged superblock, and a power cut in the middle of
/// the repair leaves the other superblock intact.
#[test]
fn a_power_cut_in_a_superblocks_repair_leaves_an_intact_one() {
    for (on, damaged) in [(0, 0), (0, 4096), (1, 0), (1, 4096)] {
        with_seeds(8, |rng| {
            let mut image = new_pool(on).image();
            image[damaged + 40] ^= 1;
            let sim = Arc::new(new_pool(on).of_its_kind(image));
            assert_eq!(open(&sim).repaired().len(), 1);
            let images = sim.crash_images();
            for point in 0..images.points() {
                for kind in 0..5 {
                    recover(&sim, images.at(point, subset(rng, kind)), &Known::default());
                }
            }
        });
    }
}

#[test]
fn a_segment_of_only_in_flight_records_is_opened_over_them() {
    with_seeds(32, |rng| {
        let sim = new_pool(0);
        let pool = open(&sim);
        let owner = uuid::Uuid::from_u128(1);
        let options = ClaimOptions::new();
        let (lane, _) = pool.claim(owner, &options).unwrap();
        let data = pool.geometry().data() as usize;
        // The segment's first record, of two lines, never arrived; the second one, of another
        // writer, did.
        let second = RecordHeader {
            length: 100,
            lsn: 64 + 128,
            epoch: lane.epoch(),
            lag: 2,
            kind: 1,
        };
        let payload = [7; 100];
        let header = second.encode(owner, &[IoSlice::new(&payload)]);
        let mut image = sim.image();
        let at = data + second.lsn as usize;
        image[at..at + 132].copy_from_slice(&[&header[..], &payload].concat());
        let sim = Arc::new(SimMedia::from_image(image));
        drop(open(&sim).claim(owner, &options).unwrap());
        let images = sim.crash_images();
        for point in 0..images.points() {
            let image = images.at(point, subset(rng, 3));
            let pool = open(&Arc::new(SimMedia::from_image(image)));
            let (_lane, recovered) = pool.claim(owner, &options).unwrap();
            assert_eq!(recovered.records().count(), 0);
        }
    });
}

#[test]
fn a_segment_behind_a_torn_one_never_comes_back_after_a_drain() {
    let sim = new_pool(1);
    let owner = uuid::Uuid::from_u128(1);
    let options = ClaimOptions::new().segments(3);
    let pool = open(&sim);
    let data = pool.geometry().data() as usize;
    let (lane, _) = pool.claim(owner, &options).unwrap();
    let append = |payload: &[u8]| lane.append(1, &[IoSlice::new(payload)]).unwrap();
    let first = append(b"acknowledged");
    lane.commit(first + 1).unwrap();
    let torn = append(b"on its way");
    lane.seal();
    let behind = append(b"on its way, too, and faster");
    lane.commit(behind + 1).unwrap();
    let mut image = sim.image();
    image[data + torn as usize..][..64].fill(0);

    let sim = Arc::new(sim.of_its_kind(image));
    let (lane, recovered) = open(&sim).claim(owner, &options).unwrap();
    assert_eq!(recovered.records().count(), 1);
    drop(recovered);
    lane.seal();
    lane.take_sealed(Duration::ZERO).unwrap().release();
    drop(lane);
    let (_, recovered) = open(&Arc::new(sim.of_its_kind(sim.image())))
        .claim(owner, &options)
        .unwrap();
    assert_eq!(recovered.records().count(), 0);
}
