//! The rights of another user, for one thread.
#![expect(unsafe_code, reason = "system calls of the calling thread alone")]

use super::last_errno;
use rustix::{fs::Stat, io::Errno};
use std::ffi::c_int;

/// The group and the supplementary groups of a user, as at its log-in; none if the system knows no such user.
pub(crate) fn groups_of(user: u32) -> Option<(u32, Vec<u32>)> {
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

/// From now on this thread, and no other, has the rights to files of this user with these groups, and no capability. It cannot go back.
pub(crate) fn take_rights(user: u32, group: u32, groups: &[u32]) -> Result<(), Errno> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    /// `_LINUX_CAPABILITY_VERSION_3`.
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    // Effective, permitted, inheritable; twice 32 of them.
    let none = [[0u32; 3]; 2];
    // SAFETY: raw system calls, which concern the calling thread alone (the C library's functions would concern all); `groups` has the length that
    // is said, `header` and `none` the layouts that the kernel's version 3 has.
    unsafe {
        if libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) != 0 {
            return Err(last_errno());
        }
        // Both return what was before, whether they succeed or not: asked a second time, they say what is.
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

/// True if the user may write to a file, or may be able to: a group's members, and those of an access list, are not looked up.
pub(crate) fn may_write(uid: u32, stat: &Stat) -> bool {
    const OTHERS: u32 = 0o022;
    let us = rustix::process::geteuid().as_raw();
    uid == 0 || uid == us || uid == stat.st_uid || stat.st_mode & OTHERS != 0
}
