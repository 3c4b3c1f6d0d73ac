//! Holds up the `open` of a process outside the run until the file is absorbed no longer
//! (fanotify's permission events). docs/files-membership.md, "Processes outside".
//!
//! The kernel asks before any process gets an absorbed file open, in whatever mount namespace and
//! by whatever name, and that process sleeps until it is answered. One thread answers, and never
//! waits itself:
//! 1. The supervisor's own threads: at once, before any lock is taken. They may hold one.
//! 2. A member of the run, whose client knows what it opens: at once.
//! 3. Who opens it for reading only: at once. The event does not say how; the system call does that
//!    the opener sleeps in.
//! 4. All others: when the file has been let go of, or nothing was logged of it for two seconds
//!    ([`SupervisorState::let_go`]). Or, whatever that waits for, when the file has strayed for a
//!    silence, [`STRAYS_AFTER`] later.
//!
//! What lets go of a file opens nothing: another process may be asked about that first, which waits
//! for an opener that waits here.
//!
//! If the supervisor dies, the kernel lets all go on. If it is stopped, they wait.

use super::SupervisorState;
use crate::{absorbed::FileKey, processes, record::silence, sys};
use forebay_pool::MonotonicTime;
use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyEvent, FanotifyResponse, InitFlags, MarkFlags, MaskFlags,
    Response,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fs::CWD,
    io::Errno,
};
use std::{
    fs,
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread,
    time::Duration,
};

/// Interval of looks if the supervisor stops.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};
/// Interval of looks if a file was let go of that a process waits for.
const LOOK_WAITING: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};
/// Attempts to find the system call of a thread that does not sleep in it yet, and the time between
/// two attempts.
const ATTEMPTS: u32 = 100;
const AGAIN: Duration = Duration::from_micros(100);

/// After so long nothing more is logged of a file that cannot be let go of: longer than
/// [`SupervisorState::let_go`] takes to say so itself.
const STRAYS_AFTER: Duration = Duration::from_secs(6);
/// Longer than a call takes that found the file absorbed a moment before.
const MARGIN: Duration = Duration::from_secs(1);

/// Wait for a thread.
const THREAD_AGAIN: Duration = Duration::from_millis(100);

/// The kernel's questions.
pub(super) struct OpenGate(Fanotify);

/// If the thread that answers ends by an error of ours, so does the supervisor: every `open` would
/// wait for ever.
struct EndsTheSupervisor;

impl Drop for EndsTheSupervisor {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

/// An `open` that waits.
struct WaitingOpen {
    event: FanotifyEvent,
    key: FileKey,
    begun: MonotonicTime,
    has_strayed: bool,
    /// The file has been let go of.
    done: Arc<AtomicBool>,
}

impl WaitingOpen {
    /// False once it may go on: the file is plain, or has strayed for a silence, so that a replay
    /// sees what is changed now.
    fn waits(&mut self, shared: &SupervisorState) -> bool {
        if self.done.load(Acquire) {
            return false;
        }
        let waited = self.begun.elapsed();
        if waited >= STRAYS_AFTER && !self.has_strayed {
            self.has_strayed = true;
            shared.stray(self.key);
        }
        let limit = STRAYS_AFTER + silence(shared.pool.needs_commit()) + MARGIN;
        if waited < limit {
            return true;
        }
        sys::complain(&format!(
            "process {} opens an absorbed file for writing, which could not be made plain in {} s (its disk, or a process that is asked before files are opened, does not \
             answer): it goes on, and a recovery will see that the file was changed later",
            self.event.pid(),
            waited.as_secs()
        ));
        false
    }
}

impl OpenGate {
    /// # Errors
    /// That the kernel knows no such questions, or does not ask this user.
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = InitFlags::FAN_CLASS_CONTENT
            | InitFlags::FAN_CLOEXEC
            | InitFlags::FAN_NONBLOCK
            | InitFlags::FAN_UNLIMITED_QUEUE
            | InitFlags::FAN_UNLIMITED_MARKS
            | InitFlags::FAN_REPORT_TID;
        let events = EventFFlags::O_RDONLY | EventFFlags::O_LARGEFILE | EventFFlags::O_CLOEXEC;
        let gate = Self(Fanotify::init(flags, events).map_err(errno)?);
        // A kernel without permission events says so here.
        let probe = rustix::fs::memfd_create("forebay", rustix::fs::MemfdFlags::CLOEXEC)?;
        gate.add(probe.as_fd())?;
        gate.remove(probe.as_fd());
        Ok(gate)
    }

