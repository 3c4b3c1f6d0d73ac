//! The cost of the supervisor's own syncs on an emulated device: the database does not wait for
//! those of an absorbed file, but the supervisor that drains its lane does.

use forebay_device::{Device, Devices, FileKey, clock};
use forebay_files::supervisor::SyncLayer;
use std::{
    fs::File,
    io,
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::Path,
    sync::Arc,
};

/// The devices of a run, under its supervisor.
pub struct Charged(pub Arc<Devices>);

impl Charged {
    /// The device that a path leads to.
    fn holding(&self, path: &Path) -> Option<Device<'_>> {
        let number = self.0.holding(path.as_os_str().as_bytes())?;
        self.0.get(number)
    }
}

impl SyncLayer for Charged {
    /// Waits until the device that the file is on, if any, would have done it.
    fn sync(
        &self,
        file: &File,
        data_only: bool,
        real: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let begun = clock::now_ns();
        real()?;
        // Where it is now: it may have been renamed. One that cannot be asked about has no device.
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let (Ok(path), Ok(found)) = (link, file.metadata()) else {
            return Ok(());
        };
        if let Some(device) = self.holding(&path) {
            let key = FileKey::new(found.dev(), found.ino());
            clock::wait_until(match found.is_dir() {
                true => device.sync_directory(begun),
                false => device.sync(key, found.len(), data_only, begun),
            });
        }
        Ok(())
    }

    fn is_elsewhere(&self, path: &Path) -> bool {
        self.holding(path).is_some()
    }
}
