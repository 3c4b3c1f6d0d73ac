//! `write`, `pwrite`, `writev`, `pwritev`, `pwritev2`: to an absorbed descriptor, by the client. To
//! any other by the hidden function, once what is written of memory that a [layer] guards is
//! accessible.
//!
//! What the kernel would refuse anyway (a negative offset, too many parts, no memory) goes to the
//! hidden function, for its errno.
#![expect(
    unsafe_code,
    reason = "exports C functions; makes slices of what they are given"
)]

use crate::{
    call_context::{FailedCall, cancellation_point, missing},
    checkpoint,
    client_call::client,
    handler::handlers,
    layer::{self, FileEvent},
    memory, pages, plain,
};
use forebay_files::client;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::{io::IoSlice, mem::MaybeUninit, ptr, slice};

/// `UIO_MAXIOV`: the kernel refuses more parts.
const PARTS_MAX: usize = 1024;
/// As many as nearly all calls have.
const PARTS_FEW: usize = 16;
/// More than these are no more kept on the caller's stack.
const PARTS_SOME: usize = 32;

/// `pwritev2`'s offset that means the file position.
const AT_POSITION: off_t = -1;

handlers! {
    fn write(fd: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| one(fd, buffer, bytes, WritePlace::Position, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, buffer, bytes) }
    });

    fn pwrite(fd: c_int, buffer: *const c_void, bytes: size_t, offset: off_t) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| one(fd, buffer, bytes, WritePlace::of(offset), || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, buffer, bytes, offset) }
    });

    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| several(fd, parts, count, WritePlace::Position, 0, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, parts, count) }
    });

    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| several(fd, parts, count, WritePlace::of(offset), 0, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, parts, count, offset) }
    });

    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| several(fd, parts, count, WritePlace::of_or_position(offset), flags, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, parts, count, offset, flags) }
    });
}

/// True if there is nothing to do before a write to `fd`, nor instead of it. Costs a few loads.
#[inline]
pub(crate) fn is_plain(fd: c_int) -> bool {
    plain::is_plain(fd) && !layer::guards_memory() && !checkpoint::may_come()
}

/// The place of a write.
#[derive(Clone, Copy)]
enum WritePlace {
    Position,
    Offset(u64),
    /// Nowhere: the offset is negative.
    Invalid,
}

impl WritePlace {
    fn of(offset: off_t) -> Self {
        u64::try_from(offset).map_or(Self::Invalid, Self::Offset)
    }

    fn of_or_position(offset: off_t) -> Self {
        if offset == AT_POSITION {
            Self::Position
        } else {
            Self::of(offset)
        }
    }
}

