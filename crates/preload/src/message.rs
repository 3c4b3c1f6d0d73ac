//! `sendmsg`, `sendmmsg`: a descriptor that is passed to another process can be written to there,
//! so its file is retired first. And as with `send` and `sendto`, what is sent of memory that a
//! [layer] guards is made accessible.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{FailedCall, missing},
    handler::handlers,
    layer, memory,
    retire::retire,
};
use forebay_files::client;
use libc::{
    c_int, c_uint, c_void, cmsghdr, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t,
};

handlers! {
    fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    missing missing(-1);
    plain if !client::is_absorbing() && !layer::guards_memory();
    else |real| match before_sending(message) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(socket, message, flags) },
        Err(failed) => failed.with(-1),
    };

    fn sendmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    missing missing(-1);
    plain if !client::is_absorbing() && !layer::guards_memory();
    else |real| match before_sending_all(messages, count) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(socket, messages, count, flags) },
        Err(failed) => failed.with(-1),
    };

    fn send(socket: c_int, buffer: *const c_void, bytes: size_t, flags: c_int) -> ssize_t;
    missing missing(-1);
    plain if !layer::guards_memory();
    else |real| {
        layer::touch(buffer.addr(), bytes);
        // SAFETY: our caller's arguments.
        unsafe { real(socket, buffer, bytes, flags) }
    };

    fn sendto(socket: c_int, buffer: *const c_void, bytes: size_t, flags: c_int, to: *const sockaddr, to_bytes: socklen_t) -> ssize_t;
    missing missing(-1);
    plain if !layer::guards_memory();
    else |real| {
        layer::touch(buffer.addr(), bytes);
        // SAFETY: our caller's arguments.
        unsafe { real(socket, buffer, bytes, flags, to, to_bytes) }
    };
}

/// The kernel sends no more than this many messages at once (`UIO_MAXIOV`).
const MESSAGES_MAX: c_uint = 1024;

/// And no more parts of one than this (`UIO_MAXIOV`).
const PARTS_MAX: usize = 1024;

fn before_sending_all(messages: *mut mmsghdr, count: c_uint) -> Result<(), FailedCall> {
    for number in 0..count.min(MESSAGES_MAX) {
        // A message is the first part of its element.
        before_sending(messages.wrapping_add(number as usize).cast())?;
    }
    Ok(())
}

/// Touches what is in a message, and retires the files of all its absorbed descriptors. What cannot
/// be read, or makes no sense, the kernel refuses.
fn before_sending(message: *const msghdr) -> Result<(), FailedCall> {
    // SAFETY: a message that is being sent is left alone by its sender.
    let Some(message) = (unsafe { memory::read(message) }) else {
        return Ok(());
    };
    touch_parts(&message);
    let (start, end) = (message.msg_control, message.msg_controllen);
    let mut at = 0_usize;
    while let Some(data) = at
        .checked_add(size_of::<cmsghdr>())
        .filter(|data| *data <= end)
    {
        // SAFETY: as above.
        let Some(part) = (unsafe { memory::read(start.wrapping_byte_add(at).cast::<cmsghdr>()) })
        else {
            return Ok(());
        };
        let Some(part_end) = at
            .checked_add(part.cmsg_len)
            .filter(|part_end| (data..=end).contains(part_end))
        else {
            return Ok(());
        };
        if (part.cmsg_level, part.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for fd in (data..=part_end - size_of::<c_int>()).step_by(size_of::<c_int>()) {
                // SAFETY: as above.
                let fd = unsafe { memory::read(start.wrapping_byte_add(fd).cast::<c_int>()) };
                if let Some(fd) = fd.filter(|fd| client::absorbs(*fd)) {
                    retire(fd)?;
                }
            }
        }
        at = part_end.next_multiple_of(size_of::<usize>());
    }
    Ok(())
}

fn touch_parts(message: &msghdr) {
    if !layer::guards_memory() {
        return;
    }
    for number in 0..message.msg_iovlen.min(PARTS_MAX) {
        // SAFETY: as above.
        let Some(part) = (unsafe { memory::read::<iovec>(message.msg_iov.wrapping_add(number)) })
        else {
            return;
        };
        layer::touch(part.iov_base.addr(), part.iov_len);
    }
}
