//! Emulated devices ([`forebay_device`]) under the hooks: which descriptors are on one, and what
//! changes that.
//!
//! The real call is made first and is what it always is; then the device is asked when it would
//! have been done with it, and the caller waits until then ([`charge`](crate::charge)). Where a
//! file lies is asked once, when it is opened.
#![expect(unsafe_code, reason = "closes a descriptor")]

use crate::{
    charge::{Operation, key, kind},
    devices::{self, borrow},
    guard, table,
};
use forebay::layer::{self, FileEvent, FileLayer, NameAt};
use forebay_device::{Devices, FileKey, clock};
use forebay_files::client;
use libc::c_int;
use rustix::{
    fd::{AsRawFd, BorrowedFd},
    fs::{AtFlags, FileType, OFlags},
    io::Errno,
};
use std::sync::atomic::AtomicU16;

/// The directory of links to this thread's descriptors.
const LINKS: &str = "/proc/thread-self/fd";

/// Reads from the environment which directories have a device; if any has, the hooks tell of what
/// is done from now on.
pub(crate) fn install() {
    match Devices::of_environment() {
        Ok(Some(devices)) => {
            devices::set(devices);
            if !layer::install(&OnDevices) {
                complain("there is another layer");
            }
        }
        Ok(None) => {}
        Err(error) => complain(&error.to_string()),
    }
}

fn complain(why: &str) {
    let what = format!("forebay: this process is not slowed down: {why}\n");
    // If that fails, there is no other place to report it.
    let _ = borrow(2).map(|stderr| rustix::io::write(stderr, what.as_bytes()));
}

/// The number of the device that an open file or directory lies on.
fn number_of(devices: &Devices, fd: BorrowedFd<'_>) -> Option<u8> {
    let link = format!("{LINKS}/{}", fd.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).ok()?;
    u8::try_from(devices.holding(path.as_bytes())?).ok()
}

/// Notes where `fd`, just opened, lies. True if it is on a device.
fn note(fd: c_int) -> bool {
    let (Some(devices), Some(raw)) = (devices::all(), borrow(fd)) else {
        return false;
    };
    let Ok(stat) = rustix::fs::fstat(raw) else {
        return false;
    };
    let number = match kind(&stat) {
        FileType::RegularFile | FileType::Directory => number_of(devices, raw),
        _ => None,
    };
    // A vforked child shares our memory, but not our descriptors.
    if !client::in_vforked_child() {
        table::set(fd, number);
    }
    let Some(device) = number.and_then(|number| devices.get(number.into())) else {
        return false;
    };
    if kind(&stat) == FileType::RegularFile {
        device.opened(key(&stat), stat.st_size.unsigned_abs());
    }
    true
}

/// Notes of every open descriptor where it lies: at the start, and after a file was renamed from
/// one device to another.
fn note_all() {
    let Ok(entries) = std::fs::read_dir(LINKS) else {
        return;
    };
    let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<c_int>().ok());
    for fd in numbers.filter(|fd| !client::is_own(*fd)) {
        note(fd);
    }
}

/// What a name leads to before it is changed: the file if this is its last name, and its device.
struct Named {
    last_name: Option<FileKey>,
    number: Option<u8>,
}

fn named((dir, path): NameAt<'_>) -> Option<Named> {
    let devices = devices::all()?;
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
fn unlinked(named: Option<Named>) {
    if let (Some(devices), Some(key)) = (devices::all(), named.and_then(|named| named.last_name)) {
        devices.unlinked(key);
    }
}

/// What the hooks tell of, if any directory has a device.
struct OnDevices;

impl FileLayer for OnDevices {
    fn start(&self) {
        note_all();
    }

    fn forked(&self) {
        guard::forked();
    }

    fn seen(&self) -> &'static [AtomicU16] {
        table::words()
    }

    /// An emulated device takes `O_DIRECT` also where the file system under it does not.
    fn open(
        &self,
        flags: c_int,
        real: &mut dyn FnMut(c_int) -> Result<c_int, Errno>,
    ) -> Result<c_int, Errno> {
        let opened = real(flags);
        let hides_direct = opened == Err(Errno::INVAL) && flags & libc::O_DIRECT != 0;
        let fd = match hides_direct {
            // The refused attempt made the file, if it is new.
            true => real(flags & !(libc::O_DIRECT | libc::O_EXCL))?,
            false => opened?,
        };
        if !client::in_vforked_child() {
            table::begin(fd, hides_direct);
        }
        if !hides_direct || note(fd) {
            return Ok(fd);
        }
        table::clear(fd);
        // SAFETY: the program does not have this descriptor yet.
        unsafe { libc::close(fd) };
        opened
    }

    fn opened(&self, fd: c_int) {
        note(fd);
    }

    fn closing(&self, fd: c_int) {
        table::clear(fd);
    }

    fn duplicated(&self, from: c_int, to: c_int) {
        table::copy(from, to);
    }

    fn hidden_flags(&self, fd: c_int) -> c_int {
        table::hidden_flags(fd)
    }

    fn begin(&self, _fd: c_int) -> u64 {
        clock::now_ns()
    }

    fn done(&self, fd: c_int, begun: u64, what: FileEvent) {
        if let Some(operation) = Operation::of(fd, begun) {
            operation.charge(what);
        }
    }

    fn refuses_mapping(&self, fd: c_int, protection: c_int, flags: c_int) -> bool {
        Operation::of(fd, 0).is_some_and(|of| of.refuses_stores(protection, flags))
    }

    fn rename(
        &self,
        from: NameAt<'_>,
        to: NameAt<'_>,
        real: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (moved, replaced) = (named(from), named(to));
        real()?;
        unlinked(replaced);
        let number = |named: &Named| named.number;
        if let Some(before) = moved
            && named(to).as_ref().map(number) != Some(before.number)
        {
            // Its descriptors may be on another device now.
            note_all();
        }
        Ok(())
    }

    fn unlink(
        &self,
        name: NameAt<'_>,
        real: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let named = named(name);
        real()?;
        unlinked(named);
        Ok(())
    }

    fn touch(&self, address: usize, bytes: usize) {
        guard::touch(address, bytes);
    }

    fn release(&self, address: usize, bytes: usize) {
        guard::release(address, bytes);
    }
}
