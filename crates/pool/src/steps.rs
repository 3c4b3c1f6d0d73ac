//! Moments in an append at which tests do something: let another thread go on, or kill a process's
//! stand-in. And the moments at which a thread waits for another, so that a [`Scheduler`] can know
//! that it does.

use crate::lsn::Lsn;
use std::{
    cell::RefCell,
    rc::Rc,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

type StepHook = Box<dyn FnMut(&'static str)>;

/// Decides which of several threads goes on, one at a time. Each method returns when its thread
/// does.
pub(crate) trait Scheduler {
    /// It passes a step.
    fn pass(&self, name: &'static str);
    /// It sleeps on a word, if that is unchanged, until it is woken.
    fn sleep(&self, word: &AtomicU32, seen: u32);
    /// It wakes one that sleeps on this word, or all.
    fn wake(&self, word: &AtomicU32, all: bool);
    /// It waits, and looks now and then, for the mark to come to `lsn`.
    fn wait_for_mark(&self, lsn: Lsn);
}

thread_local! {
    static HOOK: RefCell<Option<StepHook>> = const { RefCell::new(None) };
    static SCHEDULER: RefCell<Option<Rc<dyn Scheduler>>> = const { RefCell::new(None) };
}

/// From now on this thread calls `hook` at each step.
pub(crate) fn hook(hook: impl FnMut(&'static str) + 'static) {
    HOOK.set(Some(Box::new(hook)));
}

/// No hook from now on.
pub(crate) fn unhook() {
    HOOK.set(None);
}

/// From now on this thread goes on when `scheduler` lets it.
pub(crate) fn schedule(scheduler: Option<Rc<dyn Scheduler>>) {
    SCHEDULER.set(scheduler);
}

fn scheduler() -> Option<Rc<dyn Scheduler>> {
    SCHEDULER.with_borrow(Clone::clone)
}

/// Passes a step.
pub(crate) fn pass(name: &'static str) {
    if let Some(scheduler) = scheduler() {
        scheduler.pass(name);
    }
    // Taken out meanwhile: it may panic.
    let Some(mut hook) = HOOK.take() else { return };
    hook(name);
    HOOK.set(Some(hook));
}

/// True if a scheduler decides who goes on: no clock does then.
pub(crate) fn is_scheduled() -> bool {
    SCHEDULER.with_borrow(Option::is_some)
}

/// Sleeps on `word`, as a futex does, by the scheduler: false if there is none.
pub(crate) fn sleep(word: &AtomicU32, seen: u32) -> bool {
    let Some(scheduler) = scheduler() else {
        return false;
    };
    scheduler.pass("asleep");
    if word.load(SeqCst) == seen {
        scheduler.sleep(word, seen);
    }
    true
}

/// The scheduler is to know that sleepers on `word` are woken.
pub(crate) fn wake(word: &AtomicU32, all: bool) {
    if let Some(scheduler) = scheduler() {
        scheduler.wake(word, all);
    }
}

/// Waits by the scheduler until it is worth while to look whether the mark is at `lsn`: false if
/// there is none.
pub(crate) fn wait_for_mark(lsn: Lsn) -> bool {
    let scheduler = scheduler();
    if let Some(scheduler) = &scheduler {
        scheduler.wait_for_mark(lsn);
    }
    scheduler.is_some()
}
