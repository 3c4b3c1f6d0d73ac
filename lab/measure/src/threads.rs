//! Threads beside what is measured.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{self, ScopedJoinHandle},
};

/// Joins a thread; its panic is ours.
pub fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Does `work`, and `aside` in a thread beside it, which ends when it is told that `work` is done.
/// What both give.
pub fn beside<A: Send, T>(
    aside: impl FnOnce(&AtomicBool) -> A + Send,
    work: impl FnOnce() -> T,
) -> (A, T) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let aside = scope.spawn(|| aside(&done));
        let outcome = work();
        done.store(true, Relaxed);
        (join(aside), outcome)
    })
}
