//! Collection of large values: files of their own to which no record leads any more, or one that
//! has expired, which is deleted then.

use super::CollectionProgress;
use crate::{
    db::{
        StoreCore,
        read::{LOOKUPS_MAX, WaitPolicy, live},
    },
    error::StoreError,
    index::ValueForm,
    log::RoomClaim,
    op::KeyChange,
    stats::GcReport,
};

/// Large values are looked through again when as much was written, to them or to the log, as makes
/// one in so many parts of them.
const LOOKS: u64 = 4;

impl StoreCore {
    /// Looks through the large values, if enough was written since the last time that some may be
    /// dead.
    pub(super) fn collect_grown_large(
        &self,
        progress: &mut CollectionProgress,
    ) -> Result<(), StoreError> {
        let (bytes, _) = self.large.size();
        let written = bytes.saturating_sub(progress.large_seen)
            + self.written().saturating_sub(progress.large_looked_at);
        if bytes > 0 && written > bytes / LOOKS {
            self.collect_large(progress, &mut GcReport::default())?;
            self.remove_retired_large(progress)?;
        }
        Ok(())
    }

    /// Removes large values to which no record leads any more.
    pub(super) fn collect_large(
        &self,
        progress: &mut CollectionProgress,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        progress.large_looked_at = self.written();
        let below = self.large.settled_below();
        let mut buffer = Vec::new();
        for id in self.large.ids()? {
            let known = progress
                .retired_large
                .iter()
                .any(|(retired, _)| *retired == id);
            if id >= below || known || self.collection_ends() {
                continue;
            }
            // Rather keep a file than remove one of which it cannot be said whose it is, or whether
            // its key leads to it.
            let led_to = match self.large.key_of(id) {
                Ok(key) => {
                    let led_to = self.leads_to(&key, id, &mut buffer).unwrap_or(true);
                    led_to
                        && !self
                            .drop_expired_large(&key, id, &mut buffer)
                            .unwrap_or(false)
                }
                Err(_) => true,
            };
            if !led_to {
                progress
                    .retired_large
                    .push((id, self.snapshots().next_number()));
                report.large_values += 1;
            }
        }
        progress.large_seen = self.large.size().0;
        Ok(())
    }

    /// Deletes `key` if it leads to large value `id` and that has expired; true if it did. Its
    /// record takes next to nothing, and may stay in the log for long.
    fn drop_expired_large(
        &self,
        key: &[u8],
        id: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        if !self.keyspaces().expires(key) {
            return Ok(false);
        }
        let Some(address) = live(self.view.load().find(self.hash(key), key)?) else {
            return Ok(false);
        };
        if !self.read_log(address, buffer, WaitPolicy::Yes)? {
            return Ok(false);
        }
        let op = self.op_at(buffer, address)?;
        let is_it = matches!(op.change, KeyChange::Large(value) if value.id == id);
        if !is_it || self.is_alive(op.expiry) {
            return Ok(false);
        }
        let dropped = self.drop_expired(RoomClaim::Delete, &op, address)?;
        Ok(dropped.is_some())
    }

    /// True if the index leads from `key` to large value `id`.
    pub(in crate::db) fn leads_to(
        &self,
        key: &[u8],
        id: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        if self.keyspaces().is_dead(key) {
            return Ok(false);
        }
        for _ in 0..LOOKUPS_MAX {
            let found = self.view.load().find(self.hash(key), key)?;
            let Some(address) = found.filter(|found| found.form != ValueForm::Tombstone) else {
                return Ok(false);
            };
            // A record that moved while we looked has a new address.
            if self.read_log(address, buffer, WaitPolicy::Yes)? {
                let op = self.op_at(buffer, address)?;
                return Ok(matches!(op.change, KeyChange::Large(value) if value.id == id));
            }
        }
        // The record is nowhere; rather keep what it may have led to.
        Ok(true)
    }

    /// Removes retired large values that no snapshot needs.
    pub(super) fn remove_retired_large(
        &self,
        progress: &mut CollectionProgress,
    ) -> Result<(), StoreError> {
        let (gone, kept): (Vec<_>, Vec<_>) = progress
            .retired_large
            .iter()
            .partition(|(id, number)| self.snapshots().none_sees_large(*number, *id));
        progress.retired_large = kept;
        if !gone.is_empty() {
            // What replaced them must not be lost without them.
            self.tail.make_durable()?;
        }
        let before = self.large.size().0;
        for (id, _) in gone {
            self.large.remove(id)?;
        }
        let made = before.saturating_sub(self.large.size().0);
        if made > 0 {
            self.log.reserve().made(made);
            self.log.reserve().fill_again();
        }
        progress.large_seen = progress.large_seen.min(self.large.size().0);
        Ok(())
    }
}
