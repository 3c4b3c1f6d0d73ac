//! How this process stands to the run.

use super::config::CONFIG;
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// In a forked child of a member: it becomes one itself when it uses an absorbed file.
pub(super) static PENDING: AtomicBool = AtomicBool::new(false);

/// It has descriptors that it inherited of files that the run absorbs.
pub(super) static INHERITED: AtomicBool = AtomicBool::new(false);

/// This process is no member any more, and cannot become one: it is another user's, or was refused.
pub(super) static LEFT: AtomicBool = AtomicBool::new(false);

/// Nothing is absorbed any more.
pub(super) static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Why files that the profile names stay plain in this process, for status.
pub(super) static PLAIN_FOR: OnceLock<String> = OnceLock::new();

/// Asked before this process joins.
static BEFORE_JOINING: OnceLock<fn() -> Result<(), String>> = OnceLock::new();

/// Has `check` asked before this process joins the run: why it must not.
pub fn before_joining(check: fn() -> Result<(), String>) {
    let _ = BEFORE_JOINING.set(check);
}

/// Before this process joins: what was said.
pub(super) fn ask_to_join() -> Result<(), String> {
    BEFORE_JOINING.get().map_or(Ok(()), |check| check())
}

/// True if this process is in a run, and may become a member.
#[must_use]
pub fn may_join() -> bool {
    CONFIG.get().is_some() && !GIVEN_UP.load(Relaxed) && !LEFT.load(Relaxed)
}
