//! The thread that made a call: its memory, its descriptors and directories, and its user.
//!
//! What it points to is read once, by copying; afterwards the caller asks whether the thread still
//! waits, before anything takes effect. Otherwise its id may be another thread's.
#![expect(unsafe_code, reason = "reads and writes another process's memory")]

use crate::{calls::HeldIds, listener::last_errno};
use libc::{c_int, iovec};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::{CStr, CString},
    fs,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::PathBuf,
};

/// The kernel transfers no more by one call.
pub(crate) const TRANSFER_MAX: usize = 0x7FFF_F000;
pub(crate) const PAGE_BYTES: usize = 4096;
const WORD_BYTES: usize = size_of::<u64>();
/// `UIO_MAXIOV`.
const PARTS_MAX: u64 = 1024;

/// A descriptor's state, from /proc.
pub(crate) struct DescriptorState {
    pub(crate) closes_on_exec: bool,
    /// By it, or of its file by its process.
    pub(crate) is_locked: bool,
}

/// A thread, by its id.
#[derive(Clone, Copy)]
pub(crate) struct CallerThread(pub(crate) u32);

impl CallerThread {
    /// Copies as many bytes from its memory as can be read, at most `bytes`.
    ///
    /// # Errors
    /// `EFAULT` if none can be.
    pub(crate) fn read(self, address: u64, bytes: usize, into: &mut Vec<u8>) -> Result<(), Errno> {
        into.clear();
        self.read_more(address, bytes, into).map(drop)
    }

    /// The same behind the bytes that are there already: the number of bytes read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_more(
        self,
        address: u64,
        bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<usize, Errno> {
        into.try_reserve(bytes).map_err(|_| Errno::NOMEM)?;
        let first = into.len();
        while into.len() - first < bytes {
            let begun = into.len() - first;
            let room = &mut into.spare_capacity_mut()[..bytes - begun];
            let own = iovec {
                iov_base: room.as_mut_ptr().cast(),
                iov_len: room.len(),
            };
            match self.copy(own, address.wrapping_add(begun as u64), CopyDirection::Read) {
                // SAFETY: so many bytes were written there.
                Ok(copied @ 1..) => unsafe { into.set_len(first + begun + copied) },
                Ok(0) | Err(_) if begun > 0 => break,
                Ok(_) => return Err(Errno::FAULT),
                Err(errno) => return Err(errno),
            }
        }
        Ok(into.len() - first)
    }

    /// The same of exactly so many bytes.
    ///
    /// # Errors
    /// `EFAULT`
    pub(crate) fn read_exactly(self, address: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
        let mut read = Vec::new();
        self.read(address, bytes, &mut read)?;
        if read.len() == bytes {
            Ok(read)
        } else {
            Err(Errno::FAULT)
        }
    }

