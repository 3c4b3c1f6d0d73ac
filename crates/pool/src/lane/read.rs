//! Reading records that are still in the pool.

use super::Lane;
use crate::{format::record::Lsn, media::WindowPin};
use std::ops::Deref;

/// Published bytes of the log, lent out of the pool. The segment is not recycled meanwhile, so
/// copy what you need and drop this soon: a writer may be waiting for the segment.
pub struct PinnedBytes(WindowPin);

impl Deref for PinnedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Lane {
    /// The `bytes` bytes at log address `lsn`, if the pool (still) has them. What it no longer
    /// has was released by the drain, so it is durable elsewhere. `None` in a forked child.
    ///
    /// ```
    /// use forebay_pool::RECORD_HEADER;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = forebay_pool::PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(dir.path().join("pool"))?;
    /// # let (lane, _) = pool.claim(forebay_pool::Uuid::new_v4(), &forebay_pool::ClaimOptions::new())?;
    /// let lsn = lane.append(1, &[std::io::IoSlice::new(b"hello")])?;
    /// let bytes = lane.read(lsn + RECORD_HEADER, 5).ok_or("drained")?;
    /// assert_eq!(&bytes[..], b"hello");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn read(&self, lsn: Lsn, bytes: usize) -> Option<PinnedBytes> {
        self.core.check_own().ok()?;
        // A segment sealed early leaves the addresses behind its seal to the next one, so the last
        // that starts at or below the address has it. If that one was released since, so was the
        // one before.
        let pin = self
            .slots
            .iter()
            .filter_map(|slot| Some((slot.start()?, slot)))
            .filter(|(start, _)| (*start..*start + self.segment_bytes).contains(&lsn))
            .max_by_key(|(start, _)| *start)
            .and_then(|(_, slot)| slot.pin(lsn, bytes))?;
        self.media().charge_read(pin.offset(), bytes);
        Some(PinnedBytes(pin))
    }
}
