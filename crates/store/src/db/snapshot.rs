//! [`Snapshot`]: the store as of one moment.
//!
//! Taking one freezes the active chunk, so a snapshot is a list of things that never change: frozen chunks and
//! tables. Files that it may lead to are unlinked only after it is dropped.

use super::{Scan, ScanRange, Shared, Store, Value};
use crate::{error::StoreError, memtable::View};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};

/// The snapshots that are open, by the order in which they were taken.
#[derive(Default)]
pub(super) struct Snapshots {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    taken: u64,
    /// How many are open, by number.
    counts: BTreeMap<u64, usize>,
}

impl Snapshots {
    /// A number that is higher than that of every snapshot taken so far.
    pub(super) fn next_number(&self) -> u64 {
        self.open.lock().taken + 1
    }

    /// True if no snapshot with a lower number than `number` is open.
    pub(super) fn none_before(&self, number: u64) -> bool {
        self.open
            .lock()
            .counts
            .first_key_value()
            .is_none_or(|(&first, _)| first >= number)
    }
}

/// Keeps a snapshot's number open.
pub(super) struct Registration {
    snapshots: Arc<Snapshots>,
    number: u64,
}

impl Registration {
    fn new(snapshots: &Arc<Snapshots>) -> Self {
        let mut open = snapshots.open.lock();
        open.taken += 1;
        let number = open.taken;
        *open.counts.entry(number).or_default() += 1;
        drop(open);
        Self {
            snapshots: Arc::clone(snapshots),
            number,
        }
    }
}

impl Clone for Registration {
    fn clone(&self) -> Self {
        *self
            .snapshots
            .open
            .lock()
            .counts
            .entry(self.number)
            .or_default() += 1;
        Self {
            snapshots: Arc::clone(&self.snapshots),
            number: self.number,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut open = self.snapshots.open.lock();
        if let Some(count) = open.counts.get_mut(&self.number) {
            *count -= 1;
            if *count == 0 {
                open.counts.remove(&self.number);
            }
        }
    }
}

/// A view of the store that does not change. Space that is dead by now but alive in it is kept until it is dropped.
#[derive(Clone)]
pub struct Snapshot {
    shared: Arc<Shared>,
    view: Arc<View>,
    _registration: Registration,
}

impl Store {
    /// The store as of now: every write acknowledged before, and none that begins later.
    ///
    /// # Errors
    /// None at present.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        Ok(Snapshot::new(&self.shared))
    }
}

impl Snapshot {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        // Registered first: what is collected from now on stays on the disk for it.
        let registration = Registration::new(shared.snapshots());
        Self {
            view: shared.frozen_view(),
            shared: Arc::clone(shared),
            _registration: registration,
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The key's value as of the snapshot.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        self.shared.get_in(&self.view, key)
    }

    /// The keys of `range` as of the snapshot.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn scan(&self, range: ScanRange) -> Result<Scan, StoreError> {
        Ok(Scan::new(self.clone(), range))
    }
}
