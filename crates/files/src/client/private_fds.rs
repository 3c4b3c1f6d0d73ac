//! The client's own descriptors: its connection to the supervisor, and the pool's open file, which
//! holds the lane's lock.
//!
//! The program knows nothing of them. They lie where programs do not count on the next free number,
//! and if the program wants such a number nevertheless, they move. A thread that uses one holds a
//! lock ([`MOVING`]), so none is replaced in use.

use super::{call_depth::interrupted, fork_local::ForkLocal};
use crate::sys;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
};
use std::{
    ffi::c_int,
    os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd},
    sync::{
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicI32, Ordering::Relaxed},
    },
};

/// They are moved above this number if the limit of descriptors allows it.
const OWN_MIN: c_int = 400;
/// So far they move, if the limit allows it: who wants a number may want those beside it.
const AWAY: c_int = 64;
/// So long the connection stays where it is while an answer is waited for: who moves it waits, and
/// all who would use it meanwhile wait for that one.
const STAYS: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};
/// Standard input, output and error lie below.
const ANY_MIN: c_int = 3;

/// Shared by those who use the connection; alone by who moves it.
static MOVING: ForkLocal<RwLock<()>> = ForkLocal::new(RwLock::default);

/// Begins the state that each process has anew.
pub(super) fn prepare() {
    MOVING.get();
}

/// In a forked child.
pub(super) fn renew() {
    MOVING.renew();
}

/// The connection and the pool; -1 for none.
static OWN: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];

/// Their numbers in the parent of a forked child: the program puts nothing there.
static HOMES: [AtomicI32; 2] = [const { AtomicI32::new(OWN_MIN) }; 2];

/// True if `fd` is one of them, in this process. Between `vfork` and `exec` they are copies, with
/// which the child may do what it likes.
pub(super) fn is_own(fd: c_int) -> bool {
    fd >= 0 && OWN.iter().any(|own| own.load(Relaxed) == fd) && !sys::in_vforked_child()
}

/// Those from `first` to `last`, in their order. As of [`is_own`].
pub fn own_within(first: u32, last: u32) -> impl Iterator<Item = u32> {
    let mut own = OWN.each_ref().map(|own| {
        let fd = own.load(Relaxed);
        let number = u32::try_from(fd).ok()?;
        ((first..=last).contains(&number) && is_own(fd)).then_some(number)
    });
    own.sort_unstable();
    own.into_iter().flatten()
}

/// Held for as long as the connection is used.
fn used() -> RwLockReadGuard<'static, ()> {
    let moving = MOVING.get().read();
    moving.unwrap_or_else(PoisonError::into_inner)
}

/// Held while it is moved.
fn moved() -> RwLockWriteGuard<'static, ()> {
    let moving = MOVING.get().write();
    moving.unwrap_or_else(PoisonError::into_inner)
}

/// Moves the connection and the pool to where they are out of the way, and notes them. They are
/// never closed from now on, and have these numbers as long as the guard is there.
pub(super) fn adopt(
    socket: OwnedFd,
    pool: OwnedFd,
) -> ([OwnedFd; 2], RwLockWriteGuard<'static, ()>) {
    // A low limit of descriptors: then one stays where it is.
    let high = |fd: OwnedFd, home: &AtomicI32| {
        let home = home.load(Relaxed);
        rustix::io::fcntl_dupfd_cloexec(&fd, home).unwrap_or(fd)
    };
    let stays = moved();
    let adopted = [high(socket, &HOMES[0]), high(pool, &HOMES[1])];
    for (own, fd) in OWN.iter().zip(&adopted) {
        own.store(fd.as_raw_fd(), Relaxed);
    }
    (adopted, stays)
}

/// There is no session: they are closed by who has them.
pub(super) fn unset() {
    OWN.iter().for_each(|own| own.store(-1, Relaxed));
}

/// The connection, for as long as it is used.
pub(super) struct SupervisorConnection {
    _stays: RwLockReadGuard<'static, ()>,
}

