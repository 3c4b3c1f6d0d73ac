//! Writes that come back to where the last one ended: of the bytes that are logged already, none is
//! logged again.
//!
//! PostgreSQL and InnoDB write their logs in whole blocks, so each commit writes the last block
//! again, with a few hundred bytes more in it. The record has what differs from the block as it was
//! logged last, whichever process did ([`LastWrite`](crate::shared::LastWrite)).
//!
//! What a record leaves out, an older record of *the same segment* has: both are released together,
//! after a sync of the file that began when both writes had returned. A record of an older segment
//! is not enough: other threads may change the caller's memory while it is written. So what that
//! record has need not be what the kernel got by the same write, and synced.
//!
//! A byte that is found to be the same is not loaded again; what differs is copied, and the copy is
//! what is logged and what the next write is compared with. A copy is made only of a file of which
//! a write came back at least once; a log that is only appended to pays nothing.

use super::{last_write_cache::LastWriteCache, process::HeldFile};
use crate::{log::LaneLog, shared::SharedFile};
use rustix::io::Errno;
use std::{io::IoSlice, sync::atomic::Ordering::Relaxed};

/// Logs a write at file offset `at`: the first `bytes` bytes of `parts`; bytes that the open
/// segment has already are left out.
///
/// # Errors
/// As [`LaneLog::write`](crate::log::LaneLog::write).
#[inline]
pub(super) fn log_write(
    held: &mut HeldFile,
    at: u64,
    parts: &[IoSlice<'_>],
    bytes: usize,
) -> Result<(), Errno> {
    let shared = held.shared;
    let known = &shared.last_write;
    let done = match parts {
        [part] if known.is_met(shared.end.load(Relaxed), at) => {
            log_changed(held, at, &part[..bytes])
        }
        _ => {
            let done = held.session.log().write(held.number, at, parts, bytes);
            let range = at..at + bytes as u64;
            done.map(|()| known.keep_place(range, shared.end.load(Relaxed)))
        }
    };
    if done.is_err() {
        known.forget();
        return done;
    }
    count(shared, bytes);
    Ok(())
}

/// Counts a write of `bytes` bytes.
#[inline]
pub(super) fn count(shared: &SharedFile, bytes: usize) {
    for (count, more) in [(&shared.writes, 1), (&shared.bytes, bytes as u64)] {
        count.store(count.load(Relaxed).wrapping_add(more), Relaxed);
    }
}

fn log_changed(held: &mut HeldFile, at: u64, write: &[u8]) -> Result<(), Errno> {
    let log = held.session.log();
    log_copied(&log, held.shared, held.number, at, write, &mut held.copies)
}

fn log_copied(
    log: &LaneLog<'_>,
    shared: &SharedFile,
    number: usize,
    at: u64,
    write: &[u8],
    copies: &mut LastWriteCache,
) -> Result<(), Errno> {
    let last = &shared.last_write;
    let Some(known) = log.page.block(number).take(number, last) else {
        // Another file with the same block is about to be logged.
        log.write(number, at, &[IoSlice::new(write)], write.len())?;
        last.keep_place(at..at + write.len() as u64, shared.end.load(Relaxed));
        return Ok(());
    };
    loop {
        let segment = log.segment()?;
        last.forget_unless_in(segment);
        let compared = copies.compare(&known, at, write);
        let parts = copies.parts(&compared, write);
        let bytes = parts.iter().map(|part| part.len()).sum();
        let parts = parts.map(IoSlice::new);
        let logged_at = at + compared.logged.start as u64;
        // In another segment it is logged whole.
        if !log.write_in(segment, number, logged_at, &parts, bytes)? {
            continue;
        }
        let end = shared.end.load(Relaxed);
        copies.keep(&known, at, write.len(), compared.copied, end);
        if bytes > log.record_max() {
            last.forget_bytes();
        }
        return Ok(());
    }
}
