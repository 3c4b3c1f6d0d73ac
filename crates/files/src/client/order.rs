//! The order of an absorbed log with the rest of its file system. docs/files-write.md, "Order
//! with the rest of the file system".
//!
//! 1. Every hook that changes a name, a size or an attribute counts the change, by file system
//!    ([`changed_on`]).
//! 2. A write behind a change that no commit of the journal has followed is *held*: its record
//!    counts in a recovery once a later one says so. Where a write is durable when it returns (a
//!    pool in memory), it waits for that.
//! 3. A sync that finds such a change has the journal committed; then it says so. Others find the
//!    changes ordered.
//! 4. A truncation, which a replay repeats, has the journal committed before.
//!
//! What is written in place (below [`FileOrder::in_place_below`](crate::shared::FileOrder)) is in
//! no journal, and a plain `fdatasync` of it orders nothing: nor does this one.

use super::{
    config::CONFIG,
    lookup::AbsorbedNumber,
    names::{path_of, with_file},
    process::HeldFile,
    session::MemberSession,
    sync_kind::SyncKind,
};
use crate::{
    order::{JournalOrder, OrderPage, commit_journal},
    shared::SharedFile,
};
use forebay_pool::Lsn;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release},
};

#[inline]
fn page() -> Option<&'static OrderPage> {
    let order = CONFIG.get()?.order.as_ref()?;
    Some(order)
}

/// True if changes of metadata are to be counted: the run has absorbed a file. Costs two loads.
#[inline]
#[must_use]
pub fn counts_changes() -> bool {
    page().is_some_and(OrderPage::has_logs)
}

/// True if the run may come to count them.
#[inline]
pub(super) fn follows_changes() -> bool {
    page().is_some()
}

/// The kernel has changed a name, a size or an attribute on this device; where it is not known, on
/// any. Neither allocates nor locks.
pub fn changed_on(device: Option<u64>) {
    if let Some(page) = page() {
        match device {
            Some(device) => page.changed(device),
            None => page.changed_somewhere(),
        }
    }
}

/// True if the run has absorbed a file on this device, or none at all: its first one's sync commits
/// what was changed before, too.
pub(super) fn may_have_logs_on(device: u64) -> bool {
    page().is_some_and(|page| !page.has_logs() || page.has_logs_on(device))
}

#[inline]
fn journal_of(file: &SharedFile) -> Option<&'static JournalOrder> {
    page()?.journal(file.journal.load(Relaxed) as usize)
}

/// Changes of its file system so far; asked before the kernel writes.
#[inline]
pub(super) fn changes_before(held: &HeldFile) -> u64 {
    journal_of(held.shared).map_or(0, JournalOrder::changes)
}

/// The kernel has written up to file offset `end`, after so many `changes`, and it is about to be
/// logged.
///
/// # Errors
/// Of the lane.
#[inline]
pub(super) fn wrote(held: &HeldFile, changes: u64, end: u64) -> Result<(), Errno> {
    let order = &held.shared.order;
    if end <= order.in_place_below.load(Relaxed) {
        return Ok(());
    }
    order.written_after.store(changes, Release);
    order.unsynced.store(1, Release);
    let is_ordered = journal_of(held.shared).is_some_and(|it| it.is_ordered(changes));
    match (is_ordered, order.held.load(Relaxed) != 0) {
        (true, false) => Ok(()),
        (true, true) => release(held, held.shared.end.load(Acquire)),
        (false, _) => {
            order.held.store(1, Release);
            Ok(())
        }
    }
}

/// Says that the file's records below `end` are ordered.
#[cold]
fn release(held: &HeldFile, end: Lsn) -> Result<(), Errno> {
    let is_all = held.shared.end.load(Acquire) == end;
    held.session.log().ordered(held.number, end)?;
    if is_all {
        held.shared.order.held.store(0, Release);
    }
    Ok(())
}

