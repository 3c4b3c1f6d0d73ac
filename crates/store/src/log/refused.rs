//! A lane's refusal, as an error of the store.

use crate::error::StoreError;
use forebay_pool::{AppendError, Lane};

/// The reason that `lane` refused something.
#[cold]
pub(super) fn refused(lane: &Lane, error: AppendError) -> StoreError {
    match (error, lane.failure()) {
        (AppendError::Closed, Some(reason)) => read_only(&reason),
        (error, _) => error.into(),
    }
}

/// Nothing is written any more, for this `reason` of the pool.
pub(super) fn read_only(reason: &str) -> StoreError {
    StoreError::ReadOnly {
        reason: format!("its pool cannot be written ({reason})"),
    }
}

/// The store was opened for reading alone.
pub(super) fn opened_read_only() -> StoreError {
    StoreError::ReadOnly {
        reason: "it was opened for reading alone".to_owned(),
    }
}
