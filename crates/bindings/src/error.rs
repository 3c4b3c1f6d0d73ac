//! [`BindingError`]: a binding's refusals, beside those of the store and its pool.

use forebay_pool::PoolError;
use forebay_store::StoreError;
use std::{io, path::PathBuf};

/// An operation of a binding that failed. Its message is what users of C and Python see.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindingError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The pool refused.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// There is a store, and none was to be there.
    #[error("{} holds a store already, and the options say that this is an error (error_if_exists); choose another directory, or open it without that option", name.display())]
    StoreExists {
        /// The name that was given.
        name: PathBuf,
    },
    /// A store's pool is not there, and no new one is to be made.
    #[error("the pool {} is not there; put it back, or name another place (the option pool); a store that was closed takes a new one: open it with create_if_missing", pool.display())]
    PoolMissing {
        /// The path at which it was looked for.
        pool: PathBuf,
    },
    /// A transaction that is no more.
    #[error("the transaction {how}; begin another one")]
    TransactionEnded {
        /// What it was, in words.
        how: &'static str,
    },
    /// The operating system refused.
    #[error("{doing} {}: {source}", path.display())]
    System {
        /// The step that failed, as a verb.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// An argument makes no sense.
    #[error("{0}")]
    Argument(String),
}

impl BindingError {
    /// For `map_err`: an I/O error while `doing` something to `path`.
    pub(crate) fn system(
        doing: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::System {
            doing,
            path,
            source,
        }
    }
}
