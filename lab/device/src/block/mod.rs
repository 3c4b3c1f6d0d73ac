//! An emulated device as a block device with a file system, for programs that load no library.
//!
//! A loop device ([`LoopDevice`]) lies on a file ([`ServedFile`]) whose requests [`fuse`] answers
//! when the model says that they are done; an ext4 is on it. So everything is charged that reaches
//! the device, journal and flushes among it, whoever asks for it: the model's own page cache and
//! journal are not used. Needs root, FUSE, loop devices, and a mount namespace of its own
//! ([`in_own_namespace`]), with which it goes away however this process ends.

mod fuse;
mod loop_device;
mod scratch;
mod served;

pub use loop_device::LoopDevice;
pub use scratch::ScratchMemory;
pub use served::{FileBytes, ServedFile, unmount_all};

use crate::{CacheModel, Device, DeviceError, Devices, FileKey, Mode, Placed, Profile, clock};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

/// Bytes of the device; those that were never written take no room.
const BYTES: u64 = 4 << 30;

/// Requests that wait at once: as many as any profile has channels of use to one file system.
const THREADS: usize = 16;

/// Names the mount namespace that this process came from, if it was given one of its own.
const ENV_OWN: &str = "FOREBAY_LAB_OWN_MOUNTS";

/// A file system on an emulated device, unmounted when this is dropped. Whoever uses it must have
/// ended.
pub struct BlockDevice {
    at: PathBuf,
    // Dropped once the file system on it is unmounted.
    _file: ServedFile,
}

/// What this machine lacks of what such devices and machines in namespaces need, if anything.
#[must_use]
pub fn lacking() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounts and namespaces need root".to_owned());
    }
    let devices = ["/dev/fuse", "/dev/loop-control"];
    if let Some(device) = devices.iter().find(|device| !Path::new(device).exists()) {
        return Some(format!("there is no {device}"));
    }
    // Root of a container may not.
    let kinds = ["--mount", "--pid", "--net", "--fork", "true"];
    let tried = run(Command::new("unshare").args(kinds));
    tried.err().map(|why| why.to_string())
}

/// Starts this program anew with the same arguments, in a mount namespace of its own, if it has
/// none yet. That lets go of what others have mounted on loop devices, which would stay in use.
///
/// # Errors
/// [`DeviceError::Block`]: that is not possible.
pub fn in_own_namespace() -> Result<(), DeviceError> {
    if is_in_own_namespace()? {
        return unmount_loops();
    }
    let own = std::env::current_exe().map_err(|e| DeviceError::Block(e.to_string()))?;
    let mut command = own_namespace(&own)?;
    let error = command.args(std::env::args_os().skip(1)).exec();
    Err(DeviceError::Block(format!("unshare: {error}")))
}

/// What starts `program`, whose arguments are still to be given, in a mount namespace of its own.
///
/// # Errors
/// [`DeviceError::Block`]: this process's own is not known.
pub fn own_namespace(program: &Path) -> Result<Command, DeviceError> {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "--"])
        .arg(program)
        .env(ENV_OWN, mount_namespace()?);
    Ok(command)
}

/// True if this process was started by [`own_namespace`], or by one that was.
///
/// # Errors
/// [`DeviceError::Block`]: somebody else says so.
pub fn is_in_own_namespace() -> Result<bool, DeviceError> {
    let outer = std::env::var_os(ENV_OWN);
    is_another(outer.as_deref(), &mount_namespace()?)
}

/// True if there is a namespace that this process came from, and it is not `here`.
fn is_another(outer: Option<&OsStr>, here: &OsStr) -> Result<bool, DeviceError> {
    match outer {
        None => Ok(false),
        Some(outer) if outer != here && outer.as_bytes().starts_with(b"mnt:[") => Ok(true),
        Some(_) => Err(DeviceError::Block(format!(
            "{ENV_OWN} is set by somebody else: unset it"
        ))),
    }
}

fn mount_namespace() -> Result<OsString, DeviceError> {
    let own = Path::new("/proc/self/ns/mnt");
    let name = fs::read_link(own).map_err(|e| failed("reading", own, e))?;
    Ok(name.into_os_string())
}

