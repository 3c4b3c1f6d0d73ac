//! Writes that come back to where the last one ended: of the bytes that are logged already, none is logged again.
//!
//! PostgreSQL and InnoDB write their logs in whole blocks, so each commit writes the last block again, with a few hundred bytes more in it. The record
//! has what differs from the block as it was logged last, whichever process did ([`LastWrite`]). That is right whatever a replay begins with: what a
//! record leaves out an older one has, and if that was released, the file was synced with it.
//!
//! The caller's memory is loaded once: what is compared is a copy, the copy is what is logged, and the copy is what the next write is compared with. A copy is
//! made only of a file of which a write came back at least once; a log that is only appended to pays nothing.

use super::process::Held;
use crate::shared::{BLOCK, LastWrite};
use forebay_pool::Lsn;
use rustix::io::Errno;
use std::{io::IoSlice, ops::Range, sync::atomic::Ordering::Relaxed};

/// Copies of a write's first and last bytes. All memory is taken when it is made: a write allocates none.
#[derive(Default)]
pub(super) struct Copies {
    first: Vec<u8>,
    /// Of what is behind the first.
    last: Vec<u8>,
}

impl Copies {
    pub(super) fn new() -> Self {
        Self {
            first: Vec::with_capacity(BLOCK),
            last: Vec::with_capacity(BLOCK),
        }
    }

    /// Takes copies of a write to `at`, and says which part of the first one the lane has not. At least a byte: a record has the write's time.
    fn compare(&mut self, known: &LastWrite, at: u64, write: &[u8]) -> Range<usize> {
        let (first, rest) = write.split_at(write.len().min(BLOCK));
        self.first.clear();
        self.first.extend_from_slice(first);
        self.last.clear();
        self.last
            .extend_from_slice(&rest[rest.len() - rest.len().min(BLOCK)..]);
        let changed = known.changed(at, &self.first);
        match rest.is_empty() {
            true if changed.is_empty() => changed.end.saturating_sub(1)..changed.end,
            true => changed,
            false => changed.start..self.first.len(),
        }
    }

    /// The next write is compared with this one, which put `bytes` bytes at `at`, and of which `changed` was not known. It was logged up to `end`.
    fn keep(&self, known: &LastWrite, at: u64, bytes: usize, changed: Range<usize>, end: Lsn) {
        let range = at..at + bytes as u64;
        match self.last.is_empty() {
            true => known.keep(range, &self.first, changed, end),
            false => known.keep(range, &self.last, 0..self.last.len(), end),
        }
    }
}

/// Logs what a write put at file offset `at`: the first `bytes` bytes of `parts`; of what the lane has already, nothing.
///
/// # Errors
/// As [`Log::write`](crate::log::Log::write).
#[inline]
pub(super) fn log_write(
    held: &mut Held,
    at: u64,
    parts: &[IoSlice<'_>],
    bytes: usize,
) -> Result<(), Errno> {
    let shared = held.shared;
    let known = &shared.last_write;
    let done = match parts {
        [part] if known.is_met(shared.end.load(Relaxed), at) => {
            log_changed(held, at, &part[..bytes])
        }
        _ => {
            let done = held.session.log().write(held.number, at, parts, bytes);
            let range = at..at + bytes as u64;
            done.map(|()| known.keep(range, &[], 0..0, shared.end.load(Relaxed)))
        }
    };
    if done.is_err() {
        known.forget();
        return done;
    }
    for (count, more) in [(&shared.writes, 1), (&shared.bytes, bytes as u64)] {
        count.store(count.load(Relaxed) + more, Relaxed);
    }
    Ok(())
}

fn log_changed(held: &mut Held, at: u64, write: &[u8]) -> Result<(), Errno> {
    let shared = held.shared;
    let mut copies = std::mem::take(&mut held.copies);
    let changed = copies.compare(&shared.last_write, at, write);
    let middle = copies.first.len()..write.len() - copies.last.len();
    let parts = [&copies.first[changed.clone()], &write[middle], &copies.last];
    let bytes = parts.iter().map(|part| part.len()).sum();
    let parts = parts.map(IoSlice::new);
    let logged_at = at + changed.start as u64;
    let done = held
        .session
        .log()
        .write(held.number, logged_at, &parts, bytes);
    let done = done.map(|()| {
        let end = shared.end.load(Relaxed);
        copies.keep(&shared.last_write, at, write.len(), changed, end);
    });
    held.copies = copies;
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::SharedPage;

    /// What is logged of each write in turn, at the file's beginning, and the file as a replay of that makes it. Processes write in turn.
    fn replayed(writes: &[(u64, Vec<u8>)]) -> (Vec<usize>, Vec<u8>) {
        let (page, _) = SharedPage::new("forebay-test").unwrap();
        let known = &page.files[0].last_write;
        let mut processes = [Copies::new(), Copies::new()];
        let (mut file, mut logged) = (vec![0; 1 << 16], Vec::new());
        for (turn, (at, write)) in writes.iter().enumerate() {
            let (end, copies) = (turn as u64 + 1, &mut processes[turn % 2]);
            let (mut from, mut to) = (*at as usize, *at as usize + write.len());
            if known.is_met(end - 1, *at) {
                let changed = copies.compare(known, *at, write);
                let middle = copies.first.len()..write.len() - copies.last.len();
                let parts = [&copies.first[changed.clone()], &write[middle], &copies.last].concat();
                from += changed.start;
                to = from + parts.len();
                file[from..to].copy_from_slice(&parts);
                copies.keep(known, *at, write.len(), changed, end);
            } else {
                file[from..to].copy_from_slice(write);
                known.keep(*at..*at + write.len() as u64, &[], 0..0, end);
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
        // Whole, until it is known that writes come back; then what was added, in words; of nothing new a byte.
        assert_eq!(logged, [4096, 4096, 56, 1, 3752]);
        assert_eq!(file[8192..12288], block(4096));
    }

    #[test]
    fn nonsense_in_the_shared_memory_makes_no_process_panic() {
        let (page, _) = SharedPage::new("forebay-test").unwrap();
        let known = &page.files[0].last_write;
        let mut copies = Copies::new();
        let numbers = [0, 1, 7, 8192, 8193, u64::MAX - 1, u64::MAX];
        for from in numbers {
            for (to, kept) in numbers
                .into_iter()
                .flat_map(|to| numbers.map(|kept| (to, kept)))
            {
                known.spoil(from..to, kept);
                for (at, bytes) in [(0, 100), (u64::MAX - 20_000, 9000), (8190, 8192)] {
                    let changed = copies.compare(known, at, &vec![1; bytes]);
                    assert!(changed.start < changed.end && changed.end <= BLOCK);
                    copies.keep(known, at, bytes, changed, 5);
                    known.spoil(from..to, kept);
                }
            }
        }
    }

    #[test]
    fn writes_of_any_place_and_length_leave_the_file_as_the_kernel_has_it() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut below = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        for _ in 0..300 {
            let (mut kernel, mut writes, mut at) = (vec![0; 1 << 16], Vec::new(), 0_u64);
            for _ in 0..12 {
                let length = 1 + below(14_000);
                let mut write = kernel[at as usize..(at + length) as usize].to_vec();
                // Some of it is new.
                for _ in 0..below(4) {
                    let place = below(length) as usize;
                    write[place] = below(256) as u8;
                }
                kernel[at as usize..(at + length) as usize].copy_from_slice(&write);
                writes.push((at, write));
                at = (at + below(length + 1)).min(48_000);
            }
            assert_eq!(replayed(&writes).1, kernel);
        }
    }
}
