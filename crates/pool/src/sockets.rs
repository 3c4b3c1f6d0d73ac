//! Sockets that a process has beside those of its program, which knows nothing of them. Its forked
//! children close their copies. What the program puts in the place of one, after it closed what it
//! did not know, is never touched. docs/flash-tier.md, "The control socket".
#![expect(
    unsafe_code,
    reason = "descriptors by their numbers; the system call for a socket's peer"
)]

use rustix::{
    fs::{FileType, fstat},
    io::Errno,
};
use std::{
    ffi::c_int,
    io,
    os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd},
    sync::atomic::{
        AtomicI32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// The most of them that a process may have at a time.
const PRIVATE_MAX: usize = 32;
/// Programs do not count on the next free number above this one.
const OWN_MIN: c_int = 400;
/// Numbers that stand for no descriptor: of a place that is free, or about to be used.
const FREE: c_int = -1;
const TAKEN: c_int = -2;

/// A socket, as a forked child finds it without a lock.
struct HeldSocket {
    number: AtomicI32,
    inode: AtomicU64,
}

static HELD: [HeldSocket; PRIVATE_MAX] = [const {
    HeldSocket {
        number: AtomicI32::new(FREE),
        inode: AtomicU64::new(0),
    }
}; PRIVATE_MAX];

impl HeldSocket {
    /// The socket, if it still has its number.
    fn own(&self) -> Result<BorrowedFd<'static>, Errno> {
        let number = self.number.load(Acquire);
        if number < 0 {
            return Err(Errno::BADF);
        }
        // SAFETY: not -1, and used for system calls only, which take any number.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let there = fstat(fd)?;
        let is_socket = FileType::from_raw_mode(there.st_mode) == FileType::Socket;
        match is_socket && there.st_ino == self.inode.load(Relaxed) {
            true => Ok(fd),
            false => Err(Errno::BADF),
        }
    }

    /// Closes it, if it still has its number. That is free for the program before the place is:
    /// a child that is forked in between finds that it is another's.
    fn close(&self) {
        if let Ok(fd) = self.own() {
            // SAFETY: it is ours, and nothing uses it after this.
            unsafe { rustix::io::close(fd.as_raw_fd()) };
        }
        self.number.store(FREE, Release);
    }
}

/// See the module's head.
pub struct PrivateSocket(&'static HeldSocket);

impl PrivateSocket {
    /// Holds a socket, by a number that is out of the program's way if its limit allows that.
    ///
    /// # Errors
    /// `EMFILE` if there are 32 of them; what the operating system says.
    pub fn hold(socket: OwnedFd) -> Result<Self, Errno> {
        let inode = fstat(&socket)?.st_ino;
        let take = |held: &HeldSocket| {
            held.number
                .compare_exchange(FREE, TAKEN, Acquire, Relaxed)
                .is_ok()
        };
        let held = HELD.iter().find(|held| take(held)).ok_or(Errno::MFILE)?;
        let socket = rustix::io::fcntl_dupfd_cloexec(&socket, OWN_MIN).unwrap_or(socket);
        held.inode.store(inode, Relaxed);
        held.number.store(socket.into_raw_fd(), Release);
        Ok(Self(held))
    }

    /// The socket, for a system call.
    ///
    /// # Errors
    /// `EBADF` if the program has closed it, or this process is a forked child.
    pub fn fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.0.own()
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// In a forked child: closes its copies, which are its parent's sockets. Takes no lock.
pub fn close_private() {
    HELD.iter().for_each(HeldSocket::close);
}

/// Process and user at the other end of a Unix socket, when it connected, or began to listen. The
/// process is 0 if it is not in our namespace.
///
/// # Errors
/// What the operating system says.
pub fn peer(socket: BorrowedFd<'_>) -> Result<(u32, u32), Errno> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: libc::gid_t::MAX,
    };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a `ucred`, for which there is room as its size says.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    if done != 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok((peer.pid.unsigned_abs(), peer.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::{io::Read, os::unix::net::UnixStream};

    fn pair() -> (OwnedFd, OwnedFd) {
        let kind = (AddressFamily::UNIX, SocketType::STREAM);
        socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap()
    }

    /// One test: the places are the process's.
    #[test]
    fn a_private_socket_is_its_process_s_alone() {
        let (near, far) = pair();
        let held = PrivateSocket::hold(near).unwrap();
        assert!(held.fd().unwrap().as_raw_fd() >= OWN_MIN);
        // SAFETY: the child only calls what it may after a fork of threads, and ends.
        match unsafe { libc::fork() } {
            0 => {
                close_private();
                let is_gone = held.fd().is_err();
                // SAFETY: as above.
                unsafe {
                    libc::usleep(if is_gone { 3_000_000 } else { 0 });
                    libc::_exit(0)
                }
            }
            child => {
                assert!(held.fd().is_ok());
                let number = held.fd().unwrap().as_raw_fd();
                drop(held);
                // The end comes while the child lives: it has no copy.
                let begun = std::time::Instant::now();
                assert_eq!(UnixStream::from(far).read(&mut [0; 1]).unwrap(), 0);
                assert!(begun.elapsed().as_secs() < 2);
                // SAFETY: it is this test's child.
                unsafe {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, std::ptr::null_mut(), 0);
                }
                programs_own_is_left(number);
            }
        }
        let all: Vec<_> = (0..PRIVATE_MAX)
            .map(|_| PrivateSocket::hold(pair().0).unwrap())
            .collect();
        assert_eq!(PrivateSocket::hold(pair().0).err(), Some(Errno::MFILE));
        drop(all);
        drop(PrivateSocket::hold(pair().0).unwrap());
    }

    /// The program closes a socket that it does not know, and gets its number for one of its own.
    fn programs_own_is_left(number: c_int) {
        let held = PrivateSocket::hold(pair().0).unwrap();
        assert_eq!(held.fd().unwrap().as_raw_fd(), number);
        let (near, far) = pair();
        // SAFETY: as the program does it.
        assert_eq!(unsafe { libc::dup3(near.as_raw_fd(), number, 0) }, number);
        assert_eq!(held.fd().err(), Some(Errno::BADF));
        drop(held);
        drop(near);
        // SAFETY: the number is the test's, and one byte is there.
        assert_eq!(unsafe { libc::write(number, b"x".as_ptr().cast(), 1) }, 1);
        assert_eq!(UnixStream::from(far).read(&mut [0; 1]).unwrap(), 1);
        // SAFETY: as above.
        unsafe { libc::close(number) };
    }
}
