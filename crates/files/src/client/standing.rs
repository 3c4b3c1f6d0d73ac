//! How this process stands to the run.

use std::sync::{OnceLock, atomic::AtomicBool};

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
