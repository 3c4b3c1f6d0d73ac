//! What is written to an absorbed file, and what asks that it be durable.
//!
//! The kernel is asked first and the lane written second, both under the file's lock, so that the
//! lane's order is the kernel's.

use super::{
    bypass::{claim_inherited, join_inherited},
    call_depth::interrupted,
    commit::commit_if_known,
    direct_io,
    fd_table::{self, FdEntry},
    file_mappings, in_signal_handler, order,
    process::{self, HeldFile, hold_open, lock, make_plain, mark_range_unknown},
    retire::leave,
    session::{self, MemberSession},
    tail_rewrites,
    times::failed_write,
};
use crate::{
    log::ENDED,
    shared::{DueSync, FileState},
    sys,
};
use rustix::io::{Errno, ReadWriteFlags};
use std::{
    ffi::c_int,
    io::IoSlice,
    os::fd::BorrowedFd,
    sync::atomic::Ordering::{Acquire, Relaxed},
};

/// Writes `parts` to an absorbed `fd`, at `offset` or, with `None`, at the file position, as
/// `pwritev2` with `flags` (`RWF_…`) does, and to the pool: when this returns, what was written is
/// durable as soon as a sync says so. Not a cancellation point.
///
/// # Errors
/// The kernel's; that of a file's sync, if the lane is full because of it: then nothing was
/// written.
pub fn write(
    fd: c_int,
    parts: &[IoSlice<'_>],
    offset: Option<u64>,
    flags: c_int,
) -> Result<usize, Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    loop {
        let Some(entry) = fd_table::entry(fd) else {
            return kernel_write(raw, parts, offset, flags);
        };
        let hidden = entry.hidden();
        let flags = match entry.file() {
            Some(_) => direct_io::before_write(raw, entry, parts, offset, flags)?,
            None => flags,
        };
        let synchronous = hidden & libc::O_DSYNC != 0;
        let is_synced = synchronous || flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
        let is_full = hidden & libc::O_SYNC == libc::O_SYNC || flags & libc::RWF_SYNC != 0;
        let durability = if is_full {
            SyncKind::Full
        } else {
            SyncKind::Data
        };
        let really = match synchronous {
            true if hidden & libc::O_SYNC == libc::O_SYNC => flags | libc::RWF_SYNC,
            true => flags | libc::RWF_DSYNC,
            false => flags,
        };
        let Some(number) = entry.file() else {
            if entry.is_inherited() {
                claim_inherited(fd, entry)?;
                continue;
            }
            return match kernel_write(raw, parts, offset, really) {
                Err(Errno::OPNOTSUPP) if really != flags => {
                    write_and_sync(raw, parts, offset, flags)
                }
                done => done,
            };
        };
        if interrupted() {
            // A signal handler, above a call that may have a record unfinished: no other would ever
            // become durable.
            mark_range_unknown(number);
            let written = kernel_write(raw, parts, offset, flags)?;
            if is_synced {
                sync(fd, durability)?;
            }
            return Ok(written);
        }
        let Some(session) = session::current() else {
            leave(raw, number)?;
            continue;
        };
        let Some(mut held) = hold_open(session, fd, entry, number)? else {
            continue;
        };
        // What a program asks for may be more than there is memory; the kernel says so.
        let lengths = parts.iter().map(|part| part.len());
        let bytes = lengths.fold(0, usize::saturating_add);
        if !session.log().has_room(bytes) {
            drop(held);
            session.wait_for_room(bytes)?;
            continue;
        }
        let Ok(copy) = file_mappings::copied(parts) else {
            drop(held);
            leave(raw, number)?;
            continue;
        };
        let copy = copy.as_deref().map(IoSlice::new);
        let parts = copy.as_ref().map_or(parts, std::slice::from_ref);
        note_size(&held, raw);
        let changes = order::changes_before(&held);
        let written =
            kernel_write(raw, parts, offset, flags).inspect_err(|_| failed_write(&held, raw))?;
        if written == 0 {
            return Ok(0);
        }
        forebay_pool::failpoint!("files:unlogged");
        if !held.shared.is_logged() {
            tail_rewrites::count(held.shared, written);
            drop(held);
            not_logged(session, (fd, number), is_synced.then_some(durability))?;
            return Ok(written);
        }
        match place(raw, entry, offset, flags, written) {
            Ok(at) => match order::wrote(&held, changes, at + written as u64)
                .and_then(|()| tail_rewrites::log_write(&mut held, at, parts, written))
            {
                Ok(()) => {
                    // Where an append alone is not durable, or the lane's records are not written
                    // to the file any more.
                    let needs_commit = session.lane.needs_commit();
                    let commits = is_synced
                        && (held.shared.stamp().state == FileState::Strayed
                            || needs_commit
                            || order::is_behind(held.shared, durability));
                    if is_synced && !commits {
                        held.shared.syncs.fetch_add(1, Relaxed);
                    }
                    let is_held = order::is_held(held.shared) && !needs_commit;
                    let generation = held.generation();
                    drop(held);
                    match commits {
                        true => drop(sync(fd, durability)?),
                        false if is_held => order::after_write(session, (number, generation), raw),
                        false => {}
                    }
                    return Ok(written);
                }
                // The kernel has what the lane has not: nothing older is written over it.
                Err(ENDED) => {
                    held.shared.set_newer(at..at + written as u64);
                    held.logged(Err(ENDED))?;
                }
                // Others took the room, and what they filled cannot be synced. What the kernel has
                // was not acknowledged.
                Err(errno) => return Err(errno),
            },
            // Where it went is not known: it cannot be logged, and nothing after it.
            Err(_) => {
                held.shared.stray(held.generation());
            }
        }
        drop(held);
        if is_synced {
            sync(fd, durability)?;
        }
        return Ok(written);
    }
}

