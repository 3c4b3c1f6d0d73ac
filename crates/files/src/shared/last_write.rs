//! The last bytes that were logged of a file, for all processes: what a write that comes back to
//! them is compared with (`client::tail_rewrites`).
//!
//! Read and changed under the file's lock. A process may die in the middle: it is valid only for
//! the log address behind the file's last record, which is stored last, and a record comes first.

use forebay_pool::Lsn;
use std::{
    ops::Range,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Bytes that are remembered of a write, its last: a page of PostgreSQL's log, the largest block
/// that a log is known to write again.
pub const BLOCK: usize = 8192;

/// Bytes that are compared, and written, at once.
pub const WORD: usize = size_of::<u64>();
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
    /// Behind so many words of what is known there are zeros only. A block is mostly written before
    /// it is full, and what is not in it yet need not be fetched from another processor's cache.
    filled: AtomicU64,
    words: [AtomicU64; BLOCK / WORD],
}

impl LastWrite {
    /// The file may have changed without the lane.
    pub fn forget(&self) {
        self.end.store(0, Release);
    }

    /// True if a write at `at` comes back to this one, which is the file's last: its record ends at
    /// `end`.
    #[inline]
    pub fn is_met(&self, end: Lsn, at: u64) -> bool {
        let known = self.end.load(Acquire);
        known == end && known != 0 && (self.from.load(Relaxed)..self.to.load(Relaxed)).contains(&at)
    }

    /// Only where it was is known from now on, unless its record is in the segment that starts at
    /// `segment`.
    #[inline]
    pub fn forget_unless_in(&self, segment: Lsn) {
        if self.end.load(Relaxed) <= segment {
            self.forget_bytes();
        }
    }

    /// Only where it was is known from now on.
    pub fn forget_bytes(&self) {
        self.known.store(0, Relaxed);
    }

    /// What a process that writes over the shared memory leaves.
    #[cfg(test)]
    pub fn spoil(&self, range: Range<u64>, known: u64, filled: u64) {
        self.from.store(range.start, Relaxed);
        self.to.store(range.end, Relaxed);
        self.known.store(known, Relaxed);
        self.filled.store(filled, Relaxed);
    }

    /// The words that are known from file offset `at` on: how many, and those before the zeros.
    /// None if that is not where a word begins.
    fn words_from(&self, at: u64) -> (usize, &[AtomicU64]) {
        let known = self.known.load(Relaxed).min(BLOCK as u64);
        let skipped = self.to.load(Relaxed).checked_sub(known);
        let skipped = skipped.and_then(|first| usize::try_from(at.checked_sub(first)?).ok());
        let Some(skipped) = skipped.filter(|skipped| skipped.is_multiple_of(WORD)) else {
            return (0, &[]);
        };
        let (known, skipped) = (known as usize / WORD, skipped / WORD);
        let filled = self.words.get(skipped..known.min(self.filled()));
        (known.saturating_sub(skipped), filled.unwrap_or(&[]))
    }

    fn filled(&self) -> usize {
        (self.filled.load(Relaxed) as usize).min(self.words.len())
    }

    /// Which part of `bytes`, written at `at`, differs from what is known, to whole words. Behind
    /// what is known, all does.
    pub fn changed(&self, at: u64, bytes: &[u8]) -> Range<usize> {
        let (known, filled) = self.words_from(at);
        let (words, rest) = bytes.as_chunks::<WORD>();
        let both = words.len().min(known);
        let (before, zeros) = words[..both].split_at(both.min(filled.len()));
        let filled = &filled[..before.len()];
        let from = match same_at_start(before, filled) {
            from if from == before.len() => from + zeros_at_start(zeros),
            from => from,
        };
        let same_at_end = match rest.is_empty() && both == words.len() {
            true => match zeros_at_end(&zeros[from.saturating_sub(before.len())..]) {
                same if same == zeros.len() => {
                    let from = from.min(before.len());
                    same + same_at_end(&before[from..], &filled[from..])
                }
                same => same,
            },
            false => 0,
        };
        from * WORD..bytes.len() - same_at_end * WORD
    }

