//! The share of garbage in a value-log file: an estimate by sampling, without any state on the
//! disk.
//!
//! A record names its own log address, so a walk can begin anywhere: the first line that holds a
//! valid record is one. Some operations at evenly spread places of a complete file are remembered
//! with their keys. One is live if the index leads from its key to it; what is dead stays dead, so
//! looking again is a few lookups, and no reading of the file.

use super::StoreCore;
use crate::{
    error::StoreError,
    index::{RecordAddress, ValueForm},
    log::{LogReader, VlogFile},
    op::{KEY_LENGTH, Op, ops},
};
use forebay_pool::{Lsn, record_bytes};

/// Places in a file at which records are looked at.
const PLACES: u64 = 32;
/// Operations remembered from one place on, and bytes of keys after which no further one is.
const OPS: usize = 4;
const KEY_BYTES: usize = 1024;
/// Bytes read at a time.
const WINDOW: usize = 32 << 10;

/// An operation that is remembered.
#[derive(Debug)]
struct SampledOp {
    key: Box<[u8]>,
    address: RecordAddress,
    expiry: Option<u64>,
}

/// Some operations of a file.
#[derive(Debug, Default)]
pub(super) struct FileSample {
    /// Bytes of all operations that were remembered, and of the voids between them.
    seen: u64,
    /// Bytes of those that are live.
    live: u64,
    /// What a collection would write for them: copies of what is live, and deletes of what the
    /// index leads to though it has expired.
    written_again: u64,
    /// Those that were live at the last look.
    ops: Vec<SampledOp>,
    /// What writers had written at the last look.
    looked_at: u64,
    /// The first thing that could not be read.
    pub(super) unreadable: Option<StoreError>,
}

impl FileSample {
    /// The share of garbage at the last look; nothing seen is no garbage.
    pub(super) fn garbage(&self) -> f64 {
        1.0 - self.live_share()
    }

    /// The share of the file that a collection writes again, as of the last look.
    pub(super) fn written_again(&self) -> f64 {
        if self.seen == 0 {
            return 1.0;
        }
        (self.written_again as f64 / self.seen as f64).min(1.0)
    }

    /// True if a collection is sure to take no room, as far as the sample goes.
    pub(super) fn takes_no_room(&self) -> bool {
        self.seen > 0 && self.written_again == 0
    }

    /// The same by now, as [`garbage_at`](Self::garbage_at).
    pub(super) fn written_again_at(&self, written: u64, live: u64) -> f64 {
        let replaced = self.written_since(written) as f64 / live.max(1) as f64;
        self.written_again() * (1.0 - replaced.min(1.0))
    }

    /// True if nothing is known of the file.
    pub(super) fn is_empty(&self) -> bool {
        self.seen == 0
    }

    fn live_share(&self) -> f64 {
        if self.seen == 0 {
            return 1.0;
        }
        self.live as f64 / self.seen as f64
    }

    /// Bytes that writers have written since the last look, if they have written `written` by now.
    pub(super) fn written_since(&self, written: u64) -> u64 {
        written.saturating_sub(self.looked_at)
    }

    /// The share of garbage by now, if what was written since the last look has replaced any of
    /// `live` live bytes.
    pub(super) fn garbage_at(&self, written: u64, live: u64) -> f64 {
        let replaced = self.written_since(written) as f64 / live.max(1) as f64;
        1.0 - self.live_share() * (1.0 - replaced.min(1.0))
    }

    fn remember(&mut self, op: &Op<'_>, address: RecordAddress) {
        self.seen += u64::from(address.len);
        // A delete is never copied.
        if address.form != ValueForm::Tombstone {
            self.ops.push(SampledOp {
                key: op.key.into(),
                address,
                expiry: op.expiry,
            });
        }
    }
}

impl StoreCore {
    /// Chooses some operations of a file that ends at `end`, and looks at them. Places that cannot
    /// be read are passed over.
    pub(super) fn sample(&self, file: &VlogFile, end: Lsn) -> FileSample {
        let mut sample = FileSample::default();
        let step = (end.saturating_sub(file.start) / PLACES).max(1);
        let places = (0..PLACES).map(|place| file.start + place * step);
        // All at once: the device reads them side by side.
        for place in places.clone().filter(|&place| place < end) {
            file.file.will_need(file.offset(place), WINDOW as u64);
        }
        let mut reader = LogReader::new(&self.log, self.uuid, file.start, end);
        reader.read_blocks_of(WINDOW);
        for place in places {
            if self.collection_ends() || reader.at() >= end {
                break;
            }
            if let Err(error) = self.sample_from(&mut reader, place, &mut sample) {
                sample.unreadable.get_or_insert(error);
                reader.skip_to(place + step);
            }
        }
        self.look_again(&mut sample);
        sample
    }

