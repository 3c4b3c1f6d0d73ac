//! With whose rights a process works on what another user may have made up: those of that user,
//! never more. docs/durability.md, "Who trusts whom".
//!
//! Who can write to a pool, or to a flash cache, can have its files name any file of the machine. A
//! process that may do more than that user (root) works on these files in a thread that may not.
#![expect(
    unsafe_code,
    reason = "system calls of the calling thread alone; the system's list of users"
)]

use rustix::{fs::Stat, io::Errno};
use std::{cell::Cell, ffi::c_int, io, thread};

/// Group of a user that the system does not know.
const NO_GROUP: u32 = 65_534;
/// Permission of the group, and of all others, to write.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

thread_local! {
    /// The user whose rights this thread has taken.
    static TAKEN: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The user whose rights to files the calling thread has.
#[must_use]
pub fn user() -> u32 {
    TAKEN
        .get()
        .unwrap_or_else(|| rustix::process::geteuid().as_raw())
}

/// Whose rights some work is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// The thread's own.
    Own,
    /// Those of this user.
    Of(u32),
}

/// Why what a file says is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistrustReason {
    /// Users without its owner's rights may have written it.
    OthersWrite {
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// It is another user's, and this one cannot act as that.
    OtherUser {
        /// Its owner.
        owner: u32,
    },
}

impl Rights {
    /// Those with which `user` does what this file says.
    ///
    /// # Errors
    /// If a user without these rights could have written it, or they cannot be had.
    pub fn of(file: &Stat, user: u32) -> Result<Self, DistrustReason> {
        let (owner, mode) = (file.st_uid, file.st_mode & 0o777);
        if mode & OTHERS_WRITE != 0 || (user == 0 && mode & GROUP_WRITES != 0) {
            return Err(DistrustReason::OthersWrite { owner, mode });
        }
        Self::of_owner(owner, user)
    }

    /// The same of what `owner` has, whichever other users may write to it.
    ///
    /// # Errors
    /// If they cannot be had.
    pub fn of_owner(owner: u32, user: u32) -> Result<Self, DistrustReason> {
        match user {
            0 if owner != 0 => Ok(Self::Of(owner)),
            _ if owner == user || owner == 0 => Ok(Self::Own),
            _ => Err(DistrustReason::OtherUser { owner }),
        }
    }

    /// Does `work` with these rights.
    ///
    /// # Errors
    /// If they cannot be taken: then nothing was done.
    pub fn exercise<T: Send>(self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let Self::Of(user) = self else {
            return Ok(work());
        };
        let (group, groups) = groups_of(user).unwrap_or((NO_GROUP, Vec::new()));
        thread::scope(|scope| {
            let working = thread::Builder::new()
                .name("as-owner".into())
                .spawn_scoped(scope, || {
                    take_rights(user, group, &groups)?;
                    TAKEN.set(Some(user));
                    Ok(work())
                })?;
            match working.join() {
                Ok(done) => done.map_err(|errno: Errno| errno.into()),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// The group and the supplementary groups of a user, as at its log-in; none if the system knows no
/// such user.
fn groups_of(user: u32) -> Option<(u32, Vec<u32>)> {
    let mut buffer = vec![0; 16 << 10];
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: room for the entry, and for as many bytes of its strings as is said.
    let done = unsafe {
        libc::getpwuid_r(
            user,
            entry.as_mut_ptr(),
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        )
    };
    if done != 0 || found.is_null() {
        return None;
    }
    // SAFETY: it was found, so it is there; its name is a string in the buffer, which lives.
    let (name, group) = unsafe { ((*found).pw_name, (*found).pw_gid) };
    let mut groups = vec![0; 256];
    let mut number = groups.len() as c_int;
    // SAFETY: a string, and room for as many groups as is said.
    if unsafe { libc::getgrouplist(name, group, groups.as_mut_ptr(), &raw mut number) } < 0 {
        return Some((group, vec![group]));
    }
    groups.truncate(usize::try_from(number).unwrap_or(0));
    Some((group, groups))
}

/// From now on this thread, and no other, has the rights to files of this user with these groups,
/// and no capability. It cannot go back.
fn take_rights(user: u32, group: u32, groups: &[u32]) -> Result<(), Errno> {
    #[repr(C)]
    struct CapabilityHeader {
        version: u32,
        pid: c_int,
    }
    /// `_LINUX_CAPABILITY_VERSION_3`.
    const VERSION_3: u32 = 0x2008_0522;
    let header = CapabilityHeader {
        version: VERSION_3,
        pid: 0,
    };
    // Effective, permitted, inheritable; twice 32 of them.
    let none = [[0u32; 3]; 2];
    // SAFETY: raw system calls, which concern the calling thread alone (the C library's functions
    // would concern all); `groups` has the length that is said, `header` and `none` the layouts
    // that the kernel's version 3 has.
    unsafe {
        if libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) != 0 {
            return Err(last_errno());
        }
        // Both return what was before, whether they succeed or not: asked a second time, they say
        // what is.
        for (call, id) in [(libc::SYS_setfsgid, group), (libc::SYS_setfsuid, user)] {
            libc::syscall(call, id);
            if libc::syscall(call, u32::MAX) != i64::from(id) {
                return Err(Errno::PERM);
            }
        }
        if libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) != 0 {
            return Err(last_errno());
        }
    }
    Ok(())
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn rights(owner: u32, mode: u32, user: u32) -> Result<Rights, DistrustReason> {
        let file = tempfile::tempfile().unwrap();
        let mut stat = rustix::fs::fstat(&file).unwrap();
        (stat.st_uid, stat.st_mode) = (owner, mode);
        Rights::of(&stat, user)
    }

    /// Promise (rights): Root recovers another user's pool in a thread with that user's groups and
    /// file rights, and no capability.
    #[test]
    fn what_a_file_says_is_done_with_the_rights_of_its_owner_and_no_more() {
        assert_eq!(rights(0, 0o600, 0), Ok(Rights::Own));
        assert_eq!(rights(7, 0o600, 0), Ok(Rights::Of(7)));
        assert_eq!(rights(7, 0o600, 7), Ok(Rights::Own));
        // The administrator's device, say, with a group of its own.
        assert_eq!(rights(0, 0o660, 7), Ok(Rights::Own));
        assert_eq!(
            rights(8, 0o600, 7),
            Err(DistrustReason::OtherUser { owner: 8 })
        );
    }

    #[test]
    fn what_anybody_may_write_to_is_not_believed() {
        for user in [0, 7] {
            let mode = 0o602;
            let distrusted = Err(DistrustReason::OthersWrite { owner: 7, mode });
            assert_eq!(rights(7, mode, user), distrusted);
        }
        let mode = 0o620;
        let distrusted = Err(DistrustReason::OthersWrite { owner: 0, mode });
        assert_eq!(rights(0, mode, 0), distrusted);
    }

    #[test]
    fn a_thread_with_another_users_rights_has_no_others_and_ends_with_them() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: not root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("roots");
        fs::write(&path, "its own").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let of = Rights::Of(65_534);
        let (read, who, again) = of
            .exercise(|| {
                let roots = Rights::Of(0).exercise(|| ()).map_err(|e| e.kind());
                (fs::read(&path).map_err(|e| e.kind()), user(), roots)
            })
            .unwrap();
        let denied = io::ErrorKind::PermissionDenied;
        assert_eq!((read, who, again), (Err(denied), 65_534, Err(denied)));
        assert_eq!((fs::read(&path).unwrap(), user()), (b"its own".into(), 0));
    }
}
