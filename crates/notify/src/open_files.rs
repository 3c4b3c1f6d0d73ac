//! Finds the processes that have an open file by the same number as the agent: the kernel compares
//! (`kcmp`).
#![expect(unsafe_code, reason = "asks the kernel, and takes descriptors")]

use crate::{caller::process_of, listener::last_errno};
use libc::c_int;
use rustix::io::Errno;
use std::{
    fs,
    io::ErrorKind,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// All processes but this one.
fn other_processes() -> impl Iterator<Item = u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.filter(move |id| *id != own)
}

/// A process other than this one and `but` that has the number's open file by it.
pub(crate) fn others(number: c_int, but: Option<u32>) -> Option<u32> {
    let mut holders = other_processes().filter(|id| Some(*id) != but);
    holders.find(|id| {
        // One whose first thread has ended has no files by its own number.
        let is_there = |thread: u32| {
            let link = format!("/proc/{thread}/fd/{number}");
            fs::symlink_metadata(link).is_ok() && has_same(thread, number)
        };
        is_there(*id)
            || fs::metadata(format!("/proc/{id}/fd/0")).is_err() && {
                let tasks = fs::read_dir(format!("/proc/{id}/task"))
                    .into_iter()
                    .flatten();
                let mut threads =
                    tasks.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
                threads.any(is_there)
            }
    })
}

/// True if the thread has the same open file by a number as the agent.
pub(crate) fn has_same(thread: u32, number: c_int) -> bool {
    share(thread, number, number) == Ok(true)
}

/// True if a thread's descriptor and one of this process are of the same open file.
///
/// # Errors
/// The kernel does not say, or may not.
pub(crate) fn share(thread: u32, theirs: c_int, own: c_int) -> Result<bool, Errno> {
    share_with(std::process::id(), thread, theirs, own)
}

/// The same, with the number of this process, which is asked for by a system call.
///
/// # Errors
/// As [`share`].
pub(crate) fn share_with(
    process: u32,
    thread: u32,
    theirs: c_int,
    own: c_int,
) -> Result<bool, Errno> {
    const KCMP_FILE: c_int = 0;
    // SAFETY: it compares, and changes nothing.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, thread, process, KCMP_FILE, theirs, own) };
    match order {
        -1 => Err(last_errno()),
        order => Ok(order == 0),
    }
}

/// True if the thread certainly has not the agent's open file by a number. One that cannot be seen
/// may have it as long as it is there.
pub(crate) fn lacks(thread: u32, number: c_int) -> bool {
    matches!(
        share(thread, number, number),
        Ok(false) | Err(Errno::BADF | Errno::SRCH)
    )
}

/// True if a process of the program may have anything open by a number. If the program is not below
/// this process, that is any.
pub(crate) fn may_be_open(number: c_int, is_above: bool) -> bool {
    other_processes().any(|id| {
        let may_be = match fs::symlink_metadata(format!("/proc/{id}/fd/{number}")) {
            Ok(_) => true,
            // One that cannot be seen: another user's, but for the program's own.
            Err(error) => {
                error.kind() == ErrorKind::PermissionDenied && (is_above || may_be_filtered(id))
            }
        };
        // Others have numbers of their own.
        may_be && (!is_above || is_below(id))
    })
}

/// True if a process may have the program's filter, which its children keep: it has more of them
/// than this one.
fn may_be_filtered(id: u32) -> bool {
    let filters = |of: &str| {
        let status = fs::read_to_string(format!("/proc/{of}/status")).ok()?;
        let line = |line: &str| line.strip_prefix("Seccomp_filters:")?.trim().parse().ok();
        status.lines().find_map(line)
    };
    let theirs: Option<u32> = filters(&id.to_string());
    theirs
        .zip(filters("self"))
        .is_none_or(|(theirs, own)| theirs > own)
}

