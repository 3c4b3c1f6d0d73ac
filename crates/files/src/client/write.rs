//! Writes to absorbed files.
//!
//! The kernel is asked first and the lane written second, both under the file's lock, so that the
//! lane's order is the kernel's.

use super::{
    bypass::{claim_inherited, join_inherited},
    call_depth::interrupted,
    direct_io,
    fd_table::{self, FdEntry},
    file_mappings, order,
    process::{HeldFile, hold_open, lock, mark_range_unknown},
    retire::leave,
    session,
    sync::{not_logged, sync},
    sync_kind::SyncKind,
    tail_rewrites,
    times::failed_write,
};
use crate::{
    shared::{FileState, SampledWrite},
    sys,
};
use rustix::io::{Errno, ReadWriteFlags};
use std::{ffi::c_int, io::IoSlice, os::fd::BorrowedFd, sync::atomic::Ordering::Relaxed};

/// Writes `parts` to an absorbed `fd`, and to the pool: at `offset` or, with `None`, at the file
/// position, as `pwritev2` with `flags` (`RWF_…`) does. When this returns, what was written is
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
    let request = WriteRequest {
        fd,
        raw,
        parts,
        offset,
        flags,
    };
    loop {
        let Some(entry) = fd_table::entry(fd) else {
            return request.by_kernel();
        };
        if let Some(written) = request.attempt(entry)? {
            return Ok(written);
        }
    }
}

/// A write as the program asked for it.
#[derive(Clone, Copy)]
struct WriteRequest<'a> {
    fd: c_int,
    raw: BorrowedFd<'a>,
    parts: &'a [IoSlice<'a>],
    offset: Option<u64>,
    flags: c_int,
}

