//! [`Scan`]: a range of keys, in order, with their values.
//!
//! A merge over the snapshot's chunks and tables gives keys and addresses. Between two batches a scan holds no chunk: if its snapshot has
//! left one for the tables meanwhile, it goes on behind its last key in those. Values are read some keys ahead of the caller
//! (WiscKey's range query): those at hand in the pool or the page cache are read at once; for all others the
//! kernel is asked to read them together, in parallel, and they are waited for when their turn comes. The batch grows as the
//! scan goes on, so that a short scan does not pay for a long one.

use super::{
    Snapshot, Store, Value,
    dead::{First, HIDDEN_MIN},
};
use crate::{
    error::StoreError,
    index::{Address, Form, Found, IndexError, Iter},
    memtable::{Chunk, Run, Stretch, View},
};
use forebay_pool::Lsn;
use std::{
    collections::VecDeque,
    ops::Bound,
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
};

/// Keys that are read ahead at first, and at most.
const AHEAD: (usize, usize) = (16, 128);
/// Bytes of values that are read ahead at most.
const AHEAD_BYTES: u64 = 4 << 20;

/// Which keys a scan gives, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// The range's keys in a run of a chunk, by position.
    fn positions(&self, chunk: &Chunk, run: &Run) -> (usize, usize) {
        let low = match &self.from {
            Bound::Unbounded => 0,
            Bound::Included(key) => chunk.keys_below(run, key, false),
            Bound::Excluded(key) => chunk.keys_below(run, key, true),
        };
        let high = match &self.to {
            Bound::Unbounded => run.len(),
            Bound::Included(key) => chunk.keys_below(run, key, true),
            Bound::Excluded(key) => chunk.keys_below(run, key, false),
        };
        (low, high.max(low))
    }

    /// What is left of the range behind `key`, in its direction.
    fn go_on_behind(&mut self, key: Vec<u8>) {
        match self.reversed {
            true => self.to = Bound::Excluded(key),
            false => self.from = Bound::Excluded(key),
        }
    }
}

/// One source of keys in order, with its next one looked at.
struct Source {
    from: From,
    next: Option<Found>,
}

enum From {
    /// Part of a run of a chunk.
    Chunk {
        /// How many chunks are newer.
        age: usize,
        chunk: Weak<Chunk>,
        run: Weak<Run>,
        low: usize,
        high: usize,
    },
    Tables(Iter),
}

/// A source's chunk and run while keys are taken from it; none for the tables.
type Pin = Option<(Arc<Chunk>, Arc<Run>)>;

impl Source {
    fn advance(&mut self, pin: &Pin, limit: Lsn, reversed: bool) -> Result<(), IndexError> {
        self.next = match (&mut self.from, pin) {
            (From::Chunk { low, high, .. }, Some((chunk, run))) => loop {
                if *low >= *high {
                    break None;
                }
                let position = if reversed {
                    *high -= 1;
                    *high
                } else {
                    *low += 1;
                    *low - 1
                };
                if let Some(found) = chunk.nth(run, position, limit) {
                    break Some(found);
                }
            },
            (From::Chunk { .. }, None) => None,
            (From::Tables(iter), _) => if reversed {
                iter.next_back()
            } else {
                iter.next()
            }
            .transpose()?,
        };
        Ok(())
    }

    /// How many chunks are newer than this source.
    fn age(&self) -> usize {
        match &self.from {
            From::Chunk { age, .. } => *age,
            From::Tables(_) => usize::MAX,
        }
    }

    fn pin(&self) -> Option<Pin> {
        match &self.from {
            From::Chunk { chunk, run, .. } => Some(Some((chunk.upgrade()?, run.upgrade()?))),
            From::Tables(_) => Some(None),
        }
    }
}

/// The start of a scan in the tables.
struct Start {
    range: ScanRange,
    /// Of the tables.
    watermark: Lsn,
    /// Keys of theirs that memory hides.
    hidden: u64,
}

/// A chunk that no longer lists some deleted keys, which lie in a stretch.
struct Hiding {
    age: usize,
    chunk: Weak<Chunk>,
    left: Arc<Stretch>,
}