    /// Remembers some operations from `place` on.
    fn sample_from(
        &self,
        reader: &mut LogReader<'_>,
        place: Lsn,
        sample: &mut FileSample,
    ) -> Result<(), StoreError> {
        if !reader.seek(place.max(reader.at()))? {
            return Ok(());
        }
        reader.take_void_bytes();
        let (mut count, mut key_bytes) = (0, 0);
        while count < OPS && key_bytes < KEY_BYTES {
            let Ok(record) = reader.next()? else {
                break;
            };
            let lsn = record.header.lsn;
            for op in ops(record).flatten().take(OPS) {
                sample.remember(&op, op_address(lsn, &op));
                count += 1;
                key_bytes += op.key.len();
            }
        }
        // Garbage from the first moment on.
        sample.seen += reader.take_void_bytes();
        Ok(())
    }

    /// Looks which of the operations are still live. One of which the index cannot say it counts as
    /// live.
    pub(super) fn look_again(&self, sample: &mut FileSample) {
        sample.looked_at = self.written();
        let view = self.view.load_full();
        sample.ops.retain(|SampledOp { key, address, .. }| {
            let leads = || view.find(self.hash(key), key);
            !self.keyspaces().is_dead(key) && leads().map_or(true, |found| found == Some(*address))
        });
        (sample.live, sample.written_again) = (0, 0);
        for op in &sample.ops {
            // What has expired may be there again when the clock is set back.
            if self.is_alive(op.expiry) {
                sample.live += u64::from(op.address.len);
                sample.written_again += u64::from(op.address.len);
            } else {
                sample.written_again += record_bytes(KEY_LENGTH + op.key.len());
            }
        }
    }
}

/// The address under which the index has this operation of the record at `lsn`, if it is live.
/// (That of a delete is a tombstone's, which the index does not keep.)
pub(super) fn op_address(lsn: Lsn, op: &Op<'_>) -> RecordAddress {
    let form = match (op.change, op.at) {
        (crate::op::KeyChange::Delete | crate::op::KeyChange::DeleteRange(_), _) => {
            ValueForm::Tombstone
        }
        (_, 0) => ValueForm::Record,
        _ => ValueForm::InBatch,
    };
    RecordAddress {
        lsn: lsn + op.at as u64,
        len: u32::try_from(op.bytes).unwrap_or(u32::MAX),
        form,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Durability, KeyspaceOptions, StoreOptions};
    use std::{
        sync::atomic::{AtomicU64, Ordering::Relaxed},
        time::Duration,
    };

    /// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
    #[test]
    fn what_has_expired_is_garbage_and_takes_room_for_deletes() {
        let dir = tempfile::tempdir().unwrap();
        let clock: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(1_000_000)));
        let options = StoreOptions::new().durability(Durability::NoSync).gc(false);
        let options = options
            .file_size(1 << 20)
            .segment_size(64 << 10)
            .clock(clock);
        let store = options.open(dir.path().join("store"), None).unwrap();
        let second = KeyspaceOptions::new().ttl(Duration::from_secs(1));
        let sessions = store.keyspace("sessions", second).unwrap();
        let fill = |value: &[u8]| {
            for i in 0..30_000_u32 {
                sessions.put(&i.to_be_bytes(), value).unwrap();
            }
        };
        fill(&[7; 40]);
        let shared = &store.shared;
        let file = shared.log.files()[0].clone();
        let sample = || shared.sample(&file, file.end().unwrap());
        let alive = sample();
        assert!(alive.garbage() < 0.1 && alive.written_again() > 0.9);
        clock.fetch_add(1000, Relaxed);
        let expired = sample();
        assert!(expired.garbage() >= 1.0);
        // A record of two lines is replaced by one of one line.
        let share = expired.written_again();
        assert!(
            share > 0.4 && share < 0.7 && !expired.takes_no_room(),
            "{share}"
        );
        // What the index leads to no more takes nothing.
        fill(b"");
        let replaced = sample();
        assert!(replaced.garbage() >= 1.0 && replaced.takes_no_room());
    }
}