/// Unmounts, in this process's own mount namespace, all that is on loop devices, but what this
/// process works in. In a namespace that others have, too, it unmounts nothing.
///
/// # Errors
/// [`DeviceError::Block`]: what is mounted is not known, or as [`is_in_own_namespace`].
pub fn unmount_loops() -> Result<(), DeviceError> {
    if !is_in_own_namespace()? {
        return Ok(());
    }
    let mounts = Path::new("/proc/self/mounts");
    let said = fs::read_to_string(mounts).map_err(|e| failed("reading", mounts, e))?;
    let needed = [
        std::env::current_dir(),
        std::env::current_exe(),
        std::env::temp_dir().canonicalize(),
    ];
    let needed: Vec<PathBuf> = needed.into_iter().flatten().collect();
    for at in loops_without(&said, &needed) {
        // Gone meanwhile, or with a name that is written otherwise: its owner waits for it then.
        let _ = run(Command::new("umount").args(["--lazy", at]));
    }
    Ok(())
}

/// Where loop devices are mounted by this /proc/self/mounts, but where one of these paths lies in.
fn loops_without<'a>(mounts: &'a str, needed: &[PathBuf]) -> Vec<&'a str> {
    let loops = mounts.lines().filter(|line| line.starts_with("/dev/loop"));
    let at = loops.filter_map(|line| line.split(' ').nth(1));
    // What is mounted further in would go as well.
    at.filter(|at| !needed.iter().any(|path| path.starts_with(at)))
        .collect()
}

impl BlockDevice {
    /// Makes it: its files are in `dir`, which should be in memory, and the file system in
    /// `dir/disk`.
    ///
    /// # Errors
    /// [`DeviceError::Block`]: what could not be done.
    pub fn make(dir: &Path, profile: Profile) -> Result<Self, DeviceError> {
        let at = dir.join("disk");
        let bytes = formatted(&dir.join("image"))?;
        fs::create_dir(&at).map_err(|e| failed("creating", &at, e))?;
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
        let devices = Devices::create(vec![placed])?;
        let timed = Arc::new(TimedBytes { bytes, devices });
        let file = ServedFile::mount(&dir.join("device"), timed, THREADS)?;
        let device = LoopDevice::attach(file.path())?;
        run(Command::new("mount").arg(device.path()).arg(&at))?;
        served::note_mounted(&at);
        Ok(Self { at, _file: file })
    }

    /// Where the file system is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        served::unmount(&self.at);
    }
}

/// Bytes in memory, whose requests take as long as the device's would.
struct TimedBytes {
    bytes: File,
    /// The one device.
    devices: Devices,
}

/// The one file: the root of the file system.
const FILE: FileKey = FileKey::new(0, 1);
const DEVICE: usize = 0;

/// The device's own time: what is in memory is in that of the file system above.
const PAST_MEMORY: Mode = Mode {
    direct: true,
    synced: false,
};

impl TimedBytes {
    /// Waits until the device is done with what it is asked for.
    fn wait(&self, request: impl FnOnce(&Device<'_>, u64) -> u64) {
        if let Some(device) = self.devices.get(DEVICE) {
            clock::wait_until(request(&device, clock::now_ns()));
        }
    }
}

impl FileBytes for TimedBytes {
    fn size(&self) -> u64 {
        BYTES
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.bytes.read_exact_at(into, offset)?;
        let length = into.len() as u64;
        self.wait(|device, now| device.read(FILE, offset, length, PAST_MEMORY, now));
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.bytes.write_all_at(data, offset)?;
        let length = data.len() as u64;
        self.wait(|device, now| device.write(FILE, offset, length, PAST_MEMORY, now));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // What waits is the device's alone: its cache is flushed, and nothing else.
        self.wait(|device, now| device.sync(FILE, 0, true, now));
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_own_if_it_is_another_than_the_outer_one() {
        let of = |outer: Option<&str>| is_another(outer.map(OsStr::new), OsStr::new("mnt:[7]"));
        assert!(!of(None).unwrap());
        assert!(of(Some("mnt:[8]")).unwrap());
        for others in ["mnt:[7]", "1", ""] {
            let refused = of(Some(others)).unwrap_err().to_string();
            assert!(
                refused.contains("is set by somebody else: unset it"),
                "{refused}"
            );
        }
    }

    #[test]
    fn loops_that_a_process_works_in_stay_mounted() {
        let mounts = "/dev/vda / ext4 rw 0 0\n\
            /dev/loop0 /srv ext4 rw 0 0\n\
            /dev/loop1 /srv/build ext4 rw 0 0\n\
            /dev/loop2 /srv/other ext4 rw 0 0\n\
            tmpfs /dev/shm tmpfs rw 0 0\n";
        let needed = ["/srv/build/target".into(), "/tmp".into()];
        assert_eq!(loops_without(mounts, &needed), ["/srv/other"]);
        let root = "/dev/loop3 / squashfs ro 0 0\n";
        assert!(loops_without(root, &needed).is_empty());
    }
}
