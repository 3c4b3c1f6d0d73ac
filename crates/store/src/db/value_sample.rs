//! The gain of compression in a log's values: by a sample, so that it costs the same however large
//! the log is, and needs nothing that an opening would have to find out.

use super::Store;
use crate::{
    compression::raw_length,
    error::StoreError,
    log::LogReader,
    op::{KeyChange, ops},
    stats::ValueSample,
};

/// Places in the log at which values are looked at.
const PLACES: u64 = 64;
/// Records looked at from one place on.
const RECORDS: usize = 16;
/// Bytes read at a time.
const WINDOW: usize = 32 << 10;

impl Store {
    /// Looks at some values, evenly spread over the value-log files, dead ones too: how much
    /// smaller compression has made them. Large values in files of their own are left out. What
    /// cannot be read is passed over.
    ///
    /// # Errors
    /// [`StoreError::Forked`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use forebay_store::{Compression, Durability, StoreOptions};
    /// # let dir = tempfile::tempdir()?;
    /// # let options = StoreOptions::new().durability(Durability::NoSync);
    /// let store = options.compression(Compression::Lz4).open(dir.path(), None)?;
    /// store.put("line", &[b'-'; 1000])?;
    /// let sample = store.sample_values()?;
    /// assert!(sample.stored_bytes < sample.raw_bytes / 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sample_values(&self) -> Result<ValueSample, StoreError> {
        let shared = &*self.shared;
        shared.check_process()?;
        let (mut sample, drained) = (ValueSample::default(), shared.tail.drained());
        let files = shared.log.files();
        let end_of = |end: Option<u64>| end.map_or(drained, |end| end.min(drained));
        let bytes: u64 = (files.iter())
            .map(|file| end_of(file.end()).saturating_sub(file.start))
            .sum();
        let step = (bytes / PLACES).max(1);
        for file in files.iter() {
            let end = end_of(file.end());
            let mut reader = LogReader::new(&shared.log, shared.uuid, file.start, end);
            reader.read_blocks_of(WINDOW);
            let mut place = file.start;
            while place < end {
                // A file that was unlinked meanwhile, or a damaged place.
                if look_from(&mut reader, place, &mut sample).is_err() {
                    reader.skip_to(place + step);
                }
                place = (place + step).max(reader.at());
            }
        }
        Ok(sample)
    }
}

/// Looks at some records from `place` on.
fn look_from(
    reader: &mut LogReader<'_>,
    place: u64,
    sample: &mut ValueSample,
) -> Result<(), StoreError> {
    if !reader.seek(place.max(reader.at()))? {
        return Ok(());
    }
    for _ in 0..RECORDS {
        let Ok(record) = reader.next()? else {
            break;
        };
        for op in ops(record).flatten() {
            let (raw, stored) = match op.change {
                KeyChange::Put(value) => (value.len() as u64, value.len() as u64),
                KeyChange::Compressed(body) => {
                    sample.compressed += 1;
                    (raw_length(body).unwrap_or(0).into(), body.len() as u64)
                }
                KeyChange::Large(_) | KeyChange::Delete | KeyChange::DeleteRange(_) => continue,
            };
            sample.values += 1;
            sample.raw_bytes += raw;
            sample.stored_bytes += stored;
        }
    }
    Ok(())
}
