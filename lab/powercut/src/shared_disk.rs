//! A disk that one thread cuts while others answer for it.

use crate::disk::{Disk, Survival};
use forebay_device::block::FileBytes;
use std::{
    io,
    path::Path,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// A disk, and its power.
pub struct SharedDisk {
    disk: Mutex<Disk>,
    bytes: u64,
    /// See [`fail`](Self::fail).
    fails: Mutex<bool>,
    failed: Condvar,
}

impl SharedDisk {
    /// The disk in `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let disk = Disk::open(path)?;
        Ok(Self {
            bytes: disk.bytes(),
            disk: Mutex::new(disk),
            fails: Mutex::new(false),
            failed: Condvar::new(),
        })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Itself.
    pub fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes nothing more: the power is off. Whatever is being written when this is called is
    /// written or not as a whole.
    pub fn power_off(&self) {
        self.lock().power_off();
    }

    /// Decides what survived, see [`Disk::cut`]. How many sectors had not been flushed, and how
    /// many of them are lost.
    pub fn cut(&self, seed: u64, survival: Survival) -> io::Result<(u64, u64)> {
        self.lock().cut(seed, survival)
    }

    /// Fails all that was and is asked for since the power went. Before, such requests have no
    /// answer: a disk without power gives none.
    pub fn fail(&self) {
        *self.fails.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.failed.notify_all();
    }

    fn ask(&self, request: impl FnOnce(&mut Disk) -> io::Result<()>) -> io::Result<()> {
        let mut disk = self.lock();
        if !disk.is_off() {
            return request(&mut disk);
        }
        drop(disk);
        let mut fails = self.fails.lock().unwrap_or_else(PoisonError::into_inner);
        while !*fails {
            let woken = self.failed.wait(fails);
            fails = woken.unwrap_or_else(PoisonError::into_inner);
        }
        Err(io::Error::other("no power"))
    }
}

impl FileBytes for SharedDisk {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.ask(|disk| disk.read(offset, into))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask(|disk| disk.write(offset, data))
    }

    fn sync(&self) -> io::Result<()> {
        self.ask(Disk::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread, time::Duration};

    #[test]
    fn a_disk_without_power_answers_only_when_it_may_fail() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1024).unwrap();
        let disk = SharedDisk::open(file.path()).unwrap();
        disk.write(0, &[1; 512]).unwrap();
        disk.sync().unwrap();
        disk.power_off();
        let (answered, answers) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let write = disk.write(0, &[2; 512]);
                answered.send(write.is_err()).unwrap();
            });
            let none = answers.recv_timeout(Duration::from_millis(50));
            assert_eq!(none, Err(mpsc::RecvTimeoutError::Timeout));
            disk.fail();
            assert_eq!(answers.recv(), Ok(true));
        });
        assert_eq!(disk.cut(1, Survival { per_mille: 1000 }).unwrap(), (0, 0));
        assert_eq!(std::fs::read(file.path()).unwrap()[0], 1);
    }
}
