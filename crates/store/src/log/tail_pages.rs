//! [`TailPages`]: the bytes of a log's last page and of records appended to it, for a write past
//! the page cache.

use forebay_pool::{PAGE, persist::LINE};
use std::io::IoSlice;

const PAGE_BYTES: usize = PAGE as usize;

/// Bytes that begin at a page of the log, in memory that begins at one too: `O_DIRECT` wants both.
#[derive(Default)]
pub(super) struct TailPages {
    memory: Vec<u8>,
    /// Where in `memory` the first page begins.
    start: usize,
    /// Bytes that are in use: all before the log's end, of the page that has it.
    used: usize,
}

impl TailPages {
    /// Begins anew, at the start of a page.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Bytes of the last page that are in use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Whole pages with what is in use, then `header` and `parts`, and zeros. Nothing of that is in
    /// use yet: a write of it may fail.
    pub(super) fn with(&mut self, header: &[u8], parts: &[IoSlice<'_>]) -> &[u8] {
        self.gather(header, parts, PAGE_BYTES)
    }

    /// `header` and `parts` alone, in whole lines.
    pub(super) fn alone(&mut self, header: &[u8], parts: &[IoSlice<'_>]) -> &[u8] {
        self.clear();
        self.gather(header, parts, LINE)
    }

    fn gather(&mut self, header: &[u8], parts: &[IoSlice<'_>], unit: usize) -> &[u8] {
        let parts = || std::iter::once(header).chain(parts.iter().map(|part| &**part));
        let bytes: usize = parts().map(<[u8]>::len).sum();
        let whole = (self.used + bytes).next_multiple_of(unit);
        self.reserve(whole);
        let mut at = self.start + self.used;
        for part in parts() {
            self.memory[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.memory[at..self.start + whole].fill(0);
        &self.memory[self.start..self.start + whole]
    }

    /// So many bytes that [`with`](Self::with) was given are in use now; only the last page's are
    /// kept.
    pub(super) fn keep(&mut self, bytes: usize) {
        let end = self.used + bytes;
        let last = end / PAGE_BYTES * PAGE_BYTES;
        self.memory
            .copy_within(self.start + last..self.start + end, self.start);
        self.used = end - last;
    }

    /// Makes room for so many bytes. Memory once had is kept.
    fn reserve(&mut self, bytes: usize) {
        if self.memory.len() >= self.start + bytes {
            return;
        }
        let mut memory = vec![0; bytes + PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES);
        memory[start..start + self.used]
            .copy_from_slice(&self.memory[self.start..self.start + self.used]);
        (self.memory, self.start) = (memory, start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_bytes_precede_added_ones_in_whole_aligned_pages() {
        let mut pages = TailPages::default();
        let mut log = Vec::new();
        for (round, bytes) in [64, 4032, 64, 4096, 10_048, 128, 20_480]
            .into_iter()
            .enumerate()
        {
            let part = vec![round as u8 + 1; bytes];
            let from = log.len() / PAGE_BYTES * PAGE_BYTES;
            // Twice: the first write fails.
            for _ in 0..2 {
                let whole = pages.with(&part[..32], &[IoSlice::new(&part[32..])]);
                assert!(whole.as_ptr().align_offset(PAGE_BYTES) == 0);
                assert!(whole.len() % PAGE_BYTES == 0);
                assert_eq!(whole[..log.len() - from], log[from..]);
                assert_eq!(whole[log.len() - from..][..bytes], part);
                assert!(whole[log.len() - from + bytes..].iter().all(|&b| b == 0));
            }
            pages.keep(bytes);
            log.extend(part);
            assert_eq!(pages.used(), log.len() % PAGE_BYTES);
        }
        assert_eq!(pages.alone(&[9], &[IoSlice::new(&[8; 64])])[..2], [9, 8]);
        assert_eq!(pages.alone(&[9], &[IoSlice::new(&[8; 64])]).len(), 128);
        assert_eq!(pages.with(&[9], &[])[..2], [9, 0]);
    }
}
