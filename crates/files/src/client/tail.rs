//! Writes that come back to where the last one ended: of the bytes that are logged already, none is logged again.
//!
//! InnoDB writes its redo log in whole blocks, so each commit writes the last block again, with a few hundred bytes more in it. The record has what
//! differs from the block as it was logged last. That is right whatever a replay begins with: what a record leaves out an older one has, and if
//! that was released, the file was synced with it.
//!
//! The caller's memory is loaded once: what is compared is a copy, the copy is what is logged, and the copy is what the next write is compared with. A copy is
//! made only of a file of which a write came back at least once; a log that is only appended to pays nothing.

use super::process::Held;
use forebay_pool::Lsn;
use rustix::io::Errno;
use std::{io::IoSlice, ops::Range, sync::atomic::Ordering::Relaxed};

/// Bytes that are remembered of a write, its last: a block of any device.
const BLOCK: usize = 4096;

/// What was logged last of a file.
#[derive(Default)]
pub(super) struct Tail {
    /// Where in the file; empty if that is not known.
    range: Range<u64>,
    /// Log address behind its record. While it is the file's last, no process has logged anything that changed these bytes.
    end: Lsn,
    /// The last bytes of the range, if it is known that writes come back.
    bytes: Vec<u8>,
    /// Of the write that is being logged: its first bytes, and its last.
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Tail {
    /// Nothing is known yet. All memory is taken now: a write allocates none.
    pub(super) fn new() -> Self {
        let block = || Vec::with_capacity(BLOCK);
        Self {
            bytes: block(),
            first: block(),
            last: block(),
            ..Self::default()
        }
    }

    /// The file may have changed without the lane.
    pub(super) fn forget(&mut self) {
        self.range = 0..0;
        self.bytes.clear();
    }

    /// Takes copies of the write's first and last bytes, and says which part of the first copy the lane has not. At least a byte: a record has
    /// the write's time.
    fn compare(&mut self, at: u64, write: &[u8]) -> Range<usize> {
        let (first, rest) = write.split_at(write.len().min(BLOCK));
        self.first.clear();
        self.first.extend_from_slice(first);
        self.last.clear();
        self.last
            .extend_from_slice(&rest[rest.len() - rest.len().min(BLOCK)..]);
        let known_from = self.range.end - self.bytes.len() as u64;
        let known = match at.checked_sub(known_from) {
            Some(skipped) => self.bytes.get(skipped as usize..).unwrap_or(&[]),
            None => &[],
        };
        let from = equal_first(known, &self.first);
        let is_inside = rest.is_empty() && known.len() >= self.first.len();
        let equal_at_end = match is_inside {
            true => {
                let known = known[from..self.first.len()].iter().rev();
                let pairs = known.zip(self.first[from..].iter().rev());
                pairs.take_while(|(a, b)| a == b).count()
            }
            false => 0,
        };
        let to = self.first.len() - equal_at_end;
        match from < to || !rest.is_empty() {
            true => from..to,
            false => to.saturating_sub(1)..to,
        }
    }

    /// What the next write is compared with.
    fn keep(&mut self) {
        match self.last.is_empty() {
            true => std::mem::swap(&mut self.bytes, &mut self.first),
            false => std::mem::swap(&mut self.bytes, &mut self.last),
        }
    }
}

/// How many bytes at the beginning of both are the same. By chunks, which the processor compares at once.
fn equal_first(a: &[u8], b: &[u8]) -> usize {
    const CHUNK: usize = 64;
    let chunks = a.chunks_exact(CHUNK).zip(b.chunks_exact(CHUNK));
    let from = chunks.take_while(|(a, b)| a == b).count() * CHUNK;
    let pairs = a[from..].iter().zip(&b[from..]);
    from + pairs.take_while(|(a, b)| a == b).count()
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
    let end = held.shared.end.load(Relaxed);
    let comes_back = held.tail.end == end && held.tail.range.contains(&at);
    let done = match parts {
        [part] if comes_back => log_changed(held, at, &part[..bytes]),
        _ => {
            held.tail.forget();
            held.session.log().write(held.number, at, parts, bytes)
        }
    };
    if done.is_err() {
        held.tail.forget();
        return done;
    }
    let shared = held.shared;
    held.tail.range = at..at + bytes as u64;
    held.tail.end = shared.end.load(Relaxed);
    for (count, more) in [(&shared.writes, 1), (&shared.bytes, bytes as u64)] {
        count.store(count.load(Relaxed) + more, Relaxed);
    }
    Ok(())
}

fn log_changed(held: &mut Held, at: u64, write: &[u8]) -> Result<(), Errno> {
    let mut tail = std::mem::take(&mut held.tail);
    let changed = tail.compare(at, write);
    let middle = tail.first.len()..write.len() - tail.last.len();
    let parts = [&tail.first[changed.clone()], &write[middle], &tail.last];
    let bytes = parts.iter().map(|part| part.len()).sum();
    let parts = parts.map(IoSlice::new);
    let at = at + changed.start as u64;
    let done = held.session.log().write(held.number, at, &parts, bytes);
    tail.keep();
    held.tail = tail;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is logged of each write in turn, at the file's beginning, and the file as a replay of that makes it.
    fn replayed(writes: &[(u64, Vec<u8>)]) -> (Vec<usize>, Vec<u8>) {
        let (mut tail, mut file, mut logged) = (Tail::new(), vec![0; 1 << 16], Vec::new());
        for (at, write) in writes {
            let (mut from, mut end) = (*at as usize, *at as usize + write.len());
            if tail.range.contains(at) {
                let changed = tail.compare(*at, write);
                let middle = tail.first.len()..write.len() - tail.last.len();
                let parts = [&tail.first[changed.clone()], &write[middle], &tail.last].concat();
                from += changed.start;
                end = from + parts.len();
                file[from..end].copy_from_slice(&parts);
                tail.keep();
            } else {
                tail.forget();
                file[from..end].copy_from_slice(write);
            }
            tail.range = *at..*at + write.len() as u64;
            logged.push(end - from);
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
        // Whole, until it is known that writes come back; then what was added; of nothing new a byte.
        assert_eq!(logged, [4096, 4096, 50, 1, 3746]);
        assert_eq!(file[8192..12288], block(4096));
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