/// Writes one buffer; `plain` is the hidden function, for other descriptors and for what the kernel
/// refuses.
#[inline]
fn one(
    fd: c_int,
    buffer: *const c_void,
    bytes: size_t,
    place: WritePlace,
    plain: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if buffer.is_null() || ssize_t::try_from(bytes).is_err() {
        return plain();
    }
    let part = iovec {
        iov_base: buffer.cast_mut(),
        iov_len: bytes,
    };
    // SAFETY: an `IoSlice` is an `iovec` in memory, of readable bytes that no thread writes to
    // meanwhile: our caller's promise to `write`. One who breaks it gets the kernel's EFAULT,
    // because the client reads only what the kernel has accepted.
    let part = unsafe { &*(&raw const part).cast::<IoSlice<'_>>() };
    write_parts(fd, std::slice::from_ref(part), place, 0, plain)
}

/// Writes several buffers; `plain` as above. Few need little of a stack, which may be a signal
/// handler's, and the most a thread can give need one of their own.
fn several(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    place: WritePlace,
    flags: c_int,
    plain: impl FnOnce() -> ssize_t,
) -> ssize_t {
    match usize::try_from(count) {
        Ok(count @ 1..=PARTS_FEW) => {
            several_of::<PARTS_FEW>(fd, (parts, count), place, flags, plain)
        }
        Ok(count @ 1..=PARTS_SOME) => {
            several_of::<PARTS_SOME>(fd, (parts, count), place, flags, plain)
        }
        Ok(count @ 1..=PARTS_MAX) => several_of_many(fd, (parts, count), place, flags, plain),
        _ => plain(),
    }
}

/// The same of `MOST` buffers or fewer. Apart, so that its caller has not this much on the stack.
#[inline(never)]
fn several_of<const MOST: usize>(
    fd: c_int,
    (parts, count): (*const iovec, usize),
    place: WritePlace,
    flags: c_int,
    plain: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let mut places = [const { MaybeUninit::uninit() }; MOST];
    several_in(&mut places[..count], fd, parts, place, flags, plain)
}

/// The same of more, in memory that the kernel lends: a stack may be small, and a signal handler
/// must not allocate. A thread that is cancelled meanwhile leaves it.
#[inline(never)]
fn several_of_many(
    fd: c_int,
    (parts, count): (*const iovec, usize),
    place: WritePlace,
    flags: c_int,
    plain: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let bytes = PARTS_MAX * size_of::<iovec>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory, at an address of the kernel's choice.
    let lent = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
    let memory = match lent {
        Ok(memory) => memory,
        Err(errno) => return FailedCall::of(errno).with(-1),
    };
    // SAFETY: so many have room in it, and any bytes may be uninitialised.
    let places = unsafe { slice::from_raw_parts_mut(memory.cast::<MaybeUninit<iovec>>(), count) };
    let written = several_in(places, fd, parts, place, flags, plain);
    // SAFETY: nothing uses it any more. It was mapped, so this does not fail.
    let _ = unsafe { munmap(memory, bytes) };
    written
}

/// The same of as many buffers as `places` has room for.
#[inline]
fn several_in(
    places: &mut [MaybeUninit<iovec>],
    fd: c_int,
    parts: *const iovec,
    place: WritePlace,
    flags: c_int,
    plain: impl FnOnce() -> ssize_t,
) -> ssize_t {
    // SAFETY: our caller does not change them while they are written; any bytes are an `iovec`.
    let Some(parts) = (unsafe { memory::read_all(parts, places) }) else {
        return plain();
    };
    for part in &mut *parts {
        if ssize_t::try_from(part.iov_len).is_err() {
            return plain();
        }
        if part.iov_base.is_null() {
            // No slice is there. To the kernel this is as good: there is no memory either.
            part.iov_base = ptr::without_provenance_mut(1);
        }
    }
    // SAFETY: as in `one`, of each.
    let parts = unsafe { &*(ptr::from_ref::<[iovec]>(parts) as *const [IoSlice<'_>]) };
    write_parts(fd, parts, place, flags, plain)
}

#[inline]
fn write_parts(
    fd: c_int,
    parts: &[IoSlice<'_>],
    place: WritePlace,
    flags: c_int,
    plain: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let offset = match place {
        WritePlace::Position => None,
        WritePlace::Offset(offset) => Some(offset),
        WritePlace::Invalid => return plain(),
    };
    for part in parts {
        layer::touch(part.as_ptr().addr(), part.len());
    }
    if pages::is_cached(fd) {
        return match (parts, offset) {
            // Flags change where it is written, or when it is durable.
            ([part], Some(offset)) if flags == 0 => pages::write_at(fd, part, offset),
            _ => match pages::leave(fd) {
                Ok(()) => plain(),
                Err(failed) => failed.with(-1),
            },
        };
    }
    if let Err(failed) = checkpoint::before(fd, offset) {
        return failed.with(-1);
    }
    if !client::absorbs(fd) && !layer::sees(fd) {
        return plain();
    }
    cancellation_point();
    let begun = layer::begin(fd);
    match client(|| client::write(fd, parts, offset, flags)) {
        Ok(bytes) => {
            if let Some(begun) = begun {
                begun.done(FileEvent::Wrote {
                    offset,
                    bytes,
                    flags,
                });
            }
            bytes as ssize_t
        }
        Err(failed) => failed.with(-1),
    }
}
