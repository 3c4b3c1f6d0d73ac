//! A directory in memory that goes with this process.

use super::{run, served};
use crate::DeviceError;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// A tmpfs, unmounted when this is dropped, whoever uses it. In a mount namespace of this process's
/// own ([`in_own_namespace`](super::in_own_namespace)) it is gone however this process ends.
pub struct ScratchMemory(PathBuf);

impl ScratchMemory {
    /// Mounts one over this directory, for this user alone.
    ///
    /// # Errors
    /// [`DeviceError::Block`]: it cannot be mounted.
    pub fn mount(over: &Path) -> Result<Self, DeviceError> {
        let kind = ["-t", "tmpfs", "-o", "mode=700", "forebay-lab"];
        run(Command::new("mount").args(kind).arg(over))?;
        served::note_mounted(over);
        Ok(Self(over.to_owned()))
    }
}

impl Drop for ScratchMemory {
    fn drop(&mut self) {
        served::forget_mounted(&self.0);
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}
