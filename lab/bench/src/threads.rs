//! Threads of a measurement.

pub(crate) use forebay_measure::threads::beside;

use crate::{BenchError, histogram::Latencies};
use forebay_measure::threads::join;
use std::thread;

/// Does `work` in so many threads, each of which gets its number; what they give.
pub(crate) fn in_threads<T: Send>(
    threads: usize,
    work: impl Fn(u64) -> Result<T, BenchError> + Sync,
) -> Result<Vec<T>, BenchError> {
    let work = &work;
    thread::scope(|scope| {
        let running = (0..threads as u64).map(|thread| scope.spawn(move || work(thread)));
        let running: Vec<_> = running.collect();
        // All of them end before the first error is told.
        let ended: Vec<_> = running.into_iter().map(join).collect();
        ended.into_iter().collect()
    })
}

/// Does `work` in so many threads, each of which gets its number and its share of `ops`. Adds up what they count, and their latencies.
pub(crate) fn share_out(
    threads: usize,
    ops: u64,
    work: impl Fn(u64, u64) -> Result<(u64, Latencies), BenchError> + Sync,
) -> Result<(u64, Latencies), BenchError> {
    let all = threads as u64;
    // The first threads do what does not divide.
    let share = |thread| ops / all + u64::from(thread < ops % all);
    let outcomes = in_threads(threads, |thread| work(thread, share(thread)))?;
    let (mut count, mut latencies) = (0, Latencies::new());
    for (theirs, their_latencies) in outcomes {
        count += theirs;
        latencies.merge(&their_latencies);
    }
    Ok((count, latencies))
}
