//! The last bytes that were logged of a file, for all processes: a write that comes back to them is
//! compared with them (`client::tail_rewrites`).
//!
//! Read and changed under the file's lock. A process may die in the middle: it is valid only for
//! the log address behind the file's last record, which is stored last, and a record comes first.
//!
//! Few logs are written again, so files share the blocks that the bytes are in, by their numbers
//! ([`WriteBlock`]). A file that finds another's bytes there takes the block and knows nothing; one
//! that finds another at work there logs its write whole.

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
#[repr(C)]
pub struct LastWrite {
    /// Log address behind its record; 0 if nothing is known.
    end: AtomicU64,
    /// Its place in the file.
    from: AtomicU64,
    to: AtomicU64,
    /// The number of its last bytes that are known; 0 until it is known that writes come back.
    known: AtomicU64,
    /// Behind so many words of what is known there are zeros only. A block is mostly written before
    /// it is full, and what is not in it yet need not be fetched from another processor's cache.
    filled: AtomicU64,
}

/// The bytes themselves, of one file at a time.
#[repr(C, align(64))]
pub struct WriteBlock {
    /// The number of the file that they are of, plus one; 0 for none. [`AT_WORK`] beside while its
    /// lock's holder reads or changes them.
    user: AtomicU64,
    words: [AtomicU64; BLOCK / WORD],
}

const AT_WORK: u64 = 1 << 63;

impl WriteBlock {
    /// Takes it for the file with this number, whose lock is held. None while another file has it.
    #[inline]
    pub fn take<'a>(&'a self, number: usize, last: &'a LastWrite) -> Option<KnownBytes<'a>> {
        let user = number as u64 + 1;
        let seen = self.user.load(Relaxed);
        let taken = seen & AT_WORK == 0
            && (self.user)
                .compare_exchange(seen, user | AT_WORK, Acquire, Relaxed)
                .is_ok();
        if !taken {
            last.forget_bytes();
            return None;
        }
        if seen != user {
            last.forget_bytes();
        }
        Some(KnownBytes {
            last,
            block: self,
            user,
        })
    }

    /// The process that had the file's lock is dead.
    pub fn give_up(&self, number: usize) {
        let at_work = (number as u64 + 1) | AT_WORK;
        let _ = self.user.compare_exchange(at_work, 0, Release, Relaxed);
    }
}

/// The bytes known of a file's last write, for as long as one write is compared and kept.
pub struct KnownBytes<'a> {
    last: &'a LastWrite,
    block: &'a WriteBlock,
    user: u64,
}

impl Drop for KnownBytes<'_> {
    #[inline]
    fn drop(&mut self) {
        self.block.user.store(self.user, Release);
    }
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

    /// A write to `range` was logged up to `end`, of which no bytes are known.
    pub fn keep_place(&self, range: Range<u64>, end: Lsn) {
        self.from.store(range.start, Relaxed);
        self.to.store(range.end, Relaxed);
        self.known.store(0, Relaxed);
        self.filled.store(0, Relaxed);
        self.end.store(end, Release);
    }

    /// Leaves the traces of a process that writes over the shared memory.
    #[cfg(test)]
    pub fn spoil(&self, range: Range<u64>, known: u64, filled: u64) {
        self.from.store(range.start, Relaxed);
        self.to.store(range.end, Relaxed);
        self.known.store(known, Relaxed);
        self.filled.store(filled, Relaxed);
    }

    /// True if a write to `range`, of which the last `known` bytes are to be known, ends and begins
    /// with the known bytes.
    pub fn is_same_place(&self, range: &Range<u64>, known: usize) -> bool {
        self.to.load(Relaxed) == range.end && self.known.load(Relaxed) == known as u64
    }

    fn filled(&self) -> usize {
        (self.filled.load(Relaxed) as usize).min(BLOCK / WORD)
    }
}

