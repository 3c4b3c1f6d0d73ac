//! What commands that measure have in common: where to, and that nothing is left behind.

use crate::failure::Failure;
use forebay_measure::{disk::file_system, processes, scratch};
use std::path::PathBuf;

/// Ends processes and removes scratch directories when this one is told to end.
///
/// # Errors
/// [`Failure::Failed`] if signals cannot be handled.
pub fn clean_up_on_signals() -> Result<(), Failure> {
    const INTERRUPTED: i32 = 130;
    ctrlc::set_handler(|| {
        processes::kill_all();
        scratch::remove_all();
        std::process::exit(INTERRUPTED);
    })
    .map_err(|e| Failure::Failed(format!("handling signals: {e}")))
}

/// A directory on a disk, if one is at hand: the system's for temporary files, or else the current one.
#[must_use]
pub fn default_dir() -> PathBuf {
    let temporary = std::env::temp_dir();
    match file_system(&temporary) {
        Some(fs) if !fs.is_memory() => temporary,
        _ => PathBuf::from("."),
    }
}

/// This program, for measurements that start it again.
///
/// # Errors
/// I/O errors.
pub fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(Failure::io("finding", "this program"))
}