/// The connection. It does not move meanwhile.
pub(super) fn connection() -> SupervisorConnection {
    SupervisorConnection { _stays: used() }
}

/// The connection, when there is an answer to be received, or the other side is gone. However long
/// that takes, it may be moved.
///
/// # Errors
/// The process is another one, or another user's, by now: it has none.
pub(super) fn answered() -> Result<SupervisorConnection, Errno> {
    loop {
        let connection = connection();
        let socket = sys::borrow(OWN[0].load(Relaxed)).ok_or(Errno::BADF)?;
        let mut wait = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        match rustix::event::poll(&mut wait, Some(&STAYS)) {
            Ok(0) | Err(Errno::INTR) => {}
            // Where a filter refuses the question, what receives waits.
            _ => return Ok(connection),
        }
    }
}

impl SupervisorConnection {
    /// The pool's number, as long as this is there.
    pub(super) fn pool(&self) -> RawFd {
        OWN[1].load(Relaxed)
    }
}

impl AsFd for SupervisorConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // Without a session there is no caller.
        sys::borrow(OWN[0].load(Relaxed)).unwrap_or(rustix::fs::CWD)
    }
}

/// In a forked child: closes its copies, which are its parent's connection and pool. Takes no lock.
pub(super) fn close_own() {
    for (own, home) in OWN.iter().zip(&HOMES) {
        let number = own.swap(-1, Relaxed);
        if let Some(fd) = sys::borrow(number) {
            home.store(number, Relaxed);
            sys::close(fd);
        }
    }
}

/// True if one of ours may be or come to be where the program puts something by this number.
#[inline]
#[must_use]
pub fn may_be_own(fd: c_int) -> bool {
    fd >= OWN_MIN || is_own(fd)
}

/// Moves our descriptor away from `fd`, then runs `put`, by which the program puts its own there.
/// Meanwhile none of ours comes there, also by a thread that joins the run just then.
///
/// # Errors
/// Those of `put`; `EMFILE` if there is no other place for ours, `EBUSY` if a signal handler wants
/// a descriptor above a call that uses or moves ours.
pub fn making_way<T>(fd: c_int, put: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    // Its descriptors are copies: none of ours is among them.
    if sys::in_vforked_child() {
        return put();
    }
    let moving = MOVING.get();
    loop {
        let stays = match interrupted() {
            true => moving.try_read().map_err(|_| Errno::BUSY)?,
            false => used(),
        };
        if !is_own(fd) {
            return put();
        }
        drop(stays);
        let _moving = match interrupted() {
            true => moving.try_write().map_err(|_| Errno::BUSY)?,
            false => moved(),
        };
        for own in OWN.iter().filter(|own| own.load(Relaxed) == fd) {
            move_away(own)?;
        }
    }
}

/// Gives one of ours another number.
fn move_away(own: &AtomicI32) -> Result<(), Errno> {
    let number = own.load(Relaxed);
    let raw = sys::borrow(number).ok_or(Errno::BADF)?;
    let moved = [number.saturating_add(AWAY), OWN_MIN, ANY_MIN]
        .into_iter()
        .find_map(|least| rustix::io::fcntl_dupfd_cloexec(raw, least).ok())
        .ok_or(Errno::MFILE)?;
    own.store(moved.into_raw_fd(), Relaxed);
    // Until now it was known for ours: no other thread has put anything there.
    sys::close(raw);
    Ok(())
}

/// Before the program asks for the lowest free descriptor from `least` on: those of ours are free
/// that come before it.
pub fn make_way_from(least: c_int) {
    // What the kernel refuses it refuses. Between `vfork` and `exec` the descriptors are the
    // child's, and the numbers of ours the parent's.
    let none = OWN.iter().all(|own| own.load(Relaxed) < 0);
    if least < 0 || none || sys::in_vforked_child() {
        return;
    }
    let moving = match interrupted() {
        true => MOVING.get().try_write().ok(),
        false => Some(moved()),
    };
    // Above a call that is using one it stays, and the program gets the next.
    if moving.is_none() {
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
        if move_away(own).is_err() {
            return;
        }
    }
}
