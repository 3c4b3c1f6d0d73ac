//! Time: what a reading of the clock costs, and the processor time of this process.
//!
//! `Instant` is read through the vDSO, so a reading costs some 20 to 50 ns. Workloads read it once
//! an operation: the end of one is the start of the next.

pub use rustix::time::ClockId;

use rustix::time::clock_gettime;
use std::time::Instant;

/// Processor time so far, in seconds: of all threads of this process, or of this thread.
#[must_use]
pub fn cpu_seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// What one reading of the clock costs, in nanoseconds.
#[must_use]
pub fn reading_ns() -> f64 {
    const READINGS: u32 = 10_000;
    let start = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(READINGS)
}

/// The nanoseconds since `last`, which becomes now.
#[inline]
pub fn lap_ns(last: &mut Instant) -> u64 {
    let now = Instant::now();
    let ns = now.duration_since(*last).as_nanos() as u64;
    *last = now;
    ns
}