/// After a change that the lane has not, since the file's first sync is to come: that covers it.
/// With a pool on a disk a write is durable when a sync says so; elsewhere when it
/// returns.
///
/// # Errors
/// As [`sync`].
#[cold]
fn not_logged(
    session: &'static MemberSession,
    (fd, number): (c_int, usize),
    sync_as: Option<SyncKind>,
) -> Result<(), Errno> {
    if let Some(durability) = sync_as {
        return sync(fd, durability).map(drop);
    }
    first_synced(session, number, process::generation(number));
    Ok(())
}

/// Before a change of a file that is not logged counts as one that was.
pub(super) fn first_synced(session: &'static MemberSession, number: usize, generation: u32) {
    match session.lane.needs_commit() {
        true => session.page.ask_first_sync(number, DueSync::Soon),
        false => session.wait_for_first_sync(number, generation),
    }
}

impl MemberSession {
    /// Has the supervisor do a file's first sync, and returns when it is done, or the file is no
    /// longer absorbed, or there is no supervisor. Without any lock of it.
    #[cold]
    pub(super) fn wait_for_first_sync(&self, number: usize, generation: u32) {
        let is_over = || !self.is_current() || self.is_orphan();
        self.page.wait_for_first_sync(number, generation, is_over);
    }
}

/// Before the first write to a file in a segment: the size that it has, and its time if that lies
/// ahead. All that it has is on the disk when the segments before are released, so a recovery knows
/// an older copy of the file by it.
#[inline]
fn note_size(held: &HeldFile, raw: BorrowedFd<'_>) {
    if held.session.log().segment().ok() != held.shared.named_in() {
        let stat = sys::stat_of(raw).ok();
        if let Some(stat) = &stat {
            held.shared.note_modified(sys::modified(stat));
        }
        let size = stat.map(|stat| stat.st_size.unsigned_abs());
        held.shared.set_had(size);
        held.shared.set_known_end(size);
    }
}

/// Where in the file the kernel put the last `written` bytes. It is asked, never remembered: every
/// process that shares the open file moves its position, also a program that knows nothing of the
/// client.
#[inline]
fn place(
    raw: BorrowedFd<'_>,
    entry: FdEntry,
    offset: Option<u64>,
    flags: c_int,
    written: usize,
) -> Result<u64, Errno> {
    /// `RWF_NOAPPEND`, which is younger than the C library's headers.
    const NOAPPEND: c_int = 0x20;
    let written = written as u64;
    let appends = (entry.append() || flags & libc::RWF_APPEND != 0) && flags & NOAPPEND == 0;
    let end = match offset {
        Some(offset) if !appends => return Ok(offset),
        // Linux appends also what is written at an offset, if the descriptor appends.
        Some(_) => u64::try_from(sys::stat_of(raw)?.st_size).unwrap_or(0),
        // Of an append as well: it leaves the position behind what it wrote.
        None => rustix::fs::tell(raw)?,
    };
    Ok(end.saturating_sub(written))
}

/// Where the kernel takes no flags with a write. That may be no file at all, in a thread with
/// descriptors of its own: what cannot be synced need not be.
fn write_and_sync(
    fd: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    offset: Option<u64>,
    flags: c_int,
) -> Result<usize, Errno> {
    let written = kernel_write(fd, parts, offset, flags)?;
    match rustix::fs::fdatasync(fd) {
        Ok(()) | Err(Errno::INVAL) => Ok(written),
        Err(errno) => Err(errno),
    }
}

