//! Reads, writes and syncs of logs.
//!
//! A write is done with a copy of the caller's bytes, by the agent's descriptor of the same open
//! file. So is what moves the file position: between a write and the question where it went, that
//! must stay.
#![expect(unsafe_code, reason = "reads into a buffer")]

use super::{CallOutcome, GO_ON, TrappedCall};
use crate::{
    caller::TRANSFER_MAX,
    listener::{CallAnswer, last_errno},
    numbers::OpenNumber,
    slots::CallPhase,
};
use forebay_files::client::{self, SyncKind};
use rustix::io::Errno;
use std::{cell::RefCell, io::IoSlice, os::fd::AsRawFd, sync::atomic::Ordering::Relaxed};

/// More are copied and written in turn.
const COPIED_MAX: usize = 64 << 20;
/// A thread keeps no more memory than this between calls.
const KEPT_MAX: usize = 1 << 20;

thread_local! {
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What a call transfers.
struct Transfer {
    parts: Vec<(u64, usize)>,
    /// None for the file position.
    offset: Option<u64>,
    flags: i32,
}

impl TrappedCall<'_> {
    /// The places and the offset of a read or a write; none if the kernel is to say what is wrong
    /// with them.
    fn transfer_of(&self) -> Option<Transfer> {
        let one = || {
            vec![(
                self.argument(1),
                TRANSFER_MAX.min(self.argument(2) as usize),
            )]
        };
        let parts = || self.thread().parts(self.argument(1), self.argument(2)).ok();
        let offset = || u64::try_from(self.argument(3).cast_signed()).ok();
        let (parts, offset, flags) = match self.seen.number {
            libc::SYS_write | libc::SYS_read => (one(), None, 0),
            libc::SYS_pwrite64 => (one(), Some(offset()?), 0),
            libc::SYS_writev | libc::SYS_readv => (parts()?, None, 0),
            libc::SYS_pwritev => (parts()?, Some(offset()?), 0),
            _ => {
                let offset = match self.argument(3).cast_signed() {
                    -1 => None,
                    _ => Some(offset()?),
                };
                (parts()?, offset, self.int(5))
            }
        };
        Some(Transfer {
            parts,
            offset,
            flags,
        })
    }

    pub(super) fn write(&self) -> CallOutcome {
        let Some(used) = self.used(self.int(0)) else {
            return GO_ON;
        };
        let open = &*used;
        let Some(transfer) = self.transfer_of() else {
            return GO_ON;
        };
        self.agent.pending.count_again();
        let written = BYTES.with_borrow_mut(|bytes| {
            let written = self.write_parts(open, &transfer, bytes);
            bytes.shrink_to(KEPT_MAX);
            written
        });
        match written {
            // It has shut others out of its memory.
            Err(Errno::PERM) if self.slot.phase() == CallPhase::Received => {
                match client::retire(open.number()) {
                    Ok(()) => GO_ON,
                    Err(errno) => Some(CallAnswer::Failed(errno)),
                }
            }
            written => Some(written.into()),
        }
    }

    fn write_parts(
        &self,
        open: &OpenNumber,
        transfer: &Transfer,
        bytes: &mut Vec<u8>,
    ) -> Result<i64, Errno> {
        let mut done = 0_usize;
        let (mut parts, mut skipped) = (transfer.parts.as_slice(), 0);
        loop {
            let is_all = self.gather(&mut parts, &mut skipped, bytes, done == 0)?;
            self.check_waiting()?;
            if done == 0 {
                let appends = open.appends.load(Relaxed) || transfer.flags & libc::RWF_APPEND != 0;
                self.slot.begin_at(before(open, appends, transfer.offset)?);
            }
            let offset = transfer.offset.map(|offset| offset + done as u64);
            let part = IoSlice::new(bytes);
            match client::write(open.number(), &[part], offset, transfer.flags) {
                Ok(written) => {
                    done += written;
                    if is_all || written < bytes.len() {
                        return Ok(done as i64);
                    }
                }
                Err(_) if done > 0 => return Ok(done as i64),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Copies what is to be written next. True if that is all of it: or the rest cannot be read.
    fn gather(
        &self,
        parts: &mut &[(u64, usize)],
        skipped: &mut usize,
        bytes: &mut Vec<u8>,
        is_first: bool,
    ) -> Result<bool, Errno> {
        bytes.clear();
        while let Some(((address, length), rest)) = parts.split_first() {
            let wanted = (length - *skipped).min(COPIED_MAX - bytes.len());
            // One part needs no second copy.
            let is_whole = rest.is_empty() && bytes.is_empty();
            let into = if is_whole {
                std::mem::take(bytes)
            } else {
                Vec::new()
            };
            let read = self.read_part(address + *skipped as u64, wanted, into);
            let copied = match read {
                Err(errno) if is_first && bytes.is_empty() && wanted > 0 => return Err(errno),
                Err(_) => return Ok(true),
                Ok(part) => part,
            };
            let is_short = copied.len() < wanted;
            match is_whole {
                true => *bytes = copied,
                false => bytes.extend_from_slice(&copied),
            }
            if is_short {
                return Ok(true);
            }
            *skipped += wanted;
            if *skipped < *length {
                return Ok(false);
            }
            (*parts, *skipped) = (rest, 0);
        }
        Ok(true)
    }

    /// Copies a part, into memory that is given.
    fn read_part(&self, address: u64, bytes: usize, mut into: Vec<u8>) -> Result<Vec<u8>, Errno> {
        match bytes {
            0 => into.clear(),
            _ => self.thread().read(address, bytes, &mut into)?,
        }
        Ok(into)
    }

    pub(super) fn sync(&self) -> CallOutcome {
        let fd = self.int(0);
        self.agent.pending.count_again();
        let Some(used) = self.used(fd) else {
            return self.sync_of_another();
        };
        let open = &*used;
        let kind = match self.seen.number {
            libc::SYS_fsync => SyncKind::Full,
            libc::SYS_fdatasync => SyncKind::Data,
            _ if !self.is_range_sync() => return GO_ON,
            _ => SyncKind::Range,
        };
        let synced = self
            .begin()
            .and_then(|()| client::sync(open.number(), kind));
        Some(synced.map(|_| 0).into())
    }

    /// Whether `sync_file_range` is neither invalid nor without effect.
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
        match client::commits().then(client::commit) {
            Some(Err(errno)) if self.seen.number != libc::SYS_sync => {
                Some(CallAnswer::Failed(errno))
            }
            _ => GO_ON,
        }
    }

    pub(super) fn seek(&self) -> CallOutcome {
        let Some(used) = self.used(self.int(0)) else {
            return GO_ON;
        };
        let open = &*used;
        let (offset, whence) = (self.argument(1).cast_signed(), self.int(2));
        let moved = self.begin().and_then(|()| {
            client::at_position(open.number(), || {
                // SAFETY: it takes numbers.
                let at = unsafe { libc::lseek(open.number(), offset, whence) };
                if at < 0 { Err(last_errno()) } else { Ok(at) }
            })
        });
        Some(moved.into())
    }

    /// Reads at the file position.
    pub(super) fn read(&self) -> CallOutcome {
        let Some(used) = self.used(self.int(0)) else {
            return GO_ON;
        };
        let open = &*used;
        let Some(transfer) = self.transfer_of().filter(|it| it.offset.is_none()) else {
            return GO_ON;
        };
        if let Err(errno) = self.begin() {
            return Some(CallAnswer::Failed(errno));
        }
        let read = BYTES.with_borrow_mut(|bytes| {
            let read = self.read_parts(open, &transfer, bytes);
            bytes.shrink_to(KEPT_MAX);
            read
        });
        Some(read.into())
    }

    fn read_parts(
        &self,
        open: &OpenNumber,
        transfer: &Transfer,
        bytes: &mut Vec<u8>,
    ) -> Result<i64, Errno> {
        let mut done = 0;
        for (address, length) in &transfer.parts {
            let mut at = 0;
            while at < *length {
                let wanted = (length - at).min(COPIED_MAX);
                let read = match read_some(open, wanted, bytes) {
                    Ok(read) => read,
                    Err(_) if done > 0 => return Ok(done as i64),
                    Err(errno) => return Err(errno),
                };
                let taken = self.thread().write(address + at as u64, &bytes[..read]);
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

fn read_some(open: &OpenNumber, wanted: usize, bytes: &mut Vec<u8>) -> Result<usize, Errno> {
    bytes.clear();
    bytes.try_reserve(wanted).map_err(|_| Errno::NOMEM)?;
    client::at_position(open.number(), || {
        // SAFETY: there is room for so many.
        let read = unsafe { libc::read(open.fd().as_raw_fd(), bytes.as_mut_ptr().cast(), wanted) };
        let read = usize::try_from(read).map_err(|_| last_errno())?;
        // SAFETY: so many were read.
        unsafe { bytes.set_len(read) };
        Ok(read)
    })
}

/// By which it can be told how far a write came: the file's size where it appends, its position
/// where it is to be written there; -1 at an offset, where writing again changes nothing.
fn before(open: &OpenNumber, appends: bool, offset: Option<u64>) -> Result<i64, Errno> {
    match offset {
        _ if appends => Ok(rustix::fs::fstat(open.fd())?.st_size),
        None => Ok(rustix::fs::tell(open.fd())? as i64),
        Some(_) => Ok(-1),
    }
}
