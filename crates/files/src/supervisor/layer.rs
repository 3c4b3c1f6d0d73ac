//! The seam for a laboratory: its layer between the supervisor and the files that it syncs.

use std::{fs::File, io, path::Path};

/// A laboratory's layer between the supervisor and its files, an emulated disk for instance. A run
/// of `forebay` has none.
pub trait SyncLayer: Send + Sync {
    /// Syncs a file, or a directory, by `real`, as `fdatasync` does if `data_only`. Returns when it
    /// counts as synced.
    ///
    /// # Errors
    /// That of `real`.
    fn sync(
        &self,
        file: &File,
        data_only: bool,
        real: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()>;

    /// True if the file at this absolute path counts as lying on a disk of its own, whatever the
    /// kernel says. None does, unless the layer says so.
    fn is_elsewhere(&self, _path: &Path) -> bool {
        false
    }
}

impl super::SupervisorState {
    /// Syncs a file, or a directory, by `real`, under the layer if there is one.
    pub(super) fn sync(
        &self,
        file: &File,
        data_only: bool,
        mut real: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        match &self.options.layer {
            Some(layer) => layer.sync(file, data_only, &mut real),
            None => real(),
        }
    }
}
