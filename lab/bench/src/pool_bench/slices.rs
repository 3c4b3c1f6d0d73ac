//! Slices of time: appends and bare copies by as many threads as a case has.

use super::Case;
use crate::{BenchError, clock::lap_ns, data::Values, histogram::Latencies};
use forebay_pool::{Lane, media::Media, persist::LINE};
use std::{
    io::IoSlice,
    panic::resume_unwind,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Appends between two looks at the clock: as many as fit into some microseconds.
fn step(bytes: usize) -> u64 {
    (65536 / bytes.max(1)).clamp(1, 128) as u64
}

/// What the threads of one slice did together.
#[derive(Default)]
pub(super) struct Slice {
    pub(super) ops: u64,
    pub(super) thread_ns: u64,
}

impl Slice {
    pub(super) fn ns(&self) -> f64 {
        self.thread_ns as f64 / self.ops as f64
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.thread_ns += other.thread_ns;
    }
}

pub(super) const KIND: u16 = 1;

/// The latency of each append.
pub(super) fn timed(case: Case, lane: &Lane, slice: Duration) -> Result<Latencies, BenchError> {
    let latencies: Vec<Mutex<Latencies>> = (0..case.writers).map(|_| Mutex::default()).collect();
    in_threads(case, slice, |(thread, _), payload| {
        // Never waited for: it is this thread's own.
        let mut own = latencies[thread as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut last = Instant::now();
        lane.append(KIND, &[IoSlice::new(payload)])?;
        own.record(lap_ns(&mut last));
        Ok(())
    })?;
    let mut all = Latencies::new();
    for one in latencies {
        all.merge(&one.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    Ok(all)
}

pub(super) fn appended(case: Case, lane: &Lane, slice: Duration) -> Result<Slice, BenchError> {
    in_threads(case, slice, |_, payload| {
        lane.append(KIND, &[IoSlice::new(payload)])?;
        Ok(())
    })
}

pub(super) fn copies(case: Case, media: &dyn Media, slice: Duration) -> Result<Slice, BenchError> {
    let stride = (case.bytes as u64).next_multiple_of(LINE as u64);
    let part = media.bytes() / case.writers as u64 / stride;
    in_threads(case, slice, |(thread, turn), payload| {
        let offset = (thread * part + turn % part) * stride;
        media.stream(offset, &[IoSlice::new(payload)], 0);
        media.fence();
        Ok(())
    })
}

/// Runs `operation` (its thread and turn, the payload) on as many threads as `case` has writers for the time of a slice.
pub(super) fn in_threads(
    case: Case,
    slice: Duration,
    operation: impl Fn((u64, u64), &[u8]) -> Result<(), BenchError> + Sync,
) -> Result<Slice, BenchError> {
    // Reading the clock costs about as much as a small copy: look at it once in a few microseconds.
    let step = step(case.bytes);
    let values = Values::new(case.bytes);
    let outcomes: Vec<Result<Slice, BenchError>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..case.writers as u64)
            .map(|thread| {
                let (operation, values) = (&operation, &values);
                scope.spawn(move || {
                    let mut last = Instant::now();
                    let mut done = Slice::default();
                    while done.thread_ns < slice.as_nanos() as u64 {
                        for _ in 0..step {
                            operation((thread, done.ops), values.value(done.ops))?;
                            done.ops += 1;
                        }
                        done.thread_ns += lap_ns(&mut last);
                    }
                    Ok(done)
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    let mut all = Slice::default();
    for outcome in outcomes {
        all.add(&outcome?);
    }
    Ok(all)
}

/// Runs `work` beside a drain that releases whatever is sealed.
pub(super) fn with_drain<T>(lane: &Lane, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                if let Some(sealed) = lane.take_sealed(Duration::from_millis(20)) {
                    sealed.release();
                }
            }
        });
        let outcome = work();
        done.store(true, Relaxed);
        outcome
    })
}

/// Empties the lane: nothing in it is of use to anybody.
pub(super) fn drain_all(lane: &Lane) -> Result<(), BenchError> {
    let end = lane.seal();
    while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
        sealed.release();
    }
    lane.wait_drained(end)?;
    Ok(())
}
