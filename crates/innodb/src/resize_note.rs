//! A resize that a running cache has begun: a file beside it, `PATH.resize`, so that the next start
//! finishes what a crash cuts. docs/flash-tier.md, "Another size".

use crate::control_files::{self, RESIZE, beside, directory_of, sync_names};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// A resize that was begun.
#[derive(Serialize, Deserialize)]
pub(crate) struct ResizeNote {
    /// The size that the cache is to have.
    pub(crate) bytes: u64,
}

/// The note's path.
pub(crate) fn note_of(flash: &Path) -> PathBuf {
    beside(flash, RESIZE)
}

impl ResizeNote {
    /// The resize that was begun with this cache, and not ended.
    ///
    /// # Errors
    /// What the operating system says; `InvalidData`.
    pub(crate) fn read(flash: &Path) -> io::Result<Option<Self>> {
        control_files::read(&note_of(flash))
    }

    /// True if something has its name.
    pub(crate) fn is_there(flash: &Path) -> bool {
        note_of(flash).symlink_metadata().is_ok()
    }

    /// Notes it, durably.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn keep(&self, flash: &Path) -> io::Result<()> {
        control_files::keep(&note_of(flash), self)
    }

    /// Nothing is begun any more, durably: else a power cut could bring an older command's resize
    /// back.
    ///
    /// # Errors
    /// What the operating system says, and whether it is still there.
    pub(crate) fn forget(flash: &Path) -> io::Result<()> {
        match fs::remove_file(note_of(flash)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(io::Error::new(e.kind(), format!("{e}. Remove it"))),
        }
        let synced = File::open(directory_of(flash)).and_then(|dir| sync_names(&dir));
        synced.map_err(|e| {
            io::Error::new(
                e.kind(),
                format!(
                    "{e}. It is removed, but a power cut may bring it back: look after the next one"
                ),
            )
        })
    }

    /// True if this is said of a note that says nothing, whenever it is read.
    pub(crate) fn is_damaged(error: &io::Error) -> bool {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        // The last one is of JSON that is cut off.
        matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::fixtures::flash_place;

    #[test]
    fn what_was_begun_is_known_until_it_is_forgotten() {
        let (_dir, flash) = flash_place();
        let begun = || ResizeNote::read(&flash).map(|note| note.map(|note| note.bytes));
        assert_eq!(begun().unwrap(), None);
        ResizeNote { bytes: 7 }.keep(&flash).unwrap();
        assert_eq!(begun().unwrap(), Some(7));
        ResizeNote::forget(&flash).unwrap();
        assert_eq!(begun().unwrap(), None);
        ResizeNote::forget(&flash).unwrap();
        fs::write(note_of(&flash), "larger").unwrap();
        assert_eq!(begun().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
