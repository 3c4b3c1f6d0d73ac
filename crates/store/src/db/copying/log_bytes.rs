//! [`LogBytes`]: the log below an address, wherever it lies: in the files as far as it was drained, and
//! in the pool.

use crate::{db::StoreCore, error::StoreError};
use forebay_pool::{Lsn, PAGE};

const PAGE_BYTES: usize = PAGE as usize;

/// The log below an address, which a snapshot keeps where it is or drains to.
pub(super) struct LogBytes<'a> {
    shared: &'a StoreCore,
    end: Lsn,
}

impl<'a> LogBytes<'a> {
    /// The log below `end`.
    pub(super) const fn new(shared: &'a StoreCore, end: Lsn) -> Self {
        Self { shared, end }
    }

    /// Fills `to` with the log from `at` on, the start of a page; zeros behind the end.
    pub(super) fn read(&self, at: Lsn, to: &mut [u8]) -> Result<(), StoreError> {
        let end = at + to.len() as u64;
        let drained = self.shared.tail.in_files().min(self.end);
        if end <= drained
            && let Some(file) = self.shared.log.find(at)
            && file.holds(end - 1)
        {
            return file.read(at, to);
        }
        let pages = to.chunks_mut(PAGE_BYTES).zip((at..).step_by(PAGE_BYTES));
        for (page, at) in pages {
            self.read_page(at, page)?;
        }
        Ok(())
    }

    fn read_page(&self, at: Lsn, page: &mut [u8]) -> Result<(), StoreError> {
        let bytes = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        let (page, behind) = page.split_at_mut(bytes.min(page.len()));
        behind.fill(0);
        if page.is_empty() {
            return Ok(());
        }
        let (log, tail) = (&self.shared.log, &self.shared.tail);
        let mut drained = tail.in_files();
        loop {
            if at < drained {
                return match log.find(at) {
                    Some(file) => file.read(at, page),
                    None => Err(StoreError::lost(log.dir(), at, "no file")),
                };
            }
            if let Some(pinned) = tail.lane().and_then(|lane| lane.read(at, page.len())) {
                page.copy_from_slice(&pinned);
                return Ok(());
            }
            if let Some(copied) = tail.copied(at, page.len()) {
                page.copy_from_slice(copied);
                return Ok(());
            }
            // It was drained since that was looked at.
            let now = tail.in_files();
            if now == drained {
                return Err(StoreError::lost(
                    log.dir(),
                    at,
                    "neither in a file nor in the pool",
                ));
            }
            drained = now;
        }
    }
}