impl KnownBytes<'_> {
    /// As [`LastWrite::is_same_place`].
    pub fn is_same_place(&self, range: &Range<u64>, known: usize) -> bool {
        self.last.is_same_place(range, known)
    }

    /// The words that are known from file offset `at` on: how many, and those before the zeros.
    /// None if that is not where a word begins.
    fn words_from(&self, at: u64) -> (usize, &[AtomicU64]) {
        let known = self.last.known.load(Relaxed).min(BLOCK as u64);
        let skipped = self.last.to.load(Relaxed).checked_sub(known);
        let skipped = skipped.and_then(|first| usize::try_from(at.checked_sub(first)?).ok());
        let Some(skipped) = skipped.filter(|skipped| skipped.is_multiple_of(WORD)) else {
            return (0, &[]);
        };
        let (known, skipped) = (known as usize / WORD, skipped / WORD);
        let filled = self.block.words.get(skipped..known.min(self.last.filled()));
        (known.saturating_sub(skipped), filled.unwrap_or(&[]))
    }

    /// The part of `bytes`, written at `at`, that differs from the known bytes, to whole words.
    /// Behind what is known, all does.
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

    /// A write to `range` was logged up to `end`, of which the last `known` bytes are to be known.
    /// `changed`, which begins at byte `from` of them, a multiple of a word, is what differs from
    /// what is known, or all of them if that is not of the [same place](Self::is_same_place).
    pub fn keep(&self, range: Range<u64>, known: usize, from: usize, changed: &[u8], end: Lsn) {
        let filled = match self.is_same_place(&range, known) {
            true => self.last.filled(),
            false => 0,
        };
        self.last.from.store(range.start, Relaxed);
        self.last.to.store(range.end, Relaxed);
        self.last.known.store(known as u64, Relaxed);
        let from = from / WORD;
        let zeros = changed.iter().rev().take_while(|byte| **byte == 0).count();
        let changed_to = from + changed.len().div_ceil(WORD);
        let changed = &changed[..changed.len() - zeros];
        let to = from + changed.len().div_ceil(WORD);
        // They count as zeros, and hold older words.
        for word in self.block.words.get(filled..from.min(to)).unwrap_or(&[]) {
            word.store(0, Relaxed);
        }
        let words = self.block.words.get(from..).unwrap_or(&[]);
        for (bytes, word) in changed.chunks(WORD).zip(words) {
            let mut padded = [0; WORD];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(padded), Relaxed);
        }
        let filled = match changed_to < filled {
            true => {
                for word in self.block.words.get(to..changed_to).unwrap_or(&[]) {
                    word.store(0, Relaxed);
                }
                filled
            }
            false => to,
        };
        self.last.filled.store(filled as u64, Relaxed);
        self.last.end.store(end, Release);
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

#[cfg(test)]
mod tests {
    use crate::shared::{PART, SharedPage};

    #[test]
    fn file_that_finds_anothers_bytes_in_its_block_knows_none() {
        let (page, _) = SharedPage::new("forebay-test", 5 * PART).unwrap();
        let (one, other) = (3, 3 + super::super::BLOCKS);
        let write = |number: usize, byte: u8| {
            let last = &page.files[number].last_write;
            let known = page.block(number).take(number, last).unwrap();
            let bytes = [byte; 4096];
            let changed = known.changed(0, &bytes);
            known.keep(0..4096, bytes.len(), 0, &bytes, 1);
            changed
        };
        assert_eq!(write(one, 7), 0..4096);
        assert_eq!(write(one, 7), 4096..4096, "it knows its own");
        // The same bytes, which were logged of another file.
        assert_eq!(write(other, 7), 0..4096);
        assert_eq!(write(one, 7), 0..4096);
        assert_eq!(write(2, 7), 0..4096);
        assert_eq!(write(one, 7), 4096..4096, "that has another block");
    }

    #[test]
    fn block_of_a_file_that_is_written_is_none_of_another() {
        let (page, _) = SharedPage::new("forebay-test", 5 * PART).unwrap();
        let (one, other) = (3, 3 + super::super::BLOCKS);
        let take = |number: usize| {
            page.block(number)
                .take(number, &page.files[number].last_write)
        };
        let known = take(one).unwrap();
        assert!(take(other).is_none() && take(one).is_none());
        drop(known);
        drop(take(other).unwrap());
        // Its process dies in the middle.
        std::mem::forget(take(one).unwrap());
        page.block(other).give_up(other);
        assert!(take(other).is_none());
        page.block(one).give_up(one);
        assert!(take(other).is_some());
    }
}
