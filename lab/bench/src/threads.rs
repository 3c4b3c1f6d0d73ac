//! Threads of a measurement.

pub(crate) use forebay_measure::threads::beside;

use crate::{BenchError, clock::lap_ns, histogram::Latencies};
use forebay_measure::threads::join;
use std::{
    hint, thread,
    time::{Duration, Instant},
};

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

/// Does `work` in so many threads, each of which gets its number and its share of `ops`. Adds up
/// what they count, and their latencies.
pub(crate) fn share_out(
    threads: usize,
    ops: u64,
    work: impl Fn(u64, u64) -> Result<(u64, Latencies), BenchError> + Sync,
) -> Result<(u64, Latencies), BenchError> {
    let all = threads as u64;
    // The first threads do what does not divide.
    let share = |thread| ops / all + u64::from(thread < ops % all);
    let outcomes = in_threads(threads, |thread| work(thread, share(thread)))?;
    let (mut count, mut latencies) = (0, Latencies::default());
    for (theirs, their_latencies) in outcomes {
        count += theirs;
        latencies.merge(&their_latencies);
    }
    Ok((count, latencies))
}

/// Has so many threads compute for `each` again and again, as long as they are to `go_on`, and
/// neither wait nor share anything. How long each turn took: longer than that only if the thread
/// had no processor.
pub(crate) fn keep_busy(
    threads: usize,
    each: Duration,
    go_on: impl Fn(Instant) -> bool + Sync,
) -> Result<Latencies, BenchError> {
    let (_, took) = share_out(threads, 0, |_, _| {
        let (mut took, mut last) = (Latencies::default(), Instant::now());
        while go_on(last) {
            let begun = last;
            while begun.elapsed() < each {
                hint::spin_loop();
            }
            took.record(lap_ns(&mut last));
        }
        Ok((0, took))
    })?;
    Ok(took)
}
