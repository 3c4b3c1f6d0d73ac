//! Errors of the index, with the file and the step.

use std::{fmt, io, path::PathBuf};

/// An index operation that failed. Its `{:?}` is its message.
#[non_exhaustive]
pub struct IndexError {
    /// The file or directory concerned.
    pub path: PathBuf,
    /// The step that failed.
    pub doing: &'static str,
    /// The reason that it failed.
    pub cause: IndexCause,
}

/// The reason that an index operation failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum IndexCause {
    /// The operating system refused.
    Io(io::Error),
    /// The tables are damaged or not ours; the text says what was found.
    Corrupt(String),
    /// The caller asked for what an index cannot do; the text says what.
    Invalid(String),
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {}: {}: ", self.path.display(), self.doing)?;
        match &self.cause {
            IndexCause::Io(e) => write!(f, "{e}"),
            IndexCause::Corrupt(found) => write!(f, "damaged: {found}"),
            IndexCause::Invalid(what) => write!(f, "refused: {what}"),
        }
    }
}

impl fmt::Debug for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for IndexError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            IndexCause::Io(e) => Some(e),
            IndexCause::Corrupt(_) | IndexCause::Invalid(_) => None,
        }
    }
}