/// True if /proc hides processes from some users (`hidepid`), or it cannot be told.
pub(crate) fn may_be_hidden() -> bool {
    fs::read_to_string("/proc/self/mountinfo").map_or(true, |mounts| hides_processes(&mounts))
}

/// The same, by a list of mounts. The last one at a place covers the others.
fn hides_processes(mounts: &str) -> bool {
    const PLACE: usize = 4;
    let mut of_proc = mounts
        .lines()
        .filter(|line| line.split(' ').nth(PLACE) == Some("/proc"));
    let options = of_proc.next_back().and_then(|line| line.rsplit(' ').next());
    options.is_none_or(|options| {
        let hides =
            |it: &str| it.starts_with("hidepid=") && it != "hidepid=0" && it != "hidepid=off";
        options.split(',').any(hides)
    })
}

/// True if this process is above another one: whatever loses its parent below an agent becomes the
/// agent's child.
fn is_below(process: u32) -> bool {
    /// Generations that are looked at.
    const DEPTH_MAX: usize = 1000;
    let parent = |id: &u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        rest.split(' ').nth(1)?.parse().ok()
    };
    let own = std::process::id();
    let mut line = std::iter::successors(Some(process), parent).take(DEPTH_MAX);
    line.any(|id| id == own)
}

/// The file that a thread's descriptor is of.
///
/// # Errors
/// `EBADF`, `EPERM`, or `ESRCH` if the thread is gone.
pub(crate) fn taken(thread: u32, number: c_int) -> Result<OwnedFd, Errno> {
    const PIDFD_THREAD: u32 = libc::O_EXCL.cast_unsigned();
    let opened = |id: u32, flags: u32| {
        // SAFETY: it takes numbers; what it returns is new.
        unsafe {
            match libc::syscall(libc::SYS_pidfd_open, id, flags) {
                fd @ 0.. => Ok(OwnedFd::from_raw_fd(fd as c_int)),
                _ => Err(last_errno()),
            }
        }
    };
    // Before Linux 6.9 there are descriptors of processes only, whose threads share their own.
    let process = opened(thread, PIDFD_THREAD).or_else(|_| match process_of(thread) {
        Some(process) if has_same_table(process, thread) => opened(process, 0),
        _ => Err(Errno::SRCH),
    })?;
    // SAFETY: it takes numbers; what it returns is new.
    unsafe {
        match libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) {
            fd @ 0.. => Ok(OwnedFd::from_raw_fd(fd as c_int)),
            _ => Err(last_errno()),
        }
    }
}

/// True if two threads have one table of descriptors.
fn has_same_table(one: u32, other: u32) -> bool {
    const KCMP_FILES: c_int = 2;
    one == other || is_one(one, other, KCMP_FILES)
}

/// Processes that have the same memory as a thread of another one (`vfork`).
pub(crate) fn sharing_memory(thread: u32) -> impl Iterator<Item = u32> {
    const KCMP_VM: c_int = 1;
    let own = process_of(thread);
    other_processes().filter(move |id| Some(*id) != own && is_one(*id, thread, KCMP_VM))
}

/// True if two threads have one thing of a kind.
fn is_one(one: u32, other: u32, kind: c_int) -> bool {
    // SAFETY: it compares, and changes nothing.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, kind, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_proc_that_hides_processes_is_found() {
        let root = "21 1 8:1 / / rw - ext4 /dev/sda rw\n";
        let mounted =
            |options: &str| format!("{root}22 21 0:5 / /proc rw,nosuid - proc proc {options}\n");
        for (options, hides) in [
            ("rw", false),
            ("rw,hidepid=0", false),
            ("rw,gid=3,hidepid=off", false),
            ("rw,hidepid=2", true),
            ("rw,hidepid=noaccess,gid=3", true),
        ] {
            assert_eq!(hides_processes(&mounted(options)), hides, "{options}");
        }
        assert!(hides_processes(root));
        let covered = mounted("rw,hidepid=2") + &mounted("rw");
        assert!(!hides_processes(&covered));
    }
}
