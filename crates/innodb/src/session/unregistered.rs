//! Reasons that keep a file out of the cache's register.

use forebay_flash::FlashError;
use rustix::io::Errno;

/// The reason that a file is not known to the cache.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnregisteredFile {
    /// There is no room for it, until the server closes others.
    #[error(
        "{0}. The server is told that too many files are open, and closes others where it can. Each page file that is in use takes two descriptors: allow it more of them \
         (open_files_limit, LimitNOFILE), or have it keep fewer open (innodb_open_files)"
    )]
    Full(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl From<Errno> for UnregisteredFile {
    fn from(errno: Errno) -> Self {
        let why = format!("opening it once more: {errno}");
        match errno {
            Errno::MFILE => Self::Full(why),
            _ => Self::Failed(why),
        }
    }
}

impl From<FlashError> for UnregisteredFile {
    fn from(error: FlashError) -> Self {
        match error {
            FlashError::TooManyFiles(_) => Self::Full(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}
