//! [`Scan`]: a range of keys, in order, with their values.
//!
//! A merge over the snapshot's chunks and tables gives keys and addresses. Values are read some keys ahead of the caller
//! (WiscKey's range query): those at hand in the pool or the page cache are read at once; for all others the
//! kernel is asked to read them together, in parallel, and they are waited for when their turn comes. The batch grows as the
//! scan goes on, so that a short scan does not pay for a long one.

use super::{Snapshot, Store, Value};
use crate::{
    error::StoreError,
    index::{Address, Form, Found, IndexError, Iter},
    memtable::Chunk,
};
use std::{collections::VecDeque, ops::Bound, sync::Arc};

/// Keys that are read ahead at first, and at most.
const AHEAD: (usize, usize) = (16, 128);
/// Bytes of values that are read ahead at most.
const AHEAD_BYTES: u64 = 4 << 20;

/// Which keys a scan gives, and how.
#[derive(Clone, Debug)]
pub struct ScanRange {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    reversed: bool,
    keys_only: bool,
}

impl ScanRange {
    /// The keys between two bounds.
    #[must_use]
    pub fn new(from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self {
            from,
            to,
            reversed: false,
            keys_only: false,
        }
    }

    /// All keys.
    #[must_use]
    pub fn all() -> Self {
        Self::new(Bound::Unbounded, Bound::Unbounded)
    }

    /// The keys that start with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        // The first key behind them: the prefix with its last byte below 255 raised, and cut there.
        let end = prefix.iter().rposition(|&byte| byte < u8::MAX).map(|last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end
        });
        Self::new(
            Bound::Included(prefix.to_vec()),
            end.map_or(Bound::Unbounded, Bound::Excluded),
        )
    }

    /// From the last key to the first.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            reversed: true,
            ..self
        }
    }

    /// Values are not read: they are given empty.
    #[must_use]
    pub fn keys_only(self) -> Self {
        Self {
            keys_only: true,
            ..self
        }
    }

    /// The range's keys among a sorted chunk's, by position.
    fn positions(&self, chunk: &Chunk) -> (usize, usize) {
        let low = match &self.from {
            Bound::Unbounded => 0,
            Bound::Included(key) => chunk.keys_below(key, false),
            Bound::Excluded(key) => chunk.keys_below(key, true),
        };
        let high = match &self.to {
            Bound::Unbounded => chunk.sorted_len(),
            Bound::Included(key) => chunk.keys_below(key, true),
            Bound::Excluded(key) => chunk.keys_below(key, false),
        };
        (low, high.max(low))
    }
}

/// One source of keys in order, with its next one looked at.
struct Source {
    from: From,
    next: Option<Found>,
}

enum From {
    Chunk {
        chunk: Arc<Chunk>,
        low: usize,
        high: usize,
    },
    Tables(Iter),
}

impl Source {
    fn advance(&mut self, reversed: bool) -> Result<(), IndexError> {
        self.next = match &mut self.from {
            From::Chunk { low, high, .. } if *low >= *high => None,
            From::Chunk { chunk, low, high } => {
                if reversed {
                    *high -= 1;
                    chunk.nth(*high)
                } else {
                    *low += 1;
                    chunk.nth(*low - 1)
                }
            }
            From::Tables(iter) => if reversed {
                iter.next_back()
            } else {
                iter.next()
            }
            .transpose()?,
        };
        Ok(())
    }
}

/// An iterator over keys and values, in key order. After an error it ends.
pub struct Scan {
    snapshot: Snapshot,
    reversed: bool,
    keys_only: bool,
    /// Newest first.
    sources: Vec<Source>,
    started: bool,
    /// Keys that are not given yet, with their values as far as those were at hand; the others are asked for.
    ahead: VecDeque<(Found, Option<Value>)>,
    ahead_next: usize,
    failed: bool,
}

impl Store {
    /// The keys of `range` as of now.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn scan(&self, range: ScanRange) -> Result<Scan, StoreError> {
        Ok(Scan::new(Snapshot::new(&self.shared), range))
    }
}

