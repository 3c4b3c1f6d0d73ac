//! [`BoundTransaction`]: a transaction as a handle, which borrows no store.

use crate::{bound::BoundStore, error::BindingError};
use forebay_store::{DetachedTransaction, StoreError, Transaction};

/// A transaction that goes on until it is committed or rolled back, or its commit is refused.
pub struct BoundTransaction {
    /// Between two operations.
    kept: Option<DetachedTransaction>,
    /// How it ended, if it is not kept.
    ended: &'static str,
}

impl BoundTransaction {
    /// Begins one ([`Store::begin`](forebay_store::Store::begin)).
    ///
    /// # Errors
    /// As that.
    pub fn begin(store: &BoundStore) -> Result<Self, BindingError> {
        Ok(Self {
            kept: Some(store.begin()?.detach()),
            ended: "was left by an operation that did not return",
        })
    }

    /// Does something with it.
    ///
    /// # Errors
    /// [`BindingError::TransactionEnded`]; those of `done`, after which the transaction goes on.
    pub fn with<T>(
        &mut self,
        store: &BoundStore,
        done: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, BindingError> {
        let mut transaction = store.resume(self.take()?)?;
        let result = done(&mut transaction);
        self.kept = Some(transaction.detach());
        Ok(result?)
    }

    /// Commits it ([`Transaction::commit`]), which ends it, whatever comes of that. With `sync` it
    /// is as durable as the store makes it when this returns, as after [`BoundStore::write_as`].
    ///
    /// # Errors
    /// [`BindingError::TransactionEnded`]; as [`Transaction::commit`].
    pub fn commit(&mut self, store: &BoundStore, sync: bool) -> Result<(), BindingError> {
        let kept = self.take()?;
        self.ended = "was refused when it was committed";
        store.commit_as(kept, sync)?;
        self.ended = "was committed";
        Ok(())
    }

    /// Forgets it: nothing of it is done. One that has ended stays as it is.
    pub fn roll_back(&mut self) {
        if self.kept.take().is_some() {
            self.ended = "was rolled back";
        }
    }

    /// True if it was committed or rolled back, or its commit was refused.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.kept.is_none()
    }

    fn take(&mut self) -> Result<DetachedTransaction, BindingError> {
        let how = self.ended;
        self.kept
            .take()
            .ok_or(BindingError::TransactionEnded { how })
    }
}
