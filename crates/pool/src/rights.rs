//! The rights for work on another user's data, which that user may have made up: a process does it
//! as that user, never with more rights. docs/durability.md, "Who trusts whom".
//!
//! Who can write to a pool, or to a flash cache, can have its files name any file of the machine.
//! Root only looks at whose these are ([`acting_user`]), and has a child process do the work, which
//! is that user ([`as_user`]): its user and groups, no capability, and no way back.
#![expect(unsafe_code, reason = "a forked child; the system's list of users")]

#[cfg(any(test, feature = "failpoints"))]
mod alone;

#[cfg(any(test, feature = "failpoints"))]
pub use alone::alone;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::Stat,
    io::Errno,
    process::{
        DumpableBehavior, Gid, Pid, Signal, Uid, WaitOptions, WaitStatus, geteuid, getpid, getppid,
        kill_process, set_dumpable_behavior, set_parent_process_death_signal, waitpid,
    },
    thread::{
        CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups,
        set_thread_res_gid, set_thread_res_uid,
    },
};
use std::{
    ffi::c_int,
    fs,
    io::{self, PipeReader, PipeWriter, Read, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};

/// Group of a user that the system does not know.
const NO_GROUP: u32 = 65_534;
/// Permission of the group, and of all others, to write.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// Interval of looks if a child is stopped, and the number of looks in which it may be.
const LOOK: Duration = Duration::from_millis(200);
const STOPPED_LOOKS: u32 = 25;

/// This process's user.
#[must_use]
pub fn user() -> u32 {
    geteuid().as_raw()
}

/// The reason that a file's contents are not believed.
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

/// The user that obeys this file when `user` reads it: its owner, for root; else `user` itself.
///
/// # Errors
/// If another user than that could have written it, or `user` may not act for its owner.
pub fn acting_user(file: &Stat, user: u32) -> Result<u32, DistrustReason> {
    let (owner, mode) = (file.st_uid, file.st_mode & 0o777);
    if mode & OTHERS_WRITE != 0 || (user == 0 && mode & GROUP_WRITES != 0) {
        return Err(DistrustReason::OthersWrite { owner, mode });
    }
    acting_user_of(owner, user)
}

/// The same of a file of `owner`, whichever other users may write to it.
///
/// # Errors
/// If `user` may not act for it.
pub fn acting_user_of(owner: u32, user: u32) -> Result<u32, DistrustReason> {
    match user {
        0 => Ok(owner),
        _ if owner == user || owner == 0 => Ok(user),
        _ => Err(DistrustReason::OtherUser { owner }),
    }
}

/// Does `work` in a child process that is `user`; gives its result. The child shares this process's
/// open files and standard streams, and ends when this process does. A [pool](crate::Pool) that is
/// open here it has to open again.
///
/// # Errors
/// If there is no such child, since this process may not make one, or has other threads: then
/// nothing was done. If the child is killed: then some of `work` may be done.
pub fn as_user(user: u32, work: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    check_single_threaded()?;
    let (group, groups) = groups_of(user)?.unwrap_or((NO_GROUP, Vec::new()));
    let (reader, writer) = io::pipe()?;
    let parent = getpid();
    // SAFETY: the process has one thread, so the child has all of it, and no lock stays locked.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(reader);
            let done = catch_unwind(AssertUnwindSafe(|| {
                let became = become_user(user, group, &groups, parent);
                became.map_err(Errno::raw_os_error).map(|()| work())
            }));
            let is_said = done.is_ok_and(|done| say(writer, &done).is_ok());
            // SAFETY: no destructor and no exit handler of the parent's is to run here.
            unsafe { libc::_exit(c_int::from(!is_said)) }
        }
        child => {
            drop(writer);
            let said = hear(reader, child);
            let ended = wait_for(child);
            match said? {
                Some((0, done)) => Ok(done),
                Some((errno, _)) => Err(not_user(user, Errno::from_raw_os_error(errno))),
                None => Err(died(user, ended)),
            }
        }
    }
}

/// Sends the child's result, by a pipe: an error's number or 0, the length, and so many bytes.
fn say(mut pipe: PipeWriter, done: &Result<Vec<u8>, i32>) -> io::Result<()> {
    let (errno, bytes) = match done {
        Ok(bytes) => (0, &bytes[..]),
        Err(errno) => (*errno, &[][..]),
    };
    pipe.write_all(&errno.to_le_bytes())?;
    pipe.write_all(&(bytes.len() as u64).to_le_bytes())?;
    pipe.write_all(bytes)
}

