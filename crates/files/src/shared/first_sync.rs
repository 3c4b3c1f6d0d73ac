//! The first real sync of an absorbed file and its directory since the run has it.
//! docs/files-membership.md, "The first sync".
//!
//! Until then nothing of it is logged: the first sync covers what the kernel has. While it is under
//! way no member changes the file, so what is logged afterwards is all that it
//! does not cover.

use super::{FileState, LOOK, SharedFile, SharedPageLayout};
use forebay_pool::media;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Release},
};

/// The file's first sync has not begun.
const PENDING: u32 = 0;
/// The same, and a process is about to give it another name.
const NAMING: u32 = 1;
/// It is under way.
const UNDER_WAY: u32 = 2;
/// It succeeded.
const DONE: u32 = 3;

/// The time at which the supervisor is to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueSync {
    /// No process has asked.
    Never,
    /// At its next look, as it does each second: the writes need not be durable yet.
    Soon,
    /// A process waits.
    Now,
}

/// A file's first sync. Changed under the file's lock, but for its end.
#[repr(C)]
pub struct FirstSync {
    state: AtomicU32,
    due: AtomicU32,
}

impl FirstSync {
    /// Supervisor: the number is another file's from now on.
    pub fn begin(&self) {
        self.due.store(0, Release);
        self.state.store(PENDING, Release);
    }

    /// True once it succeeded: changes are logged. Of a word that was written over it is not known
    /// to have.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state.load(Acquire) == DONE
    }

    /// True while nothing of the file may be changed.
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.state.load(Acquire) == UNDER_WAY
    }

    /// The time at which it is to be done.
    pub fn due(&self) -> DueSync {
        match self.due.load(Acquire) {
            0 => DueSync::Never,
            1 => DueSync::Soon,
            _ => DueSync::Now,
        }
    }

    /// A process is about to rename the file, whose new name no record has: the first sync does not
    /// begin meanwhile.
    pub fn begin_naming(&self) {
        self.change(PENDING, NAMING);
    }

    /// The page has the name, or the process is dead.
    pub fn end_naming(&self) {
        self.change(NAMING, PENDING);
    }

    /// Supervisor: it begins, for all that asked, and the file does not change from now on. False
    /// if it is not to, or not yet.
    pub fn start(&self) -> bool {
        let starts = self.change(PENDING, UNDER_WAY);
        if starts {
            self.due.store(0, Release);
        }
        starts
    }

    /// True while a process gives the file another name.
    pub fn is_being_named(&self) -> bool {
        self.state.load(Acquire) == NAMING
    }

    /// Supervisor: it ended.
    pub fn end(&self, is_done: bool) {
        self.state
            .store(if is_done { DONE } else { PENDING }, Release);
        media::wake_all(&self.state);
    }

    fn change(&self, from: u32, to: u32) -> bool {
        let changed = self.state.compare_exchange(from, to, AcqRel, Acquire);
        changed.is_ok()
    }

    /// Sleeps until the state is another one, or a moment.
    fn wait(&self) {
        let seen = self.state.load(Acquire);
        if seen != DONE {
            media::wait(&self.state, seen, LOOK);
        }
    }
}

impl SharedFile {
    /// True if changes are to be logged.
    #[inline]
    pub fn is_logged(&self) -> bool {
        self.first_sync.is_done()
    }

    /// Returns when the first sync of this file is not under way, or the file is no longer
    /// absorbed, or `gives_up` says so. Without its lock.
    pub fn outlast_first_sync(&self, generation: u32, gives_up: impl Fn() -> bool) {
        while self.is_absorbed(generation) && self.first_sync.is_under_way() && !gives_up() {
            self.first_sync.wait();
        }
    }

    fn is_absorbed(&self, generation: u32) -> bool {
        let stamp = self.stamp();
        stamp.generation == generation && stamp.state == FileState::Absorbed
    }
}

impl SharedPageLayout {
    /// Asks the supervisor for the first sync of a file.
    pub fn ask_first_sync(&self, number: usize, due: DueSync) {
        let asked = &self.files[number].first_sync.due;
        match due {
            DueSync::Never => {}
            DueSync::Soon => {
                if asked.compare_exchange(0, 1, AcqRel, Acquire).is_ok() {
                    self.due_soon.insert(number);
                }
            }
            DueSync::Now => {
                asked.store(2, Release);
                self.due_now.insert(number);
                media::wake(&self.asked);
            }
        }
    }

    /// Supervisor: the file's due work is looked at again.
    pub fn note_due(&self, number: usize) {
        match self.files[number].first_sync.due() {
            DueSync::Never => {}
            DueSync::Soon => self.due_soon.insert(number),
            DueSync::Now => self.due_now.insert(number),
        }
    }

    /// Has the supervisor do the first sync of a file, and returns when it is done, or the file is
    /// no longer absorbed, or `gives_up` says so. Without its lock.
    pub fn wait_for_first_sync(&self, number: usize, generation: u32, gives_up: impl Fn() -> bool) {
        let file = &self.files[number];
        while file.is_absorbed(generation) && !file.is_logged() && !gives_up() {
            // Each time: who was asked may not have been able to begin.
            if !file.first_sync.is_under_way() {
                self.ask_first_sync(number, DueSync::Now);
            }
            file.first_sync.wait();
        }
    }
}
