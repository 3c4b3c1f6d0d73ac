//! Emulated devices ([`forebay_device`]): which descriptors are on one, and what their reads, writes and syncs wait for.
//!
//! The real call is made first and is what it always is; then the device is asked when it would have been done with it, and the caller waits until
//! then. Where a file lies is asked once, when it is opened.
#![expect(unsafe_code, reason = "borrows descriptors for system calls")]

use crate::around::{is_client, tell_client};
use forebay_device::{Device, Devices, FileKey, Mode, clock};
use forebay_files::client;
use libc::c_int;
use rustix::{
    fd::BorrowedFd,
    fs::{AtFlags, FileType, OFlags, Stat},
};
use std::{
    ffi::CStr,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

static DEVICES: OnceLock<Devices> = OnceLock::new();

/// The file that was refused last as persistent memory, by its key.
static TAKEN_FOR_MEMORY: AtomicU64 = AtomicU64::new(0);

/// The directory of links to this thread's descriptors.
const LINKS: &str = "/proc/thread-self/fd";

/// Reads from the environment which directories have a device, and looks where the descriptors lead that the process started with.
pub(crate) fn start() {
    match Devices::of_environment() {
        Ok(Some(devices)) => {
            let _ = DEVICES.set(devices);
            note_all();
        }
        Ok(None) => {}
        Err(error) => {
            let what = format!("forebay: this process is not slowed down: {error}\n");
            // Nobody to tell if that fails.
            let _ = borrow(2).map(|stderr| rustix::io::write(stderr, what.as_bytes()));
        }
    }
}

/// True if any directory has a device.
#[inline]
pub(crate) fn any() -> bool {
    DEVICES.get().is_some()
}

/// True if `fd`'s file is on a device. Costs one load.
#[inline]
pub(crate) fn is_on(fd: c_int) -> bool {
    client::device(fd).is_some()
}

/// A descriptor of the program, for system calls, which say `EBADF` if it is none.
fn borrow(fd: c_int) -> Option<BorrowedFd<'static>> {
    // SAFETY: not -1, and it is used for system calls only, which take any number.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

fn key(stat: &Stat) -> FileKey {
    FileKey::new(stat.st_dev, stat.st_ino)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The number of the device that an open file or directory lies on.
fn number_of(devices: &Devices, fd: BorrowedFd<'_>) -> Option<u8> {
    use rustix::fd::AsRawFd;
    let link = format!("{LINKS}/{}", fd.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).ok()?;
    u8::try_from(devices.holding(path.as_bytes())?).ok()
}

/// Notes where `fd`, just opened, lies. `hidden`: see [`client::set_device`]. True if it is on a device.
pub(crate) fn note(fd: c_int, hidden: c_int) -> bool {
    let (Some(devices), Some(raw)) = (DEVICES.get(), borrow(fd)) else {
        return false;
    };
    let Ok(stat) = rustix::fs::fstat(raw) else {
        return false;
    };
    let number = match kind(&stat) {
        FileType::RegularFile | FileType::Directory => number_of(devices, raw),
        _ => None,
    };
    client::set_device(fd, number, hidden);
    let Some(device) = number.and_then(|number| devices.get(number.into())) else {
        return false;
    };
    if kind(&stat) == FileType::RegularFile {
        device.opened(key(&stat), stat.st_size.unsigned_abs());
    }
    true
}

/// Notes of every open descriptor where it lies: at the start, and after a file was renamed from one device to another.
fn note_all() {
    let Ok(entries) = std::fs::read_dir(LINKS) else {
        return;
    };
    let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<c_int>().ok());
    for fd in numbers.filter(|fd| !client::is_own(*fd)) {
        note(fd, 0);
    }
}

/// An operation on a descriptor of a device that has begun.
pub(crate) struct Begun {
    device: Device<'static>,
    fd: c_int,
    at: u64,
}

/// Begins an operation on `fd`; none if it is on no device.
#[inline]
pub(crate) fn begin(fd: c_int) -> Option<Begun> {
    let number = client::device(fd)?;
    Some(Begun {
        device: DEVICES.get()?.get(number)?,
        fd,
        at: clock::now_ns(),
    })
}

impl Begun {
    /// The file, and how it is open.
    fn look(&self) -> Option<(Stat, c_int)> {
        let raw = borrow(self.fd)?;
        let stat = rustix::fs::fstat(raw).ok()?;
        let flags = rustix::fs::fcntl_getfl(raw).ok()?.bits().cast_signed();
        Some((stat, flags | client::hidden_flags(self.fd)))
    }

    fn position(&self) -> u64 {
        borrow(self.fd).map_or(0, |raw| rustix::fs::tell(raw).unwrap_or(0))
    }

    /// `bytes` were read, at `offset` or at the position: waits as long as that takes. Not a cancellation point, and leaves errno alone, as all
    /// these.
    pub(crate) fn read(self, offset: Option<u64>, bytes: usize) {
        let bytes = bytes as u64;
        tell_client(|| {
            let Some((stat, flags)) = self.look() else {
                return;
            };
            if bytes == 0 || kind(&stat) != FileType::RegularFile {
                return;
            }
            let offset = offset.unwrap_or_else(|| self.position().saturating_sub(bytes));
            let mode = Mode {
                direct: flags & libc::O_DIRECT != 0,
                synced: false,
            };
            clock::wait_until(self.device.read(key(&stat), offset, bytes, mode, self.at));
        });
    }

    /// `bytes` were written, at `offset` or at the position, with `flags` of `pwritev2`.
    pub(crate) fn wrote(self, offset: Option<u64>, bytes: usize, write_flags: c_int) {
        let bytes = bytes as u64;
        tell_client(|| {
            let Some((stat, flags)) = self.look() else {
                return;
            };
            if bytes == 0 || kind(&stat) != FileType::RegularFile {
                return;
            }
            let appends = flags & libc::O_APPEND != 0 || write_flags & libc::RWF_APPEND != 0;
            let end = match offset {
                Some(offset) if !appends => offset + bytes,
                Some(_) => stat.st_size.unsigned_abs(),
                None => self.position(),
            };
            let synced =
                flags & libc::O_DSYNC != 0 || write_flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
            // What is absorbed waits in the page cache for its drain, whatever the flags.
            let absorbed = client::is_in_pool(self.fd);
            let mode = Mode {
                direct: !absorbed && flags & libc::O_DIRECT != 0,
                synced: !absorbed && synced,
            };
            let offset = end.saturating_sub(bytes);
            clock::wait_until(self.device.write(key(&stat), offset, bytes, mode, self.at));
        });
    }

    /// The file, or the directory, was really synced.
    pub(crate) fn synced(self, data_only: bool) {
        tell_client(|| {
            let Some((stat, _)) = self.look() else {
                return;
            };
            let done = match kind(&stat) {
                FileType::RegularFile => {
                    let size = stat.st_size.unsigned_abs();
                    self.device.sync(key(&stat), size, data_only, self.at)
                }
                FileType::Directory => self.device.sync_directory(self.at),
                _ => self.at,
            };
            clock::wait_until(done);
        });
    }

    /// The file was given another size.
    pub(crate) fn resized(self, size: u64) {
        tell_client(|| {
            if let Some((stat, _)) = self.look() {
                self.device.resized(key(&stat), size);
            }
        });
    }

    /// The file may have grown by room that nothing was written to.
    pub(crate) fn allocated(self) {
        tell_client(|| {
            if let Some((stat, _)) = self.look() {
                self.device.resized(key(&stat), stat.st_size.unsigned_abs());
            }
        });
    }

    /// The program needs these bytes no longer in memory.
    pub(crate) fn dropped(self, offset: u64, bytes: u64) {
        tell_client(|| {
            if let Some((stat, _)) = self.look() {
                self.device.dropped(key(&stat), offset, bytes);
            }
        });
    }

    /// Whether a shared mapping is to be refused, as a file system on a disk refuses it: one by `MAP_SYNC`, and a later one of the same file that can
    /// be stored to. InnoDB asks for both where its log is in /dev/shm, and then neither writes nor syncs it. Not to ourselves.
    pub(crate) fn refuses_stores(self, protection: c_int, flags: c_int) -> bool {
        if is_client() {
            return false;
        }
        let mut refused = false;
        tell_client(|| {
            let Some((stat, _)) = self.look() else { return };
            let key = key(&stat).to_word();
            let asks = flags & libc::MAP_SYNC != 0;
            if asks {
                TAKEN_FOR_MEMORY.store(key, Relaxed);
            }
            let stores = protection & libc::PROT_WRITE != 0;
            refused = asks || stores && TAKEN_FOR_MEMORY.load(Relaxed) == key;
        });
        refused
    }

    /// The file can be stored to by a mapping.
    pub(crate) fn mapped_to_store(self) {
        tell_client(|| {
            if let Some((stat, _)) = self.look() {
                self.device.mapped_to_store(key(&stat));
            }
        });
    }

    /// What a mapping needs to be charged by: the device's number, the file, its size.
    pub(crate) fn mapped(self) -> Option<(usize, FileKey, u64)> {
        let (stat, _) = self.look()?;
        let number = client::device(self.fd)?;
        (kind(&stat) == FileType::RegularFile)
            .then(|| (number, key(&stat), stat.st_size.unsigned_abs()))
    }
}

/// The device with this number.
pub(crate) fn get(number: usize) -> Option<Device<'static>> {
    DEVICES.get()?.get(number)
}

