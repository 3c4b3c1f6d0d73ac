//! Answers to calls while nobody follows the caller's logs: a call goes on. But a write to a log
//! that was opened to be synced with each write is done here, with that flag, which the kernel does
//! not know. docs/notify.md, "When the agent dies".

use crate::{
    caller::{CallerThread, TRANSFER_MAX},
    listener::CallAnswer,
    open_files::taken,
    slots::{CallSlots, SeenCall},
};
use forebay_files::AGENT_QUESTION;
use libc::c_int;
use rustix::{
    fs::{FileType, OFlags},
    io::{Errno, ReadWriteFlags},
};
use std::{io::IoSlice, os::fd::OwnedFd};

/// The answer to a call without an agent.
pub(crate) fn plainly(call: SeenCall, slots: &CallSlots) -> CallAnswer {
    let has_served = slots.has_served();
    match call.number {
        // Writes by a ring to a log with `O_DSYNC` would be synced by nobody. Who opened no log has
        // none.
        libc::SYS_io_uring_setup | libc::SYS_io_setup if has_served => {
            return CallAnswer::Failed(Errno::NOSYS);
        }
        // A library that begins behind an agent that served does nothing, as while that lived.
        libc::SYS_prctl if call.arguments[0] as c_int == AGENT_QUESTION => {
            return CallAnswer::Done(has_served.into());
        }
        _ => {}
    }
    match writes_unsynced(call, slots) {
        Ok(None) => CallAnswer::GoOn,
        Ok(Some(fd)) => write_synced(&fd, call, slots),
        Err(errno) => CallAnswer::Failed(errno),
    }
}

/// The file that a call writes to, if that is [`unsynced`].
///
/// # Errors
/// As there.
pub(crate) fn writes_unsynced(call: SeenCall, slots: &CallSlots) -> Result<Option<OwnedFd>, Errno> {
    let writes = [
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_pwrite64,
        libc::SYS_pwritev,
        libc::SYS_pwritev2,
    ];
    match writes.contains(&call.number) {
        true => unsynced(call.thread, call.arguments[0] as c_int, slots),
        false => Ok(None),
    }
}

/// The file that a thread has by a number of a former `O_DSYNC` log: the kernel does not know the
/// flag. None if it cannot be that log: a pipe or a socket may have the number by now, or a file
/// that is read only.
///
/// # Errors
/// `EIO`: what has the number cannot be seen.
pub(crate) fn unsynced(
    thread: u32,
    number: c_int,
    slots: &CallSlots,
) -> Result<Option<OwnedFd>, Errno> {
    if slots.hidden(number) & libc::O_DSYNC == 0 {
        return Ok(None);
    }
    let fd = match taken(thread, number) {
        Ok(fd) => fd,
        // The kernel says the same.
        Err(Errno::BADF) => return Ok(None),
        Err(_) => return Err(Errno::IO),
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    let writes = flags.intersection(OFlags::RWMODE) != OFlags::RDONLY;
    let is_it = kind == FileType::RegularFile && writes && !syncs_writes(flags);
    Ok(is_it.then_some(fd))
}

/// True if the kernel syncs each write to a file with these flags. `OFlags::DSYNC` is `O_SYNC`, and
/// is not asked for: it has a bit that `O_DSYNC` lacks.
pub(crate) fn syncs_writes(flags: OFlags) -> bool {
    flags.bits() & libc::O_DSYNC.cast_unsigned() != 0
}

/// Does a write to the file that [`writes_unsynced`] found, and syncs it.
pub(crate) fn write_synced(fd: &OwnedFd, call: SeenCall, slots: &CallSlots) -> CallAnswer {
    let hidden = slots.hidden(call.arguments[0] as c_int);
    let has_offset = matches!(call.number, libc::SYS_pwrite64 | libc::SYS_pwritev);
    if has_offset && call.arguments[3].cast_signed() < 0 {
        return CallAnswer::Failed(Errno::INVAL);
    }
    let offset = match call.number {
        libc::SYS_write | libc::SYS_writev => u64::MAX,
        // -1 is the file position.
        _ => call.arguments[3],
    };
    let kind = match hidden & libc::O_SYNC == libc::O_SYNC {
        true => ReadWriteFlags::SYNC,
        false => ReadWriteFlags::DSYNC,
    };
    let asked = match call.number {
        libc::SYS_pwritev2 => call.arguments[5] as u32,
        _ => 0,
    };
    let kind = kind | ReadWriteFlags::from_bits_retain(asked);
    let bytes = match bytes_of(call) {
        // Its memory cannot be seen any more.
        Err(Errno::PERM | Errno::SRCH) => Err(Errno::IO),
        bytes => bytes,
    };
    let written =
        bytes.and_then(|bytes| rustix::io::pwritev2(fd, &[IoSlice::new(&bytes)], offset, kind));
    written.map(|bytes| bytes as i64).into()
}

/// The bytes that a write is to write, as far as they can be read.
pub(crate) fn bytes_of(call: SeenCall) -> Result<Vec<u8>, Errno> {
    let thread = CallerThread(call.thread);
    let parts = match call.number {
        libc::SYS_write | libc::SYS_pwrite64 => {
            vec![(
                call.arguments[1],
                TRANSFER_MAX.min(call.arguments[2] as usize),
            )]
        }
        _ => thread.parts(call.arguments[1], call.arguments[2])?,
    };
    let mut bytes = Vec::new();
    for (address, length) in parts.into_iter().filter(|(_, length)| *length > 0) {
        let mut part = Vec::new();
        thread.read(address, length, &mut part)?;
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number_window::NumberWindow;

    #[test]
    fn only_who_served_leaves_no_rings_and_no_library_behind() {
        let window = NumberWindow {
            first: 512,
            end: 1536,
        };
        let slots = CallSlots::new(window).unwrap();
        let answer = |number: i64, first: u64| {
            let call = SeenCall {
                id: 1,
                thread: std::process::id(),
                number,
                arguments: [first, 0, 0, 0, 0, 0],
            };
            plainly(call, &slots)
        };
        let question = u64::from(AGENT_QUESTION.cast_unsigned());
        let ring = libc::SYS_io_uring_setup;
        assert_eq!(answer(ring, 8), CallAnswer::GoOn);
        assert_eq!(answer(libc::SYS_prctl, question), CallAnswer::Done(0));
        slots.note_serving();
        assert_eq!(answer(ring, 8), CallAnswer::Failed(Errno::NOSYS));
        assert_eq!(answer(libc::SYS_prctl, question), CallAnswer::Done(1));
        assert_eq!(answer(libc::SYS_prctl, 4), CallAnswer::GoOn);
    }
}
