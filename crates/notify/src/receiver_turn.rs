//! The turn to receive: one thread of the agent waits for a call at a time.
//!
//! The kernel wakes every thread that waits for a call when one comes (`recv_wait_event` waits
//! non-exclusively), so each further thread that waits costs every call two more switches of
//! threads. So one waits, the *receiver*, and does most calls itself. It passes its turn to another
//! before a call that is likely to wait (an open of a log, a sync of a pool on a disk), and a
//! [watch](ReceiverTurn::watch) passes it when any other call has taken a [tick](WATCH_TICK). A
//! thread that is done with a call, and whose turn went on, parks.

use parking_lot::{Condvar, Mutex};
use std::{
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

/// Interval of the watch's looks: a call holds the next one up for two of these at most.
const WATCH_TICK: Duration = Duration::from_millis(1);
/// Without a call for so many of them the watch sleeps until there is one.
const IDLE_TICKS: u32 = 8;
/// A thread that was started, and does not come, is started again after so many.
const START_TICKS: u32 = 50;

/// A call that the receiver does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceivedCall(u64);

/// See the module's head.
#[derive(Default)]
pub(crate) struct ReceiverTurn {
    /// Odd while the receiver does a call, of which no other has the number.
    calls: AtomicU64,
    waiting: Mutex<WaitingThreads>,
    given: Condvar,
    /// The watch waits for a call.
    watch_sleeps: AtomicBool,
    watch: Mutex<()>,
    call: Condvar,
}

#[derive(Default)]
struct WaitingThreads {
    /// Threads that are parked, but for those that have a turn.
    parked: usize,
    /// Turns that no thread has taken yet: 0 or 1.
    turns: usize,
}

impl ReceiverTurn {
    /// Makes the first turn, for a thread that is about to [take](Self::take) one.
    pub(crate) fn new() -> Self {
        let turn = Self::default();
        turn.waiting.lock().turns = 1;
        turn
    }

    /// Waits for the turn.
    pub(crate) fn take(&self) {
        let mut waiting = self.waiting.lock();
        while waiting.turns == 0 {
            waiting.parked += 1;
            self.given.wait(&mut waiting);
            waiting.parked -= 1;
        }
        waiting.turns -= 1;
    }

    /// The receiver has got a call.
    pub(crate) fn begin(&self) -> ReceivedCall {
        let call = ReceivedCall(self.calls.fetch_add(1, SeqCst) + 1);
        if self.watch_sleeps.load(SeqCst) {
            drop(self.watch.lock());
            self.call.notify_one();
        }
        call
    }

    /// The call is over. False if the turn went on meanwhile.
    pub(crate) fn end(&self, call: ReceivedCall) -> bool {
        let next = call.0 + 1;
        (self.calls.compare_exchange(call.0, next, SeqCst, SeqCst)).is_ok()
    }

    /// Passes the turn on, if the thread that does this call has it. The watch starts a thread for
    /// it if none is parked.
    pub(crate) fn pass(&self, call: ReceivedCall) {
        if self.end(call) {
            self.waiting.lock().turns += 1;
            self.given.notify_one();
        }
    }

    /// True if a turn waits for a thread, and none is parked.
    fn is_untaken(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.turns > 0 && waiting.parked == 0
    }

    /// Passes the turn on whenever a call has taken a tick, and calls `start` as long as there is
    /// no thread for it; for ever.
    pub(crate) fn watch(&self, start: impl Fn()) -> ! {
        let (mut before, mut idle, mut untaken) = (self.calls.load(SeqCst), 0, 0);
        loop {
            std::thread::sleep(WATCH_TICK);
            let now = self.calls.load(SeqCst);
            let is_in_call = now % 2 == 1;
            if now == before && is_in_call {
                self.pass(ReceivedCall(now));
            }
            // One that was started may not have come yet.
            untaken = if self.is_untaken() { untaken + 1 } else { 0 };
            if untaken % START_TICKS == 1 {
                start();
            }
            if untaken > 0 || now != before || is_in_call {
                (before, idle) = (now, 0);
            } else if idle < IDLE_TICKS {
                idle += 1;
            } else {
                self.sleep(now);
            }
        }
    }

    /// Sleeps until a call begins after this many.
    fn sleep(&self, calls: u64) {
        let mut watch = self.watch.lock();
        self.watch_sleeps.store(true, SeqCst);
        while self.calls.load(SeqCst) == calls {
            self.call.wait(&mut watch);
        }
        self.watch_sleeps.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{
            Arc,
            atomic::AtomicUsize,
            mpsc::{self, Receiver, Sender},
        },
        thread,
    };

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A thread that takes turns: it reports each call that it has received, and is told when that
    /// ends.
    struct TurnTaker {
        received: Receiver<ReceivedCall>,
        ends: Sender<()>,
    }

    /// A thread that receives whatever call it has the turn for, at once.
    fn worker(turn: &Arc<ReceiverTurn>) -> TurnTaker {
        let (report, received) = mpsc::channel();
        let (ends, end) = mpsc::channel();
        let turn = Arc::clone(turn);
        thread::spawn(move || {
            turn.take();
            loop {
                let call = turn.begin();
                if report.send(call).is_err() || end.recv().is_err() {
                    return;
                }
                if !turn.end(call) {
                    turn.take();
                }
            }
        });
        TurnTaker { received, ends }
    }

    /// Keeps a watch. It counts the threads that it would have started.
    fn watched(turn: &Arc<ReceiverTurn>) -> Arc<AtomicUsize> {
        let (turn, wanted) = (Arc::clone(turn), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&wanted);
        thread::spawn(move || {
            turn.watch(|| {
                count.fetch_add(1, SeqCst);
            })
        });
        wanted
    }

    /// Waits until that is so.
    fn until(mut is_so: impl FnMut() -> bool) {
        let begun = std::time::Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "it never was");
            thread::yield_now();
        }
    }

    #[test]
    fn one_thread_receives_while_its_calls_are_short() {
        let turn = Arc::new(ReceiverTurn::new());
        let (first, second) = (worker(&turn), worker(&turn));
        let all = [&first, &second];
        let mut receiver = all[0];
        until(|| {
            let found = all.iter().find(|one| one.received.try_recv().is_ok());
            receiver = *found.unwrap_or(&receiver);
            found.is_some()
        });
        for _ in 0..1000 {
            receiver.ends.send(()).unwrap();
            receiver.received.recv_timeout(PATIENCE).unwrap();
        }
        let others = all.iter().filter(|one| !std::ptr::eq(**one, receiver));
        assert!(
            others
                .into_iter()
                .all(|one| one.received.try_recv().is_err())
        );
    }

    #[test]
    fn a_call_that_waits_holds_no_other_up() {
        let turn = Arc::new(ReceiverTurn::new());
        watched(&turn);
        // All wait, each in a call of its own: none of them ends.
        let all: Vec<_> = (0..8).map(|_| worker(&turn)).collect();
        let calls: Vec<_> = (all.iter())
            .map(|one| one.received.recv_timeout(PATIENCE).unwrap())
            .collect();
        assert!((1..8).all(|at| !calls[..at].contains(&calls[at])));
        // Those that end take what comes next, one at a time.
        all[3].ends.send(()).unwrap();
        all[3].received.recv_timeout(PATIENCE).unwrap();
    }

    #[test]
    fn a_thread_is_asked_for_where_none_is_parked() {
        let turn = Arc::new(ReceiverTurn::new());
        let wanted = watched(&turn);
        let only = worker(&turn);
        let call = only.received.recv_timeout(PATIENCE).unwrap();
        until(|| wanted.load(SeqCst) > 0);
        turn.pass(call);
        assert!(turn.is_untaken() && turn.waiting.lock().turns == 1);
        // It takes the turn itself, since no other came.
        only.ends.send(()).unwrap();
        only.received.recv_timeout(PATIENCE).unwrap();
    }

    #[test]
    fn the_watch_wakes_for_a_call_after_it_slept() {
        let turn = Arc::new(ReceiverTurn::new());
        let wanted = watched(&turn);
        turn.take();
        until(|| turn.watch_sleeps.load(SeqCst));
        turn.begin();
        until(|| wanted.load(SeqCst) > 0);
    }
}
