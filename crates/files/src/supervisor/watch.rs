//! Processes that no message announces: those outside the run, and openers past the C library.
//! Absorbed files are watched from before it is known that they are open nowhere else.
//! docs/files-membership.md, "Processes outside".
//!
//! Where the supervisor may, the kernel asks it before such a process gets a file open
//! ([`open_gate`](super::open_gate), fanotify); elsewhere it is told afterwards
//! ([`inotify`](super::inotify), inotify).

use super::{SupervisorState, inotify::Inotify, open_gate::OpenGate};
use crate::{absorbed::FileKey, sys};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::{os::fd::BorrowedFd, sync::Arc};

/// The treatment of a process outside the run that opens an absorbed file for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutsideWatch {
    /// Its `open` returns when the file is absorbed no longer.
    Waits,
    /// It is noticed a moment later, and the file is let go of.
    NoticedLater,
    /// It is not noticed.
    Unnoticed,
}

impl OutsideWatch {
    /// The same in words, after "a process outside of this run that opens an absorbed file for
    /// writing".
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Waits => "waits until the file is plain",
            Self::NoticedLater => {
                "is noticed a moment after (for it to wait, forebay needs CAP_SYS_ADMIN)"
            }
            Self::Unnoticed => "is not noticed (the kernel gives neither fanotify nor inotify)",
        }
    }
}

/// The watched files.
pub(super) enum Watch {
    Gate(OpenGate),
    Inotify(Inotify),
    Nothing,
}

/// One watched file. It is watched until [`Watch::remove`].
#[derive(Clone, Copy)]
pub(super) enum WatchedFile {
    Gate,
    Inotify(i32),
    Not,
}

impl Watch {
    pub(super) fn new() -> Self {
        if let Ok(gate) = OpenGate::new() {
            return Self::Gate(gate);
        }
        match Inotify::new() {
            Ok(inotify) => Self::Inotify(inotify),
            Err(errno) => {
                sys::complain(&format!(
                    "processes outside this run that write to an absorbed file are not noticed (inotify: {errno})"
                ));
                Self::Nothing
            }
        }
    }

    /// The treatment that this watch can give.
    pub(super) fn outside(&self) -> OutsideWatch {
        match self {
            Self::Gate(_) => OutsideWatch::Waits,
            Self::Inotify(_) => OutsideWatch::NoticedLater,
            Self::Nothing => OutsideWatch::Unnoticed,
        }
    }

    /// Watches the file that is open as `file`.
    ///
    /// # Errors
    /// What the kernel says: then the run cannot keep what [`Watch::outside`] says.
    pub(super) fn add(&self, file: BorrowedFd<'_>, key: FileKey) -> Result<WatchedFile, Errno> {
        match self {
            Self::Gate(gate) => gate.add(file).map(|()| WatchedFile::Gate),
            Self::Inotify(inotify) => inotify.add(file, key).map(WatchedFile::Inotify),
            Self::Nothing => Ok(WatchedFile::Not),
        }
    }

    /// Watches it no longer; `file` is any open file of it.
    pub(super) fn remove(&self, watched: &WatchedFile, file: BorrowedFd<'_>) {
        match (self, watched) {
            (Self::Gate(gate), WatchedFile::Gate) => gate.remove(file),
            (Self::Inotify(inotify), WatchedFile::Inotify(watch)) => inotify.remove(*watch),
            _ => {}
        }
    }
}

/// Works until the supervisor stops.
pub(super) fn run(shared: &Arc<SupervisorState>) {
    match &shared.watch {
        Watch::Gate(gate) => gate.run(shared),
        Watch::Inotify(inotify) => inotify.run(shared),
        Watch::Nothing => {}
    }
}
