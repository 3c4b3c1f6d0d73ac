//! A process's copy of a file's last write. The next write [may come back](super::tail_rewrites) to
//! the same place, and is compared with it.

use crate::shared::{BLOCK, KnownBytes, WORD};
use forebay_pool::Lsn;
use std::ops::Range;

/// Copies of a write's first and last bytes. All memory is taken when it is made: a write allocates
/// none.
#[derive(Default)]
pub(super) struct LastWriteCache {
    /// Of the first block, as far as the lane has not got it.
    first: Vec<u8>,
    /// Bytes behind the first block.
    last: Vec<u8>,
}

/// Parts of a write's first block.
pub(super) struct ComparedWrite {
    /// The logged range.
    pub(super) logged: Range<usize>,
    /// The copied range: from the beginning of a word on, and at least `logged`.
    pub(super) copied: Range<usize>,
}

impl LastWriteCache {
    pub(super) fn new() -> Self {
        Self {
            first: Vec::with_capacity(BLOCK),
            last: Vec::with_capacity(BLOCK),
        }
    }

    /// Compares a write to `at` with the known bytes, and takes the copies. At least a word is
    /// logged: a record has the write's time.
    pub(super) fn compare(
        &mut self,
        known: &KnownBytes<'_>,
        at: u64,
        write: &[u8],
    ) -> ComparedWrite {
        let (block, rest) = write.split_at(write.len().min(BLOCK));
        let range = at..at.saturating_add(write.len() as u64);
        self.last.clear();
        self.last
            .extend_from_slice(&rest[rest.len() - rest.len().min(BLOCK)..]);
        self.first.clear();
        if rest.is_empty() && !known.is_same_place(&range, block.len()) {
            // All of it is kept, so what is compared is the copy.
            self.first.extend_from_slice(block);
            return ComparedWrite {
                logged: at_least_a_word(known.changed(at, &self.first), block),
                copied: 0..block.len(),
            };
        }
        let changed = known.changed(at, block);
        let changed = match rest.is_empty() {
            true => at_least_a_word(changed, block),
            false => changed.start..block.len(),
        };
        self.first.extend_from_slice(&block[changed.clone()]);
        ComparedWrite {
            logged: changed.clone(),
            copied: changed,
        }
    }

    /// The parts of `write` that are logged.
    pub(super) fn parts<'a>(&'a self, compared: &ComparedWrite, write: &'a [u8]) -> [&'a [u8]; 3] {
        let (logged, copied) = (&compared.logged, &compared.copied);
        let first = &self.first[logged.start - copied.start..logged.end - copied.start];
        let middle = logged.end.max(write.len().min(BLOCK))..write.len() - self.last.len();
        [first, &write[middle], &self.last]
    }

    /// The next write is compared with this one, which put `bytes` bytes at `at`. It was logged up
    /// to `end`.
    pub(super) fn keep(
        &self,
        known: &KnownBytes<'_>,
        at: u64,
        bytes: usize,
        copied: Range<usize>,
        end: Lsn,
    ) {
        let range = at..at.saturating_add(bytes as u64);
        match self.last.is_empty() {
            true => known.keep(range, bytes, copied.start, &self.first, end),
            false => known.keep(range, self.last.len(), 0, &self.last, end),
        }
    }
}

