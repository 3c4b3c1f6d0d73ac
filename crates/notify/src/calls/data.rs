//! Reads, writes and syncs of logs.
//!
//! A write is done with a copy of the caller's bytes, by the agent's descriptor of the same open
//! file. So is what moves the file position: between a write and the question where it went, that
//! must stay. Such calls hold the file's lock ([`OpenNumber::position`]) until the answer is noted,
//! so when the agent dies the position says exactly how far the one was that held it.
#![expect(unsafe_code, reason = "reads into a buffer")]

use super::{CallOutcome, GO_ON, TrappedCall, copied_bytes::CopiedBytes, done};
use crate::{
    caller::TRANSFER_MAX,
    listener::last_errno,
    numbers::OpenNumber,
    plain_calls::{write_synced, writes_unsynced},
    slots::CallPhase,
    unanswered::mark_before,
};
use forebay_files::client::{self, SyncKind};
use rustix::io::Errno;
use std::{cell::RefCell, io::IoSlice, os::fd::AsRawFd, sync::atomic::Ordering::Relaxed};

/// More are copied and written in turn.
const COPIED_MAX: usize = 64 << 20;
/// A thread keeps no more memory than this between calls.
const KEPT_MAX: usize = 1 << 20;

thread_local! {
    static BYTES: RefCell<CopiedBytes> = const { RefCell::new(CopiedBytes::new()) };
}

/// The bytes that a call transfers.
struct Transfer {
    parts: Vec<(u64, usize)>,
    /// None for the file position.
    offset: Option<u64>,
    flags: i32,
}

impl Transfer {
    fn appends(&self, open: &OpenNumber) -> bool {
        open.appends.load(Relaxed) || self.flags & libc::RWF_APPEND != 0
    }
}