/// True if the last write counts in a recovery only once the journal is committed.
#[inline]
pub(super) fn is_held(file: &SharedFile) -> bool {
    file.order.held.load(Relaxed) != 0
}

/// After a write that is held, to a pool in which a write is durable when it returns: has the
/// journal committed. If that fails, the next sync says so, as a plain one would. Without any lock
/// of the file.
#[cold]
pub(super) fn after_write(
    session: &'static MemberSession,
    file: AbsorbedNumber,
    fd: BorrowedFd<'_>,
) {
    if let Err(errno) = before_sync(session, file, fd, SyncKind::Data) {
        let failed = &session.page.files[file.0].order.failed;
        failed.store(errno.raw_os_error(), Release);
    }
}

/// True if a sync of this kind has to have a journal committed before it returns.
#[inline]
pub(super) fn is_behind(file: &SharedFile, durability: SyncKind) -> bool {
    let Some(journal) = journal_of(file) else {
        return true;
    };
    if journal.is_ordered(journal.changes()) {
        return false;
    }
    let order = &file.order;
    match durability {
        // The kernel commits no journal for it.
        SyncKind::Range => false,
        // Nor for what was written in place.
        SyncKind::Data => {
            !journal.is_ordered(order.written_after.load(Acquire))
                || order.unsynced.load(Acquire) != 0
        }
        SyncKind::Full => true,
    }
}

/// Before an absorbed sync returns: has the journal committed, if it may lack a change that came
/// before the writes. True if it did. Without any lock of the file.
///
/// # Errors
/// That of the real sync.
#[inline]
pub(super) fn before_sync(
    session: &'static MemberSession,
    (number, generation): AbsorbedNumber,
    fd: BorrowedFd<'_>,
    durability: SyncKind,
) -> Result<bool, Errno> {
    let file = &session.page.files[number];
    if file.order.failed.load(Relaxed) != 0 {
        let failed = file.order.failed.swap(0, AcqRel);
        return Err(Errno::from_raw_os_error(failed));
    }
    // First where its records end: what is counted is then no older than they are.
    let end = file.end.load(Acquire);
    let is_real = is_behind(file, durability);
    if is_real {
        order(file, fd)?;
    }
    if file.order.held.load(Acquire) != 0 && durability != SyncKind::Range {
        let release = |held: &mut HeldFile| release(held, end);
        with_file(session, (number, generation), release)?;
    }
    Ok(is_real)
}

#[cold]
fn order(file: &SharedFile, fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let journal = journal_of(file);
    let changes = journal.map_or(0, JournalOrder::changes);
    file.order.unsynced.store(0, Release);
    forebay_pool::failpoint!("files:order");
    commit_journal(fd).inspect_err(|_| file.order.unsynced.store(1, Release))?;
    forebay_pool::failpoint!("files:ordered");
    if let Some(journal) = journal {
        journal.note_ordered(changes);
        journal.syncs.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Before a truncation is logged, which a replay repeats whatever else the disk has: earlier
/// changes are on the disk. `fd` is the file's, if it is open here.
///
/// # Errors
/// That of the sync.
pub(super) fn before_truncation(held: &HeldFile, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    if !held.shared.is_logged() {
        return Ok(());
    }
    let is_ordered = |journal: &JournalOrder| journal.is_ordered(journal.changes());
    if !journal_of(held.shared).is_some_and(is_ordered) {
        match fd {
            Some(fd) => order(held.shared, fd)?,
            None => order(held.shared, directory_of(held)?.as_fd())?,
        }
    }
    match held.shared.order.held.load(Relaxed) {
        0 => Ok(()),
        _ => release(held, held.shared.end.load(Acquire)),
    }
}

/// The directory that has a file's name. Neither is written to.
fn directory_of(held: &HeldFile) -> Result<OwnedFd, Errno> {
    let path = path_of(held);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path.parent().ok_or(Errno::NOENT)?, flags, Mode::empty())
}
