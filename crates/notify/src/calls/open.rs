//! Opening a file to change it. A log is opened by the agent, as the caller would open it, and
//! injected; any other file the kernel opens.
#![expect(
    unsafe_code,
    reason = "opens by system calls, with arguments as the program has them"
)]

use super::{CallOutcome, GO_ON, TrappedCall, plain::opened_again};
use crate::{agent_state::WorkerPlace, listener::last_errno, numbers::owned, slots::WAS_FREE};
use forebay_files::client;
use libc::{c_int, c_long};
use rustix::{
    fs::{AtFlags, FileType},
    io::Errno,
};
use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd},
};

/// A call's open: `struct open_how`, with the directory and the path.
pub(super) struct OpenRequest {
    dir: c_int,
    path: CString,
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// `O_TMPFILE`, without the bit of `O_DIRECTORY` that it has.
const TMPFILE: c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;

impl TrappedCall<'_> {
    /// None if the kernel is to say what is wrong with it.
    fn open_request(&self) -> Option<OpenRequest> {
        let path = |at: usize| self.path(at);
        let plain = |dir, at: usize, flags: u64, mode: u64| {
            Some(OpenRequest {
                dir,
                path: path(at)?,
                flags: flags & u64::from(u32::MAX),
                mode: mode & 0o7777,
                resolve: 0,
            })
        };
        match self.seen.number {
            libc::SYS_openat => plain(self.int(0), 1, self.argument(2), self.argument(3)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => plain(libc::AT_FDCWD, 0, self.argument(1), self.argument(2)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                plain(libc::AT_FDCWD, 0, flags as u64, self.argument(1))
            }
            _ => {
                const HOW_BYTES: u64 = 24;
                if self.argument(3) < HOW_BYTES {
                    return None;
                }
                let [flags, mode, resolve] = self.thread().words(self.argument(2)).ok()?;
                Some(OpenRequest {
                    dir: self.int(0),
                    path: path(1)?,
                    flags,
                    mode,
                    resolve,
                })
            }
        }
    }

    pub(super) fn open(&self) -> CallOutcome {
        let Some(request) = self.open_request() else {
            return GO_ON;
        };
        let flags = request.flags as c_int;
        let changes = flags & (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) != 0;
        if !changes || flags & (libc::O_PATH | libc::O_DIRECTORY | TMPFILE) != 0 {
            return GO_ON;
        }
        let passed = || match flags & (libc::O_CREAT | libc::O_TRUNC) {
            0 => GO_ON,
            _ => self.go_on_changing(),
        };
        if !client::is_wanted(&request.path, flags) && !client::any_absorbed() {
            return passed();
        }
        if request.resolve != 0 {
            return self.open_past(&request, "it is opened with a restriction (openat2)");
        }
        let place = match self.place(request.dir, &request.path) {
            Ok(place) => place,
            Err(reason) => return self.open_past(&request, reason),
        };
        let Some(place) = place else { return GO_ON };
        let path = place.path(&request.path);
        if !client::may_open_log(place.dir(), &path, flags) || !is_file_or_free(&place, &path) {
            return passed();
        }
        if !self.serves() {
            return passed();
        }
        self.agent.numbers.sweep();
        if let Err(reason) = self.agent.numbers.check_room(self.seen.thread) {
            return self.open_past(&request, reason);
        }
        self.open_log(&request, (&place, &path), flags)
            .map(|()| None)
    }

    /// A file is opened as the agent cannot, or by somebody whom it cannot act for: if it is a log,
    /// it is plain before.
    fn open_past(&self, request: &OpenRequest, reason: &'static str) -> CallOutcome {
        self.agent
            .say_plain(&request.path, request.flags as c_int, reason);
        if request.resolve & libc::RESOLVE_IN_ROOT != 0 {
            self.retire_below(request)?;
            return self.go_on_changing();
        }
        self.retire_names(&[(request.dir, &request.path)])
    }

    /// The same of a path whose root is the directory that it is below.
    fn retire_below(&self, request: &OpenRequest) -> Result<(), Errno> {
        let Ok(dir) = self.thread().directory(request.dir) else {
            return Ok(());
        };
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        let how = [flags as u64, 0, libc::RESOLVE_IN_ROOT];
        match open_by(dir.as_raw_fd(), &request.path, how) {
            Ok(file) => client::opened(file.as_raw_fd()),
            Err(Errno::AGAIN) => Err(Errno::AGAIN),
            // The kernel will say the same, or make it.
            Err(_) => Ok(()),
        }
    }

    /// Opens it by the client, and injects it.
    fn open_log(
        &self,
        request: &OpenRequest,
        (place, path): (&WorkerPlace<'_>, &CStr),
        flags: c_int,
    ) -> Result<(), Errno> {
        self.pass_turn();
        let numbers = &self.agent.numbers;
        let times = *self.agent.openings.read();
        let size = || rustix::fs::statat(fd(place.dir()), path, AtFlags::empty()).ok();
        let before = size().map(|stat| stat.st_size);
        if before.is_none() {
            self.slot.set_number(WAS_FREE);
        }
        self.begin()?;
        let mut real = |flags: c_int| {
            let others = request.flags & !u64::from(u32::MAX);
            let how = [
                others | u64::from((flags | libc::O_CLOEXEC | libc::O_NOCTTY).cast_unsigned()),
                if flags & libc::O_CREAT != 0 {
                    request.mode
                } else {
                    0
                },
                0,
            ];
            let opened = open_by(place.dir(), path, how)?;
            numbers
                .duplicate(opened.as_fd(), 0, self.seen.thread)
                .map(IntoRawFd::into_raw_fd)
        };
        let number = client::open(place.dir(), path, flags, &mut real)?;
        forebay_pool::failpoint!("notify:opened");
        let was_cut_off = flags & libc::O_TRUNC != 0 && before.is_some_and(|bytes| bytes > 0);
        if before.is_none() || was_cut_off {
            client::changed_on(None);
        }
        let closes_on_exec = flags & libc::O_CLOEXEC != 0;
        let hidden = client::hidden_flags(number);
        // From here on until the process has it, none becomes invisible.
        let opening = self.agent.openings.read();
        let is_late = *opening != times && hidden & libc::O_DSYNC != 0;
        if is_late || !client::is_in_pool(number) && hidden == 0 {
            // It is plain, and any number will do.
            let opened = owned(number);
            let again = is_late.then(|| {
                client::retire(number)?;
                opened_again(opened.as_fd(), hidden)
            });
            client::closing(number);
            let opened = again.transpose()?.unwrap_or(opened);
            let listener = &self.agent.listener;
            return listener.give(self.seen.id, opened, closes_on_exec);
        }
        self.agent.slots.set_hidden(number, hidden);
        let appends = flags & libc::O_APPEND != 0;
        numbers.add(owned(number), appends, was_cut_off);
        self.inject(number, closes_on_exec)
    }
}

/// The descriptor of a place's directory.
fn fd(dir: c_int) -> BorrowedFd<'static> {
    // SAFETY: AT_FDCWD, or one that its place owns and that outlives the call that uses this.
    unsafe { BorrowedFd::borrow_raw(dir) }
}

/// True if there is nothing at a path, or a regular file: opening anything else may wait for
/// another process.
fn is_file_or_free(place: &WorkerPlace<'_>, path: &CStr) -> bool {
    match rustix::fs::statat(fd(place.dir()), path, AtFlags::empty()) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
        Err(errno) => errno == Errno::NOENT,
    }
}

fn open_by(dir: c_int, path: &CStr, how: [u64; 3]) -> Result<OwnedFd, Errno> {
    let opened = match how[2] {
        // SAFETY: a path that ends, and numbers.
        0 => unsafe {
            libc::syscall(
                libc::SYS_openat,
                c_long::from(dir),
                path.as_ptr(),
                how[0] as c_long,
                how[1] as c_long,
            )
        },
        // SAFETY: as above, and a structure of this size.
        _ => unsafe {
            libc::syscall(
                libc::SYS_openat2,
                c_long::from(dir),
                path.as_ptr(),
                how.as_ptr(),
                size_of_val(&how),
            )
        },
    };
    match c_int::try_from(opened) {
        Ok(fd @ 0..) => Ok(owned(fd)),
        _ => Err(last_errno()),
    }
}