impl Scan {
    pub(super) fn new(snapshot: Snapshot, range: ScanRange) -> Self {
        let view = snapshot.view();
        let mut sources: Vec<Source> = view
            .frozen
            .iter()
            .map(|chunk| {
                chunk.sort();
                let (low, high) = range.positions(chunk);
                From::Chunk {
                    chunk: Arc::clone(chunk),
                    low,
                    high,
                }
            })
            .map(|from| Source { from, next: None })
            .collect();
        let bounds = (
            range.from.as_ref().map(Vec::as_slice),
            range.to.as_ref().map(Vec::as_slice),
        );
        sources.push(Source {
            from: From::Tables(view.tables.range(bounds)),
            next: None,
        });
        Self {
            reversed: range.reversed,
            keys_only: range.keys_only,
            snapshot,
            sources,
            started: false,
            ahead: VecDeque::new(),
            ahead_next: AHEAD.0,
            failed: false,
        }
    }

    /// The next key that is not deleted.
    fn next_key(&mut self) -> Result<Option<Found>, IndexError> {
        if !self.started {
            self.started = true;
            for source in &mut self.sources {
                source.advance(self.reversed)?;
            }
        }
        loop {
            let mut first: Option<(usize, &[u8])> = None;
            for (number, source) in self.sources.iter().enumerate() {
                let Some((key, _)) = &source.next else {
                    continue;
                };
                // Of equal keys the first source, the newest, stays.
                if first.is_none_or(|(_, best)| {
                    if self.reversed {
                        **key > *best
                    } else {
                        **key < *best
                    }
                }) {
                    first = Some((number, key));
                }
            }
            let Some((number, _)) = first else {
                return Ok(None);
            };
            let found = self.sources[number].next.take();
            self.sources[number].advance(self.reversed)?;
            let Some(found) = found else {
                return Ok(None);
            };
            for source in &mut self.sources[number + 1..] {
                if source.next.as_ref().is_some_and(|(key, _)| *key == found.0) {
                    source.advance(self.reversed)?;
                }
            }
            if found.1.form != Form::Tombstone {
                return Ok(Some(found));
            }
        }
    }

    /// Collects the next keys with the values that are at hand, and asks for the others.
    fn read_ahead(&mut self) -> Result<(), StoreError> {
        let mut bytes = 0;
        let mut absent = Vec::new();
        while self.ahead.len() < self.ahead_next && bytes < AHEAD_BYTES {
            let Some(found) = self.next_key()? else {
                break;
            };
            bytes += u64::from(found.1.len);
            let value = if self.keys_only {
                Some(Value::default())
            } else {
                self.snapshot.shared().value_at_hand(&found.0, found.1)?
            };
            if value.is_none() {
                absent.push(found.1);
            }
            self.ahead.push_back((found, value));
        }
        self.ahead_next = (self.ahead_next * 2).min(AHEAD.1);
        if absent.len() > 1 {
            self.ask_for(absent);
        }
        Ok(())
    }

    /// Asks the kernel to read the values, neighbours in the log together.
    fn ask_for(&self, addresses: Vec<Address>) {
        let mut ranges: Vec<(u64, u64)> = addresses
            .iter()
            .map(|a| (a.lsn, a.lsn + u64::from(a.len)))
            .collect();
        ranges.sort_unstable();
        let log = &self.snapshot.shared().log;
        let mut ranges = ranges.into_iter().peekable();
        while let Some((start, mut end)) = ranges.next() {
            while let Some((_, next_end)) = ranges.next_if(|(next, _)| *next <= end + 4096) {
                end = next_end.max(end);
            }
            if let Some(file) = log.find(start) {
                file.file.will_need(file.offset(start), end - start);
            }
        }
    }

    fn next_pair(&mut self) -> Result<Option<(Vec<u8>, Value)>, StoreError> {
        if self.ahead.is_empty() {
            self.read_ahead()?;
        }
        let Some(((key, address), value)) = self.ahead.pop_front() else {
            return Ok(None);
        };
        let value = match value {
            Some(value) => value,
            None => self.snapshot.shared().value_at(&key, address)?,
        };
        Ok(Some((key, value)))
    }
}

impl Iterator for Scan {
    type Item = Result<(Vec<u8>, Value), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let pair = self.next_pair();
        self.failed = pair.is_err();
        pair.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefixs_range_ends_before_the_first_key_behind_it() {
        let end = |prefix: &[u8]| ScanRange::prefix(prefix).to;
        assert_eq!(end(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(end(b"\xff"), Bound::Unbounded);
        assert_eq!(end(b""), Bound::Unbounded);
    }
}
