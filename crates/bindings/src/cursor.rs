//! [`StoreCursor`]: a place among the keys of a snapshot that is moved in both directions.
//!
//! A scan goes one way. The cursor keeps one for the way it moves, and begins another one behind
//! its key when it turns, so that a walk costs what a scan does.

use forebay_store::{Scan, ScanRange, Snapshot, StoreError, Value};
use std::ops::Bound;

/// A place among the keys of a snapshot, or none.
pub struct StoreCursor {
    snapshot: Snapshot,
    walk: Option<CursorWalk>,
    at: Option<(Vec<u8>, Value)>,
    trouble: Option<StoreError>,
}

/// The scan of the way that a cursor moves.
struct CursorWalk {
    scan: Scan,
    backward: bool,
}

type CursorRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl StoreCursor {
    /// At no key yet.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            walk: None,
            at: None,
            trouble: None,
        }
    }

    /// The key and the value that it is at, if it is at one.
    #[must_use]
    pub fn get(&self) -> Option<(&[u8], &[u8])> {
        self.at.as_ref().map(|(key, value)| (&key[..], &value[..]))
    }

    /// What went wrong since the last seek: it is at no key then.
    #[must_use]
    pub fn trouble(&self) -> Option<&StoreError> {
        self.trouble.as_ref()
    }

    /// Goes to the first key.
    pub fn seek_to_first(&mut self) {
        self.begin((Bound::Unbounded, Bound::Unbounded), false);
    }

    /// Goes to the last key.
    pub fn seek_to_last(&mut self) {
        self.begin((Bound::Unbounded, Bound::Unbounded), true);
    }

    /// Goes to the first key that is `key` or behind it.
    pub fn seek(&mut self, key: &[u8]) {
        self.begin((Bound::Included(key.to_vec()), Bound::Unbounded), false);
    }

    /// Goes to the last key that is `key` or before it.
    pub fn seek_for_prev(&mut self, key: &[u8]) {
        self.begin((Bound::Unbounded, Bound::Included(key.to_vec())), true);
    }

    /// Goes to the next key; behind the last one it is at none. At none, it stays there.
    pub fn next(&mut self) {
        self.go(false);
    }

    /// Goes to the key before; before the first one it is at none. At none, it stays there.
    pub fn prev(&mut self) {
        self.go(true);
    }

    fn go(&mut self, backward: bool) {
        let Some((key, _)) = self.at.take() else {
            return;
        };
        match &self.walk {
            Some(walk) if walk.backward == backward => self.step(),
            _ => {
                let behind = Bound::Excluded(key);
                let keys = match backward {
                    true => (Bound::Unbounded, behind),
                    false => (behind, Bound::Unbounded),
                };
                self.begin(keys, backward);
            }
        }
    }

    fn begin(&mut self, keys: CursorRange, backward: bool) {
        (self.at, self.walk, self.trouble) = (None, None, None);
        let range = ScanRange::new::<Vec<u8>>(keys);
        let range = match backward {
            true => range.reversed(),
            false => range,
        };
        match self.snapshot.scan(range) {
            Ok(scan) => {
                self.walk = Some(CursorWalk { scan, backward });
                self.step();
            }
            Err(error) => self.trouble = Some(error),
        }
    }

    fn step(&mut self) {
        match self.walk.as_mut().and_then(|walk| walk.scan.next()) {
            Some(Ok(pair)) => self.at = Some(pair),
            Some(Err(error)) => (self.walk, self.trouble) = (None, Some(error)),
            None => self.walk = None,
        }
    }
}
