//! The emulated devices of this process, and its descriptors for system calls.
#![expect(unsafe_code, reason = "borrows descriptors for system calls")]

use forebay_device::{Device, Devices};
use libc::c_int;
use rustix::fd::BorrowedFd;
use std::sync::OnceLock;

static DEVICES: OnceLock<Devices> = OnceLock::new();

/// Has these, from now on. Once.
pub(crate) fn set(devices: Devices) {
    let _ = DEVICES.set(devices);
}

/// All of them; none if no directory has one.
pub(crate) fn all() -> Option<&'static Devices> {
    DEVICES.get()
}

/// The device with this number.
pub(crate) fn get(number: usize) -> Option<Device<'static>> {
    all()?.get(number)
}

/// A descriptor of the program, for system calls, which say `EBADF` if it is none.
pub(crate) fn borrow(fd: c_int) -> Option<BorrowedFd<'static>> {
    // SAFETY: not -1, and it is used for system calls only, which take any number.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}
