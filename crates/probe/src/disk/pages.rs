//! Pages that are written one after the other, each durable before the next: the cost of a log's
//! sync, and the least cost of a pool's commit.

use rustix::{
    fs::{Mode, OFlags},
    io::ReadWriteFlags,
};
use std::{
    io::{self, IoSlice},
    os::fd::OwnedFd,
    path::Path,
    time::Instant,
};

/// Bytes of the file that is written.
const BYTES: u64 = 1 << 20;

#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// The call that makes a page durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageDurability {
    /// Written behind the last one, and the file synced, as a log grows.
    Appended,
    /// Written over zeros by one write past the page cache (`O_DIRECT`, `RWF_DSYNC`), as a pool on
    /// a disk does. Where the file system refuses `O_DIRECT` the page cache lies between, as for a
    /// pool.
    InPlace,
}

/// A file without a name, which is gone when this is dropped, or the process ends.
pub struct Pages {
    file: OwnedFd,
    how: PageDurability,
    page: Box<Page>,
    at: u64,
}

impl Pages {
    /// Makes the file in `dir`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(dir: &Path, how: PageDurability) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?;
        if how == PageDurability::InPlace {
            let zeros = vec![0; 1 << 16];
            for at in (0..BYTES).step_by(zeros.len()) {
                rustix::io::pwrite(&file, &zeros, at)?;
            }
            rustix::fs::fsync(&file)?;
            let _ = rustix::fs::fcntl_setfl(&file, OFlags::DIRECT);
        }
        let page = Box::new(Page([0x5A; 4096]));
        Ok(Self {
            file,
            how,
            page,
            at: 0,
        })
    }

    /// Writes the next page, and gives the microseconds until it is durable.
    ///
    /// # Errors
    /// I/O errors.
    pub fn write(&mut self) -> io::Result<f64> {
        let start = Instant::now();
        match self.how {
            PageDurability::Appended => {
                rustix::io::pwrite(&self.file, &self.page.0, self.at)?;
                rustix::fs::fdatasync(&self.file)?;
            }
            PageDurability::InPlace => {
                let parts = [IoSlice::new(&self.page.0)];
                rustix::io::pwritev2(&self.file, &parts, self.at, ReadWriteFlags::DSYNC)?;
            }
        }
        self.at = (self.at + self.page.0.len() as u64) % BYTES;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_written_round_and_round_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        for how in [PageDurability::Appended, PageDurability::InPlace] {
            let mut pages = Pages::new(dir.path(), how).unwrap();
            for _ in 0..BYTES / 4096 + 2 {
                assert!(pages.write().unwrap() > 0.0);
            }
            assert_eq!(pages.at, 2 * 4096);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
