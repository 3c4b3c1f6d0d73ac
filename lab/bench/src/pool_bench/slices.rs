//! Slices of time: appends and bare copies by as many threads as a case has.

use super::Case;
use crate::{BenchError, clock::lap_ns, data::Values, histogram::Latencies, threads};
use forebay_pool::{Lane, media::Media, persist::LINE};
use std::{
    io::IoSlice,
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
    let mut all = Latencies::default();
    for (_, latencies) in each_thread(case, slice, |latencies: &mut Latencies, _, payload| {
        let mut last = Instant::now();
        lane.append(KIND, &[IoSlice::new(payload)])?;
        latencies.record(lap_ns(&mut last));
        Ok(())
    })? {
        all.merge(&latencies);
    }
    Ok(all)
}

pub(super) fn appended(case: Case, lane: &Lane, slice: Duration) -> Result<Slice, BenchError> {
    in_threads(case, slice, |_, payload| {
        lane.append(KIND, &[IoSlice::new(payload)])?;
        Ok(())
    })
}

/// Copies to a medium on which there is no pool.
#[expect(unsafe_code, reason = "stores to a medium by itself")]
pub(super) fn copies(case: Case, media: &dyn Media, slice: Duration) -> Result<Slice, BenchError> {
    let stride = (case.bytes as u64).next_multiple_of(LINE as u64);
    let part = media.bytes() / case.writers as u64 / stride;
    in_threads(case, slice, |(thread, turn), payload| {
        let offset = (thread * part + turn % part) * stride;
        // SAFETY: each thread has a part of its own, and nothing is lent out of a medium without a
        // pool.
        unsafe { media.stream(offset, &[IoSlice::new(payload)], 0) };
        media.fence();
        Ok(())
    })
}

/// Runs `operation` (its thread and turn, the payload) on as many threads as `case` has writers for
/// the time of a slice.
pub(super) fn in_threads(
    case: Case,
    slice: Duration,
    operation: impl Fn((u64, u64), &[u8]) -> Result<(), BenchError> + Sync,
) -> Result<Slice, BenchError> {
    let mut all = Slice::default();
    for (done, ()) in each_thread(case, slice, |(), at, payload| operation(at, payload))? {
        all.add(&done);
    }
    Ok(all)
}

/// The same, with something that each thread has for itself: what each did, and that.
fn each_thread<T: Default + Send>(
    case: Case,
    slice: Duration,
    operation: impl Fn(&mut T, (u64, u64), &[u8]) -> Result<(), BenchError> + Sync,
) -> Result<Vec<(Slice, T)>, BenchError> {
    // Reading the clock costs about as much as a small copy: look at it once in a few microseconds.
    let step = step(case.bytes);
    let values = Values::new(case.bytes);
    threads::in_threads(case.writers, |thread| {
        let (mut done, mut own) = (Slice::default(), T::default());
        let mut last = Instant::now();
        while done.thread_ns < slice.as_nanos() as u64 {
            for _ in 0..step {
                operation(&mut own, (thread, done.ops), values.value(done.ops))?;
                done.ops += 1;
            }
            done.thread_ns += lap_ns(&mut last);
        }
        Ok((done, own))
    })
}
