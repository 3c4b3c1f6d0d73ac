//! A lane of one process on a disk: what commits promise beside what `crash.rs` cuts, and when the
//! disk fails.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_pool::{
    AppendError, ClaimOptions, Lane, PAGE, Pool, PoolOptions, Recovered,
    format::segment::{RecordWalk, SegmentHeader},
    media::{Media, SimMedia},
};
use std::{
    io::{BufRead, BufReader, IoSlice},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Barrier, Mutex, mpsc},
    thread,
    time::Duration,
};
use uuid::Uuid;

const OWNER: Uuid = Uuid::from_u128(0xD15C);
const SEGMENT: u64 = 64 << 10;

fn options() -> PoolOptions {
    PoolOptions::new().size(1 << 20).segment_size(SEGMENT)
}

fn simulated() -> Arc<SimMedia> {
    let sim = Arc::new(SimMedia::disk(vec![0; 1 << 20]));
    options().create_on("sim", sim.clone()).unwrap();
    Arc::new(SimMedia::disk(sim.image()))
}

fn open(sim: &Arc<SimMedia>) -> Pool {
    PoolOptions::new().open_on("sim", sim.clone()).unwrap()
}

fn claim(pool: &Pool) -> (Lane, Recovered) {
    let claim = ClaimOptions::new().segments(3);
    pool.claim(OWNER, &claim).unwrap()
}

fn number(payload: &[u8]) -> u32 {
    u32::from_le_bytes(payload[..4].try_into().unwrap())
}

fn numbers(recovered: &Recovered) -> Vec<u32> {
    recovered.records().map(|r| number(r.payload)).collect()
}

fn append(lane: &Lane, number: u32, bytes: usize) -> Result<u64, AppendError> {
    let filler = vec![number as u8; bytes];
    lane.append(
        1,
        &[IoSlice::new(&number.to_le_bytes()), IoSlice::new(&filler)],
    )
}

/// What is recovered of `sim` if the power fails now and everything in flight arrives.
fn after_a_cut(sim: &SimMedia) -> Vec<u32> {
    let images = sim.crash_images();
    let image = images.at(images.points() - 1, || true);
    numbers(&claim(&open(&Arc::new(SimMedia::disk(image)))).1)
}

/// Promise (pool): Recovery from a disk returns the uncommitted records of a lane as one stretch
/// without a gap, or returns none of them.
#[test]
fn a_committed_record_has_all_before_it_and_others_are_nowhere() {
    let sim = simulated();
    let (lane, _) = claim(&open(&sim));
    append(&lane, 0, 100).unwrap();
    let second = append(&lane, 1, 5000).unwrap();
    append(&lane, 2, 100).unwrap();
    assert_eq!(after_a_cut(&sim), []);
    lane.commit(second + 1).unwrap();
    append(&lane, 3, 100).unwrap();
    assert_eq!(after_a_cut(&sim), [0, 1, 2]);
    // Nothing is left to do for what is committed.
    let points = sim.crash_images().points();
    lane.commit(second + 1).unwrap();
    assert_eq!(sim.crash_images().points(), points);
}

/// Promise (pool): The drain gets no record that is not committed.
#[test]
fn a_drain_gets_nothing_that_is_not_committed() {
    let sim = simulated();
    let (lane, _) = claim(&open(&sim));
    append(&lane, 0, 100).unwrap();
    lane.seal();
    assert_eq!(after_a_cut(&sim), []);
    let sealed = lane.take_sealed(Duration::ZERO).unwrap();
    assert_eq!(after_a_cut(&sim), [0]);
    sealed.release();
    // The head is behind it now, in a log that has nothing more.
    append(&lane, 1, 100).unwrap();
    assert_eq!(after_a_cut(&sim), []);
    lane.commit(u64::MAX).unwrap();
    assert_eq!(after_a_cut(&sim), [1]);
}

/// Appends, commits, seals and drains, over several generations of the segments.
fn work(sim: &SimMedia, lane: &Lane, first: u32) {
    for number in first..first + 60 {
        let bytes = (number as usize * 797) % 9000;
        let lsn = append(lane, number, bytes).unwrap();
        if number % 3 != 1 {
            lane.commit(lsn + 1).unwrap();
            sim.note(u64::from(number));
        }
        if number % 16 == 15 {
            lane.seal();
        }
        while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
            sealed.release();
        }
    }
}

