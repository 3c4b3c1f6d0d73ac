//! [`TransactionScan`]: a snapshot's keys and a transaction's own, in order.
//!
//! The transaction depends on what the scan has gone through: from the range's beginning to the
//! last key given, whether that is the snapshot's or its own, or all of it at the end. Until the
//! scan is dropped all of the range counts.

use super::Transaction;
use crate::{
    db::{Scan, Snapshot, Value, range::ScanRange},
    error::StoreError,
    keyspace::user_key,
};
use std::{cmp::Ordering, collections::BTreeMap, iter::Peekable, ops::Bound};

type Written<'t> = Box<dyn Iterator<Item = (&'t Vec<u8>, &'t Option<Vec<u8>>)> + 't>;

/// An iterator over keys and values as a [`Transaction`] sees them, in key order. After an error it
/// ends.
pub struct TransactionScan<'t> {
    tx: &'t Transaction<'t>,
    scan: Scan,
    /// The snapshot's next.
    read: Option<(Vec<u8>, Value)>,
    written: Peekable<Written<'t>>,
    range: ScanRange,
    /// Which of the transaction's ranges it is.
    number: usize,
    last: Option<Vec<u8>>,
    stage: ScanStage,
}

#[derive(PartialEq, Eq)]
enum ScanStage {
    Going,
    /// The snapshot has no more.
    OwnLeft,
    AllGiven,
    Failed,
}

/// The writes within a range, in its direction.
fn within<'t>(writes: &'t BTreeMap<Vec<u8>, Option<Vec<u8>>>, range: &ScanRange) -> Written<'t> {
    if range.is_empty() {
        return Box::new(std::iter::empty());
    }
    let writes = writes.range::<[u8], _>(range.bounds());
    match range.reversed {
        true => Box::new(writes.rev()),
        false => Box::new(writes),
    }
}

impl<'t> TransactionScan<'t> {
    /// That of the keyspace that `snapshot`, the transaction's, shows.
    pub(super) fn new(
        tx: &'t Transaction<'t>,
        snapshot: Snapshot,
        range: ScanRange,
    ) -> Result<Self, StoreError> {
        snapshot.shared().check_process()?;
        let range = range.stored(snapshot.keyspace_id()?);
        let scan = Scan::stored(snapshot, range.clone());
        let mut reads = tx.reads.borrow_mut();
        let number = reads.ranges.len();
        reads.ranges.push(Some(range.clone()));
        drop(reads);
        Ok(Self {
            tx,
            scan,
            read: None,
            written: within(&tx.writes, &range).peekable(),
            number,
            range,
            last: None,
            stage: ScanStage::Going,
        })
    }

    fn next_pair(&mut self) -> Result<Option<(Vec<u8>, Value)>, StoreError> {
        loop {
            if self.read.is_none() && self.stage == ScanStage::Going {
                self.tx.snapshot.shared().check_process()?;
                self.read = self.scan.next_stored()?;
                if let Some((key, _)) = &self.read
                    && self.tx.deletes(key)
                {
                    self.read = None;
                    continue;
                }
                if self.read.is_none() {
                    self.stage = ScanStage::OwnLeft;
                }
            }
            let first = match (&self.read, self.written.peek()) {
                (None, None) => {
                    self.stage = ScanStage::AllGiven;
                    return Ok(None);
                }
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((read, _)), Some((written, _))) if self.range.reversed => written.cmp(&read),
                (Some((read, _)), Some((written, _))) => read.cmp(written),
            };
            if first == Ordering::Less {
                return Ok(self.read.take());
            }
            if first == Ordering::Equal {
                self.read = None;
            }
            if let Some((key, Some(value))) = self.written.next() {
                let value = match self.range.keys_only {
                    true => Value::default(),
                    false => Value::from_vec(value.clone()),
                };
                return Ok(Some((key.clone(), value)));
            }
        }
    }
}

impl Iterator for TransactionScan<'_> {
    type Item = Result<(Vec<u8>, Value), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.stage, ScanStage::AllGiven | ScanStage::Failed) {
            return None;
        }
        let pair = self.next_pair();
        match &pair {
            Err(_) => self.stage = ScanStage::Failed,
            Ok(Some((key, _))) => self.last = Some(key.clone()),
            Ok(None) => {}
        }
        let pair = pair.map(|pair| pair.map(|(key, value)| (user_key(key), value)));
        pair.transpose()
    }
}

impl Drop for TransactionScan<'_> {
    fn drop(&mut self) {
        let end = match (&self.stage, self.last.take()) {
            (ScanStage::AllGiven | ScanStage::Failed, _) => return,
            (_, None) => None,
            (_, Some(last)) => Some(Bound::Included(last)),
        };
        let mut reads = self.tx.reads.borrow_mut();
        let range = &mut reads.ranges[self.number];
        match (end, range.as_mut()) {
            (Some(end), Some(range)) if range.reversed => range.from = end,
            (Some(end), Some(range)) => range.to = end,
            _ => *range = None,
        }
    }
}
