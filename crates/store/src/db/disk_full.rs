//! A full disk: puts are refused while deletes and the collector use the room kept in
//! [reserve](crate::log).

use super::StoreCore;
use crate::error::StoreError;
use forebay_pool::Lsn;
use std::{
    io, thread,
    time::{Duration, Instant},
};

/// The reason that a put is refused while deletes are taken.
pub(super) const FULL: &str =
    "no space left on the disk, but for deletes and for the collection of garbage";

/// How long a delete waits for the collector.
const PATIENCE: Duration = Duration::from_secs(2);
/// And if that has nothing to collect: it may have given room back just now.
const MOMENT: Duration = Duration::from_millis(100);

/// A write that was refused because there was no room for it.
pub(super) struct RefusedWrite {
    bytes: u64,
    why: String,
    /// Bytes that were free then, as far as the file system said.
    free_bytes: u64,
    /// The log's tail then, if it was to go there.
    tail: Option<Lsn>,
}

impl StoreCore {
    /// Holds a delete while even what is kept for deletes is used up, until the collector has made
    /// room. One load.
    #[inline]
    pub(super) fn check_room_to_delete(&self) -> Result<(), StoreError> {
        match self.log.reserve().is_tight() {
            false => Ok(()),
            true => self.wait_for_collector(),
        }
    }

    #[cold]
    fn wait_for_collector(&self) -> Result<(), StoreError> {
        let (reserve, begun) = (self.log.reserve(), Instant::now());
        loop {
            reserve.try_again();
            // With nothing to collect, only deletes make room.
            let goes_on = reserve.is_in_vain() && !reserve.is_spent();
            if !reserve.is_tight() || goes_on {
                return Ok(());
            }
            let patience = match reserve.is_in_vain() || !self.options.gc {
                true => MOMENT,
                false => PATIENCE,
            };
            if begun.elapsed() >= patience {
                return Err(self.no_room());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// A delete found no room, or the lane full, which cannot be drained: on a full disk the
    /// collector may make what is needed.
    #[cold]
    pub(super) fn delete_late<T>(
        &self,
        mut write: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        loop {
            match write() {
                Err(error)
                    if error.wants_room()
                        && self.log.reserve().is_short()
                        && self.options.gc
                        && begun.elapsed() < PATIENCE =>
                {
                    thread::sleep(Duration::from_millis(2));
                }
                written => return written,
            }
        }
    }

    /// Refuses what needs room that is kept for those who make some. One load.
    #[inline]
    pub(super) fn check_room(&self) -> Result<(), StoreError> {
        match self.log.reserve().is_short() {
            false => Ok(()),
            true => self.check_reserve(),
        }
    }

    /// The same, once it has looked whether there is room again.
    #[cold]
    fn check_reserve(&self) -> Result<(), StoreError> {
        let reserve = self.log.reserve();
        reserve.try_again();
        if !reserve.is_short() {
            return Ok(());
        }
        Err(self.no_room())
    }

    fn no_room(&self) -> StoreError {
        let reason = self.why_full();
        match self.tail.lane() {
            Some(_) => StoreError::Stalled { reason },
            None => StoreError::io("writing", self.log.dir())(io::Error::new(
                io::ErrorKind::StorageFull,
                reason,
            )),
        }
    }

    /// The need of a full disk, and the remedy.
    pub(super) fn why_full(&self) -> String {
        let missing = self.log.missing_bytes();
        let gc = match self.options.gc {
            true => "",
            false => " and call gc, which is switched off otherwise",
        };
        let held = match self.collector.held_bytes() {
            0 => String::new(),
            held => format!(", or drop the snapshots and scans that keep {held} bytes of files"),
        };
        format!("{FULL}; {missing} bytes more have to be free: delete keys{gc}{held}")
    }

    /// A write of so many bytes beside the log may have had no room: then the collector is to make
    /// it.
    #[cold]
    pub(super) fn note_lacked(&self, error: &StoreError, bytes: usize) {
        if error.is_full_disk() {
            self.log.reserve().set_lacked(bytes as u64);
            self.note_refused(error, bytes, None);
        }
    }

    /// A write of so many bytes may have had no room in the log.
    #[cold]
    pub(super) fn note_no_room(&self, error: &StoreError, bytes: usize) {
        if error.is_full_disk() {
            self.note_refused(error, bytes, Some(self.tail.tail()));
        }
    }

    fn note_refused(&self, error: &StoreError, bytes: usize, tail: Option<Lsn>) {
        *self.refused.lock() = Some(RefusedWrite {
            bytes: bytes as u64,
            why: error.to_string(),
            free_bytes: self.log.free_bytes(),
            tail,
        });
    }

    /// A large value was written.
    pub(super) fn forget_lacked(&self) {
        let mut refused = self.refused.lock();
        if refused.as_ref().is_some_and(|it| it.tail.is_none()) {
            *refused = None;
        }
    }

    /// The reason that the last write without room was refused, unless there is room for it by now:
    /// as much was logged since, or the file system says so.
    pub(super) fn refused(&self) -> Option<String> {
        let mut refused = self.refused.lock();
        let it = refused.as_ref()?;
        let is_logged = |tail: Lsn| self.tail.tail().saturating_sub(tail) >= it.bytes;
        let has_room = it.free_bytes < it.bytes && self.log.free_bytes() >= it.bytes;
        if has_room || it.tail.is_some_and(is_logged) {
            *refused = None;
        }
        let why =
            |it: &RefusedWrite| format!("a write of {} bytes was refused: {}", it.bytes, it.why);
        refused.as_ref().map(why)
    }
}