/// Promise (pool): A pool on a disk writes no page again that has a committed record, before that
/// record's segment is released.
#[test]
fn no_page_with_a_committed_record_is_ever_written_again() {
    let sim = simulated();
    for session in 0..3 {
        let (lane, _) = claim(&open(&sim));
        work(&sim, &lane, session * 60);
    }
    let images = sim.crash_images();
    let data = open(&sim).geometry().data();
    let mut moment = images.start();
    loop {
        // Every page that is being written is nonsense. The tables are rewritten in place, by
        // sectors.
        let torn: Vec<_> = (moment.in_flight().map(|(at, _)| at))
            .filter(|at| *at >= data)
            .collect();
        let mut image = moment.image(|| true);
        for at in &torn {
            let page = (*at / PAGE * PAGE) as usize;
            image[page..page + PAGE as usize].fill(0xA5);
        }
        if !torn.is_empty() {
            let pool = open(&Arc::new(SimMedia::disk(image)));
            let (lane, recovered) = claim(&pool);
            let found = numbers(&recovered);
            // What was released is drained: the log is a stretch of numbers, up to the last one
            // that was promised at least.
            assert!(found.is_sorted());
            let promised = images.notes_before(moment.point()).max().unwrap_or(0);
            let last = found.last().map(|last| u64::from(*last));
            let drained = lane.usage().head > 0 && found.is_empty();
            assert!(
                last >= Some(promised) || drained || promised == 0,
                "{found:?}, {promised} promised"
            );
        }
        if !moment.step() {
            return;
        }
    }
}

/// Promise (pool): A pool's disk that fails at any write costs nothing that was committed, and
/// leaves no thread waiting.
#[test]
fn a_failing_disk_loses_nothing_committed_and_lets_nobody_wait() {
    let mut failures = 0;
    for writes in 0.. {
        let sim = simulated();
        let pool = open(&sim);
        let (lane, _) = claim(&pool);
        sim.fail_after(writes);
        let (mut committed, mut drained) = (None, None);
        let mut number = 0;
        while number < 40 {
            let Ok(lsn) = append(&lane, number, 3000) else {
                break;
            };
            match lane.commit(lsn + 1) {
                Ok(()) => committed = Some(number),
                Err(error) => {
                    assert_eq!(error, AppendError::Closed);
                    break;
                }
            }
            number += 1;
            if number % 13 == 0 {
                lane.seal();
            }
            if let Some(sealed) = lane.take_sealed(Duration::ZERO) {
                drained = committed;
                sealed.release();
            }
        }
        if sim.has_failed() {
            failures += 1;
            let why = lane.failure().unwrap();
            assert!(why.contains("Input/output error"), "{why}");
            assert_eq!(append(&lane, 99, 10), Err(AppendError::Closed));
            assert_eq!(lane.commit(u64::MAX), Err(AppendError::Closed));
            assert_eq!(lane.next_segment(None), Err(AppendError::Closed));
            let end = lane.seal();
            assert!(lane.take_sealed(Duration::from_millis(1)).is_none());
            // It does not wait: what is drained is, wherever the head is.
            let is_drained = lane.wait_drained(end).is_ok();
            assert!(!is_drained || drained == committed);
            assert!(!lane.give_back());
        }
        for arrived in [false, true] {
            let images = sim.crash_images();
            let image = images.at(images.points() - 1, || arrived);
            let found = numbers(&claim(&open(&Arc::new(SimMedia::disk(image)))).1);
            assert!(
                found.last().copied() >= committed || drained == committed,
                "{writes} writes: {found:?} of {committed:?}, {drained:?} drained"
            );
            assert!(!found.contains(&99));
        }
        if number == 40 {
            break;
        }
    }
    assert!(failures > 40, "{failures}");
}

/// What `work` returns; a failure if it waits for something.
fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    is_done
        .recv_timeout(Duration::from_secs(30))
        .expect("it waits")
}

/// Promise: as `a_failing_disk_loses_nothing_committed_and_lets_nobody_wait`.
#[test]
fn a_lane_whose_disk_fails_as_it_is_given_back_does_not_wait() {
    let sim = simulated();
    let pool = open(&sim);
    let (lane, recovered) = claim(&pool);
    drop(recovered);
    // A segment is open, and has no record.
    assert!(lane.segment().is_some());
    sim.fail_after(0);
    let lane = Arc::new(lane);
    let ours = Arc::clone(&lane);
    assert!(!at_once(move || ours.give_back()));
    assert!(lane.failure().is_some());
    assert_eq!(append(&lane, 1, 10), Err(AppendError::Closed));
    drop(lane);
    // It stays its owner's.
    let (_lane, recovered) = claim(&open(&Arc::new(SimMedia::disk(sim.image()))));
    assert_eq!(numbers(&recovered), []);
}

