//! Calls that change a file through its descriptor without writing to it. The client logs
//! `ftruncate`, and `fallocate` that only makes the file longer. Before anything else (other
//! `fallocate`, `copy_file_range`, `sendfile`, `splice`, cloning and zeroing by `ioctl`) the file
//! is retired.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{FailedCall, checked, missing},
    client_call::client,
    handler::handlers,
    ioctl_targets,
    layer::{self, FileEvent},
    memory, metadata, pages,
    plain::is_plain,
    retire::retire,
    times,
};
use forebay_files::{
    client::{self, SyncKind},
    ioctls,
};
use libc::{c_int, c_uint, c_ulong, loff_t, off_t, size_t, ssize_t};
use rustix::io::Errno;
use std::ptr;

handlers! {
    fn ftruncate(fd: c_int, bytes: off_t) -> c_int;
    missing missing(-1);
    plain if bytes < 0 || is_plain(fd) && !client::counts_changes();
    else |real| match shorten(fd, bytes.unsigned_abs(), || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, bytes) }
    }) {
        Ok(()) => {
            if let Some(begun) = layer::begin(fd) {
                begun.done(FileEvent::Resized(bytes.unsigned_abs()));
            }
            0
        }
        Err(failed) => failed.with(-1),
    };

    fn fallocate(fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int;
    missing missing(-1);
    plain if is_plain(fd) && !client::counts_changes();
    else |real| {
        // SAFETY: our caller's arguments.
        let call = || unsafe { real(fd, mode, offset, bytes) };
        if is_plain(fd) {
            return metadata::allocated(fd, mode, call);
        }
        if pages::is_cached(fd) {
            let counted = || checked(metadata::allocated(fd, mode, call)).map(drop);
            let done = pages::allocate(fd, mode, [offset, bytes], counted);
            allocated(fd, done.is_ok());
            return done.map_or_else(|failed| failed.with(-1), |()| 0);
        }
        match mode {
            // Room behind the end: no byte of it changes, but its time does.
            libc::FALLOC_FL_KEEP_SIZE => times::of_descriptor(fd, call),
            0 => match extend(fd, || checked(call()).map(drop)) {
                Ok(()) => 0,
                Err(failed) => failed.with(-1),
            },
            _ => match retire(fd) {
                Ok(()) => {
                    let result = call();
                    allocated(fd, result == 0);
                    result
                }
                Err(failed) => failed.with(-1),
            },
        }
    };

    // Returns the error number.
    fn posix_fallocate(fd: c_int, offset: off_t, bytes: off_t) -> c_int;
    missing libc::ENOSYS;
    plain if is_plain(fd) && !client::counts_changes();
    else |real| {
        if is_plain(fd) {
            // SAFETY: our caller's arguments.
            return metadata::resized(fd, || unsafe { real(fd, offset, bytes) });
        }
        // SAFETY: our caller's arguments.
        let call = || match metadata::resized(fd, || unsafe { real(fd, offset, bytes) }) {
            0 => Ok(()),
            number => Err(Errno::from_raw_os_error(number)),
        };
        if pages::is_cached(fd) {
            let done = pages::allocate(fd, 0, [offset, bytes], call);
            allocated(fd, done.is_ok());
            return done.map_or_else(|failed| failed.number(), |()| 0);
        }
        extend(fd, call).map_or_else(|failed| failed.number(), |()| 0)
    };

    fn copy_file_range(from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, bytes: size_t, flags: c_uint) -> ssize_t;
    missing missing(-1);
    plain if is_plain(to) && is_plain(from) && !client::counts_changes();
    else |real| match before_sharing(from) {
        Ok(()) => transfer((from, from_offset), (to, to_offset), || {
            // SAFETY: our caller's arguments.
            unsafe { real(from, from_offset, to, to_offset, bytes, flags) }
        }),
        Err(failed) => failed.with(-1),
    };

    fn sendfile(to: c_int, from: c_int, from_offset: *mut off_t, bytes: size_t) -> ssize_t;
    missing missing(-1);
    plain if is_plain(to) && is_plain(from) && !client::counts_changes();
    else |real| transfer((from, from_offset), (to, ptr::null()), || {
        // SAFETY: our caller's arguments.
        unsafe { real(to, from, from_offset, bytes) }
    });

    fn splice(from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, bytes: size_t, flags: c_uint) -> ssize_t;
    missing missing(-1);
    plain if is_plain(to) && is_plain(from) && !client::counts_changes();
    else |real| transfer((from, from_offset), (to, to_offset), || {
        // SAFETY: our caller's arguments.
        unsafe { real(from, from_offset, to, to_offset, bytes, flags) }
    });

    // Returns the error number.
    fn posix_fadvise(fd: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int;
    missing libc::ENOSYS;
    plain if !layer::sees(fd);
    else |real| {
        // SAFETY: our caller's arguments.
        let result = unsafe { real(fd, offset, bytes, advice) };
        if result == 0
            && advice == libc::POSIX_FADV_DONTNEED
            && let Some(begun) = layer::begin(fd)
        {
            let bytes = if bytes == 0 { u64::MAX >> 1 } else { bytes.unsigned_abs() };
            begun.done(FileEvent::Dropped { offset: offset.unsigned_abs(), bytes });
        }
        result
    };

    fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int;
    missing missing(-1);
    plain if (!ioctls::changes(request as u32) || is_plain(fd) && !client::counts_changes()) && !ioctl_targets::may_concern(request);
    else |real| match before_request(fd, request, argument) {
        // SAFETY: our caller's arguments.
        Ok(()) if ioctls::changes(request as u32) => metadata::open(fd, || unsafe { real(fd, request, argument) }),
        // SAFETY: as above.
        Ok(()) => unsafe { real(fd, request, argument) },
        Err(failed) => failed.with(-1),
    };
}

/// Cuts a file off, or makes it longer.
fn shorten(fd: c_int, bytes: u64, real: impl FnMut() -> c_int) -> Result<(), FailedCall> {
    if pages::is_cached(fd) {
        let mut real = real;
        return pages::truncate(fd, bytes, || metadata::resized(fd, &mut real));
    }
    if !client::absorbs(fd) && client::counts_changes() {
        return checked(metadata::resized(fd, real))
            .map(drop)
            .map_err(FailedCall::of);
    }
    client(|| client::truncate(fd, bytes))
}

/// Does `call`, which makes room in the file of `fd` and may make it longer, but changes no byte
/// that it has.
fn extend(fd: c_int, call: impl Fn() -> Result<(), Errno>) -> Result<(), FailedCall> {
    let done = client(|| client::extending(fd, call));
    allocated(fd, done.is_ok());
    done
}

/// Room was made for the file of `fd`.
fn allocated(fd: c_int, is_done: bool) {
    if let Some(begun) = layer::begin(fd).filter(|_| is_done) {
        begun.done(FileEvent::Allocated);
    }
}

/// Makes the file of `to` plain, then does `transfer` into it. What was to be durable by the flags
/// that the kernel does not know of is made so afterwards. Each descriptor comes with the pointer
/// to its offset; null for its position.
fn transfer(
    (from, from_offset): (c_int, *const loff_t),
    (to, to_offset): (c_int, *const loff_t),
    transfer: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if is_plain(to) && is_plain(from) {
        return metadata::copied(to, transfer);
    }
    let prepared = retire(to).and_then(|()| match from_offset.is_null() {
        // The kernel moves its position, and may wait for the other end meanwhile: no write by it
        // can be told where it went.
        true => retire(from),
        false => pages::leave(from),
    });
    if let Err(failed) = prepared {
        return failed.with(-1);
    }
    let (read, written) = (layer::begin(from), layer::begin(to));
    let places = [
        (from_offset, read.is_some()),
        (to_offset, written.is_some()),
    ];
    let [read_at, written_at] = places.map(|(offset, is_wanted)| {
        // SAFETY: our caller does not change it meanwhile; any bytes are an offset. A null pointer
        // cannot be read.
        let offset = is_wanted.then(|| unsafe { memory::read(offset) }).flatten();
        offset.map(i64::unsigned_abs)
    });
    let bytes = transfer();
    if let Ok(bytes) = usize::try_from(bytes) {
        if let Some(read) = read {
            read.done(FileEvent::Read {
                offset: read_at,
                bytes,
            });
        }
        if let Some(written) = written {
            written.done(FileEvent::Wrote {
                offset: written_at,
                bytes,
                flags: 0,
            });
        }
    }
    if bytes > 0 && client::absorbs(to) {
        let synced = client(|| {
            if client::hidden_flags(to) & libc::O_DSYNC != 0 {
                client::sync(to, SyncKind::Data)?;
            }
            Ok(())
        });
        if let Err(failed) = synced {
            return failed.with(-1);
        }
    }
    bytes
}

/// Makes plain what an `ioctl` may change.
fn before_request(fd: c_int, request: c_ulong, argument: c_ulong) -> Result<(), FailedCall> {
    if ioctls::changes(request as u32) {
        retire(fd)?;
    }
    ioctl_targets::before(request, argument)
}

/// Before a copy may share the blocks of what is open as `source`.
fn before_sharing(source: c_int) -> Result<(), FailedCall> {
    client(|| client::cloning(source))
}