impl WriteRequest<'_> {
    fn by_kernel(&self) -> Result<usize, Errno> {
        kernel_write(self.raw, self.parts, self.offset, self.flags)
    }

    /// None if the descriptor or its file has another state by now, which is to be looked at anew.
    #[inline]
    fn attempt(&self, entry: FdEntry) -> Result<Option<usize>, Errno> {
        let Some(number) = entry.file() else {
            return self.past_the_lane(entry);
        };
        let flags = direct_io::before_write(self.raw, entry, self.parts, self.offset, self.flags)?;
        let request = Self { flags, ..*self };
        if interrupted() {
            return request.above_another(entry, number).map(Some);
        }
        let Some(session) = session::current() else {
            return leave(self.raw, number).map(|()| None);
        };
        match hold_open(session, self.fd, entry, number)? {
            Some(held) => request.while_absorbed(entry, held),
            None => Ok(None),
        }
    }

    /// The durability that the write needs when it returns.
    #[inline]
    fn sync_kind(&self, entry: FdEntry) -> Option<SyncKind> {
        let (hidden, flags) = (entry.hidden(), self.flags);
        let is_full = hidden & libc::O_SYNC == libc::O_SYNC || flags & libc::RWF_SYNC != 0;
        let is_synced = hidden & libc::O_DSYNC != 0 || flags & libc::RWF_DSYNC != 0;
        match is_full {
            true => Some(SyncKind::Full),
            false => is_synced.then_some(SyncKind::Data),
        }
    }

    /// To a file that is not absorbed, or not yet here. Of the descriptor only the flags are known.
    #[cold]
    fn past_the_lane(&self, entry: FdEntry) -> Result<Option<usize>, Errno> {
        if entry.is_inherited() {
            return claim_inherited(self.fd, entry).map(|()| None);
        }
        let hidden = entry.hidden();
        let really = match hidden & libc::O_DSYNC != 0 {
            true if hidden & libc::O_SYNC == libc::O_SYNC => self.flags | libc::RWF_SYNC,
            true => self.flags | libc::RWF_DSYNC,
            false => self.flags,
        };
        let written = match kernel_write(self.raw, self.parts, self.offset, really) {
            Err(Errno::OPNOTSUPP) if really != self.flags => self.write_and_sync(),
            done => done,
        };
        written.map(Some)
    }

    /// Writes and syncs, for kernels that take no flags with a write. That may be no file at all,
    /// in a thread with descriptors of its own: what cannot be synced need not be.
    fn write_and_sync(&self) -> Result<usize, Errno> {
        let written = self.by_kernel()?;
        match rustix::fs::fdatasync(self.raw) {
            Ok(()) | Err(Errno::INVAL) => Ok(written),
            Err(errno) => Err(errno),
        }
    }

    /// By a signal handler, above a call that may have a record unfinished: no other would ever
    /// become durable.
    #[cold]
    fn above_another(&self, entry: FdEntry, number: usize) -> Result<usize, Errno> {
        mark_range_unknown(number);
        let written = self.by_kernel()?;
        if let Some(kind) = self.sync_kind(entry) {
            sync(self.fd, kind)?;
        }
        Ok(written)
    }

    /// To a file that is absorbed, and stays so while it is held.
    #[inline]
    fn while_absorbed(&self, entry: FdEntry, mut held: HeldFile) -> Result<Option<usize>, Errno> {
        let (session, number) = (held.session, held.number);
        // What a program asks for may be more than there is memory; the kernel says so.
        let lengths = self.parts.iter().map(|part| part.len());
        let bytes = lengths.fold(0, usize::saturating_add);
        if !session.log().has_room(bytes) {
            drop(held);
            return session.wait_for_room(bytes).map(|()| None);
        }
        let Ok(copy) = file_mappings::copied(self.parts) else {
            drop(held);
            return leave(self.raw, number).map(|()| None);
        };
        let copy = copy.as_deref().map(IoSlice::new);
        let parts = copy.as_ref().map_or(self.parts, std::slice::from_ref);
        let request = WriteRequest { parts, ..*self };
        let sync_kind = request.sync_kind(entry);
        note_size(&held, self.raw);
        let changes = order::changes_before(&held);
        let written = (request.by_kernel()).inspect_err(|_| failed_write(&held, self.raw))?;
        if written == 0 {
            return Ok(Some(0));
        }
        forebay_pool::failpoint!("files:unlogged");
        if !held.shared.is_logged() {
            tail_rewrites::count(held.shared, written);
            drop(held);
            not_logged(session, (self.fd, number), sync_kind)?;
        } else if request.log(entry, &mut held, changes, written) {
            self.acknowledge(held, sync_kind)?;
        } else {
            drop(held);
            if let Some(kind) = sync_kind {
                sync(self.fd, kind)?;
            }
        }
        Ok(Some(written))
    }

    /// Logs what the kernel has taken. False if the lane has it not: a sync is to be a real one.
    #[inline]
    fn log(&self, entry: FdEntry, held: &mut HeldFile, changes: u64, written: usize) -> bool {
        let Ok(at) = self.place(entry, written) else {
            // Where it went is not known: it cannot be logged, and nothing after it.
            held.shared.stray(held.generation());
            return false;
        };
        let end = at + written as u64;
        let logged = order::wrote(held, changes, end).and_then(|()| {
            // To a pool on a disk it is the commit that is measured.
            let sample = match held.session.lane.needs_commit() {
                true => None,
                false => SampledWrite::begin(&held.session.page, held.shared),
            };
            tail_rewrites::log_write(held, at, self.parts, written).map(|()| sample)
        });
        match logged {
            Ok(sample) => {
                if let Some(sample) = sample {
                    sample.end(&held.session.page);
                }
                true
            }
            Err(why) => {
                // The kernel has what the lane has not: nothing older is written over it.
                held.shared.set_newer(at..end);
                if held.logged(Err(why)).is_err() {
                    // It needed more room than there was, or others took that, and what fills the
                    // lane cannot be synced. No sync says that this is durable but a real one.
                    held.shared.leave(held.generation());
                }
                false
            }
        }
    }

    /// After what was written was logged: it is durable if that was asked for.
    #[inline]
    fn acknowledge(&self, held: HeldFile, sync_kind: Option<SyncKind>) -> Result<(), Errno> {
        let (session, number) = (held.session, held.number);
        let needs_commit = session.lane.needs_commit();
        // Where an append alone is not durable, or the lane's records are not written to the file
        // any more.
        let commits = sync_kind.filter(|&kind| {
            held.shared.stamp().state == FileState::Strayed
                || needs_commit
                || order::is_behind(held.shared, kind)
        });
        if sync_kind.is_some() && commits.is_none() {
            held.shared.syncs.fetch_add(1, Relaxed);
        }
        let is_held = order::is_held(held.shared) && !needs_commit;
        let generation = held.generation();
        drop(held);
        match commits {
            Some(kind) => drop(sync(self.fd, kind)?),
            None if is_held => order::after_write(session, (number, generation), self.raw),
            None => {}
        }
        Ok(())
    }

    /// The place in the file at which the kernel put the last `written` bytes. It is asked, never
    /// remembered: every process that shares the open file moves its position, also a program that
    /// knows nothing of the client.
    #[inline]
    fn place(&self, entry: FdEntry, written: usize) -> Result<u64, Errno> {
        /// `RWF_NOAPPEND`, which is younger than the C library's headers.
        const NOAPPEND: c_int = 0x20;
        let written = written as u64;
        let appends = entry.append() || self.flags & libc::RWF_APPEND != 0;
        let end = match self.offset {
            Some(offset) if !appends || self.flags & NOAPPEND != 0 => return Ok(offset),
            // Linux appends also what is written at an offset, if the descriptor appends.
            Some(_) => u64::try_from(sys::stat_of(self.raw)?.st_size).unwrap_or(0),
            // Of an append as well: it leaves the position behind what it wrote.
            None => rustix::fs::tell(self.raw)?,
        };
        Ok(end.saturating_sub(written))
    }
}

/// Before the first write to a file in a segment: the size that it has, and its time if that lies
/// ahead. All that it has is on the disk when the segments before are released, so a recovery knows
/// an older copy of the file by it. Until the file is logged, no record has what makes it longer.
#[inline]
fn note_size(held: &HeldFile, raw: BorrowedFd<'_>) {
    if held.session.log().segment().ok() != held.shared.named_in() {
        note_first_size(held, raw);
    }
}

/// With a frame of its own, which is no part of the deepest chain.
#[cold]
#[inline(never)]
fn note_first_size(held: &HeldFile, raw: BorrowedFd<'_>) {
    if !held.shared.is_logged() {
        held.shared.set_known_end(None);
        return;
    }
    let stat = sys::stat_of(raw).ok();
    if let Some(stat) = &stat {
        held.shared.note_modified(sys::modified(stat));
    }
    let size = stat.map(|stat| stat.st_size.unsigned_abs());
    held.shared.set_had(size);
    held.shared.set_known_end(size);
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