/// Promise: as `a_failing_disk_loses_nothing_committed_and_lets_nobody_wait`.
#[test]
fn no_drain_or_writer_waits_for_a_lane_whose_disk_has_failed() {
    let sim = simulated();
    let pool = open(&sim);
    let (lane, recovered) = claim(&pool);
    drop(recovered);
    for number in 0..3 {
        append(&lane, number, 3000).unwrap();
        lane.next_segment(lane.segment()).unwrap();
    }
    sim.fail_after(0);
    assert_eq!(lane.commit(u64::MAX), Err(AppendError::Closed));
    let lane = Arc::new(lane);
    let ours = Arc::clone(&lane);
    assert!(at_once(move || ours.take_sealed(Duration::MAX).is_none()));
    at_once(move || lane.wait_free(Duration::MAX));
}

#[test]
fn threads_that_commit_at_the_same_time_share_a_write() {
    const THREADS: u32 = 8;
    const EACH: u32 = 50;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("pool");
    let sizes = options().size(6 << 20).segment_size(1 << 20);
    let pool = sizes.on_disk(true).create(&path).unwrap();
    let (lane, _) = claim(&pool);
    let all_have_appended = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (lane, all_have_appended) = (&lane, &all_have_appended);
            scope.spawn(move || {
                for number in 0..EACH {
                    let lsn = append(lane, thread * EACH + number, 100).unwrap();
                    all_have_appended.wait();
                    lane.commit(lsn + 1).unwrap();
                }
            });
        }
    });
    // Each write ends a page.
    let pages = lane.usage().tail / PAGE;
    assert!(pages <= u64::from(EACH), "{pages} pages");
    drop((lane, pool));
    let mut found = numbers(&claim(&PoolOptions::new().open(&path).unwrap()).1);
    found.sort_unstable();
    assert_eq!(found, (0..THREADS * EACH).collect::<Vec<_>>());
}

const CHILD: &str = "FOREBAY_DISK_LANE_TEST";

#[test]
#[ignore = "the process that is killed; run by the test below"]
fn child() {
    let Ok(order) = std::env::var(CHILD) else {
        return;
    };
    let (first, path) = order.split_once(' ').unwrap();
    let pool = PoolOptions::new().open(Path::new(path)).unwrap();
    let (lane, _) = claim(&pool);
    let next = Mutex::new(first.parse::<u32>().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            while let Some(sealed) = lane.take_sealed(Duration::MAX) {
                let header = SegmentHeader::decode(sealed.bytes()).unwrap();
                let last = RecordWalk::new(sealed.bytes(), header, u32::MAX).last();
                if let Some(record) = last {
                    println!("drained {}", number(record.payload));
                }
                sealed.release();
            }
        });
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let (number, lsn) = {
                        let mut next = next.lock().unwrap();
                        let number = *next;
                        *next += 1;
                        (
                            number,
                            append(&lane, number, 1 + number as usize % 3000).unwrap(),
                        )
                    };
                    lane.commit(lsn + 1).unwrap();
                    println!("committed {number}");
                }
            });
        }
    });
}

/// Promise: as `disk_writes_in_flight_at_a_kill_survive_once_recovered`.
#[test]
fn everything_committed_is_there_after_each_of_many_kills() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("pool");
    drop(options().on_disk(true).create(&path).unwrap());
    let mut committed = 0;
    for round in 0..12u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "child"])
            .env(CHILD, format!("{} {}", committed + 1, path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let heard = thread::spawn(move || {
            let (mut committed, mut drained) = (0, 0);
            for line in said.lines().map_while(Result::ok) {
                let said = |what: &str| line.split(what).nth(1)?.trim().parse::<u32>().ok();
                committed = committed.max(said("committed ").unwrap_or(0));
                drained = drained.max(said("drained ").unwrap_or(0));
            }
            (committed, drained)
        });
        thread::sleep(Duration::from_millis(20 + 137 * round % 400));
        child.kill().unwrap();
        child.wait().unwrap();
        let (heard, drained) = heard.join().unwrap();
        committed = committed.max(heard);
        let pool = PoolOptions::new().open(&path).unwrap();
        let found = numbers(&claim(&pool).1);
        let gap = found.windows(2).find(|pair| pair[0] + 1 != pair[1]);
        assert_eq!(gap, None, "round {round}");
        let last = found.last().copied().unwrap_or(0);
        assert!(
            last.max(drained) >= heard,
            "round {round}: {heard} committed, {drained} drained, found {found:?}"
        );
        committed = committed.max(last);
    }
    assert!(committed > 100, "{committed}");
}

#[test]
fn a_pool_on_a_disk_says_what_commits_are_for() {
    let sim = simulated();
    let (lane, _) = claim(&open(&sim));
    assert!(sim.needs_commit() && lane.needs_commit());
    let memory = Arc::new(SimMedia::new(1 << 20));
    let pool = options().create_on("sim", memory).unwrap();
    let (lane, _) = claim(&pool);
    assert!(!lane.needs_commit());
    lane.commit(u64::MAX).unwrap();
}
