//! The client's own descriptors: its connection to the supervisor, and the pool's open file, which holds the lane's lock.
//!
//! The program knows nothing of them. They lie where programs do not count on the next free number, and if the program wants such a number
//! nevertheless, they move: whoever uses one holds [`MOVING`], so none is replaced in use.

use super::interrupted;
use crate::sys;
use parking_lot::{RwLock, RwLockReadGuard};
use rustix::io::Errno;
use std::{
    ffi::c_int,
    os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd},
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

/// They are moved above this number if the limit of descriptors allows it.
const OWN_MIN: c_int = 400;
/// Standard input, output and error lie below.
const ANY_MIN: c_int = 3;

/// The connection and the pool; -1 for none.
static OWN: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];

/// Shared by those who use the connection; alone by who moves it.
static MOVING: RwLock<()> = RwLock::new(());

/// True if `fd` is one of them, in this process. Between `vfork` and `exec` they are copies, with which the child may do what it likes.
pub(super) fn is_own(fd: c_int) -> bool {
    fd >= 0 && OWN.iter().any(|own| own.load(Relaxed) == fd) && !sys::in_vforked_child()
}

/// Moves a descriptor to where it is out of the way.
pub(super) fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    // A low limit of descriptors: then it stays where it is.
    rustix::io::fcntl_dupfd_cloexec(&fd, OWN_MIN).unwrap_or(fd)
}

/// Notes the two, which are never closed from now on.
pub(super) fn set(socket: BorrowedFd<'_>, pool: BorrowedFd<'_>) {
    OWN[0].store(socket.as_raw_fd(), Relaxed);
    OWN[1].store(pool.as_raw_fd(), Relaxed);
}

/// There is no session: they are closed by who has them.
pub(super) fn unset() {
    OWN.iter().for_each(|own| own.store(-1, Relaxed));
}

/// The connection, for as long as it is used.
pub(super) struct Connection {
    _stays: RwLockReadGuard<'static, ()>,
}

/// The connection. It does not move meanwhile.
pub(super) fn connection() -> Connection {
    Connection {
        _stays: MOVING.read(),
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // Without a session there is nobody who asks.
        sys::borrow(OWN[0].load(Relaxed)).unwrap_or(rustix::fs::CWD)
    }
}

/// In a forked child: closes its copies, which would keep the parent's lane locked. Takes no lock.
pub(super) fn close_own() {
    for own in &OWN {
        if let Some(fd) = sys::borrow(own.swap(-1, Relaxed)) {
            sys::close(fd);
        }
    }
}

/// Before the program puts something in the place of `fd`, which is ours: it is a copy of ours from now on, which the program replaces.
///
/// # Errors
/// `EMFILE` if there is no other place, `EBUSY` if a signal handler wants a descriptor that the call is using which it interrupted.
pub fn make_way(fd: c_int) -> Result<(), Errno> {
    let _moving = match interrupted() {
        true => MOVING.try_write().ok_or(Errno::BUSY)?,
        false => MOVING.write(),
    };
    for own in OWN.iter().filter(|own| own.load(Relaxed) == fd) {
        move_away(own)?;
    }
    Ok(())
}

/// Gives one of ours another number; the old one is a copy of it.
fn move_away(own: &AtomicI32) -> Result<(), Errno> {
    let raw = sys::borrow(own.load(Relaxed)).ok_or(Errno::BADF)?;
    let moved = rustix::io::fcntl_dupfd_cloexec(raw, OWN_MIN)
        .or_else(|_| rustix::io::fcntl_dupfd_cloexec(raw, ANY_MIN))
        .map_err(|_| Errno::MFILE)?;
    own.store(moved.into_raw_fd(), Relaxed);
    Ok(())
}

/// Before the program asks for the lowest free descriptor from `least` on: those of ours are free that come before it.
pub fn make_way_from(least: c_int) {
    let moving = match interrupted() {
        true => MOVING.try_write(),
        false => Some(MOVING.write()),
    };
    // Above a call that is using one it stays, and the program gets the next. What the kernel refuses it refuses.
    if moving.is_none() || least < 0 {
        return;
    }
    for _ in &OWN {
        let socket = sys::borrow(OWN[0].load(Relaxed));
        let Some(Ok(free)) = socket.map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, least)) else {
            return;
        };
        let before = least..free.as_raw_fd();
        drop(free);
        let Some(own) = OWN.iter().find(|own| before.contains(&own.load(Relaxed))) else {
            return;
        };
        let number = own.load(Relaxed);
        if move_away(own).is_ok()
            && let Some(copy) = sys::borrow(number)
        {
            sys::close(copy);
        }
    }
}
