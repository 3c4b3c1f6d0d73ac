//! Disks that are soon full: [`SmallDisk`], a file system of its own, and [`QuotaDisk`], which
//! counts what a store's files take.

use forebay_store::disk::{Disk, DiskFile, RealDisk};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

/// A file system on a loop device, until this is dropped.
pub struct SmallDisk {
    at: PathBuf,
    image: PathBuf,
}

fn runs(program: &str, arguments: &[&Path]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

impl SmallDisk {
    /// An ext4. None if this process may not mount one.
    pub fn ext4(dir: &Path, bytes: u64) -> Option<Self> {
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", "-m", "0"]);
        Self::made_by(make, dir, bytes)
    }

    /// An XFS. None if this process may not make or mount one.
    pub fn xfs(dir: &Path, bytes: u64) -> Option<Self> {
        let mut make = Command::new("mkfs.xfs");
        make.args(["-q", "-f"]);
        // It makes one of less than 300 MB for tests only.
        make.envs(["TEST_DIR", "TEST_DEV", "QA_CHECK_FS"].map(|name| (name, "1")));
        Self::made_by(make, dir, bytes)
    }

    fn made_by(mut make: Command, dir: &Path, bytes: u64) -> Option<Self> {
        let disk = Self {
            at: dir.join("disk"),
            image: dir.join("image"),
        };
        fs::create_dir(&disk.at).unwrap();
        File::create(&disk.image).unwrap().set_len(bytes).unwrap();
        let made = make.arg(&disk.image).output();
        let made = made.is_ok_and(|output| output.status.success());
        let how = ["-o", "loop"].map(Path::new);
        (made && runs("mount", &[&how[..], &[&disk.image, &disk.at]].concat())).then_some(disk)
    }

    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Makes it larger while it is in use; false where that is not possible.
    pub fn grow(&self, bytes: u64) -> bool {
        let image = File::options().write(true).open(&self.image);
        image.unwrap().set_len(bytes).unwrap();
        let found = Command::new("findmnt")
            .args(["-n", "-o", "SOURCE"])
            .arg(&self.at)
            .output();
        let Ok(found) = found else { return false };
        let device = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
        runs("losetup", &[Path::new("-c"), &device]) && runs("resize2fs", &[&device])
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = runs("umount", &[Path::new("-l"), &self.at]);
    }
}

/// A disk on which a user may have so many bytes. The index's tables, which go round it, are not
/// counted.
pub struct QuotaDisk {
    inner: RealDisk,
    used: Arc<Mutex<Used>>,
}

struct Used {
    most: u64,
    /// No room for a new file of this name.
    refused: String,
    files: BTreeMap<PathBuf, u64>,
}

impl Used {
    /// A file is to have so many bytes.
    fn set(&mut self, path: &Path, bytes: u64) -> io::Result<()> {
        let others: u64 = (self.files.iter())
            .filter(|(other, _)| *other != path)
            .map(|(_, bytes)| bytes)
            .sum();
        let before = self.files.get(path).copied().unwrap_or(0);
        if bytes > before && others + bytes > self.most {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.files.insert(path.to_owned(), bytes);
        Ok(())
    }
}

impl QuotaDisk {
    pub fn new(most: u64) -> Self {
        let files = BTreeMap::new();
        Self {
            inner: RealDisk::default(),
            used: Arc::new(Mutex::new(Used {
                most,
                refused: String::new(),
                files,
            })),
        }
    }

    /// From now on there is no room for a new file of this name; an empty name is none.
    pub fn refuse(&self, name: &str) {
        name.clone_into(&mut self.used.lock().refused);
    }

    fn wrap(&self, path: &Path, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(QuotaFile {
            path: path.to_owned(),
            inner,
            used: Arc::clone(&self.used),
        })
    }
}

impl Disk for QuotaDisk {
    as_the_real_disk!();

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if path
            .file_name()
            .is_some_and(|name| *name == *self.used.lock().refused)
        {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        // Not even a name has room.
        self.used.lock().set(path, 4096)?;
        let made = self.inner.create(path);
        if made.is_err() {
            self.used.lock().files.remove(path);
        }
        Ok(self.wrap(path, made?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(path, self.inner.open(path)?))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)?;
        let mut used = self.used.lock();
        if let Some(bytes) = used.files.remove(from) {
            used.files.insert(to.to_owned(), bytes);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)?;
        self.used.lock().files.remove(path);
        Ok(())
    }
}

struct QuotaFile {
    path: PathBuf,
    inner: Arc<dyn DiskFile>,
    used: Arc<Mutex<Used>>,
}

impl QuotaFile {
    fn grow(&self, bytes: u64) -> io::Result<()> {
        let mut used = self.used.lock();
        let before = used.files.get(&self.path).copied();
        match before {
            // Unlinked, and open still.
            None => Ok(()),
            Some(before) => used.set(&self.path, before.max(bytes)),
        }
    }
}

impl DiskFile for QuotaFile {
    fn read_exact_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_exact_at(to, offset)
    }

    fn write_all_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        self.grow(offset + from.len() as u64)?;
        self.inner.write_all_at(from, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.grow(bytes)?;
        self.inner.allocate(bytes)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.inner.truncate(bytes)?;
        let mut used = self.used.lock();
        if let Some(now) = used.files.get_mut(&self.path) {
            *now = bytes;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}