    /// So many words of eight bytes.
    ///
    /// # Errors
    /// `EFAULT`
    pub(crate) fn words<const N: usize>(self, address: u64) -> Result<[u64; N], Errno> {
        let bytes = self.read_exactly(address, N * WORD_BYTES)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(WORD_BYTES)) {
            *word = word_of(bytes);
        }
        Ok(words)
    }

    /// Copies bytes to its memory: the number of bytes written.
    pub(crate) fn write(self, address: u64, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let own = iovec {
                iov_base: rest.as_ptr().cast_mut().cast(),
                iov_len: rest.len(),
            };
            match self.copy(own, address.wrapping_add(done as u64), CopyDirection::Write) {
                Ok(copied @ 1..) => done += copied,
                _ => break,
            }
        }
        done
    }

    fn copy(self, own: iovec, address: u64, direction: CopyDirection) -> Result<usize, Errno> {
        let theirs = iovec {
            iov_base: std::ptr::without_provenance_mut(address as usize),
            iov_len: own.iov_len,
        };
        let call = match direction {
            CopyDirection::Read => libc::process_vm_readv,
            CopyDirection::Write => libc::process_vm_writev,
        };
        // SAFETY: `own` is memory of this process, to be written to if this reads.
        let copied = unsafe {
            call(
                self.0 as libc::pid_t,
                &raw const own,
                1,
                &raw const theirs,
                1,
                0,
            )
        };
        usize::try_from(copied).map_err(|_| last_errno())
    }

    /// A path, as the kernel takes it.
    ///
    /// # Errors
    /// `EFAULT`, `ENAMETOOLONG`
    pub(crate) fn path(self, address: u64) -> Result<CString, Errno> {
        let mut path = Vec::new();
        let mut part = Vec::new();
        loop {
            let at = address.wrapping_add(path.len() as u64);
            let left = PAGE_BYTES - (at as usize & (PAGE_BYTES - 1));
            self.read(at, left, &mut part)?;
            match part.iter().position(|byte| *byte == 0) {
                Some(end) => path.extend_from_slice(&part[..end]),
                None => path.extend_from_slice(&part),
            }
            if path.len() >= libc::PATH_MAX as usize {
                return Err(Errno::NAMETOOLONG);
            }
            if part.contains(&0) {
                return CString::new(path).map_err(|_| Errno::INVAL);
            }
            if part.len() < left {
                return Err(Errno::FAULT);
            }
        }
    }

    /// The parts of a vector: addresses and lengths.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL`
    pub(crate) fn parts(self, address: u64, count: u64) -> Result<Vec<(u64, usize)>, Errno> {
        const PART_BYTES: usize = 2 * WORD_BYTES;
        if count > PARTS_MAX {
            return Err(Errno::INVAL);
        }
        let bytes = self.read_exactly(address, count as usize * PART_BYTES)?;
        let mut left = TRANSFER_MAX;
        bytes
            .chunks_exact(PART_BYTES)
            .map(|part| {
                let (base, length) = part.split_at(WORD_BYTES);
                let (base, length) = (word_of(base), word_of(length));
                if isize::try_from(length).is_err() {
                    return Err(Errno::INVAL);
                }
                let length = left.min(length as usize);
                left -= length;
                Ok((base, length))
            })
            .collect()
    }

    /// The directory that is open as one of its descriptors, by a descriptor that only names it; or
    /// its working directory.
    ///
    /// # Errors
    /// `EBADF`, or the kernel's.
    pub(crate) fn directory(self, fd: c_int) -> Result<OwnedFd, Errno> {
        let link = match fd {
            libc::AT_FDCWD => format!("/proc/{}/cwd", self.0),
            fd => format!("/proc/{}/fd/{fd}", self.0),
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::open(link, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => Errno::BADF,
            errno => errno,
        })
    }

    /// A path of its own as another process has it.
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub(crate) fn path_from_outside(self, dir: c_int, path: &CStr) -> Result<CString, Errno> {
        let start = match (path.to_bytes().starts_with(b"/"), dir) {
            (true, _) => format!("/proc/{}/root", self.0),
            (false, libc::AT_FDCWD) => format!("/proc/{}/cwd/", self.0),
            (false, fd) => format!("/proc/{}/fd/{fd}/", self.0),
        };
        CString::new([start.as_bytes(), path.to_bytes()].concat()).map_err(|_| Errno::INVAL)
    }

    /// The state of a number, as it has it. None if that cannot be seen.
    pub(crate) fn descriptor(self, number: c_int) -> Option<DescriptorState> {
        let said = fs::read_to_string(format!("/proc/{}/fdinfo/{number}", self.0)).ok()?;
        let flags = said.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = c_int::from_str_radix(flags.trim(), 8).ok()?;
        Some(DescriptorState {
            closes_on_exec: flags & libc::O_CLOEXEC != 0,
            is_locked: said.lines().any(|line| line.starts_with("lock:")),
        })
    }

    /// Its numbers are below this; 0 if that is not known.
    pub(crate) fn numbers_limit(self) -> u64 {
        self.limit(libc::RLIMIT_NOFILE).unwrap_or(0)
    }

    /// A limit that it has now.
    fn limit(self, resource: libc::__rlimit_resource_t) -> Option<u64> {
        let mut found = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        let thread = self.0 as libc::pid_t;
        // SAFETY: it only asks; the answer has room.
        let asked = unsafe { libc::prlimit(thread, resource, std::ptr::null(), &raw mut found) };
        (asked == 0).then_some(found.rlim_cur)
    }

    /// Its user's ids, or its group's; true if it has the right to take any (`CAP_SETUID`,
    /// `CAP_SETGID`).
    pub(crate) fn ids(self, is_group: bool) -> Option<(HeldIds, bool)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        let line = |name| status.lines().find_map(|line| line.strip_prefix(name));
        let (name, right) = if is_group { ("Gid:", 6) } else { ("Uid:", 7) };
        let ids = line(name)?.split_whitespace().map(str::parse);
        let ids: Vec<u32> = ids.collect::<Result<_, _>>().ok()?;
        let rights = u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?;
        let ids = HeldIds::new(ids.try_into().ok()?);
        Some((ids, rights & 1 << right != 0))
    }

    /// The namespace of its user's ids. None if that cannot be seen.
    fn user_space(self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/ns/user", self.0)).ok()
    }

    fn status(self) -> Option<ThreadStatus> {
        ThreadStatus::read(&format!("/proc/{}", self.0))
    }
}

