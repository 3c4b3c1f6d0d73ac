//! Requests by the table: a process asks that a file be made plain. docs/files-membership.md,
//! "Other writers".
//!
//! It needs no connection, which a process may have no right to make any more, and no descriptor.
//! The part of the table by which it is asked is mapped when the library starts, and a forked child
//! has it. Each entry counts the questions about it, which processes raise, and those that are
//! answered, which the supervisor alone writes.

use super::{AbsorbedTable, ENTRIES, FileKey, TablePage, TableView};
use forebay_pool::media::{self, Mapped};
use rustix::{
    fs::{Mode, OFlags},
    mm::ProtFlags,
};
use std::{
    mem::offset_of,
    ops::Range,
    os::fd::AsFd,
    path::Path,
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
    time::Duration,
};

/// The part of the table that processes write.
#[repr(C, align(4096))]
pub(crate) struct QuestionTable {
    /// Counts all questions.
    bell: AtomicU32,
    /// By entry: questions about it.
    asked: [AtomicU32; ENTRIES],
}

impl QuestionTable {
    /// Offset in the table of the question about the first entry; and before it, the bell.
    pub(super) const OFFSET: usize = offset_of!(TablePage, asking) + offset_of!(Self, asked);

    /// The last question about an entry.
    pub(super) fn last(&self, at: usize) -> u32 {
        self.asked[at].load(SeqCst)
    }
}

/// A question about a file.
#[derive(Clone, Copy)]
pub(crate) struct FileQuestion {
    at: usize,
    published: u32,
    number: u32,
}

/// The outcome of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuestionOutcome {
    /// The file was let go of.
    Yes,
    /// Not yet.
    NotYet,
    /// The run does not absorb it, or absorbs it anew.
    Anew,
}

impl TablePage {
    /// The outcome of a question about the file.
    pub(crate) fn heard(&self, key: FileKey, question: &FileQuestion) -> QuestionOutcome {
        match self.entry_of(key) {
            Some((at, entry))
                if at == question.at && entry.published.load(Relaxed) == question.published =>
            {
                let answered = entry.answered.load(Acquire);
                match answered.wrapping_sub(question.number) < u32::MAX / 2 {
                    true => QuestionOutcome::Yes,
                    false => QuestionOutcome::NotYet,
                }
            }
            _ => QuestionOutcome::Anew,
        }
    }
}

/// A process's view of that part.
pub(crate) struct AskingView(Mapped<QuestionTable>);

impl AskingView {
    /// The range that it is mapped at.
    pub(crate) fn memory(&self) -> Range<usize> {
        self.0.memory()
    }

    /// Asks that the file be made plain; none if the run does not absorb it. Neither allocates nor
    /// locks.
    pub(crate) fn ask(&self, table: &TablePage, key: FileKey) -> Option<FileQuestion> {
        let (at, entry) = table.entry_of(key)?;
        let published = entry.published.load(Acquire);
        let number = self.0.asked[at].fetch_add(1, SeqCst).wrapping_add(1);
        media::wake(&self.0.bell);
        Some(FileQuestion {
            at,
            published,
            number,
        })
    }
}

impl TableView {
    /// The part of the same table, at `path`, by which it is asked: none if it is not there, or
    /// this process may not.
    pub(crate) fn to_ask(&self, path: &Path) -> Option<AskingView> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let is_it = Self::of(fd.as_fd()).is_ok_and(|found| found.socket() == self.socket());
        let part = || {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            Mapped::map_from(fd.as_fd(), protection, offset_of!(TablePage, asking) as u64).ok()
        };
        is_it.then(part)?.map(AskingView)
    }
}

impl AbsorbedTable {
    /// Files about which a question is not answered yet, and which.
    pub(crate) fn questions(&self) -> Vec<(FileKey, FileQuestion)> {
        let entries = self.page.used().enumerate();
        let asked = entries.filter_map(|(at, entry)| {
            let number = self.page.asking.last(at);
            let is_open =
                entry.present.load(Acquire) != 0 && entry.answered.load(Relaxed) != number;
            let question = FileQuestion {
                at,
                published: entry.published.load(Relaxed),
                number,
            };
            let key = (entry.dev.load(Relaxed), entry.ino.load(Relaxed));
            is_open.then_some((key, question))
        });
        asked.collect()
    }

    /// It is answered, with all before.
    pub(crate) fn answer(&self, question: &FileQuestion) {
        let _writing = self.writing.lock();
        let entry = &self.page.entries[question.at];
        if entry.published.load(Relaxed) == question.published {
            entry.answered.store(question.number, Release);
        }
    }

    /// The number of questions so far.
    pub(crate) fn bell(&self) -> u32 {
        self.page.asking.bell.load(Acquire)
    }

    /// Sleeps until there are more, or so long.
    pub(crate) fn wait_for_questions(&self, seen: u32, limit: Duration) {
        media::wait(&self.page.asking.bell, seen, limit);
    }
}
