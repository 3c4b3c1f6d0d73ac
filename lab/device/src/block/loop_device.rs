//! A loop device on a file, past the page cache: a flush of it is a sync of the file.

use super::{failed, run};
use crate::DeviceError;
use rustix::fs::{major, minor};
use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

const AGAIN: Duration = Duration::from_millis(2);

/// A loop device. It goes away when the last one lets go of it that has it open: this value, and
/// the file system on it, as long as that is mounted anywhere.
pub struct LoopDevice {
    path: PathBuf,
    file: PathBuf,
    numbers: (u32, u32),
    held: File,
}

impl LoopDevice {
    /// One that is free, on this file.
    ///
    /// # Errors
    /// [`DeviceError::Block`]: what could not be done.
    pub fn attach(file: &Path) -> Result<Self, DeviceError> {
        let losetup = ["--find", "--show", "--direct-io=on"];
        let path = run(Command::new("losetup").args(losetup).arg(file))?;
        let path = PathBuf::from(path);
        let held = File::open(&path);
        // From now on nobody has to give it back, however this process ends.
        let detached = run(Command::new("losetup").arg("--detach").arg(&path));
        let held = held.map_err(|e| failed("opening", &path, e))?;
        detached?;
        let device = held
            .metadata()
            .map_err(|e| failed("looking at", &path, e))?
            .rdev();
        let made = Self {
            path,
            file: file.to_owned(),
            numbers: (major(device), minor(device)),
            held,
        };
        // Through the page cache, a write would be the file's when the kernel likes.
        match made.attribute("dio").as_deref() {
            Some("1") => Ok(made),
            found => Err(DeviceError::Block(format!(
                "{} has no direct I/O ({found:?})",
                made.path.display()
            ))),
        }
    }

    /// Its node in /dev.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its major and minor number.
    #[must_use]
    pub fn numbers(&self) -> (u32, u32) {
        self.numbers
    }

    /// Lets go of it, and waits until everybody has.
    ///
    /// # Errors
    /// [`DeviceError::Block`]: somebody still has it open after so long.
    pub fn detach(self, limit: Duration) -> Result<(), DeviceError> {
        let (path, file) = (self.path.clone(), self.file.clone());
        let attribute = self.attribute_path("backing_file");
        drop(self.held);
        let until = Instant::now() + limit;
        // It may be another's at once.
        while fs::read_to_string(&attribute).is_ok_and(|of| Path::new(of.trim_end()) == file) {
            if Instant::now() >= until {
                return Err(DeviceError::Block(format!(
                    "{} is still in use after {limit:?}",
                    path.display()
                )));
            }
            thread::sleep(AGAIN);
        }
        Ok(())
    }

    fn attribute_path(&self, name: &str) -> PathBuf {
        let device = self.path.file_name().unwrap_or_default();
        Path::new("/sys/block").join(device).join("loop").join(name)
    }

    fn attribute(&self, name: &str) -> Option<String> {
        let read = fs::read_to_string(self.attribute_path(name)).ok()?;
        Some(read.trim_end().to_owned())
    }
}
