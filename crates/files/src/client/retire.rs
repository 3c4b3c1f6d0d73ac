//! Ways in which a file or a process ceases to be absorbed. docs/files-membership.md, "Retiring a
//! file", "When a process dies".

use super::{
    bypass::{claim_inherited, opened},
    call_depth::interrupted,
    config::CONFIG,
    fd_table, in_signal_handler,
    lookup::{NamedFile, named},
    membership, private_fds, private_memory,
    process::{forget_all, generation, make_plain, mark_range_unknown, numbers, process, renew},
    session::{self, MemberSession},
};
use crate::{sys, wire::ClientRequest};
use rustix::io::Errno;
use std::{
    ffi::{CStr, c_int},
    os::fd::{AsRawFd, BorrowedFd},
};

/// Before an absorbed `fd`'s file is changed in a way that is not logged: drains everything in the
/// pool, and makes the file plain. Such are a shared writable mapping, `copy_file_range`,
/// `sendfile` or `splice` into it, `fallocate` that changes data, stdio, and asynchronous I/O.
///
/// # Errors
/// If it cannot be drained: then the change must not be made.
pub fn retire(fd: c_int) -> Result<(), Errno> {
    let Some(entry) = fd_table::entry(fd) else {
        return Ok(());
    };
    if entry.is_inherited() {
        claim_inherited(fd, entry)?;
        return retire(fd);
    }
    let Some(number) = entry.file() else {
        return Ok(());
    };
    if interrupted() {
        if let Some(raw) = sys::borrow(fd) {
            in_signal_handler::leave(raw);
        }
        return Ok(());
    }
    match session::current() {
        Some(session) => retire_file(session, number, generation(number)),
        None => sys::borrow(fd).map_or(Ok(()), |raw| leave(raw, number)),
    }
}

/// As [`retire`], of the file at a path, if it is absorbed: before stdio opens it for writing.
///
/// # Errors
/// As [`retire`].
pub fn retire_path(dir: c_int, path: &CStr) -> Result<(), Errno> {
    if interrupted() {
        in_signal_handler::leave_path((dir, path));
        return Ok(());
    }
    match (
        named(dir, path, rustix::fs::AtFlags::empty()),
        session::current(),
    ) {
        (Some(NamedFile::Ours((number, generation))), Some(session)) => {
            retire_file(session, number, generation)
        }
        (Some(NamedFile::Foreign(key)), _) => {
            CONFIG.get().map_or(Ok(()), |config| config.claim(key))
        }
        _ => Ok(()),
    }
}

/// Has a file made plain for all processes.
pub(super) fn retire_file(
    session: &MemberSession,
    number: usize,
    wanted: u32,
) -> Result<(), Errno> {
    let done = match session.is_orphan() {
        true => session.settle(number),
        false => session.retire(number, wanted),
    };
    if done.is_ok() || session.is_orphan() {
        make_plain(number, wanted);
    }
    done
}

/// In a forked child, before `fork` returns there: it has its parent's files, and becomes a member
/// of its own when it uses one first. The locks are as the parent's threads left them, so none is
/// taken, and nothing is allocated.
///
/// If a signal handler forked above another call of its thread, that call goes on in the child,
/// too, with a session and locks that are its parent's. Whatever it does there is not the run's,
/// and what it writes is not logged: so the file is to be plain ([`forking_above`]), which the
/// child sees to before it writes or syncs again.
pub fn forked() {
    sys::note_process();
    membership::note_forked();
    if interrupted() {
        fd_table::disown();
        forget_all();
    }
    renew();
    private_fds::close_own();
    private_memory::forked(interrupted());
}

/// A signal handler jumped out of a call of this thread, or a child of `vfork` died in one: that
/// call's locks, and its reservations in the lane, stay as they are. A process of one thread leaves
/// all of it to the supervisor, which treats who closes its connection as dead, and becomes a new
/// member. True if that was done.
#[cold]
pub(super) fn jumped() -> bool {
    // Other threads are in the middle of calls of this member.
    if sys::in_vforked_child() || !sys::is_single_threaded() {
        return false;
    }
    membership::note_forked();
    renew();
    private_fds::close_own();
    private_memory::give_back();
    true
}

/// Before a signal handler forks above another call of its thread ([`forked`]): nothing is logged
/// any more of the files that it may be about.
pub fn forking_above() {
    numbers().for_each(mark_range_unknown);
}

/// This process cannot be a member: `fd`, inherited, is about to be written to, and is made plain
/// for all.
///
/// # Errors
/// `EIO` if the supervisor cannot be told: the file must not be written to.
pub(super) fn leave(fd: BorrowedFd<'_>, number: usize) -> Result<(), Errno> {
    if interrupted() {
        in_signal_handler::leave_inherited(fd, number);
        return Ok(());
    }
    opened(fd.as_raw_fd())?;
    make_plain(number, generation(number));
    Ok(())
}

/// Before the process becomes another user, who may not write to the pool: its files are made
/// plain, and the pool is closed and unmapped. From then on this process absorbs nothing.
///
/// # Errors
/// If a file cannot be drained: then the process must stay who it is.
pub fn changing_identity() -> Result<(), Errno> {
    membership::leave_soon();
    membership::stays_plain_for("the process became another user");
    let Some(session) = session::there() else {
        return Ok(());
    };
    let _registry = process().registry.lock();
    for number in numbers() {
        retire_file(session, number, generation(number))?;
    }
    // From here on no call of the client touches the session: no file is absorbed.
    membership::leave();
    renew();
    session.unmap()?;
    private_fds::close_own();
    Ok(())
}

/// Has its files made plain and absorbs none from now on: the database does something that cannot
/// be followed (`io_uring`).
pub fn give_up(reason: &'static str) {
    let is_new = membership::give_up();
    for (fd, entry) in fd_table::inherited() {
        // If it fails, the next call by the client tries again.
        let _ = claim_inherited(fd, entry);
    }
    if !is_new {
        return;
    }
    if interrupted() {
        numbers().for_each(mark_range_unknown);
        return;
    }
    membership::stays_plain_for(reason);
    if let Some(session) = session::current() {
        sys::complain(&format!("files are plain from now on: {reason}"));
        for number in numbers() {
            tell_plain(session, number, reason);
            if retire_file(session, number, generation(number)).is_err() {
                // Its next write or sync tries again.
                mark_range_unknown(number);
            }
        }
    }
}

/// Has the status say why a file that was absorbed is plain.
fn tell_plain(session: &MemberSession, number: usize, reason: &str) {
    let Some(config) = CONFIG.get() else { return };
    session.tell(&ClientRequest::Plain {
        token: config.address.token,
        path: session.page.files[number].names.path(),
        reason: reason.to_owned(),
    });
}

/// Before the process exits in the normal way.
pub fn exiting() {
    if let Some(session) = session::there() {
        session.end();
    }
}