    /// True if a write to `range`, of which the last `known` bytes are to be known, ends and begins
    /// where what is known does.
    pub fn is_same_place(&self, range: &Range<u64>, known: usize) -> bool {
        self.to.load(Relaxed) == range.end && self.known.load(Relaxed) == known as u64
    }

    /// A write to `range` was logged up to `end`, of which the last `known` bytes are to be known.
    /// `changed`, which begins at byte `from` of them, a multiple of a word, is what differs from
    /// what is known, or all of them if that is not of the [same place](Self::is_same_place).
    pub fn keep(&self, range: Range<u64>, known: usize, from: usize, changed: &[u8], end: Lsn) {
        let filled = match self.is_same_place(&range, known) {
            true => self.filled(),
            false => 0,
        };
        self.from.store(range.start, Relaxed);
        self.to.store(range.end, Relaxed);
        self.known.store(known as u64, Relaxed);
        let from = from / WORD;
        let zeros = changed.iter().rev().take_while(|byte| **byte == 0).count();
        let changed_to = from + changed.len().div_ceil(WORD);
        let changed = &changed[..changed.len() - zeros];
        let to = from + changed.len().div_ceil(WORD);
        // They count as zeros, and hold older words.
        for word in self.words.get(filled..from.min(to)).unwrap_or(&[]) {
            word.store(0, Relaxed);
        }
        let words = self.words.get(from..).unwrap_or(&[]);
        for (bytes, word) in changed.chunks(WORD).zip(words) {
            let mut padded = [0; WORD];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(padded), Relaxed);
        }
        let filled = match changed_to < filled {
            true => {
                for word in self.words.get(to..changed_to).unwrap_or(&[]) {
                    word.store(0, Relaxed);
                }
                filled
            }
            false => to,
        };
        self.filled.store(filled as u64, Relaxed);
        self.end.store(end, Release);
    }
}

fn same_at_start(words: &[[u8; WORD]], known: &[AtomicU64]) -> usize {
    let groups = words.chunks(GROUP).zip(known.chunks(GROUP));
    let same = groups.take_while(|(words, known)| is_same(words, known));
    let from = words.len().min(same.count() * GROUP);
    let pairs = words[from..].chunks(1).zip(known[from..].chunks(1));
    from + pairs
        .take_while(|(words, known)| is_same(words, known))
        .count()
}

fn same_at_end(words: &[[u8; WORD]], known: &[AtomicU64]) -> usize {
    let groups = words.rchunks(GROUP).zip(known.rchunks(GROUP));
    let same = groups.take_while(|(words, known)| is_same(words, known));
    let same = words.len().min(same.count() * GROUP);
    let left = words.len() - same;
    let pairs = words[..left].rchunks(1).zip(known[..left].rchunks(1));
    same + pairs
        .take_while(|(words, known)| is_same(words, known))
        .count()
}

fn zeros_at_start(words: &[[u8; WORD]]) -> usize {
    let zeros = words.iter().take_while(|word| **word == [0; WORD]);
    zeros.count()
}

fn zeros_at_end(words: &[[u8; WORD]]) -> usize {
    let groups = words.rchunks(GROUP);
    let zeros =
        groups.take_while(|group| group.as_flattened().iter().fold(0, |all, byte| all | byte) == 0);
    let zeros = words.len().min(zeros.count() * GROUP);
    let left = words[..words.len() - zeros].iter().rev();
    zeros + left.take_while(|word| **word == [0; WORD]).count()
}

#[inline]
fn is_same(words: &[[u8; WORD]], known: &[AtomicU64]) -> bool {
    let pairs = words.iter().zip(known);
    pairs.fold(0, |differs, (word, known)| {
        differs | (u64::from_ne_bytes(*word) ^ known.load(Relaxed))
    }) == 0
}
