//! Where running supervisors, and what they say of themselves, can be found.

use crate::failure::Failure;
use std::{
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::PathBuf,
};

/// One place for all of root's, one for each other user's.
pub fn run_dir() -> Result<PathBuf, Failure> {
    let uid = rustix::process::getuid();
    let dir = if let Some(dir) = std::env::var_os("FOREBAY_RUN_DIR") {
        PathBuf::from(dir)
    } else if uid.is_root() {
        PathBuf::from("/run/forebay")
    } else if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR") {
        PathBuf::from(dir).join("forebay")
    } else {
        std::env::temp_dir().join(format!("forebay-{}", uid.as_raw()))
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .map_err(Failure::io("creating", dir.display()))?;
    let meta = std::fs::metadata(&dir).map_err(Failure::io("looking at", dir.display()))?;
    if meta.uid() != uid.as_raw() {
        return Err(Failure::Failed(format!(
            "{0} belongs to user {1}. To look at that user's runs: runuser -u USER -- env FOREBAY_RUN_DIR={0} forebay status. For runs of your own name another \
             directory with the environment variable FOREBAY_RUN_DIR",
            dir.display(),
            meta.uid()
        )));
    }
    Ok(dir)
}
