//! Errors of measuring.

use forebay_pool::{AppendError, PoolError};
use forebay_probe::ProbeError;
use forebay_store::StoreError;
use std::{
    io,
    path::{Path, PathBuf},
};

/// A measurement that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The store under test refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The pool under test refused.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A lane under test refused.
    #[error("appending to the pool: {0}")]
    Append(#[from] AppendError),
    /// The device under test could not be measured.
    #[error(transparent)]
    Disk(#[from] ProbeError),
    /// The operating system refused.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A configuration that measures nothing.
    #[error("{0}")]
    Config(String),
    /// What is measured with is not installed; in words, with the remedy.
    #[error("{0}")]
    Missing(String),
    /// The store gave a wrong answer: no figure is worth anything then.
    #[error("the store is wrong: {0}. Please report this as a bug")]
    Wrong(String),
    /// A child process did not do its part.
    #[error("the child process {0}")]
    Child(String),
}

impl MeasureError {
    /// For `map_err`: an I/O error while `doing` something to `path`.
    pub fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }
}