/// An iterator over keys and values, in key order. After an error it ends.
pub struct Scan {
    snapshot: Snapshot,
    /// What is left of it, whenever the sources are made anew.
    range: ScanRange,
    /// The snapshot's view that the sources are of; dangling before there are any.
    view: Weak<View>,
    /// Newest first.
    sources: Vec<Source>,
    hiding: Vec<Hiding>,
    /// As long as the tables have given nothing: what is known of their start.
    start: Option<Start>,
    /// Keys that were passed over in this batch, and how many of them are the tables'.
    passed: u64,
    hidden: u64,
    /// Keys that are not given yet, with their values as far as those were at hand; the others are asked for.
    ahead: VecDeque<(Found, Option<Value>)>,
    ahead_next: usize,
    failed: bool,
}

impl Store {
    /// The keys of `range` as of now.
    ///
    /// # Errors
    /// [`StoreError::TooManySnapshots`], I/O errors and damage.
    pub fn scan(&self, range: ScanRange) -> Result<Scan, StoreError> {
        Ok(Scan::new(Snapshot::new(&self.shared)?, range))
    }
}

impl Scan {
    pub(super) fn new(snapshot: Snapshot, range: ScanRange) -> Self {
        Self {
            range,
            snapshot,
            view: Weak::new(),
            sources: Vec::new(),
            hiding: Vec::new(),
            start: None,
            passed: 0,
            hidden: 0,
            ahead: VecDeque::new(),
            ahead_next: AHEAD.0,
            failed: false,
        }
    }

    /// The snapshot's view, which keeps its chunks as long as it is held, and the sources' runs. The sources are made anew if the view
    /// is another one, or a chunk's order.
    fn pin(&mut self) -> Result<(Arc<View>, Vec<Pin>), StoreError> {
        let view = self.snapshot.view().view();
        if std::ptr::eq(self.view.as_ptr(), Arc::as_ptr(&view)) {
            let pins: Option<Vec<Pin>> = self.sources.iter().map(Source::pin).collect();
            if let Some(pins) = pins {
                return Ok((view, pins));
            }
        }
        self.view = Arc::downgrade(&view);
        (self.sources, self.hiding) = (Vec::new(), Vec::new());
        let mut pins = Vec::new();
        for (age, chunk) in view.chunks().enumerate() {
            let order = chunk.ordered();
            self.hiding.extend(order.left.map(|left| Hiding {
                age,
                chunk: Arc::downgrade(chunk),
                left,
            }));
            for run in order.runs {
                let (low, high) = self.range.positions(chunk, &run);
                if low == high {
                    continue;
                }
                let from = From::Chunk {
                    age,
                    chunk: Arc::downgrade(chunk),
                    run: Arc::downgrade(&run),
                    low,
                    high,
                };
                self.sources.push(Source { from, next: None });
                pins.push(Some((Arc::clone(chunk), run)));
            }
        }
        let from = From::Tables(self.tables(&view));
        self.sources.push(Source { from, next: None });
        pins.push(None);
        let (limit, reversed) = (self.snapshot.view().limit(), self.range.reversed);
        for (source, pin) in self.sources.iter_mut().zip(&pins) {
            source.advance(pin, limit, reversed)?;
        }
        Ok((view, pins))
    }

    /// What the tables have of the range, or of that part of it that is not known to be hidden.
    fn tables(&mut self, view: &View) -> Iter {
        let mut range = self.range.clone();
        let watermark = view.tables.watermark();
        let dead = &self.snapshot.shared().background.dead_starts;
        match dead.find(&range, self.snapshot.view().limit(), watermark) {
            None => {}
            Some(First::None) => return Box::new(std::iter::empty()),
            Some(First::Key(key)) if range.reversed => range.to = Bound::Included(key),
            Some(First::Key(key)) => range.from = Bound::Included(key),
        }
        self.start = Some(Start {
            range: self.range.clone(),
            watermark,
            hidden: 0,
        });
        let bounds = (
            range.from.as_ref().map(Vec::as_slice),
            range.to.as_ref().map(Vec::as_slice),
        );
        view.tables.range(bounds)
    }

