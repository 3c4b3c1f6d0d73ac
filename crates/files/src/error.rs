//! Errors of the files tier, outside the database.

use forebay_pool::{AppendError, PoolError};
use std::{io, path::PathBuf};

/// An error of the supervisor or of recovery.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A lane of the pool.
    #[error("a lane of the pool cannot be written: {0}")]
    Append(#[from] AppendError),
    /// The operating system.
    #[error("{doing}: {source}")]
    Io {
        /// The step that failed, and its object.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
    /// The configuration.
    #[error("{0}")]
    Config(String),
    /// A record that this version does not know, or that no client can have written.
    #[error(
        "{path}: the record at log address {lsn} of lane {lane} is intact, but {what}: was it written by a newer version? Nothing was changed"
    )]
    Record {
        /// The pool.
        path: PathBuf,
        /// The lane.
        lane: u32,
        /// The record.
        lsn: u64,
        /// The mistake.
        what: String,
    },
}

impl FilesError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    pub(crate) fn errno(doing: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let doing = doing.into();
        move |errno| Self::Io {
            doing,
            source: errno.into(),
        }
    }
}
