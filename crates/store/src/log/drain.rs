//! Draining: sealed segments from the lane to the value-log files.
//!
//! Each drain thread, again and again:
//! 1. Takes the next sealed segment, or if there is none, pages of the open one, and its place in a
//!    file, both under one lock, so that files fill in log order.
//! 2. Writes it verbatim past the page cache. Pages of the open segment: that is all, the device
//!    was kept busy.
//! 3. A sealed segment: writes what was not written ahead, syncs the file.
//! 4. Releases the segment; the lane's head moves, and the segment is free.
//!
//! With two threads, one segment's sync overlaps the next one's write. A failure is reported to the
//! waiting writers, and the segment is tried again from the start: the pool still has every byte,
//! so a sync that failed loses nothing. The kernel reports a failed sync to one thread only; so a
//! segment that was written, in whole or ahead, when one failed is written again as well.

use super::{ValueLog, VlogFile};
use crate::error::StoreError;
use forebay_pool::{AheadBytes, DrainWork, Lane, Lsn, PAGE, Sealed};
use parking_lot::Mutex;
use std::{
    sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// How long an idle drain thread sleeps before it looks whether it should end.
const IDLE: Duration = Duration::from_millis(100);
/// How long after a failure a segment is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// How much of the open segment is written at a time.
const AHEAD: AheadBytes = AheadBytes {
    min: 512 << 10,
    max: 2 << 20,
};

/// Drains `lane` to `log` until `stop` is set. `order` is shared by all drain threads of the lane.
pub(crate) fn drain(lane: &Lane, log: &ValueLog, order: &Mutex<()>, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        let begun = Instant::now();
        // Read before anything is taken: see `sync`.
        let failed_before = log.failed_syncs.load(SeqCst);
        let taken = {
            let _in_order = order.lock();
            lane.take(Some(AHEAD), IDLE).map(|work| {
                let whole = lane.segment_bytes();
                let (start, content) = match &work {
                    DrainWork::Sealed(sealed) => (sealed.start(), content_of(sealed, whole)),
                    DrainWork::Ahead(ahead) => (ahead.segment(), whole),
                };
                // Without a place it goes back to the queue at once: the next segment must not be
                // placed before it.
                let file = log.place(start, whole, content)?;
                Ok((work, file))
            })
        };
        let done = match taken {
            None => {
                // Nothing comes any more, and it is said at once; a segment that another thread
                // could not write comes back.
                if lane.failure().is_some() {
                    thread::sleep(IDLE);
                }
                continue;
            }
            Some(Err(error)) => Err(error),
            Some(Ok((DrainWork::Ahead(ahead), file))) => {
                write(log, &file, ahead.at(), ahead.bytes()).map(|()| {
                    lane.drain_goes_on();
                    ahead.written();
                })
            }
            Some(Ok((DrainWork::Sealed(sealed), file))) => {
                if forebay_pool::fault_enabled!("release-early") {
                    sealed.release();
                    continue;
                }
                let skip = sealed.ahead();
                write(
                    log,
                    &file,
                    sealed.start() + skip as u64,
                    &sealed.bytes()[skip..],
                )
                .and_then(|()| {
                    forebay_pool::failpoint!("store:drain-sync");
                    sync(lane, log, &file, failed_before)
                })
                .map(|()| {
                    forebay_pool::failpoint!("store:drain-synced");
                    lane.drain_goes_on();
                    sealed.release();
                })
            }
        };
        if let Err(error) = done {
            lane.drain_failed(begun, error.to_string());
            thread::sleep(RETRY);
        }
    }
}

/// Drains the oldest sealed segment of a lane that no other thread drains. False if none is sealed.
pub(crate) fn drain_one(lane: &Lane, log: &ValueLog) -> Result<bool, StoreError> {
    let Some(sealed) = lane.take_sealed(Duration::ZERO) else {
        return Ok(false);
    };
    let whole = lane.segment_bytes();
    let file = log.place(sealed.start(), whole, content_of(&sealed, whole))?;
    let failed_before = log.failed_syncs.load(SeqCst);
    write(log, &file, sealed.start(), sealed.bytes())?;
    sync(lane, log, &file, failed_before)?;
    sealed.release();
    Ok(true)
}

/// Bytes that a sealed segment takes in a file.
fn content_of(sealed: &Sealed<'_>, whole: u64) -> u64 {
    (sealed.bytes().len() as u64)
        .next_multiple_of(PAGE)
        .min(whole)
}

fn write(log: &ValueLog, file: &VlogFile, at: Lsn, bytes: &[u8]) -> Result<(), StoreError> {
    if bytes.is_empty() {
        return Ok(());
    }
    log.with_room(|| file.file.write_pages_at(bytes, file.offset(at)))
        .map_err(StoreError::io("writing", &file.path))
}

/// Syncs the file. An error if any sync failed since `failed_before` was read: it may have lost
/// what this thread, or another one ahead of it, had written.
fn sync(
    lane: &Lane,
    log: &ValueLog,
    file: &VlogFile,
    failed_before: u64,
) -> Result<(), StoreError> {
    let synced = {
        let _in_flight = log.syncs.read();
        // Twice: a file system that shuts itself down meanwhile (ext4 and XFS, when they cannot
        // write their journal) may take what it gave up for written. The next sync it refuses.
        let synced = file.file.sync().and_then(|()| file.file.sync());
        if synced.is_err() {
            // In this order: who reads the new count finds nothing left of what was written ahead
            // before.
            lane.forget_ahead();
            log.failed_syncs.fetch_add(1, SeqCst);
        }
        synced
    };
    synced.map_err(StoreError::io("syncing", &file.path))?;
    // One that was in flight with this one may have got the error that was this one's, and not have
    // counted it yet.
    drop(log.syncs.write());
    if log.failed_syncs.load(SeqCst) != failed_before {
        let lost = std::io::Error::other("another sync of the value log failed meanwhile");
        return Err(StoreError::io("syncing", &file.path)(lost));
    }
    Ok(())
}