/// The process that a thread is of.
pub(crate) fn process_of(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

#[derive(Clone, Copy)]
enum CopyDirection {
    Read,
    Write,
}

fn word_of(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().unwrap_or_default())
}

/// A thread's user, and the meaning of its names.
#[derive(Clone, PartialEq, Eq)]
struct ThreadStatus {
    /// Users, groups and rights, as /proc has them.
    identity: Vec<String>,
    /// Namespaces.
    spaces: Vec<PathBuf>,
    /// Device and inode of its root.
    root: (u64, u64),
    /// Its label by a security module (AppArmor, SELinux).
    label: Option<Vec<u8>>,
    umask: u32,
}

impl ThreadStatus {
    fn read(of: &str) -> Option<Self> {
        const WHO: [&str; 4] = ["Uid:", "Gid:", "Groups:", "CapEff:"];
        let status = fs::read_to_string(format!("{of}/status")).ok()?;
        let line = |name: &str| status.lines().find(|line| line.starts_with(name));
        let root = fs::metadata(format!("{of}/root")).ok()?;
        let umask = line("Umask:").and_then(|it| it.split_whitespace().nth(1));
        let space = |name| fs::read_link(format!("{of}/ns/{name}")).ok();
        Some(Self {
            identity: WHO
                .iter()
                .filter_map(|name| line(name))
                .map(str::to_owned)
                .collect(),
            spaces: ["mnt", "user"].into_iter().filter_map(space).collect(),
            root: (root.dev(), root.ino()),
            label: fs::read(format!("{of}/attr/current")).ok(),
            umask: u32::from_str_radix(umask?, 8).ok()?,
        })
    }
}

/// The agent's user and rights: it does calls only of those who have the same.
pub(crate) struct AgentStatus {
    own: ThreadStatus,
    sees_all: bool,
}

/// The reason that a thread's files stay plain.
pub(crate) type PlainReason = &'static str;

impl AgentStatus {
    /// None where there is no /proc.
    pub(crate) fn read() -> Option<Self> {
        /// `CAP_SYS_PTRACE`
        const TRACES: u32 = 19;
        let own = ThreadStatus::read("/proc/thread-self")?;
        let rights = own
            .identity
            .iter()
            .find_map(|line| line.strip_prefix("CapEff:"));
        let rights = rights.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
        Some(Self {
            sees_all: rights.is_some_and(|rights| rights & 1 << TRACES != 0),
            own,
        })
    }

    /// True if an id means the same user to a thread as to the agent.
    pub(crate) fn has_same_ids(&self, thread: CallerThread) -> bool {
        let theirs = thread.user_space();
        theirs.is_some_and(|theirs| self.own.spaces.contains(&theirs))
    }

    /// True if the agent may look at processes of other users, and at those that let nobody.
    pub(crate) fn sees_all(&self) -> bool {
        self.sees_all
    }

    /// The mask with which the thread makes files, if a call of it means the same if the agent does
    /// it.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn umask_of(&self, thread: CallerThread) -> Result<u32, PlainReason> {
        let theirs = thread.status().ok_or("it cannot be seen in /proc")?;
        if theirs.identity != self.own.identity {
            return Err(
                "it is another user, or has other rights, than forebay: become that user before (gosu USER forebay run …)",
            );
        }
        if theirs.spaces != self.own.spaces || theirs.root != self.own.root {
            return Err("it has another root directory, or other mounts, than forebay");
        }
        if theirs.label != self.own.label {
            return Err("it has another security label (AppArmor, SELinux) than forebay");
        }
        if has_size_limit(thread) {
            return Err("it has a limit on the size of files (ulimit -f)");
        }
        Ok(theirs.umask)
    }
}

/// True if the thread has a limit on the size of files, by which it would be sent a signal.
fn has_size_limit(thread: CallerThread) -> bool {
    thread.limit(libc::RLIMIT_FSIZE) != Some(libc::RLIM_INFINITY)
}
