//! The last bytes that were logged of a file, for all processes: what a write that comes back to them is compared with (`client::tail`).
//!
//! Read and changed under the file's lock. A process may die in the middle: it is valid only for the log address behind the file's last record,
//! which is stored last, and a record comes first.

use super::BLOCK;
use forebay_pool::Lsn;
use std::{
    ops::Range,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

const WORD: usize = size_of::<u64>();
/// Words that are compared without a branch between them: a line.
const GROUP: usize = 8;

/// See the module's head.
#[repr(C, align(64))]
pub struct LastWrite {
    /// Log address behind its record; 0 if nothing is known.
    end: AtomicU64,
    /// Where in the file it was.
    from: AtomicU64,
    to: AtomicU64,
    /// How many of its last bytes are known; 0 until it is known that writes come back.
    known: AtomicU64,
    words: [AtomicU64; BLOCK / WORD],
}

impl LastWrite {
    /// The file may have changed without the lane.
    pub fn forget(&self) {
        self.end.store(0, Release);
    }

    /// True if a write at `at` comes back to this one, which is the file's last: its record ends at `end`.
    #[inline]
    pub fn is_met(&self, end: Lsn, at: u64) -> bool {
        let known = self.end.load(Acquire);
        known == end && known != 0 && (self.from.load(Relaxed)..self.to.load(Relaxed)).contains(&at)
    }

    /// What a process that writes over the shared memory leaves.
    #[cfg(test)]
    pub fn spoil(&self, range: Range<u64>, known: u64) {
        self.from.store(range.start, Relaxed);
        self.to.store(range.end, Relaxed);
        self.known.store(known, Relaxed);
    }

    /// The words that are known from file offset `at` on. None if that is not where a word begins.
    fn words_from(&self, at: u64) -> &[AtomicU64] {
        let known = self.known.load(Relaxed).min(BLOCK as u64);
        let skipped = self.to.load(Relaxed).checked_sub(known);
        let skipped = skipped.and_then(|first| usize::try_from(at.checked_sub(first)?).ok());
        let words = self.words.get(..known as usize / WORD).unwrap_or(&[]);
        match skipped {
            Some(skipped) if skipped.is_multiple_of(WORD) => {
                words.get(skipped / WORD..).unwrap_or(&[])
            }
            _ => &[],
        }
    }

    /// Which part of `bytes`, written at `at`, differs from what is known, to whole words. Behind what is known, all does.
    pub fn changed(&self, at: u64, bytes: &[u8]) -> Range<usize> {
        let known = self.words_from(at);
        let (words, rest) = bytes.as_chunks::<WORD>();
        let both = words.len().min(known.len());
        let is_same = |group: &(&[[u8; WORD]], &[AtomicU64])| is_same(group.0, group.1);
        let (before, known) = (&words[..both], &known[..both]);
        let groups = before.chunks(GROUP).zip(known.chunks(GROUP));
        let from = both.min(groups.take_while(is_same).count() * GROUP);
        let single = before[from..].chunks(1).zip(known[from..].chunks(1));
        let from = from + single.take_while(is_same).count();
        let same_at_end = match rest.is_empty() && both == words.len() {
            true => {
                let (before, known) = (&before[from..], &known[from..]);
                let groups = before.rchunks(GROUP).zip(known.rchunks(GROUP));
                let same = before.len().min(groups.take_while(is_same).count() * GROUP);
                let left = before.len() - same;
                let single = before[..left].rchunks(1).zip(known[..left].rchunks(1));
                same + single.take_while(is_same).count()
            }
            false => 0,
        };
        from * WORD..bytes.len() - same_at_end * WORD
    }

    /// A write to `range` was logged up to `end`, of which these are the last bytes, or none if they are not to be known; of them only `changed`
    /// differs from what is known, if that begins and ends where they do.
    pub fn keep(&self, range: Range<u64>, bytes: &[u8], changed: Range<usize>, end: Lsn) {
        let known = bytes.len() as u64;
        let is_same_place = self.to.load(Relaxed) == range.end && self.known.load(Relaxed) == known;
        let changed = match is_same_place {
            true => changed.start / WORD..changed.end.div_ceil(WORD),
            false => 0..BLOCK / WORD,
        };
        self.from.store(range.start, Relaxed);
        self.to.store(range.end, Relaxed);
        self.known.store(known, Relaxed);
        let words = bytes.chunks(WORD).zip(&self.words);
        for (bytes, word) in words.take(changed.end).skip(changed.start) {
            let mut padded = [0; WORD];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(padded), Relaxed);
        }
        self.end.store(end, Release);
    }
}

#[inline]
fn is_same(words: &[[u8; WORD]], known: &[AtomicU64]) -> bool {
    let pairs = words.iter().zip(known);
    pairs.fold(0, |differs, (word, known)| {
        differs | (u64::from_ne_bytes(*word) ^ known.load(Relaxed))
    }) == 0
}
