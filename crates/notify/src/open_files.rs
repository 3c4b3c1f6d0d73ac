//! Finds the processes that have an open file by the same number as the agent: the kernel compares
//! (`kcmp`).
#![expect(unsafe_code, reason = "asks the kernel")]

use crate::listener::last_errno;
use libc::c_int;
use rustix::io::Errno;
use std::fs;

/// A process other than this one and `but` that has the number's open file by it.
pub(crate) fn others(number: c_int, but: Option<u32>) -> Option<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").ok()?;
    let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut holders = processes.filter(|id: &u32| *id != own && Some(*id) != but);
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

/// Whether a thread's descriptor and one of this process are of the same open file.
///
/// # Errors
/// The kernel does not say, or may not.
pub(crate) fn share(thread: u32, theirs: c_int, own: c_int) -> Result<bool, Errno> {
    const KCMP_FILE: c_int = 0;
    // SAFETY: it compares, and changes nothing.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            thread,
            std::process::id(),
            KCMP_FILE,
            theirs,
            own,
        )
    };
    match order {
        -1 => Err(last_errno()),
        order => Ok(order == 0),
    }
}
