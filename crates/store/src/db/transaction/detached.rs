//! [`DetachedTransaction`]: a transaction between two of its operations, which borrows no store.

use super::{ReadSet, Transaction};
use crate::{
    db::{Snapshot, Store},
    error::StoreError,
    range_tombstones::RangeTombstone,
};
use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

/// A transaction that borrows no store, for what cannot: a handle of another language, or a struct
/// that has both. [`Store::resume`] goes on with it. Dropped, it has done nothing.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
/// let mut tx = store.begin()?;
/// tx.put("boat", "blue")?;
/// let kept = tx.detach();
/// // Later, in any thread:
/// let tx = store.resume(kept)?;
/// assert!(tx.contains_key("boat")?);
/// tx.commit()?;
/// # Ok(())
/// # }
/// ```
pub struct DetachedTransaction {
    snapshot: Snapshot,
    reads: ReadSet,
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ranges: Vec<RangeTombstone>,
    log_bytes: usize,
}

impl Transaction<'_> {
    /// The transaction as it is, without its store. It keeps space as before.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let kept = store.begin()?.detach();
    /// store.close()?; // nothing borrows it
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn detach(self) -> DetachedTransaction {
        DetachedTransaction {
            snapshot: self.snapshot,
            reads: self.reads.into_inner(),
            writes: self.writes,
            ranges: self.ranges,
            log_bytes: self.log_bytes,
        }
    }
}

impl Store {
    /// Goes on with a transaction that this store began.
    ///
    /// # Errors
    /// [`StoreError::ForeignTransaction`] if another store did, or the same one before it was
    /// closed and opened again. The transaction has done nothing then.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreError, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::NoSync);
    /// let store = options.open(dir.path(), None)?;
    /// let kept = store.begin()?.detach();
    /// store.close()?;
    /// let store = options.open(dir.path(), None)?;
    /// assert!(matches!(store.resume(kept), Err(StoreError::ForeignTransaction { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume(&self, transaction: DetachedTransaction) -> Result<Transaction<'_>, StoreError> {
        if !std::ptr::eq(transaction.snapshot.shared(), Arc::as_ptr(&self.shared)) {
            return Err(StoreError::ForeignTransaction {
                dir: self.shared.dir.clone(),
            });
        }
        Ok(Transaction {
            store: self,
            snapshot: transaction.snapshot,
            reads: RefCell::new(transaction.reads),
            writes: transaction.writes,
            ranges: transaction.ranges,
            log_bytes: transaction.log_bytes,
        })
    }
}
