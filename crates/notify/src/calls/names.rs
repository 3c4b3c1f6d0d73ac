//! Calls on names. As long as the run absorbs nothing the kernel does them. From then on the agent
//! renames, links, unlinks, truncates and touches, so that what becomes of a log is logged.
#![expect(
    unsafe_code,
    reason = "system calls with arguments as the program has them"
)]

use super::{CallOutcome, GO_ON, TrappedCall, done};
use crate::{
    agent_state::WorkerPlace,
    listener::last_errno,
    slots::inode_mark,
    unanswered::{link_source, links_of},
};
use forebay_files::client;
use libc::{c_int, c_long, timespec};
use rustix::io::Errno;
use std::{ffi::CString, os::fd::AsRawFd, sync::atomic::Ordering};

/// A name that a call has: below what, and the address of its path.
type NameArguments = (c_int, usize);

/// A path, below a directory of the agent's.
type PlacedPath<'a> = (c_int, &'a std::ffi::CStr);

/// A call's work with names.
enum NameChange {
    Rename(NameArguments, NameArguments, u32),
    Link(NameArguments, NameArguments, c_int),
    Unlink(NameArguments),
}

impl TrappedCall<'_> {
    fn name_change(&self) -> Option<NameChange> {
        let at = |dir: usize| (self.int(dir), dir + 1);
        Some(match self.seen.number {
            libc::SYS_renameat2 => NameChange::Rename(at(0), at(2), self.argument(4) as u32),
            libc::SYS_renameat => NameChange::Rename(at(0), at(2), 0),
            libc::SYS_linkat => NameChange::Link(at(0), at(2), self.int(4)),
            // A directory is no log.
            libc::SYS_unlinkat if self.int(2) != 0 => return None,
            libc::SYS_unlinkat => NameChange::Unlink(at(0)),
            _ => return self.old_name_change(),
        })
    }

    #[cfg(target_arch = "x86_64")]
    fn old_name_change(&self) -> Option<NameChange> {
        let here = |path: usize| (libc::AT_FDCWD, path);
        match self.seen.number {
            libc::SYS_rename => Some(NameChange::Rename(here(0), here(1), 0)),
            libc::SYS_link => Some(NameChange::Link(here(0), here(1), 0)),
            _ => Some(NameChange::Unlink(here(0))),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn old_name_change(&self) -> Option<NameChange> {
        None
    }

    pub(super) fn name(&self) -> CallOutcome {
        if !client::any_absorbed() && !self.may_replace() {
            return self.go_on_changing();
        }
        let Some(change) = self.name_change() else {
            return self.go_on_changing();
        };
        self.change_name(&change)
    }

    /// True for a rename: what takes a file's place is written before, also before the first log.
    fn may_replace(&self) -> bool {
        match self.seen.number {
            libc::SYS_renameat | libc::SYS_renameat2 => true,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => true,
            _ => false,
        }
    }

    fn change_name(&self, change: &NameChange) -> CallOutcome {
        match *change {
            NameChange::Unlink(name) => self.with_name(name, |(dir, path)| {
                client::unlink(dir, path, || {
                    // SAFETY: a path that ends.
                    checked(unsafe { libc::unlinkat(dir, path.as_ptr(), 0) })
                })
            }),
            NameChange::Rename(from, to, flags) => self.with_names((from, to), |from, to| {
                let real = || {
                    // SAFETY: paths that end.
                    checked(unsafe {
                        libc::syscall(
                            libc::SYS_renameat2,
                            c_long::from(from.0),
                            from.1.as_ptr(),
                            c_long::from(to.0),
                            to.1.as_ptr(),
                            c_long::from(flags),
                        )
                    } as c_int)
                };
                match flags & libc::RENAME_EXCHANGE {
                    0 => client::rename(from, to, real),
                    _ => {
                        self.note_inode(from);
                        client::exchange(from, to, real)
                    }
                }
            }),
            NameChange::Link(from, to, flags) => self.with_names((from, to), |from, to| {
                self.note_links((from, to), flags);
                client::link(from, to, flags, || {
                    // SAFETY: paths that end.
                    checked(unsafe {
                        libc::linkat(from.0, from.1.as_ptr(), to.0, to.1.as_ptr(), flags)
                    })
                })
            }),
        }
    }

    /// Notes which file has a name before it is exchanged, by which it can be told whether it was.
    fn note_inode(&self, (dir, path): (c_int, &std::ffi::CStr)) {
        // SAFETY: the place's own, which outlives this.
        let dir = unsafe { std::os::fd::BorrowedFd::borrow_raw(dir) };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        if let Ok(stat) = rustix::fs::statat(dir, path, flags) {
            self.slot.begin_at(inode_mark(stat.st_ino));
        }
    }

    /// Notes how many names a file has before it gets one that is free, by which it can be told
    /// whether it got that.
    fn note_links(&self, (from, to): (PlacedPath<'_>, PlacedPath<'_>), flags: c_int) {
        let stat = |(dir, path): PlacedPath<'_>, flags| {
            // SAFETY: the place's own, which outlives this.
            let dir = unsafe { std::os::fd::BorrowedFd::borrow_raw(dir) };
            rustix::fs::statat(dir, path, flags)
        };
        let found = stat(to, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        let is_free = found.is_err_and(|errno| errno == Errno::NOENT);
        if is_free && let Ok(stat) = stat(from, link_source(flags)) {
            self.slot.begin_at(links_of(&stat));
        }
    }

    /// Does a change of one name in the caller's place.
    fn with_name(
        &self,
        (dir, at): NameArguments,
        change: impl FnOnce((c_int, &std::ffi::CStr)) -> Result<(), Errno>,
    ) -> CallOutcome {
        let Some(path) = self.path(at) else {
            return GO_ON;
        };
        let place = match self.place(dir, &path) {
            Ok(Some(place)) => place,
            Ok(None) => return GO_ON,
            Err(_) => return self.retire_names(&[(dir, &path)]),
        };
        let path = place.path(&path);
        self.begin()?;
        let result = change((place.dir(), &path));
        client::changed_on(None);
        done(result.map(|()| 0))
    }

    /// The same of two.
    fn with_names(
        &self,
        (from, to): (NameArguments, NameArguments),
        change: impl FnOnce((c_int, &std::ffi::CStr), (c_int, &std::ffi::CStr)) -> Result<(), Errno>,
    ) -> CallOutcome {
        let (Some(from_path), Some(to_path)) = (self.path(from.1), self.path(to.1)) else {
            return GO_ON;
        };
        // Both places have the same working directory.
        let places = self.place(from.0, &from_path).map(|first| {
            let second = self.directory_for(to.0, &to_path);
            first.zip(second)
        });
        let (place, second) = match places {
            Ok(Some(places)) => places,
            Ok(None) => return GO_ON,
            Err(_) => return self.retire_names(&[(from.0, &from_path), (to.0, &to_path)]),
        };
        let second_dir = second.as_ref().map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
        let (from_path, to_path) = (place.path(&from_path), place.path(&to_path));
        self.begin()?;
        let result = change((place.dir(), &from_path), (second_dir, &to_path));
        client::changed_on(None);
        done(result.map(|()| 0))
    }

    /// The kernel does it, for somebody whom the agent cannot act for: logs of these names are
    /// plain before.
    pub(super) fn retire_names(&self, names: &[(c_int, &CString)]) -> CallOutcome {
        for (dir, path) in names {
            let path = self.thread().path_from_outside(*dir, path)?;
            client::retire_path(libc::AT_FDCWD, &path)?;
        }
        self.go_on_changing()
    }

    pub(super) fn truncate_path(&self) -> CallOutcome {
        let length = self.argument(1).cast_signed();
        let Ok(bytes) = u64::try_from(length) else {
            return GO_ON;
        };
        if !client::any_absorbed() {
            return self.go_on_changing();
        }
        self.with_name((libc::AT_FDCWD, 0), |(_, path)| {
            client::truncate_path(path, bytes, || {
                // SAFETY: a path that ends. The worker is in the caller's working directory.
                checked(unsafe { libc::truncate(path.as_ptr(), length) })
            })
        })
    }

    /// `utimensat`, and `futimens`, which has no path.
    pub(super) fn touch(&self) -> CallOutcome {
        if !client::any_absorbed() {
            return self.go_on_changing();
        }
        let Ok(times) = self.times() else {
            return GO_ON;
        };
        self.touch_what(((self.int(0), 1), self.int(3)), times)
    }

    /// Sets the times of the file with a name, or of the open one with the number if there is no
    /// path.
    pub(super) fn touch_what(
        &self,
        ((dir, at), flags): (NameArguments, c_int),
        times: Option<[timespec; 2]>,
    ) -> CallOutcome {
        if !client::any_absorbed() {
            return self.go_on_changing();
        }
        let pointer = times
            .as_ref()
            .map_or(std::ptr::null(), |times| times.as_ptr());
        if dir == libc::AT_FDCWD || self.argument(at) != 0 {
            return self.with_name((dir, at), |(dir, path)| {
                client::touching_path(dir, path, flags, || {
                    // SAFETY: a path that ends; two times, or none.
                    checked(unsafe { libc::utimensat(dir, path.as_ptr(), pointer, flags) })
                })
            });
        }
        let Some(open) = self.used(dir)? else {
            return self.go_on_changing();
        };
        let number = open.number();
        let result = self.begin().and_then(|()| {
            client::touching(number, || {
                // SAFETY: two times, or none.
                checked(unsafe { libc::futimens(number, pointer) })
            })
        });
        client::changed_on(None);
        done(result.map(|()| 0))
    }

    fn times(&self) -> Result<Option<[timespec; 2]>, Errno> {
        if self.argument(2) == 0 {
            return Ok(None);
        }
        let words = self.thread().words::<4>(self.argument(2))?;
        let time = |at: usize| timespec {
            tv_sec: words[at].cast_signed(),
            tv_nsec: words[at + 1].cast_signed(),
        };
        Ok(Some([time(0), time(2)]))
    }

    /// The agent's thread in the caller's place; none if the kernel is to name the error.
    ///
    /// # Errors
    /// Why the agent cannot act for the caller.
    pub(super) fn place(
        &self,
        dir: c_int,
        path: &CString,
    ) -> Result<Option<WorkerPlace<'_>>, &'static str> {
        if self.agent.restricted.load(Ordering::SeqCst) {
            return Err("a process of the program has restricted itself (Landlock)");
        }
        let umask = self.agent.status.umask_of(self.thread())?;
        let Some(directory) = self.directory_for(dir, path) else {
            return Ok(None);
        };
        let Ok(cwd) = self.thread().directory(libc::AT_FDCWD) else {
            return Ok(None);
        };
        Ok(WorkerPlace::enter(
            self.agent,
            self.seen.thread,
            (cwd, directory),
            umask,
        ))
    }

    /// The directory that a path begins in, if that is not the working directory. None if there is
    /// none.
    fn directory_for(&self, dir: c_int, path: &CString) -> Option<Option<std::os::fd::OwnedFd>> {
        match path.to_bytes().starts_with(b"/") || dir == libc::AT_FDCWD {
            true => Some(None),
            false => self.thread().directory(dir).ok().map(Some),
        }
    }
}

fn checked(done: c_int) -> Result<(), Errno> {
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}
