//! What the supervisor's own syncs cost on an emulated device: the database does not wait for those of an absorbed file, but whoever drains its
//! lane does.

use super::Shared;
use crate::sys;
use forebay_device::{FileKey, clock};
use std::{fs::File, os::fd::AsFd};

impl Shared {
    /// Waits until the device that the file is on, if any, would have done the sync that began at `begun` (nanoseconds of the monotonic clock).
    pub(super) fn charge_sync(&self, file: &File, data_only: bool, begun: u64) {
        let Some(devices) = &self.options.devices else {
            return;
        };
        // Where it is now: it may have been renamed. One that cannot be asked about has no device.
        let link = rustix::fs::readlink(sys::link_of(file.as_fd()), Vec::new());
        let (Ok(path), Ok(stat)) = (link, rustix::fs::fstat(file)) else {
            return;
        };
        let number = devices.holding(path.as_bytes());
        let Some(device) = number.and_then(|number| devices.get(number)) else {
            return;
        };
        let done = if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            device.sync_directory(begun)
        } else {
            let key = FileKey::new(stat.st_dev, stat.st_ino);
            device.sync(key, stat.st_size.unsigned_abs(), data_only, begun)
        };
        clock::wait_until(done);
    }
}
