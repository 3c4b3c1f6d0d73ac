//! [`ScanWalk`]: the pairs of a range one after another, in one direction, with keys collected and
//! values asked for ahead of the caller.

use super::keys::Keys;
use crate::{
    db::{Value, range::ScanRange},
    error::StoreError,
    index::{IndexEntry, RecordAddress},
};
use std::{collections::VecDeque, ops::Bound};

/// Keys that are read ahead at first, and at most.
const AHEAD: (usize, usize) = (16, 128);
/// Bytes of values that are read ahead at most.
const AHEAD_BYTES: u64 = 4 << 20;

/// One way through a range.
pub(super) struct ScanWalk {
    keys: Keys,
    /// Values may have expired when its snapshot was taken: they are passed over.
    expires: bool,
    /// Keys that are not given yet.
    ahead: VecDeque<(IndexEntry, ValuePrefetch)>,
    ahead_next: usize,
}

/// What is done about the value of a key that is not given yet.
enum ValuePrefetch {
    Nothing,
    /// The kernel was asked to read it.
    Asked,
    /// It was at hand when others were asked for.
    Read(Value),
}

impl ScanWalk {
    pub(super) fn new(keys: Keys, expires: bool) -> Self {
        Self {
            keys,
            expires,
            ahead: VecDeque::new(),
            ahead_next: AHEAD.0,
        }
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Through another part of the range that this one was made for.
    pub(super) fn through(&self, part: ScanRange) -> Self {
        Self::new(self.keys.of(part), self.expires)
    }

    /// Through what this one has left, from the other end.
    pub(super) fn opposite(&self) -> Self {
        let mut range = self.keys.range().clone();
        range.begin_at(self.left_from().map(<[u8]>::to_vec));
        range.reversed = !range.reversed;
        self.through(range)
    }

    /// Where what it has left begins.
    fn left_from(&self) -> Bound<&[u8]> {
        match self.ahead.front() {
            Some(((key, _), _)) => Bound::Included(key),
            None => self.keys.range().near().as_ref().map(Vec::as_slice),
        }
    }

    /// True if it does not come to the key any more: it has given it.
    fn is_past(&self, key: &[u8]) -> bool {
        let reversed = self.keys.range().reversed;
        match (self.left_from(), reversed) {
            (Bound::Unbounded, _) => false,
            (Bound::Included(from), false) => key < from,
            (Bound::Excluded(from), false) => key <= from,
            (Bound::Included(from), true) => key > from,
            (Bound::Excluded(from), true) => key >= from,
        }
    }

    /// Goes on to `key` if that lies among the keys read ahead. False if it does not, and nothing
    /// is done.
    pub(super) fn skip_to(&mut self, key: &[u8]) -> bool {
        let reversed = self.keys.range().reversed;
        let is_before = |other: &[u8]| match reversed {
            false => other < key,
            true => other > key,
        };
        let (Some(((first, _), _)), Some(((last, _), _))) = (self.ahead.front(), self.ahead.back())
        else {
            return false;
        };
        if is_before(last) || (first != key && !is_before(first)) {
            return false;
        }
        while (self.ahead.front()).is_some_and(|((key, _), _)| is_before(key)) {
            self.ahead.pop_front();
        }
        true
    }

    /// Collects the next keys.
    fn read_ahead(&mut self) -> Result<(), StoreError> {
        let mut bytes = 0;
        let (_view, pins) = self.keys.pin()?;
        while self.ahead.len() < self.ahead_next && bytes < AHEAD_BYTES {
            let Some(found) = self.keys.next(&pins)? else {
                break;
            };
            bytes += u64::from(found.1.len);
            let ahead = match self.keys.only() {
                true => ValuePrefetch::Read(Value::default()),
                false => ValuePrefetch::Nothing,
            };
            self.ahead.push_back((found, ahead));
        }
        let last = self.ahead.back().map(|((key, _), _)| &key[..]);
        self.keys.end_batch(last);
        self.ahead_next = (self.ahead_next * 2).min(AHEAD.1);
        Ok(())
    }

    /// Has the value at `address`, which is not at hand, read together with those of the keys
    /// behind it that are not either.
    fn ask_with_rest(&mut self, address: RecordAddress) -> Result<(), StoreError> {
        let mut absent = vec![address];
        for (found, ahead) in &mut self.ahead {
            *ahead = match self.keys.shared().value_at_hand(&found.0, found.1)? {
                Some(value) => ValuePrefetch::Read(value),
                None => {
                    absent.push(found.1);
                    ValuePrefetch::Asked
                }
            };
        }
        if absent.len() > 1 {
            self.keys.shared().ask_for(absent);
        }
        Ok(())
    }

    fn next_ahead(&mut self) -> Result<Option<(IndexEntry, ValuePrefetch)>, StoreError> {
        if self.ahead.is_empty() {
            self.read_ahead()?;
        }
        Ok(self.ahead.pop_front())
    }

    /// The next stored key and where its value is, which is not read.
    pub(super) fn next_address(&mut self) -> Result<Option<IndexEntry>, StoreError> {
        loop {
            match self.next_ahead()? {
                Some(((key, at), _)) if !self.is_there(&key, at)? => {}
                next => return Ok(next.map(|(found, _)| found)),
            }
        }
    }

    /// True if the value there has not expired.
    fn is_there(&self, key: &[u8], address: RecordAddress) -> Result<bool, StoreError> {
        if !self.expires {
            return Ok(true);
        }
        let snapshot = self.keys.snapshot();
        (snapshot.shared()).is_alive_at(key, address, snapshot.time())
    }

    /// The next stored pair; none at the end, or if the walk from the other end has given it.
    #[inline]
    pub(super) fn next_pair(
        &mut self,
        other: Option<&Self>,
    ) -> Result<Option<(Vec<u8>, Value)>, StoreError> {
        while let Some(((key, address), ahead)) = self.next_ahead()? {
            if other.is_some_and(|other| other.is_past(&key)) {
                break;
            }
            if let Some(value) = self.value_of(&key, address, ahead)? {
                return Ok(Some((key, value)));
            }
        }
        // Of a keyspace that is being dropped some were missed.
        self.keys.snapshot().keyspace_id()?;
        Ok(None)
    }

    /// The value of a key, unless it has expired.
    #[inline]
    fn value_of(
        &mut self,
        key: &[u8],
        address: RecordAddress,
        ahead: ValuePrefetch,
    ) -> Result<Option<Value>, StoreError> {
        if self.expires && self.keys.only() {
            let is_there = self.is_there(key, address)?;
            // Of a dropped one it is not known any more what expires.
            self.keys.snapshot().keyspace_id()?;
            return Ok(is_there.then(Value::default));
        }
        let at_hand = match ahead {
            ValuePrefetch::Read(value) => Some(value),
            ValuePrefetch::Asked => None,
            ValuePrefetch::Nothing => {
                let at_hand = self.keys.shared().value_at_hand(key, address)?;
                if at_hand.is_none() {
                    self.ask_with_rest(address)?;
                }
                at_hand
            }
        };
        let value = match at_hand {
            Some(value) => value,
            None => self.keys.shared().value_at(key, address)?,
        };
        let is_alive = self.keys.snapshot().is_alive(value.expiry());
        Ok(is_alive.then_some(value))
    }
}
