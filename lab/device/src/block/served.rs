//! A file whose bytes this process has, mounted by FUSE, and what this process has mounted.

use super::{failed, fuse, run};
use crate::DeviceError;
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Attempts to unmount something, and the time between two.
const UNMOUNTS: u32 = 50;
const AGAIN: Duration = Duration::from_millis(100);

/// What is mounted, what lies on another before that.
static MOUNTED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The bytes of a file, which several threads ask for. A request is answered when the call returns;
/// an error without a number of its own is `EIO` to the kernel.
pub trait FileBytes: Send + Sync {
    /// How many there are.
    fn size(&self) -> u64;

    /// Reads some.
    ///
    /// # Errors
    /// What the one that asked is told.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes some.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes all durable that was written.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn sync(&self) -> io::Result<()>;
}

/// A mounted file, unmounted when this is dropped. Nothing of it is in the page cache: each request
/// goes to its bytes.
pub struct ServedFile {
    path: PathBuf,
    threads: Vec<JoinHandle<()>>,
}

impl ServedFile {
    /// Mounts it at `path`, which is made; so many threads answer.
    ///
    /// # Errors
    /// [`DeviceError::Block`]: what could not be done.
    pub fn mount(
        path: &Path,
        bytes: Arc<dyn FileBytes>,
        threads: usize,
    ) -> Result<Self, DeviceError> {
        File::create(path).map_err(|e| failed("creating", path, e))?;
        let kernel = Path::new("/dev/fuse");
        let opened = File::options().read(true).write(true).open(kernel);
        let opened = opened.map_err(|e| failed("opening", kernel, e))?;
        let copy = opened
            .try_clone()
            .map_err(|e| failed("opening", kernel, e))?;
        let served = fuse::Served {
            kernel: opened,
            bytes,
            threads,
        };
        // Before the kernel asks: what mounts it may look at it.
        let threads = fuse::serve(served).map_err(|e| DeviceError::Block(e.to_string()))?;
        let options = "fd=0,rootmode=100600,user_id=0,group_id=0,default_permissions";
        run(Command::new("mount")
            .args(["-i", "-t", "fuse", "-o", options, "forebay-lab"])
            .arg(path)
            .stdin(Stdio::from(copy)))?;
        note_mounted(path);
        Ok(Self {
            path: path.to_owned(),
            threads,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ServedFile {
    fn drop(&mut self) {
        unmount(&self.path);
        // They end when the kernel lets go of it. Who holds it still, ends with this process.
        let mut waits = 0..UNMOUNTS;
        while !self.threads.iter().all(JoinHandle::is_finished) && waits.next().is_some() {
            thread::sleep(AGAIN / 20);
        }
    }
}

/// Something is mounted, to be unmounted before what was noted earlier.
pub(super) fn note_mounted(path: &Path) {
    let mut mounted = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    mounted.insert(0, path.to_owned());
}

/// Something is unmounted by whoever noted it.
pub(super) fn forget_mounted(path: &Path) {
    let mut mounted = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    mounted.retain(|known| known != path);
}

/// Unmounts something once nobody uses it any more.
pub(super) fn unmount(path: &Path) {
    forget_mounted(path);
    // One that ends just now, or the loop device, may still hold it.
    let mut tries = 0..UNMOUNTS;
    while run(Command::new("umount").arg(path)).is_err() {
        if tries.next().is_none() {
            // It goes when they do.
            let _ = run(Command::new("umount").arg("--lazy").arg(path));
            break;
        }
        thread::sleep(AGAIN);
    }
}

/// Unmounts what this process has mounted, whoever uses it. For the handler of a signal that ends
/// it.
pub fn unmount_all() {
    let mut mounted = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    for path in mounted.drain(..) {
        let _ = run(Command::new("umount").arg("--lazy").arg(path));
    }
}
