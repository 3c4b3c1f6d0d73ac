//! Notices processes outside the run afterwards (inotify): the opener of an absorbed file is looked
//! for in /proc, and if it opened it for writing, the file is let go of. docs/files-membership.md,
//! "Processes outside".
//!
//! That is asynchronous: what such a process writes before the file is let go of is not protected
//! from older records. And it takes a supervisor that may look at the other process.

use super::SupervisorState;
use crate::{absorbed::FileKey, processes, sys};
use forebay_pool::MonotonicTime;
use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fs::inotify::{self, CreateFlags, WatchFlags},
    io::Errno,
};
use std::{
    collections::{BTreeSet, HashMap},
    ffi::c_int,
    fs,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::fs::MetadataExt,
    sync::atomic::Ordering::Acquire,
    thread,
    time::Duration,
};

/// Time between two looks at least.
const REST: Duration = Duration::from_millis(50);
/// And this many times what a look takes.
const SHARE: u32 = 20;
/// Interval of looks if the supervisor stops.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// The watched files.
pub(super) struct Inotify {
    inotify: OwnedFd,
    files: Mutex<HashMap<i32, FileKey>>,
}

impl Inotify {
    /// # Errors
    /// That the kernel gives no instance.
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            files: Mutex::default(),
        })
    }

    /// Watches an open file: gives the number by which it is forgotten.
    pub(super) fn add(&self, file: BorrowedFd<'_>, key: FileKey) -> Result<i32, Errno> {
        let mut files = self.files.lock();
        let link = sys::link_of(file);
        let watch = inotify::add_watch(&self.inotify, link, WatchFlags::OPEN)?;
        files.insert(watch, key);
        Ok(watch)
    }

    /// Watches it no longer.
    pub(super) fn remove(&self, watch: i32) {
        if self.files.lock().remove(&watch).is_some() {
            // One whose file is gone is gone as well.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }

    /// Works until the supervisor stops.
    pub(super) fn run(&self, shared: &SupervisorState) {
        while !shared.stopping.load(Acquire) {
            let keys = self.opened();
            if keys.is_empty() {
                continue;
            }
            let begun = MonotonicTime::now();
            for (key, pid) in outside_writers(shared, &keys) {
                let path = shared.absorbed_as(key);
                shared.let_go(key);
                let name = processes::name_of_process(pid);
                // One that is gone again cannot be asked whether it was of this run.
                if let Some(path) = path.filter(|_| name != "?" && !shared.is_of_run(pid)) {
                    let cause = format!("{} is plain from now on: {name}", path.display());
                    let what = format!(
                        "{} is plain from now on: process {pid} ({name}), which is not of this run, opened it for writing",
                        path.display()
                    );
                    sys::complain_repeated(&cause, &what);
                }
            }
            thread::sleep(REST.max(begun.elapsed() * SHARE));
        }
    }

    /// Files that were opened since the last call; waits for one, at most [`LOOK`].
    fn opened(&self) -> BTreeSet<FileKey> {
        let mut keys = BTreeSet::new();
        let mut poll = [PollFd::new(&self.inotify, PollFlags::IN)];
        if rustix::event::poll(&mut poll, Some(&LOOK)) != Ok(1) {
            return keys;
        }
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.inotify.as_fd(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => keys.extend(self.files.lock().get(&event.wd())),
                Err(Errno::INTR) => {}
                Err(_) => return keys,
            }
        }
    }
}

impl SupervisorState {
    /// True if the process was started with this run's environment.
    fn is_of_run(&self, pid: u32) -> bool {
        processes::has_in_environment(pid, &self.token.to_string()).unwrap_or(false)
    }
}

/// Processes that are no members and have one of the files open for writing by an open file that no
/// member has.
fn outside_writers(shared: &SupervisorState, keys: &BTreeSet<FileKey>) -> Vec<(FileKey, u32)> {
    let keys: BTreeSet<FileKey> = keys
        .iter()
        .copied()
        .filter(|key| shared.absorbed_as(*key).is_some())
        .collect();
    if keys.is_empty() {
        return Vec::new();
    }
    let members = shared.member_processes();
    let own: Vec<(u32, c_int, FileKey)> = members
        .iter()
        .flat_map(|pid| {
            let open = open_for_writing(*pid, &keys).into_iter();
            open.map(|(fd, key)| (*pid, fd, key))
        })
        .collect();
    let us = std::process::id();
    let mut found = Vec::new();
    for pid in processes::all().filter(|pid| *pid != us && !members.contains(pid)) {
        for (fd, key) in open_for_writing(pid, &keys) {
            // A child's copy: it becomes a member before it writes. Where copies cannot be told, so
            // does any process of the run.
            let inherited = own.iter().any(|(member, theirs, its)| {
                *its == key
                    && sys::share_open_file((pid, fd), (*member, *theirs))
                        .unwrap_or_else(|| shared.is_of_run(pid))
            });
            // It may have become a member since they were listed, or have ended.
            let is_outside = !inherited && !shared.is_member(pid) && !processes::is_gone(pid);
            if is_outside && !found.contains(&(key, pid)) {
                found.push((key, pid));
            }
        }
    }
    found
}

/// The process's descriptors that write to one of the files, if we may look.
fn open_for_writing(pid: u32, keys: &BTreeSet<FileKey>) -> Vec<(c_int, FileKey)> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let open = descriptors.filter_map(|entry| {
        let entry = entry.ok()?;
        let fd: c_int = entry.file_name().to_str()?.parse().ok()?;
        let meta = fs::metadata(entry.path()).ok()?;
        let key = (meta.dev(), meta.ino());
        (keys.contains(&key) && writes(pid, fd)).then_some((fd, key))
    });
    open.collect()
}

fn writes(pid: u32, fd: c_int) -> bool {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| c_int::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}