    /// The tables give `first` of the range, and nothing before: what was hidden there need not be looked at again.
    fn note_start(&mut self, first: First) {
        if let Some(start) = self.start.take()
            && start.hidden >= HIDDEN_MIN
        {
            let shared = self.snapshot.shared();
            let (limit, dead) = (self.snapshot.view().limit(), &shared.background.dead_starts);
            dead.note(&start.range, limit, start.watermark, first);
        }
    }

    /// A key of the tables is hidden by memory.
    fn note_hidden(&mut self) {
        if let Some(start) = &mut self.start {
            start.hidden += 1;
        }
        self.hidden += 1;
        self.passed += 1;
    }

    /// The next key that is not deleted.
    fn next_key(&mut self, pins: &[Pin]) -> Result<Option<Found>, IndexError> {
        let (limit, reversed) = (self.snapshot.view().limit(), self.range.reversed);
        let tables = self.sources.len() - 1;
        loop {
            let mut first: Option<(usize, &[u8])> = None;
            for (number, source) in self.sources.iter().enumerate() {
                let Some((key, _)) = &source.next else {
                    continue;
                };
                // Of equal keys the first source, the newest, stays.
                if first.is_none_or(|(_, best)| {
                    if reversed {
                        **key > *best
                    } else {
                        **key < *best
                    }
                }) {
                    first = Some((number, key));
                }
            }
            let Some((number, _)) = first else {
                self.note_start(First::None);
                return Ok(None);
            };
            let found = self.sources[number].next.take();
            self.sources[number].advance(&pins[number], limit, reversed)?;
            let Some(found) = found else {
                return Ok(None);
            };
            let dead = found.1.form == Form::Tombstone;
            let mut hides = false;
            let sources = self.sources.iter_mut().zip(pins).enumerate();
            for (at, (source, pin)) in sources.skip(number + 1) {
                if source.next.as_ref().is_some_and(|(key, _)| *key == found.0) {
                    source.advance(pin, limit, reversed)?;
                    hides |= at == tables && dead;
                }
            }
            if hides {
                self.note_hidden();
            }
            if dead {
                self.passed += 1;
                if let Some((chunk, _)) = &pins[number] {
                    chunk.note_passed(1);
                }
            } else if !self.is_hidden(&found.0, self.sources[number].age()) {
                if number == tables && self.start.is_some() {
                    self.note_start(First::Key(found.0.clone()));
                }
                return Ok(Some(found));
            } else if number == tables {
                self.note_hidden();
            }
        }
    }

    /// True if a key of a source of that age is deleted in a newer chunk that no longer lists it.
    fn is_hidden(&self, key: &[u8], age: usize) -> bool {
        self.hiding.iter().any(|hiding| {
            hiding.age < age
                && hiding.left.0[..] <= *key
                && *key <= hiding.left.1[..]
                && hiding.chunk.upgrade().is_some_and(|chunk| {
                    let hash = self.snapshot.shared().hash(key);
                    chunk.hides(hash, key, self.snapshot.view().limit())
                })
        })
    }

    /// Collects the next keys with the values that are at hand, and asks for the others.
    fn read_ahead(&mut self) -> Result<(), StoreError> {
        let mut bytes = 0;
        let mut absent = Vec::new();
        let (_view, pins) = self.pin()?;
        while self.ahead.len() < self.ahead_next && bytes < AHEAD_BYTES {
            let Some(found) = self.next_key(&pins)? else {
                break;
            };
            bytes += u64::from(found.1.len);
            let value = if self.range.keys_only {
                Some(Value::default())
            } else {
                self.snapshot.shared().value_at_hand(&found.0, found.1)?
            };
            if value.is_none() {
                absent.push(found.1);
            }
            self.ahead.push_back((found, value));
        }
        if let Some(tables) = self.sources.last() {
            // Only what is before the next key of the tables was looked at.
            let first = match &tables.next {
                Some((key, _)) => First::Key(key.clone()),
                None => First::None,
            };
            self.note_start(first);
        }
        let shared = self.snapshot.shared();
        let passed = std::mem::take(&mut self.passed);
        shared.background.scan_passed.fetch_add(passed, Relaxed);
        shared.note_hidden(std::mem::take(&mut self.hidden));
        if let Some(((key, _), _)) = self.ahead.back() {
            self.range.go_on_behind(key.clone());
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