    pub(super) fn add(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.mark(MarkFlags::FAN_MARK_ADD, file)
    }

    pub(super) fn remove(&self, file: BorrowedFd<'_>) {
        // Of a file that is gone the mark is, too.
        let _ = self.mark(MarkFlags::FAN_MARK_REMOVE, file);
    }

    fn mark(&self, flags: MarkFlags, file: BorrowedFd<'_>) -> Result<(), Errno> {
        // By its link: it may be open by its name only.
        let link = sys::link_of(file);
        self.0
            .mark(flags, MaskFlags::FAN_OPEN_PERM, CWD, Some(link.as_str()))
            .map_err(errno)
    }

    /// Answers until the supervisor stops.
    pub(super) fn run(&self, shared: &Arc<SupervisorState>) {
        let _while_it_answers = EndsTheSupervisor;
        let mut waiting: Vec<WaitingOpen> = Vec::new();
        while !shared.stopping.load(Acquire) || !waiting.is_empty() {
            let limit = if waiting.is_empty() {
                LOOK
            } else {
                LOOK_WAITING
            };
            let mut poll = [PollFd::new(&self.0, PollFlags::IN)];
            let _ = rustix::event::poll(&mut poll, Some(&limit));
            // An error: there is none, or no descriptor for it; then the kernel has refused the
            // `open`.
            for event in self.0.read_events().unwrap_or_default() {
                match consider(shared, &event) {
                    None => self.allow(&event),
                    Some((key, path)) => {
                        tell(event.pid().unsigned_abs(), path, shared.token.to_string());
                        waiting.push(WaitingOpen {
                            done: let_go(shared, key),
                            event,
                            key,
                            begun: MonotonicTime::now(),
                            has_strayed: false,
                        });
                    }
                }
            }
            waiting.retain_mut(|open| {
                let waits = open.waits(shared);
                if !waits {
                    self.allow(&open.event);
                }
                waits
            });
        }
    }

    fn allow(&self, event: &FanotifyEvent) {
        if let Some(fd) = event.fd() {
            // Who asked may be gone.
            let _ = self
                .0
                .write_response(FanotifyResponse::new(fd, Response::FAN_ALLOW));
        }
    }
}

/// The file, if its opener has to wait.
fn consider(shared: &SupervisorState, event: &FanotifyEvent) -> Option<(FileKey, PathBuf)> {
    // 0: a process of another namespace.
    let thread = event.pid();
    let is_ours = || {
        let task = format!("/proc/self/task/{thread}");
        rustix::fs::access(task, rustix::fs::Access::EXISTS).is_ok()
    };
    if thread != 0 && is_ours() {
        return None;
    }
    let stat = rustix::fs::fstat(event.fd()?).ok()?;
    let key = (stat.st_dev, stat.st_ino);
    let path = shared.absorbed_as(key)?;
    let process = processes::of_thread(thread.unsigned_abs());
    let is_member = process.is_some_and(|process| shared.is_member(process));
    // One that was killed meanwhile opens nothing.
    let is_gone = || thread != 0 && processes::is_gone(thread.unsigned_abs());
    if is_member || only_reads(thread) || is_gone() {
        return None;
    }
    Some((key, path))
}

/// Lets go of a file, in a thread of its own: what it says when that is done.
fn let_go(shared: &Arc<SupervisorState>, key: FileKey) -> Arc<AtomicBool> {
    let done = Arc::new(AtomicBool::new(false));
    let (shared, says) = (Arc::clone(shared), Arc::clone(&done));
    let work = move || {
        shared.let_go(key);
        says.store(true, Release);
    };
    while let Err(e) = thread::Builder::new()
        .name("letting go".into())
        .spawn(work.clone())
    {
        let what = format!("a process that opens an absorbed file waits for a thread: {e}");
        sys::complain_repeated(&what, &what);
        thread::sleep(THREAD_AGAIN);
    }
    done
}

