//! Values that are to be read soon, and are neither in the pool, nor in a cache, nor in the page
//! cache: the kernel is asked for all of them at once, and reads them in parallel. So no thread
//! waits for one of them, and none is needed where everything is at hand.

use super::StoreCore;
use crate::index::RecordAddress;

/// Bytes that lie between two values and are read with them rather than left out.
const GAP: u64 = 4096;

impl StoreCore {
    /// Asks the kernel to read the values, neighbours in the log together.
    pub(super) fn ask_for(&self, addresses: impl IntoIterator<Item = RecordAddress>) {
        let mut ranges: Vec<(u64, u64)> = addresses
            .into_iter()
            .map(|a| (a.lsn, a.lsn.saturating_add(u64::from(a.len))))
            .collect();
        ranges.sort_unstable();
        let mut ranges = ranges.into_iter().peekable();
        while let Some((start, mut end)) = ranges.next() {
            while let Some((_, next_end)) =
                ranges.next_if(|(next, _)| *next <= end.saturating_add(GAP))
            {
                end = next_end.max(end);
            }
            if let Some(file) = self.log.find(start) {
                file.file.will_need(file.offset(start), end - start);
            }
        }
    }
}
