//! Draining: sealed segments from the lane to the value-log files.
//!
//! Each drain thread, again and again:
//! 1. Takes the next sealed segment and its place in a file, both under one lock, so that files fill in log order.
//! 2. Writes it verbatim: one large sequential write past the page cache.
//! 3. Syncs the file.
//! 4. Releases the segment; the lane's head moves, and its slot is free.
//!
//! With two threads, one segment's sync overlaps the next one's write. A failure is told to the
//! waiting writers, and the segment is tried again from the start: the pool still has every byte, so a sync that
//! failed loses nothing.

use super::{ValueLog, VlogFile};
use crate::error::StoreError;
use forebay_pool::{Lane, Sealed};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// How long an idle drain thread sleeps before it looks whether it should end.
const IDLE: Duration = Duration::from_millis(100);
/// How long after a failure a segment is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// Drains `lane` to `log` until `stop` is set. `order` is shared by all drain threads of the lane.
pub(crate) fn drain(lane: &Lane, log: &ValueLog, order: &Mutex<()>, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        let taken = {
            let _in_order = order.lock();
            lane.take_sealed(IDLE).map(|sealed| {
                let file = log.place(sealed.start(), sealed.bytes().len() as u64);
                (sealed, file)
            })
        };
        let Some((sealed, file)) = taken else {
            continue;
        };
        match file.and_then(|file| write(&sealed, &file)) {
            Ok(()) => {
                lane.set_stalled(None);
                sealed.release();
            }
            Err(error) => {
                lane.set_stalled(Some(error.to_string()));
                drop(sealed);
                thread::sleep(RETRY);
            }
        }
    }
}

fn write(sealed: &Sealed<'_>, file: &Arc<VlogFile>) -> Result<(), StoreError> {
    file.file
        .write_pages_at(sealed.bytes(), file.offset(sealed.start()))
        .map_err(StoreError::io("writing", &file.path))?;
    file.file
        .sync()
        .map_err(StoreError::io("syncing", &file.path))
}
