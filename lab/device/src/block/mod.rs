//! An emulated device as a block device with a file system, for programs that load no library.
//!
//! A loop device lies on a file whose requests [`fuse`] answers when the model says that they are
//! done; an ext4 is on it. So everything is charged that reaches the device, journal and flushes
//! among it, whoever asks for it: the model's own page cache and journal are not used. Needs root,
//! FUSE, loop devices, and a mount namespace of its own ([`in_own_namespace`]), with which it goes
//! away however this process ends.

mod fuse;

use crate::{CacheModel, DeviceError, Devices, Placed, Profile};
use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

/// Bytes of the device; those that were never written take no room.
const BYTES: u64 = 4 << 30;

/// Attempts to unmount it, and the time between two.
const UNMOUNTS: u32 = 50;
const AGAIN: Duration = Duration::from_millis(100);

/// Says that this process has a mount namespace of its own.
const ENV_OWN: &str = "FOREBAY_LAB_OWN_MOUNTS";

/// What is mounted, the file system before the file that its device lies on.
static MOUNTED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file system on an emulated device, unmounted when this is dropped. Whoever uses it must have
/// ended.
pub struct BlockDevice {
    at: PathBuf,
    file: PathBuf,
}

/// Unmounts what this process has mounted, whoever uses it. For the handler of a signal that ends
/// it.
pub fn unmount_all() {
    let mut mounted = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    for path in mounted.drain(..) {
        let _ = run(Command::new("umount").arg("--lazy").arg(path));
    }
}

/// Starts this program anew with the same arguments, in a mount namespace of its own, if it has
/// none yet.
///
/// # Errors
/// [`DeviceError::Block`]: that is not possible.
pub fn in_own_namespace() -> Result<(), DeviceError> {
    if std::env::var_os(ENV_OWN).is_some() {
        return Ok(());
    }
    let own = std::env::current_exe().map_err(|e| DeviceError::Block(e.to_string()))?;
    let error = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(own)
        .args(std::env::args_os().skip(1))
        .env(ENV_OWN, "1")
        .exec();
    Err(DeviceError::Block(format!("unshare: {error}")))
}

impl BlockDevice {
    /// Makes it: its files are in `dir`, which should be in memory, and the file system in
    /// `dir/disk`.
    ///
    /// # Errors
    /// [`DeviceError::Block`]: what could not be done.
    pub fn make(dir: &Path, profile: Profile) -> Result<Self, DeviceError> {
        let (file, at) = (dir.join("device"), dir.join("disk"));
        let bytes = formatted(&dir.join("image"))?;
        File::create(&file).map_err(|e| failed("creating", &file, e))?;
        fs::create_dir(&at).map_err(|e| failed("creating", &at, e))?;
        let kernel = Path::new("/dev/fuse");
        let opened = File::options().read(true).write(true).open(kernel);
        let opened = opened.map_err(|e| failed("opening", kernel, e))?;
        let copy = opened
            .try_clone()
            .map_err(|e| failed("opening", kernel, e))?;
        // What only the device takes: the file system above has its own memory and journal.
        let profile = Profile {
            journal: false,
            cache: CacheModel {
                reads: false,
                writes: false,
                ..profile.cache
            },
            ..profile
        };
        let placed = Placed {
            dir: at.clone(),
            profile,
        };
        let served = fuse::Served {
            kernel: opened,
            bytes,
            size: BYTES,
            devices: Devices::create(vec![placed])?,
        };
        // Before the kernel asks: what mounts it may look at it.
        fuse::serve(served).map_err(|e| DeviceError::Block(e.to_string()))?;
        let options = "fd=0,rootmode=100600,user_id=0,group_id=0,default_permissions";
        run(Command::new("mount")
            .args(["-i", "-t", "fuse", "-o", options, "forebay-lab"])
            .arg(&file)
            .stdin(Stdio::from(copy)))?;
        let made = Self { at, file };
        let mut mounted = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
        mounted.extend([made.at.clone(), made.file.clone()]);
        drop(mounted);
        let losetup = ["--find", "--show", "--direct-io=on"];
        let device = run(Command::new("losetup").args(losetup).arg(&made.file))?;
        let mounted = run(Command::new("mount").arg(&device).arg(&made.at));
        // It goes away when nobody uses it any more: the file system, as long as that is mounted.
        run(Command::new("losetup").arg("--detach").arg(&device))?;
        mounted.map(|_| made)
    }

    /// Where the file system is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        let mut mounted = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
        for path in [&self.at, &self.file] {
            mounted.retain(|known| known != path);
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
    }
}

fn failed(what: &str, path: &Path, error: std::io::Error) -> DeviceError {
    DeviceError::Block(format!("{what} {}: {error}", path.display()))
}

/// The bytes of a device with an empty ext4, which are this process's alone: `path` is gone again.
fn formatted(path: &Path) -> Result<File, DeviceError> {
    let bytes = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|e| failed("creating", path, e))?;
    let sized = bytes.set_len(BYTES);
    sized.map_err(|e| failed("creating", path, e))?;
    // Nothing of it is left to be written while somebody measures.
    let now = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    let mut format = Command::new("mkfs.ext4");
    run(format.args(["-q", "-F", "-E", now]).arg(path))?;
    fs::remove_file(path).map_err(|e| failed("removing", path, e))?;
    Ok(bytes)
}

/// What a command prints that succeeds.
fn run(command: &mut Command) -> Result<String, DeviceError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |what: String| DeviceError::Block(format!("{program}: {what}"));
    let output = command.output().map_err(|e| failed(e.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(failed(text(&output.stderr))),
    }
}
