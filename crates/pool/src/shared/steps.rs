//! Moments in an append at which tests do something: let another thread go on, or kill what stands for a process.

use std::cell::RefCell;

type Hook = Box<dyn FnMut(&'static str)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// From now on this thread calls `hook` at each step.
pub(super) fn hook(hook: impl FnMut(&'static str) + 'static) {
    HOOK.set(Some(Box::new(hook)));
}

/// No hook from now on.
pub(super) fn unhook() {
    HOOK.set(None);
}

/// Passes a step.
pub(crate) fn pass(name: &'static str) {
    // Taken out meanwhile: it may panic.
    let Some(mut hook) = HOOK.take() else { return };
    hook(name);
    HOOK.set(Some(hook));
}
