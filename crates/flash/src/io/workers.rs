//! Threads that do the parts of some work beside the one that has it.
//!
//! They are kept: an SSD writes a batch of twenty pages in less time than it takes to start eight
//! threads. Who has the work does what none of them has taken yet, so all of it is done also where
//! the system has no thread left.
#![expect(
    unsafe_code,
    reason = "lends its caller's data to threads that are kept"
)]

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    mem::transmute,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

/// Does a part, by its number.
type PartWork<'a> = &'a (dyn Fn(usize) + Sync);

/// So many threads at most, with the one that has the work. They start when there is something to
/// do for them, and end when this is dropped.
pub(super) struct Workers {
    most: usize,
    shared: Arc<WorkerQueue>,
}

#[derive(Default)]
struct WorkerQueue {
    state: Mutex<QueueState>,
    /// There is work, or none any more.
    begun: Condvar,
    /// The last part of some work is done.
    ended: Condvar,
}

#[derive(Default)]
struct QueueState {
    threads: usize,
    over: bool,
    /// Works that were ever begun.
    begun: u64,
    works: Vec<QueuedWork>,
}

struct QueuedWork {
    number: u64,
    part: PartWork<'static>,
    parts: usize,
    /// The first part that no thread has taken.
    next: usize,
    /// Parts that are being done.
    running: usize,
}

impl Workers {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            shared: Arc::default(),
        }
    }

    /// True if there is no other thread to do anything.
    pub(super) fn is_one(&self) -> bool {
        self.most == 1
    }

    /// Does each part from 0 to `parts` once, begun in this order. A part that panics is as one
    /// that did nothing.
    pub(super) fn each(&self, parts: usize, part: PartWork<'_>) {
        // SAFETY: only the list of works has it, from which it is taken below, after the last
        // thread that does a part of it has ended that. Nothing between unwinds: a part's panic is
        // caught.
        let part = unsafe { transmute::<PartWork<'_>, PartWork<'static>>(part) };
        let mut state = self.shared.state.lock();
        self.start(&mut state, parts);
        let number = state.begun;
        state.begun += 1;
        state.works.push(QueuedWork {
            number,
            part,
            parts,
            next: 0,
            running: 0,
        });
        self.shared.begun.notify_all();
        while self.shared.step(&mut state, Some(number)) {}
        while state.find(number).is_some_and(|work| work.running > 0) {
            self.shared.ended.wait(&mut state);
        }
        state.works.retain(|work| work.number != number);
    }

    /// Has as many threads as so many parts need, or as the system gives.
    fn start(&self, state: &mut QueueState, parts: usize) {
        while state.threads + 1 < self.most.min(parts) {
            let shared = Arc::clone(&self.shared);
            let named = thread::Builder::new().name("forebay-home".into());
            if named.spawn(move || shared.run()).is_err() {
                break;
            }
            state.threads += 1;
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.state.lock().over = true;
        self.shared.begun.notify_all();
    }
}

impl QueueState {
    fn find(&mut self, number: u64) -> Option<&mut QueuedWork> {
        self.works.iter_mut().find(|work| work.number == number)
    }
}

impl WorkerQueue {
    /// One of the threads.
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.over {
            if !self.step(&mut state, None) {
                self.begun.wait(&mut state);
            }
        }
    }

    /// Does the next part of this work, or of any. False if there is none.
    fn step(&self, state: &mut MutexGuard<'_, QueueState>, of: Option<u64>) -> bool {
        let mut works = state.works.iter_mut();
        let Some(work) = works
            .find(|work| work.next < work.parts && of.is_none_or(|number| number == work.number))
        else {
            return false;
        };
        let (number, part, at) = (work.number, work.part, work.next);
        work.next += 1;
        work.running += 1;
        // Its caller sees that there is no result.
        let _ = MutexGuard::unlocked(state, || catch_unwind(AssertUnwindSafe(|| part(at))));
        if let Some(work) = state.find(number) {
            work.running -= 1;
            if work.running == 0 && work.next == work.parts {
                self.ended.notify_all();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        collections::HashSet,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        thread::ThreadId,
        time::{Duration, Instant},
    };

    #[test]
    fn each_part_is_done_once_by_however_many_threads() {
        for most in [1, 2, 8] {
            let workers = Workers::new(most);
            for parts in [0, 1, 2, 7, 100] {
                let done: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                workers.each(parts, &|at| _ = done[at].fetch_add(1, Relaxed));
                assert!(done.iter().all(|done| done.load(Relaxed) == 1), "{most}");
            }
        }
    }

    #[test]
    fn parts_are_done_at_the_same_time_by_threads_that_are_kept() {
        let workers = Workers::new(4);
        let threads = Mutex::new(HashSet::<ThreadId>::new());
        for _ in 0..20 {
            let arrived = AtomicUsize::new(0);
            let begun = Instant::now();
            workers.each(4, &|_| {
                threads.lock().insert(thread::current().id());
                // Each waits for all others.
                arrived.fetch_add(1, Relaxed);
                while arrived.load(Relaxed) < 4 && begun.elapsed() < Duration::from_secs(60) {
                    thread::yield_now();
                }
            });
            assert_eq!(arrived.into_inner(), 4);
        }
        assert_eq!(threads.into_inner().len(), 4);
    }

    #[test]
    fn works_of_several_callers_are_done_beside_each_other() {
        let workers = Workers::new(3);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..200 {
                        let sum = AtomicUsize::new(0);
                        workers.each(10, &|at| _ = sum.fetch_add(at + round, Relaxed));
                        assert_eq!(sum.into_inner(), 45 + 10 * round);
                    }
                });
            }
        });
    }

    #[test]
    fn a_part_that_panics_keeps_no_other_from_being_done() {
        let workers = Workers::new(3);
        for _ in 0..10 {
            let done = AtomicUsize::new(0);
            workers.each(10, &|at| {
                assert!(at % 2 == 0, "one that panics");
                done.fetch_add(1, Relaxed);
            });
            assert_eq!(done.into_inner(), 5);
        }
    }
}