pub(super) fn kernel_write(
    fd: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    offset: Option<u64>,
    flags: c_int,
) -> Result<usize, Errno> {
    match (parts, offset) {
        ([part], None) if flags == 0 => rustix::io::write(fd, part),
        ([part], Some(offset)) if flags == 0 => rustix::io::pwrite(fd, part, offset),
        (parts, None) if flags == 0 => rustix::io::writev(fd, parts),
        (parts, Some(offset)) if flags == 0 => rustix::io::pwritev(fd, parts, offset),
        (parts, offset) => {
            let flags = ReadWriteFlags::from_bits_retain(flags as u32);
            rustix::io::pwritev2(fd, parts, offset.unwrap_or(u64::MAX), flags)
        }
    }
}

/// What is to be durable when a sync returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// Bytes and all metadata: `fsync`.
    Full,
    /// Bytes, and what is needed to read them: `fdatasync`.
    Data,
    /// Bytes of blocks that the file has: `sync_file_range`. The kernel commits no journal.
    Range,
}

/// How a sync was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// What was written is in the pool.
    InPool,
    /// By the kernel.
    Really,
}

fn really(fd: BorrowedFd<'_>) -> Result<SyncOutcome, Errno> {
    rustix::fs::fsync(fd).map(|()| SyncOutcome::Really)
}

/// `fsync`, `fdatasync`, `sync_file_range`, `msync` of an absorbed `fd`: everything that any
/// process wrote to it is durable when this returns.
///
/// # Errors
/// The kernel's, if the file cannot be synced.
pub fn sync(fd: c_int, durability: SyncKind) -> Result<SyncOutcome, Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let entry = fd_table::entry(fd);
    if let Some(entry) = entry.filter(|entry| entry.is_inherited()) {
        claim_inherited(fd, entry)?;
        return sync(fd, durability);
    }
    let Some(number) = entry.and_then(FdEntry::file) else {
        commit_if_known(raw)?;
        return really(raw);
    };
    if interrupted() {
        return in_signal_handler::sync(number, raw).map(|()| SyncOutcome::Really);
    }
    let Some(session) = session::current() else {
        leave(raw, number)?;
        return really(raw);
    };
    let file = &session.page.files[number];
    let wanted = process::generation(number);
    let stamp = file.stamp();
    if fd_table::entry(fd) != entry {
        // Its file is plain by now, and another has the number.
        return sync(fd, durability);
    }
    match stamp.state {
        _ if session.is_orphan() => {
            let settled = session.settle(number);
            make_plain(number, wanted);
            settled.and_then(|()| really(raw))
        }
        FileState::Absorbed if stamp.generation == wanted => {
            file.syncs.fetch_add(1, Relaxed);
            if file.error().is_some() {
                session.repair(number)?;
            }
            if file.lock.is_held() {
                // Of a write that is under way, another thread's or another process's, the kernel
                // may have what the lane has not: a caller that has seen that waits until it is
                // logged. If its process is dead it never is: then the supervisor syncs it, or says
                // that it could not.
                drop(lock(session, number));
                if file.lock.is_damaged() {
                    session.give_up_lane(number, wanted)?;
                }
                if session.is_orphan() || file.stamp() != stamp || file.error().is_some() {
                    return sync(fd, durability);
                }
            }
            if !file.is_logged() {
                // It is durable by that, or the file is plain.
                session.wait_for_first_sync(number, wanted);
                if file.stamp() != stamp || !file.is_logged() {
                    return sync(fd, durability);
                }
            }
            let is_real = order::before_sync(session, (number, wanted), raw, durability)?;
            match session.commit(file.end.load(Acquire)) {
                Ok(()) if is_real => Ok(SyncOutcome::Really),
                Ok(()) => Ok(SyncOutcome::InPool),
                Err(_) => {
                    // The pool's disk failed, or the run ended: the file is plain next.
                    if !session.is_orphan() {
                        file.stray(wanted);
                    }
                    sync(fd, durability)
                }
            }
        }
        state if state.leaves() && stamp.generation == wanted => {
            file.syncs.fetch_add(1, Relaxed);
            if file.error().is_some() {
                session.repair(number)?;
            }
            session.retire(number, wanted)?;
            really(raw)
        }
        FileState::Damaged if session.is_current() => {
            session.give_up_lane(number, wanted)?;
            sync(fd, durability)
        }
        // It is plain.
        _ => really(raw),
    }
}

/// Does `call`, which moves the file position of `fd`, while no write to its file is under way in
/// any process: for `read`, `readv`, `lseek`. Between a write and the question where it went the
/// position stays, though a forked child or an executed program has the same open file.
pub fn at_position<T>(fd: c_int, call: impl FnOnce() -> T) -> T {
    let mut entry = fd_table::entry(fd);
    if entry.is_some_and(FdEntry::is_inherited) && !interrupted() {
        join_inherited(fd);
        entry = fd_table::entry(fd);
    }
    let Some(number) = entry.and_then(FdEntry::file) else {
        return call();
    };
    if interrupted() {
        mark_range_unknown(number);
        return call();
    }
    let _held = session::current().and_then(|session| lock(session, number));
    call()
}
