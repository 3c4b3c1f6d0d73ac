//! How much of a value-log file is garbage: an estimate by sampling, without any state on the disk.
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
    op::ops,
};
use forebay_pool::Lsn;

/// Places in a file at which records are looked at.
const PLACES: u64 = 32;
/// Operations remembered from one place on, and bytes of keys after which no further one is.
const OPS: usize = 4;
const KEY_BYTES: usize = 1024;
/// Bytes read at a time.
const WINDOW: usize = 32 << 10;

/// Some operations of a file.
#[derive(Debug, Default)]
pub(super) struct FileSample {
    /// Bytes of all operations that were remembered, and of the voids between them.
    seen: u64,
    /// Bytes of those that are live.
    live: u64,
    /// Those that were live at the last look.
    ops: Vec<(Box<[u8]>, RecordAddress)>,
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

    fn remember(&mut self, key: &[u8], address: RecordAddress) {
        self.seen += u64::from(address.len);
        // A delete is never copied.
        if address.form != ValueForm::Tombstone {
            self.ops.push((key.into(), address));
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
                sample.remember(op.key, op_address(lsn, &op));
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
        let mut live = 0;
        sample.ops.retain(|(key, address)| {
            let is_live = view
                .find(self.hash(key), key)
                .map_or(true, |found| found == Some(*address));
            live += if is_live { u64::from(address.len) } else { 0 };
            is_live
        });
        sample.live = live;
    }
}

/// The address under which the index has this operation of the record at `lsn`, if it is live.
/// (That of a delete is a tombstone's, which the index does not keep.)
pub(super) fn op_address(lsn: Lsn, op: &crate::op::Op<'_>) -> RecordAddress {
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
