//! [`StoreCursor`]: a place among the keys of a snapshot that is moved in both directions.
//!
//! One scan of the snapshot is walked from either end. Where the cursor turns, the scan seeks its
//! key from the other end, so that a walk costs what a scan does.

use forebay_store::{Scan, ScanRange, Snapshot, StoreError, Value};

/// A place among the keys of a snapshot, or none.
pub struct StoreCursor {
    snapshot: Snapshot,
    /// Once it has sought anything.
    scan: Option<Scan>,
    /// It moves from the scan's back.
    backward: bool,
    at: Option<(Vec<u8>, Value)>,
    trouble: Option<StoreError>,
}

impl StoreCursor {
    /// At no key yet.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            scan: None,
            backward: false,
            at: None,
            trouble: None,
        }
    }

    /// The key and the value that it is at, if it is at one.
    #[must_use]
    pub fn get(&self) -> Option<(&[u8], &[u8])> {
        self.at.as_ref().map(|(key, value)| (&key[..], &value[..]))
    }

    /// The error since the last seek, if there was one: it is at no key then.
    #[must_use]
    pub fn trouble(&self) -> Option<&StoreError> {
        self.trouble.as_ref()
    }

    /// Goes to the first key.
    pub fn seek_to_first(&mut self) {
        self.begin(false, |scan| scan.seek(""));
    }

    /// Goes to the last key.
    pub fn seek_to_last(&mut self) {
        self.begin(true, |scan| scan.seek(""));
    }

    /// Goes to the first key that is `key` or behind it.
    pub fn seek(&mut self, key: &[u8]) {
        self.begin(false, |scan| scan.seek(key));
    }

    /// Goes to the last key that is `key` or before it.
    pub fn seek_for_prev(&mut self, key: &[u8]) {
        self.begin(true, |scan| scan.seek_back(key));
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
        if self.backward != backward
            && let Some((key, _)) = self.at.take()
        {
            // To the same key, from the other end.
            match backward {
                true => self.seek_for_prev(&key),
                false => self.seek(&key),
            }
        }
        if self.at.is_some() {
            self.step();
        }
    }

    fn begin(&mut self, backward: bool, seek: impl FnOnce(&mut Scan)) {
        (self.at, self.trouble, self.backward) = (None, None, backward);
        if self.scan.is_none() {
            match self.snapshot.scan(ScanRange::all()) {
                Ok(scan) => self.scan = Some(scan),
                Err(error) => self.trouble = Some(error),
            }
        }
        if let Some(scan) = &mut self.scan {
            seek(scan);
            self.step();
        }
    }

    fn step(&mut self) {
        self.at = None;
        let Some(scan) = &mut self.scan else { return };
        let found = match self.backward {
            true => scan.next_back(),
            false => scan.next(),
        };
        match found.transpose() {
            Ok(found) => self.at = found,
            Err(error) => self.trouble = Some(error),
        }
    }
}
