//! Reading records that are still in the pool.

use super::Lane;
use crate::{media::Pin, record::Lsn};
use std::ops::Deref;

/// Published bytes of the log, lent out of the pool. The segment is not recycled meanwhile, so
/// copy what you need and drop this soon: a writer may be waiting for the segment.
pub struct PinnedBytes(Pin);

impl Deref for PinnedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Lane {
    /// The `bytes` bytes at log address `lsn`, if the pool (still) has them. What it no longer
    /// has was released by the drain, so it is durable elsewhere.
    #[must_use]
    pub fn read(&self, lsn: Lsn, bytes: usize) -> Option<PinnedBytes> {
        let pin = self
            .slots
            .iter()
            .filter(|slot| {
                slot.start()
                    .is_some_and(|start| (start..start + self.segment_bytes).contains(&lsn))
            })
            .find_map(|slot| slot.pin(lsn, bytes))?;
        self.media().charge_read(bytes);
        Some(PinnedBytes(pin))
    }
}