/// Says who makes a file plain, if that is no process of this run, which is known by the run's
/// `token`. While it waits, and is there to be looked at; in a thread of its own: standard error
/// may take nothing at present, and another process's environment may take for ever to be read.
fn tell(pid: u32, path: PathBuf, token: String) {
    if path.as_os_str().is_empty() {
        return;
    }
    let telling = move || {
        let name = processes::name_of_process(pid);
        let is_ours = processes::has_in_environment(pid, &token);
        // Of one that may not be looked at its parents have to do.
        if is_ours.unwrap_or_else(|| processes::is_descendant(pid)) {
            return;
        }
        let cause = format!("{} is plain from now on: {name}", path.display());
        let what = format!(
            "{} is plain from now on: process {pid} ({name}), which is not of this run, opens it for writing",
            path.display()
        );
        sys::complain_repeated(&cause, &what);
    };
    // It is said in the status, too.
    let _ = thread::Builder::new().name("telling".into()).spawn(telling);
}

/// True if the thread sleeps in a system call that opens a file for reading only. What cannot be
/// told is taken for writing.
fn only_reads(thread: i32) -> bool {
    (0..ATTEMPTS)
        .find_map(|attempt| {
            if attempt > 0 {
                thread::sleep(AGAIN);
            }
            let call = fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
            // The event comes a moment before its thread sleeps.
            (!call.starts_with("running")).then_some(call)
        })
        .is_some_and(|call| is_for_reading(&call))
}

/// True if the system call, as /proc has it, opens a file for reading. `openat2`'s flags are in the
/// caller's memory, which is not looked at: another process's memory may take for ever to be read.
fn is_for_reading(call: &str) -> bool {
    let mut words = call.split_ascii_whitespace();
    let number = words.next().and_then(|word| word.parse::<i64>().ok());
    let argument = |mut words: std::str::SplitAsciiWhitespace<'_>, at| {
        let word: &str = words.nth(at)?;
        u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
    };
    let flags = match number {
        #[cfg(target_arch = "x86_64")]
        Some(libc::SYS_open) => argument(words, 1),
        Some(libc::SYS_openat | libc::SYS_open_by_handle_at) => argument(words, 2),
        Some(libc::SYS_execve | libc::SYS_execveat) => Some(0),
        _ => None,
    };
    // Access mode 3 is neither reading nor writing: so another supervisor opens what it syncs.
    flags.is_some_and(|flags| {
        let access = flags & u64::from(libc::O_ACCMODE.unsigned_abs());
        let writes = [libc::O_WRONLY, libc::O_RDWR].map(|mode| u64::from(mode.unsigned_abs()));
        !writes.contains(&access) && flags & u64::from(libc::O_TRUNC.unsigned_abs()) == 0
    })
}

fn errno(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_read_is_taken_for_reading() {
        let openat = libc::SYS_openat;
        let call = |number: i64, flags: i32| {
            format!("{number} 0x3 0x7f00 0x{flags:x} 0x0 0x0 0x0 0x7ffc 0x7f01")
        };
        assert!(is_for_reading(&call(
            openat,
            libc::O_RDONLY | libc::O_CLOEXEC
        )));
        assert!(is_for_reading(&call(libc::SYS_execve, 0)));
        assert!(is_for_reading(&call(openat, libc::O_ACCMODE)));
        assert!(!is_for_reading(&call(openat, libc::O_WRONLY)));
        assert!(!is_for_reading(&call(
            openat,
            libc::O_RDWR | libc::O_APPEND
        )));
        assert!(!is_for_reading(&call(
            openat,
            libc::O_RDONLY | libc::O_TRUNC
        )));
        assert!(!is_for_reading(&call(libc::SYS_openat2, 0)));
        assert!(!is_for_reading(&call(libc::SYS_io_uring_enter, 0)));
        assert!(
            !is_for_reading("running")
                && !is_for_reading("-1 0x7ffc 0x7f01")
                && !is_for_reading("")
        );
    }
}