/// None if it is not whole. What is whole was done, whatever became of the child then.
///
/// The child is its user's, who may stop it. Root does not wait for that: a child that stays
/// stopped is killed.
fn hear(mut pipe: PipeReader, child: c_int) -> io::Result<Option<(i32, Vec<u8>)>> {
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    let mut stopped = 0;
    loop {
        if !has_come(&pipe)? {
            stopped = if is_stopped(child) { stopped + 1 } else { 0 };
            if let (STOPPED_LOOKS, Some(child)) = (stopped, Pid::from_raw(child)) {
                let _ = kill_process(child, Signal::KILL);
            }
            continue;
        }
        match pipe.read(&mut part)? {
            0 => break,
            read => said.extend_from_slice(&part[..read]),
        }
    }
    Ok(said.split_first_chunk().and_then(|(errno, rest)| {
        let (length, bytes) = rest.split_first_chunk()?;
        let is_whole = bytes.len() as u64 == u64::from_le_bytes(*length);
        is_whole.then(|| (i32::from_le_bytes(*errno), bytes.to_owned()))
    }))
}

/// Waits for bytes, or the end. False if neither comes within [`LOOK`].
fn has_come(pipe: &PipeReader) -> io::Result<bool> {
    let limit = Timespec::try_from(LOOK).unwrap_or_default();
    match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&limit)) {
        Err(Errno::INTR) => Ok(false),
        polled => Ok(polled? > 0),
    }
}

/// True if a process is stopped, as /proc says.
#[must_use]
pub fn is_stopped(process: c_int) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.is_ok_and(|status| status.lines().any(|line| line.starts_with("State:\tT")))
}

/// The end of a child; none if that is not known, since children are not heard of here.
fn wait_for(child: c_int) -> Option<WaitStatus> {
    loop {
        match waitpid(Pid::from_raw(child), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            waited => return waited.ok().flatten().map(|(_, status)| status),
        }
    }
}

fn died(user: u32, ended: Option<WaitStatus>) -> io::Error {
    let how = match ended.and_then(WaitStatus::terminating_signal) {
        Some(signal) => format!("was killed by signal {signal}"),
        None => "ended".to_owned(),
    };
    io::Error::other(format!(
        "the process that did this as user {user} {how} before it was done. Nothing is lost: repeat this"
    ))
}

fn not_user(user: u32, errno: Errno) -> io::Error {
    let why = match errno {
        Errno::INVAL => "this user namespace has no such user",
        Errno::PERM => "CAP_SETUID or CAP_SETGID is missing here",
        _ => "the system refuses it",
    };
    let kind = io::Error::from(errno).kind();
    io::Error::new(
        kind,
        format!(
            "this is done by a process that is user {user}, and there can be none: {why} ({errno}). Run it as that user, or as a root that may become it. Nothing was changed"
        ),
    )
}

/// A child of a process with several threads could wait for ever for what another one had locked.
fn check_single_threaded() -> io::Result<()> {
    // A thread that was joined is still listed for a moment.
    const ATTEMPTS: u32 = 200;
    const AGAIN: Duration = Duration::from_millis(5);
    for _ in 0..ATTEMPTS {
        if fs::read_dir("/proc/self/task")?.count() == 1 {
            return Ok(());
        }
        thread::sleep(AGAIN);
    }
    Err(io::Error::other(
        "this process has other threads, and can begin none that is another user's. Nothing was changed",
    ))
}

/// The group and the supplementary groups of a user, as at its log-in; none if the system knows no
/// such user.
///
/// # Errors
/// The system cannot say: with fewer groups its files might be taken for missing.
fn groups_of(user: u32) -> io::Result<Option<(u32, Vec<u32>)>> {
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
    if found.is_null() {
        return match done {
            // Each of these is some system's "no such user".
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => Ok(None),
            error => Err(io::Error::other(format!(
                "the groups of user {user} cannot be told: {}. Nothing was changed",
                io::Error::from_raw_os_error(error)
            ))),
        };
    }
    // SAFETY: it was found, so it is there; its name is a string in the buffer, which lives.
    let (name, group) = unsafe { ((*found).pw_name, (*found).pw_gid) };
    let mut groups = vec![0; 256];
    loop {
        let mut number = groups.len() as c_int;
        // SAFETY: a string, and room for as many groups as is said.
        let done = unsafe { libc::getgrouplist(name, group, groups.as_mut_ptr(), &raw mut number) };
        let needed = usize::try_from(number).unwrap_or(0);
        if done >= 0 || needed <= groups.len() {
            groups.truncate(needed);
            return Ok(Some((group, groups)));
        }
        groups.resize(needed, 0);
    }
}

/// This process, which has one thread, is this user from now on, with these groups and no
/// capability. It cannot go back, the user cannot look into it, and it ends with `parent`.
fn become_user(user: u32, group: u32, groups: &[u32], parent: Pid) -> Result<(), Errno> {
    let groups: Vec<Gid> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_groups(&groups)?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, none)?;
    set_no_new_privs(true)?;
    // What is open may be root's.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // After the user, whose change takes it back.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before that.
    match getppid() == Some(parent) {
        true => Ok(()),
        false => Err(Errno::SRCH),
    }
}

#[cfg(test)]
mod tests;