/// What a name leads to before it is changed: the file if this is its last name, and its device.
pub(crate) struct Named {
    last_name: Option<FileKey>,
    number: Option<u8>,
}

/// Looks at a name, if there are devices.
pub(crate) fn named(dir: c_int, path: &CStr) -> Option<Named> {
    let devices = DEVICES.get()?;
    let dir = borrow(dir).unwrap_or(rustix::fs::CWD);
    let stat = rustix::fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, path, flags, rustix::fs::Mode::empty()).ok()?;
    Some(Named {
        last_name: (stat.st_nlink == 1 && kind(&stat) == FileType::RegularFile).then(|| key(&stat)),
        number: number_of(devices, rustix::fd::AsFd::as_fd(&file)),
    })
}

/// A file lost its name: if that was the last, nothing of it is written back.
pub(crate) fn unlinked(named: Option<Named>) {
    if let (Some(devices), Some(key)) = (DEVICES.get(), named.and_then(|named| named.last_name)) {
        devices.unlinked(key);
    }
}

/// A file got the name `to`, and had another: its descriptors may be on another device now.
pub(crate) fn renamed(before: Option<Named>, (dir, path): (c_int, &CStr)) {
    let Some(before) = before else { return };
    let after = named(dir, path);
    if after.is_none_or(|after| after.number != before.number) {
        note_all();
    }
}