/// `changed`, or if that is empty a word: what the program makes of it meanwhile is logged and
/// kept.
fn at_least_a_word(changed: Range<usize>, block: &[u8]) -> Range<usize> {
    match changed.is_empty() {
        true => {
            let end = changed.end.max(WORD).min(block.len());
            end.saturating_sub(WORD)..end
        }
        false => changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::{PART, SharedFile, SharedPage, WriteBlock};

    /// A file's last write, with its block.
    #[derive(Clone, Copy)]
    struct KnownPlace<'a>(&'a SharedFile, &'a WriteBlock);

    impl<'a> KnownPlace<'a> {
        fn of(page: &'a SharedPage) -> Self {
            Self(&page.files[0], page.block(0))
        }

        fn known(self) -> KnownBytes<'a> {
            self.1.take(0, &self.0.last_write).unwrap()
        }
    }

    /// The bytes logged of each write in turn, at the file's beginning, and the file as a replay of
    /// these makes it. Processes write in turn.
    fn replayed(writes: &[(u64, Vec<u8>)]) -> (Vec<usize>, Vec<u8>) {
        let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
        let place = KnownPlace::of(&page);
        let last = &place.0.last_write;
        let mut processes = [LastWriteCache::new(), LastWriteCache::new()];
        let (mut file, mut logged) = (vec![0; 1 << 16], Vec::new());
        for (turn, (at, write)) in writes.iter().enumerate() {
            let (end, copies) = (turn as u64 + 1, &mut processes[turn % 2]);
            let (mut from, mut to) = (*at as usize, *at as usize + write.len());
            if last.is_met(end - 1, *at) {
                let known = place.known();
                let compared = copies.compare(&known, *at, write);
                let parts = copies.parts(&compared, write).concat();
                from += compared.logged.start;
                to = from + parts.len();
                file[from..to].copy_from_slice(&parts);
                copies.keep(&known, *at, write.len(), compared.copied, end);
            } else {
                file[from..to].copy_from_slice(write);
                last.keep_place(*at..*at + write.len() as u64, end);
            }
            logged.push(to - from);
        }
        (logged, file)
    }

    #[test]
    fn of_a_block_that_is_written_again_only_what_changed_is_logged() {
        let block = |filled: usize| {
            let mut block = vec![7; 4096];
            block[..filled].fill(1);
            block
        };
        let writes = [100, 300, 350, 350, 4096].map(|filled| (8192, block(filled)));
        let (logged, file) = replayed(&writes);
        // Whole, until it is known that writes come back; then what was added, in words; of nothing
        // new a word.
        assert_eq!(logged, [4096, 4096, 56, 8, 3752]);
        assert_eq!(file[8192..12288], block(4096));
    }

    #[test]
    fn nonsense_in_the_shared_memory_makes_no_process_panic() {
        let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
        let place = KnownPlace::of(&page);
        let last = &place.0.last_write;
        let mut copies = LastWriteCache::new();
        let numbers = [0, 1, 7, 8192, 8193, u64::MAX - 1, u64::MAX];
        let pairs = || {
            numbers
                .into_iter()
                .flat_map(|one| numbers.map(|other| (one, other)))
        };
        for ((from, to), (kept, filled)) in
            pairs().flat_map(|one| pairs().map(move |other| (one, other)))
        {
            for (at, bytes, fill) in [
                (0, 100, 1),
                (u64::MAX - 20_000, 9000, 0),
                (8190, 8192, 1),
                (0, 8192, 0),
            ] {
                last.spoil(from..to, kept, filled);
                let write = vec![fill; bytes];
                let known = place.known();
                let compared = copies.compare(&known, at, &write);
                assert!(!compared.logged.is_empty() && compared.logged.end <= BLOCK);
                assert!(!copies.parts(&compared, &write).concat().is_empty());
                copies.keep(&known, at, bytes, compared.copied, 5);
            }
        }
    }

    /// Numbers below a bound, by xorshift.
    fn random(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |bound| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        }
    }

    /// Promise (files): The record of a block that is written again leaves out only bytes that an
    /// older record of the same segment has, whichever processes wrote the block.
    #[test]
    fn shortened_records_of_any_writes_replay_to_the_kernels_file() {
        let mut below = random(0x9E37_79B9_7F4A_7C15);
        for _ in 0..1000 {
            let (mut kernel, mut writes) = (vec![0; 1 << 16], Vec::new());
            let (mut at, mut length) = (0_u64, 8192);
            for _ in 0..20 {
                // Most of them come back to the same place.
                if below(4) == 0 {
                    at = (at + below(length + 1)).min(48_000);
                    length = [8192, 4096, 512, 1 + below(14_000)][below(4) as usize];
                }
                let mut write = kernel[at as usize..(at + length) as usize].to_vec();
                // Blocks are not full, and some of it is new.
                if below(2) == 0 {
                    let from = (below(8) * 1021 % length) as usize;
                    write[from..].fill(0);
                }
                for _ in 0..below(4) {
                    // Few places and values: what comes back is what a stale copy would hide.
                    let place = (below(8) * 1021 % length) as usize;
                    write[place] = below(3) as u8;
                }
                kernel[at as usize..(at + length) as usize].copy_from_slice(&write);
                writes.push((at, write));
            }
            assert_eq!(replayed(&writes).1, kernel);
        }
    }

    /// A file whose writes are logged in segments, and what a replay makes of it.
    struct Model<'a> {
        place: KnownPlace<'a>,
        processes: [LastWriteCache; 2],
        kernel: Vec<u8>,
        disk: Vec<u8>,
        log: Vec<(usize, Vec<u8>)>,
        segment: Lsn,
        end: Lsn,
    }

    impl Model<'_> {
        /// The kernel gets `kernel`, and what is compared and logged is `lane`: another thread
        /// changed some of it in between.
        fn write(&mut self, at: usize, kernel: &[u8], lane: &[u8]) {
            self.kernel[at..at + kernel.len()].copy_from_slice(kernel);
            let last = &self.place.0.last_write;
            let is_met = last.is_met(self.end, at as u64);
            self.end += 1;
            let range = at as u64..(at + lane.len()) as u64;
            if is_met {
                last.forget_unless_in(self.segment);
                let known = self.place.known();
                let copies = &mut self.processes[self.end as usize % 2];
                let compared = copies.compare(&known, at as u64, lane);
                let parts = copies.parts(&compared, lane).concat();
                self.log.push((at + compared.logged.start, parts));
                copies.keep(&known, range.start, lane.len(), compared.copied, self.end);
            } else {
                self.log.push((at, lane.to_vec()));
                last.keep_place(range, self.end);
            }
        }

        /// The next segment is begun, the file synced, and the full one released.
        fn turn(&mut self) {
            self.segment = self.end;
            self.disk.clone_from(&self.kernel);
            self.log.clear();
        }

        fn replayed(&self) -> Vec<u8> {
            let mut file = self.disk.clone();
            for (at, bytes) in &self.log {
                file[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            file
        }
    }

    /// Promise (files): A block that another thread changed during its write, so that kernel and
    /// lane got different bytes, is made good by the next write of it, in any segment.
    #[test]
    fn the_next_write_mends_a_block_that_kernel_and_lane_differ_in() {
        let mut below = random(0x2545_F491_4F6C_DD1D);
        for _ in 0..2000 {
            let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
            let mut model = Model {
                place: KnownPlace::of(&page),
                processes: [LastWriteCache::new(), LastWriteCache::new()],
                kernel: vec![0; 8192],
                disk: vec![0; 8192],
                log: Vec::new(),
                segment: 0,
                end: 1,
            };
            let mut memory = vec![0; 8192];
            for _ in 0..12 {
                for _ in 0..below(3) {
                    memory[below(8) as usize * 1000] = below(3) as u8;
                }
                let kernel = memory.clone();
                // Another thread inserts while it is written.
                if below(2) == 0 {
                    memory[below(8) as usize * 1000] = below(3) as u8;
                }
                model.write(0, &kernel, &memory);
                if below(4) == 0 {
                    model.turn();
                }
            }
            // It stands still now.
            model.write(0, &memory.clone(), &memory);
            assert_eq!(model.replayed(), memory);
        }
    }
}
