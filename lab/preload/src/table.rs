//! The table of descriptors and their devices: its size is fixed, so that nothing is allocated
//! where a read or a write goes through.

use libc::c_int;
use std::sync::atomic::{
    AtomicU16,
    Ordering::{Acquire, Release},
};

/// Descriptors above this are on no device.
const DESCRIPTORS: usize = 1 << 16;

/// The number plus one of the device; 0 for none.
const DEVICE: u16 = 0xFF;
/// The program believes that it was opened with `O_DIRECT`.
const DIRECT: u16 = 1 << 8;

static ENTRIES: [AtomicU16; DESCRIPTORS] = [const { AtomicU16::new(0) }; DESCRIPTORS];

/// The words, which are not 0 of descriptors that are on a device.
pub(crate) fn words() -> &'static [AtomicU16] {
    &ENTRIES
}

fn place(fd: c_int) -> Option<&'static AtomicU16> {
    ENTRIES.get(usize::try_from(fd).ok()?)
}

#[inline]
fn entry(fd: c_int) -> u16 {
    place(fd).map_or(0, |place| place.load(Acquire))
}

/// The number of the device that `fd` is on. Costs one load.
#[inline]
pub(crate) fn device(fd: c_int) -> Option<usize> {
    (entry(fd) & DEVICE).checked_sub(1).map(usize::from)
}

/// `O_DIRECT`, if the program believes that `fd` has it and the kernel does not know.
pub(crate) fn hidden_flags(fd: c_int) -> c_int {
    match entry(fd) & DIRECT {
        0 => 0,
        _ => libc::O_DIRECT,
    }
}

/// `fd` is a new descriptor: on no device yet, and with `O_DIRECT` hidden or not.
pub(crate) fn begin(fd: c_int, hides_direct: bool) {
    if let Some(place) = place(fd) {
        place.store(if hides_direct { DIRECT } else { 0 }, Release);
    }
}

/// Notes which device `fd` is on, if any.
pub(crate) fn set(fd: c_int, number: Option<u8>) {
    if let Some(place) = place(fd) {
        let device = number.map_or(0, |number| u16::from(number) + 1);
        place.store(entry(fd) & DIRECT | device, Release);
    }
}

/// `to` is as `from` is.
pub(crate) fn copy(from: c_int, to: c_int) {
    if let Some(place) = place(to) {
        place.store(entry(from), Release);
    }
}

/// Nothing is known of `fd`.
pub(crate) fn clear(fd: c_int) {
    if let Some(place) = place(fd) {
        place.store(0, Release);
    }
}