impl TrappedCall<'_> {
    /// The places and the offset of a read or a write; none if the kernel is to say what is wrong
    /// with them.
    ///
    /// # Errors
    /// They cannot be read: perhaps by the agent only.
    fn transfer_of(&self) -> Result<Option<Transfer>, Errno> {
        let one = || {
            vec![(
                self.argument(1),
                TRANSFER_MAX.min(self.argument(2) as usize),
            )]
        };
        let parts = || self.thread().parts(self.argument(1), self.argument(2));
        let at = self.argument(3).cast_signed();
        let (is_at_offset, has_flags) = match self.seen.number {
            libc::SYS_write | libc::SYS_read | libc::SYS_writev | libc::SYS_readv => (false, false),
            libc::SYS_pwrite64 | libc::SYS_pwritev => (true, false),
            _ => (at != -1, true),
        };
        if is_at_offset && at < 0 {
            return Ok(None);
        }
        let parts = match self.seen.number {
            libc::SYS_write | libc::SYS_read | libc::SYS_pwrite64 => one(),
            _ => match parts() {
                Err(Errno::INVAL) => return Ok(None),
                parts => parts?,
            },
        };
        Ok(Some(Transfer {
            parts,
            offset: is_at_offset.then_some(at.unsigned_abs()),
            flags: if has_flags { self.int(5) } else { 0 },
        }))
    }

    pub(super) fn write(&self) -> CallOutcome {
        let Some(used) = self.used(self.int(0))? else {
            return self.write_unknown();
        };
        let open = &*used;
        let transfer = match self.transfer_of() {
            Ok(Some(transfer)) => transfer,
            Ok(None) => return GO_ON,
            // The kernel says what is wrong, if it may be asked.
            Err(errno) => return self.hand_over_open(open).map_err(|_| errno).and(GO_ON),
        };
        self.agent.pending.count_again();
        let moves = transfer.offset.is_none() || transfer.appends(open);
        let position = moves.then(|| open.position.lock());
        let written = BYTES.with_borrow_mut(|bytes| {
            let written = self.write_parts(open, &transfer, bytes);
            bytes.shrink_to(KEPT_MAX);
            written
        });
        // It has shut others out of its memory.
        if written == Err(Errno::PERM) && self.slot.phase() == CallPhase::Received {
            drop(position);
            return self.hand_over_open(open).and(GO_ON);
        }
        self.slot.set_answer(written.into());
        done(written)
    }

    /// Writes by a number that the agent does not know. It may have been a log's that was to be
    /// synced with each write.
    fn write_unknown(&self) -> CallOutcome {
        let slots = &self.agent.slots;
        let Some(fd) = writes_unsynced(self.seen, slots)? else {
            return GO_ON;
        };
        let _one = self.agent.unknown.lock_of(rustix::fs::fstat(&fd)?.st_ino);
        self.check_waiting()?;
        self.slot.begin_at(mark_before(&fd, self.seen)?);
        let answer = write_synced(&fd, self.seen, slots);
        self.slot.set_answer(answer);
        Ok(Some(answer))
    }

    fn write_parts(
        &self,
        open: &OpenNumber,
        transfer: &Transfer,
        bytes: &mut CopiedBytes,
    ) -> Result<i64, Errno> {
        let mut written = 0_usize;
        let (mut parts, mut skipped) = (transfer.parts.as_slice(), 0);
        loop {
            let is_all = self.gather(&mut parts, &mut skipped, bytes, written == 0)?;
            self.check_waiting()?;
            if written == 0 {
                let before = before(open, transfer.appends(open), transfer.offset)?;
                self.slot.begin_at(before);
            }
            let offset = transfer.offset.map(|offset| offset + written as u64);
            let part = IoSlice::new(bytes.bytes());
            match client::write(open.number(), &[part], offset, transfer.flags) {
                Ok(more) => {
                    written += more;
                    if is_all || more < bytes.len() {
                        return Ok(written as i64);
                    }
                }
                Err(_) if written > 0 => return Ok(written as i64),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Copies what is to be written next. True if that is all of it: or the rest cannot be read.
    fn gather(
        &self,
        parts: &mut &[(u64, usize)],
        skipped: &mut usize,
        bytes: &mut CopiedBytes,
        is_first: bool,
    ) -> Result<bool, Errno> {
        let left = parts.iter().map(|(_, length)| length).sum::<usize>() - *skipped;
        let first = parts.iter().find(|(_, length)| *length > 0);
        let address = first.map_or(0, |(address, _)| *address);
        bytes.prepare(address.wrapping_add(*skipped as u64), left.min(COPIED_MAX))?;
        while let Some(((address, length), rest)) = parts.split_first() {
            let wanted = (length - *skipped).min(COPIED_MAX - bytes.len());
            let is_empty = bytes.len() == 0;
            let at = address.wrapping_add(*skipped as u64);
            match self.thread().read_more(at, wanted, bytes.memory()) {
                Err(errno) if is_first && is_empty => return Err(errno),
                Ok(copied) if copied == wanted => {}
                _ => return Ok(true),
            }
            *skipped += wanted;
            if *skipped < *length {
                return Ok(false);
            }
            (*parts, *skipped) = (rest, 0);
        }
        Ok(true)
    }

    pub(super) fn sync(&self) -> CallOutcome {
        let fd = self.int(0);
        self.agent.pending.count_again();
        let Some(used) = self.used(fd)? else {
            return self.sync_of_another();
        };
        let open = &*used;
        let kind = match self.seen.number {
            libc::SYS_fsync => SyncKind::Full,
            libc::SYS_fdatasync => SyncKind::Data,
            _ if !self.is_range_sync() => return GO_ON,
            _ => SyncKind::Range,
        };
        if client::commits() {
            self.pass_turn();
        }
        // Nothing was read of the thread: if another has its number now, a sync harms nothing.
        self.slot.begin();
        let synced = client::sync(open.number(), kind);
        done(synced.map(|_| 0))
    }

    /// True if `sync_file_range` is neither invalid nor without effect.
    fn is_range_sync(&self) -> bool {
        const KNOWN: u32 = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let (offset, bytes) = (
            self.argument(1).cast_signed(),
            self.argument(2).cast_signed(),
        );
        let flags = self.argument(3) as u32;
        offset >= 0
            && bytes >= 0
            && offset.checked_add(bytes).is_some()
            && flags != 0
            && flags & !KNOWN == 0
    }

    /// A sync by a descriptor that is no log's, but may be of an absorbed file: one that cannot
    /// write.
    fn sync_of_another(&self) -> CallOutcome {
        if !client::commits() {
            return GO_ON;
        }
        let is_log = self.thread().directory(self.int(0));
        match is_log.is_ok_and(|fd| client::is_to_be_committed(fd.as_raw_fd())) {
            true => self.sync_all(),
            false => GO_ON,
        }
    }

    /// Before the kernel syncs more than a log.
    pub(super) fn sync_all(&self) -> CallOutcome {
        if client::commits() {
            self.pass_turn();
        }
        match client::commits().then(client::commit) {
            Some(Err(errno)) if self.seen.number != libc::SYS_sync => Err(errno),
            _ => GO_ON,
        }
    }

    pub(super) fn seek(&self) -> CallOutcome {
        let Some(used) = self.used(self.int(0))? else {
            return GO_ON;
        };
        let open = &*used;
        let (offset, whence) = (self.argument(1).cast_signed(), self.int(2));
        let _position = open.position.lock();
        self.begin_moving(open)?;
        let moved = client::at_position(open.number(), || {
            // SAFETY: it takes numbers.
            let at = unsafe { libc::lseek(open.number(), offset, whence) };
            if at < 0 { Err(last_errno()) } else { Ok(at) }
        });
        self.slot.set_answer(moved.into());
        done(moved)
    }

    /// Before a call that moves the file position and can be made again, from where it was.
    fn begin_moving(&self, open: &OpenNumber) -> Result<(), Errno> {
        self.check_waiting()?;
        let before = before(open, false, None)?;
        self.slot.begin_at(before);
        Ok(())
    }

    /// Reads at the file position.
    pub(super) fn read(&self) -> CallOutcome {
        let Some(used) = self.used(self.int(0))? else {
            return GO_ON;
        };
        let open = &*used;
        let transfer = match self.transfer_of() {
            Ok(Some(transfer)) if transfer.offset.is_none() => transfer,
            _ => return GO_ON,
        };
        let _position = open.position.lock();
        self.begin_moving(open)?;
        let read = BYTES.with_borrow_mut(|bytes| {
            let read = self.read_parts(open, &transfer, bytes);
            bytes.shrink_to(KEPT_MAX);
            read
        });
        self.slot.set_answer(read.into());
        done(read)
    }

    fn read_parts(
        &self,
        open: &OpenNumber,
        transfer: &Transfer,
        bytes: &mut CopiedBytes,
    ) -> Result<i64, Errno> {
        let mut done = 0;
        for (address, length) in &transfer.parts {
            let mut at = 0;
            while at < *length {
                let wanted = (length - at).min(COPIED_MAX);
                let place = address.wrapping_add(at as u64);
                let read = match read_some(open, (place, wanted), bytes) {
                    Ok(read) => read,
                    Err(_) if done > 0 => return Ok(done as i64),
                    Err(errno) => return Err(errno),
                };
                let taken = self.thread().write(place, &bytes.bytes()[..read]);
                done += taken;
                at += taken;
                if taken < read {
                    // The position is behind what the caller got.
                    let back = (read - taken) as i64;
                    // SAFETY: it takes numbers.
                    unsafe { libc::lseek(open.number(), -back, libc::SEEK_CUR) };
                    return if done > 0 {
                        Ok(done as i64)
                    } else {
                        Err(Errno::FAULT)
                    };
                }
                if read < wanted {
                    return Ok(done as i64);
                }
            }
        }
        Ok(done as i64)
    }
}

fn read_some(
    open: &OpenNumber,
    (address, wanted): (u64, usize),
    bytes: &mut CopiedBytes,
) -> Result<usize, Errno> {
    bytes.prepare(address, wanted)?;
    client::at_position(open.number(), || {
        let memory = bytes.memory();
        let begin = memory.len();
        let room = memory.spare_capacity_mut().as_mut_ptr();
        // SAFETY: there is room for so many.
        let read = unsafe { libc::read(open.fd().as_raw_fd(), room.cast(), wanted) };
        let read = usize::try_from(read).map_err(|_| last_errno())?;
        // SAFETY: so many were read.
        unsafe { memory.set_len(begin + read) };
        Ok(read)
    })
}

/// The mark by which can be told how far a write came: the file's size if it appends, its position
/// if it is to be written there; -1 at an offset, since writing again changes nothing.
fn before(open: &OpenNumber, appends: bool, offset: Option<u64>) -> Result<i64, Errno> {
    match offset {
        _ if appends => Ok(rustix::fs::fstat(open.fd())?.st_size),
        None => Ok(rustix::fs::tell(open.fd())? as i64),
        Some(_) => Ok(-1),
    }
}
