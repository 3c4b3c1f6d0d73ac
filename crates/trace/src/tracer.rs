//! The loop over the stops of a program's tasks.
//!
//! A task stops when it enters a call that the filter names, and, once it goes on from there, when
//! that call is done: the time between is the call's. Without a filter (a process that runs
//! already) it stops at each call. Stops by signals are passed on, and so is a stop of the whole
//! process (SIGSTOP), in which it stays.

use crate::{
    ProgramEnd, Trace, TraceError,
    calls::TracedCall,
    files::{CallTimes, FileTable, TracedFile, TracedName, WrittenRange},
    launch::{NotExecuted, StartedProgram},
    ptrace::{self, CallStop, TaskChange},
};
use libc::{c_int, pid_t};
use nix::{
    errno::Errno,
    sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask},
};
use std::{
    collections::{HashMap, HashSet},
    fs::{self, Metadata},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::PathBuf,
    time::{Duration, Instant},
};

/// Signals that the tracer waits for: a change of a task, and those that end it or are passed on.
const SIGNALS: [Signal; 5] = [
    Signal::SIGCHLD,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
];

/// Blocks what [`Tracer::follow`] waits for. The signals that were blocked before.
pub(crate) fn block_signals() -> SigSet {
    let mut before = SigSet::empty();
    let signals: SigSet = SIGNALS.into_iter().collect();
    // It fails for a wrong first argument alone.
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before));
    before
}

/// Undoes [`block_signals`].
pub(crate) fn restore_signals(before: &SigSet) {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(before), None);
}

/// The reason that the program is looked at.
enum Origin {
    /// It is a child.
    Launched(NotExecuted),
    /// It ran before, and is looked at until then.
    Attached(Option<Instant>),
}

/// A call that a task is in.
struct EnteredCall {
    call: TracedCall,
    /// The size of the file that it writes to, before it.
    size: u64,
    at: Instant,
}

/// A program that is looked at.
pub(crate) struct Tracer {
    main: pid_t,
    origin: Origin,
    /// The request by which a task goes on: to its next call, or to the next one that is filtered.
    go_on: libc::c_uint,
    tasks: HashMap<pid_t, Option<EnteredCall>>,
    begun: Instant,
    files: FileTable,
    whole_syncs: CallTimes,
    mapped_syncs: CallTimes,
    rings: u64,
    unseen_tasks: u64,
    end: ProgramEnd,
}

impl Tracer {
    /// A tracer of a child that was seized.
    pub(crate) fn of_child(child: StartedProgram) -> Self {
        let go_on = match child.is_filtered {
            true => libc::PTRACE_CONT,
            false => libc::PTRACE_SYSCALL,
        };
        Self::new(
            child.pid,
            Origin::Launched(child.failure),
            go_on,
            [child.pid],
        )
    }

    fn new(
        main: pid_t,
        origin: Origin,
        go_on: libc::c_uint,
        tasks: impl IntoIterator<Item = pid_t>,
    ) -> Self {
        Self {
            main,
            origin,
            go_on,
            tasks: tasks.into_iter().map(|task| (task, None)).collect(),
            begun: Instant::now(),
            files: FileTable::default(),
            whole_syncs: CallTimes::default(),
            mapped_syncs: CallTimes::default(),
            rings: 0,
            unseen_tasks: 0,
            end: ProgramEnd::Runs,
        }
    }

    /// Becomes the tracer of all threads of `pid`, and of the processes below it.
    ///
    /// # Errors
    /// [`TraceError::NoProcess`]; [`TraceError::Refused`].
    pub(crate) fn attach(pid: u32, limit: Option<Duration>) -> Result<Self, TraceError> {
        let main = pid as pid_t;
        let until = limit.map(|limit| Instant::now() + limit);
        let mut traced = Self::new(main, Origin::Attached(until), libc::PTRACE_SYSCALL, []);
        let mut unseen = HashSet::new();
        let mut is_new = true;
        // What they start meanwhile is seen in the next round.
        while is_new {
            is_new = false;
            for task in tasks_below(main) {
                if traced.tasks.contains_key(&task) {
                    continue;
                }
                match ptrace::seize(task, ptrace::options(false, false)) {
                    Ok(()) => {}
                    // It has ended, or is traced already since the task that made it is.
                    Err(Errno::ESRCH) => continue,
                    Err(Errno::EPERM) if !traced.tasks.is_empty() => {
                        unseen.insert(task);
                        continue;
                    }
                    Err(source) => {
                        return Err(TraceError::Refused {
                            what: format!("process {pid}"),
                            source,
                        });
                    }
                }
                traced.tasks.insert(task, None);
                // It stops, and goes on to its next call.
                let _ = ptrace::request(libc::PTRACE_INTERRUPT, task, 0);
                is_new = true;
            }
        }
        traced.unseen_tasks = unseen.len() as u64;
        match traced.tasks.is_empty() {
            true => Err(TraceError::NoProcess(pid)),
            false => Ok(traced),
        }
    }

    /// Follows the program until it has ended, or until it is to be left.
    ///
    /// # Errors
    /// [`TraceError::NotRun`] if it was not executed; [`TraceError::Call`].
    pub(crate) fn follow(mut self, in_background: &dyn Fn()) -> Result<Trace, TraceError> {
        let signals: SigSet = SIGNALS.into_iter().collect();
        let mut changes = Vec::new();
        let mut main_ran = true;
        loop {
            // Each task stops once until it goes on, so this ends, and no busy task can keep the
            // others waiting, nor a signal.
            while let Some(change) = self.next_change(false)? {
                changes.push(change);
            }
            let is_idle = changes.is_empty();
            for (task, change) in changes.drain(..) {
                self.changed(task, change)?;
            }
            if self.tasks.is_empty() {
                break;
            }
            if std::mem::replace(&mut main_ran, self.end == ProgramEnd::Runs) && !main_ran {
                in_background();
            }
            let until = match self.origin {
                Origin::Attached(until) => until,
                Origin::Launched(_) => None,
            };
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let patience = if is_idle { left } else { Some(Duration::ZERO) };
            let signal = ptrace::wait_for(signals.as_ref(), patience);
            if self.is_to_be_left(signal, left) {
                self.leave()?;
                break;
            }
        }
        self.finish()
    }

    /// Does what a signal asks for. True if the program is to be left.
    fn is_to_be_left(&self, signal: Option<c_int>, left: Option<Duration>) -> bool {
        let Some(signal) = signal.filter(|&signal| signal != libc::SIGCHLD) else {
            return left.is_some_and(|left| left.is_zero());
        };
        let is_passed_on = matches!(signal, libc::SIGTERM | libc::SIGHUP);
        match self.origin {
            Origin::Attached(_) => return true,
            Origin::Launched(_) if self.end != ProgramEnd::Runs => {
                // Its id may be another's by now. The ids of threads are no processes'.
                for &task in self.tasks.keys() {
                    ptrace::send(task, libc::SIGTERM);
                }
            }
            Origin::Launched(_) if is_passed_on => ptrace::send(self.main, signal),
            // The terminal sends SIGINT and SIGQUIT to the program as well.
            Origin::Launched(_) => {}
        }
        false
    }

    fn finish(self) -> Result<Trace, TraceError> {
        let took = self.begun.elapsed();
        if let Origin::Launched(failure) = self.origin
            && let Some(error) = failure.error()
        {
            return Err(error);
        }
        Ok(Trace {
            took,
            end: self.end,
            unnoted_calls: self.files.unnoted_calls,
            unseen_tasks: self.unseen_tasks,
            files: self.files.into_files(),
            whole_syncs: self.whole_syncs,
            mapped_syncs: self.mapped_syncs,
            rings: self.rings,
        })
    }

    /// The next change; none of no task.
    fn next_change(&mut self, is_patient: bool) -> Result<Option<(pid_t, TaskChange)>, TraceError> {
        match ptrace::next_change(is_patient) {
            Err(Errno::ECHILD) => {
                self.tasks.clear();
                Ok(None)
            }
            Err(Errno::EINTR) => Ok(None),
            change => change.map_err(TraceError::call("waiting for a process")),
        }
    }

    fn changed(&mut self, task: pid_t, change: TaskChange) -> Result<(), TraceError> {
        let now = Instant::now();
        match change {
            TaskChange::Exited(status) => self.ended(task, ProgramEnd::Exited(status)),
            TaskChange::Killed(signal) => self.ended(task, ProgramEnd::Killed(signal)),
            TaskChange::AtCall => return self.at_call(task, now),
            TaskChange::AtSignal(signal) => return self.resume(task, signal),
            TaskChange::AtEvent { event, signal } => {
                return self.at_event(task, event, signal, now);
            }
        }
        Ok(())
    }

    fn ended(&mut self, task: pid_t, end: ProgramEnd) {
        self.tasks.remove(&task);
        if task == self.main {
            self.end = end;
        }
    }

    fn resume(&self, task: pid_t, signal: c_int) -> Result<(), TraceError> {
        request(self.go_on, task, signal)
    }

    fn at_event(
        &mut self,
        task: pid_t,
        event: c_int,
        signal: c_int,
        now: Instant,
    ) -> Result<(), TraceError> {
        match event {
            libc::PTRACE_EVENT_SECCOMP => return self.at_call(task, now),
            event if makes_task(event) => {
                if let Some(new) = ptrace::event_message(task) {
                    self.tasks.entry(new).or_default();
                }
            }
            libc::PTRACE_EVENT_EXEC => {
                // A thread that executes gets the process's id; that it had one goes unsaid.
                if let Some(former) = ptrace::event_message(task).filter(|&former| former != task) {
                    self.tasks.remove(&former);
                }
                self.tasks.insert(task, None);
            }
            // The whole process is stopped, and is to stay so until it is continued.
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => {
                return request(libc::PTRACE_LISTEN, task, 0);
            }
            _ => {}
        }
        self.resume(task, 0)
    }

    fn at_call(&mut self, task: pid_t, now: Instant) -> Result<(), TraceError> {
        let refused = |source| TraceError::Refused {
            what: format!("process {task}"),
            source,
        };
        match ptrace::call_of(task).map_err(refused)? {
            CallStop::Entry { number, arguments } => {
                let Some(call) = TracedCall::of(number, &arguments) else {
                    return self.resume(task, 0);
                };
                let size = call.written().and_then(|number| open_file(task, number));
                let entered = EnteredCall {
                    call,
                    size: size.map_or(0, |file| file.len()),
                    at: Instant::now(),
                };
                self.tasks.insert(task, Some(entered));
                request(libc::PTRACE_SYSCALL, task, 0)
            }
            CallStop::Exit { result } => {
                if let Some(entered) = self.tasks.insert(task, None).flatten()
                    && result >= 0
                {
                    self.done(task, &entered, result as u64, now);
                }
                self.resume(task, 0)
            }
            CallStop::Other => self.resume(task, 0),
        }
    }

    /// Notes a call that was done with this result.
    fn done(&mut self, task: pid_t, entered: &EnteredCall, result: u64, now: Instant) {
        let took = now.saturating_duration_since(entered.at);
        match entered.call {
            TracedCall::WholeSync => self.whole_syncs.took(took),
            TracedCall::MappedSync => self.mapped_syncs.took(took),
            TracedCall::Ring => self.rings += 1,
            TracedCall::Sync(number) => {
                if let Some(file) = self.file(task, number) {
                    file.syncs.took(took);
                }
            }
            TracedCall::Allocate(number) => {
                if let Some(file) = self.file(task, number) {
                    file.is_preallocated |= file.writes == 0;
                }
            }
            TracedCall::Map(number) => {
                if let Some(file) = self.file(task, number) {
                    file.is_mapped = true;
                }
            }
            TracedCall::Write(number) => {
                let Some(state) = TracedDescriptor::of(task, number) else {
                    return;
                };
                let end = state.position;
                self.wrote(
                    task,
                    number,
                    entered,
                    end.saturating_sub(result)..end,
                    took,
                    state.is_synced,
                );
            }
            TracedCall::WriteAt {
                descriptor,
                offset,
                is_synced,
            } => {
                let state = TracedDescriptor::of(task, descriptor);
                let appends = state.as_ref().is_some_and(|state| state.appends);
                let is_synced = is_synced || state.is_some_and(|state| state.is_synced);
                let begin = if appends { entered.size } else { offset };
                let range = begin..begin.saturating_add(result);
                self.wrote(task, descriptor, entered, range, took, is_synced);
            }
        }
    }

    fn wrote(
        &mut self,
        task: pid_t,
        number: i32,
        entered: &EnteredCall,
        range: std::ops::Range<u64>,
        took: Duration,
        is_synced: bool,
    ) {
        let Some(file) = self.file(task, number).filter(|_| !range.is_empty()) else {
            return;
        };
        let range = WrittenRange {
            begin: range.start,
            end: range.end,
        };
        file.wrote(range, entered.size);
        if is_synced {
            file.syncs.took(took);
        }
    }

    /// The note of the file behind a number; none if it is neither file nor directory.
    fn file(&mut self, task: pid_t, number: i32) -> Option<&mut TracedFile> {
        let metadata = open_file(task, number)?;
        let path = fs::read_link(descriptor_path(task, number)).ok()?;
        let name = path.as_os_str().as_bytes();
        let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
        let key = TracedName {
            device: metadata.dev(),
            inode: metadata.ino(),
            path: PathBuf::from(std::ffi::OsStr::from_bytes(name)),
        };
        self.files.of(key, metadata.is_dir())
    }

    /// Lets all tasks go on without a tracer: each stops once more for it.
    fn leave(&mut self) -> Result<(), TraceError> {
        for &task in self.tasks.keys() {
            request(libc::PTRACE_INTERRUPT, task, 0)?;
        }
        while !self.tasks.is_empty() {
            let Some((task, change)) = self.next_change(true)? else {
                continue;
            };
            let signal = match change {
                TaskChange::Exited(_) | TaskChange::Killed(_) => {
                    self.changed(task, change)?;
                    continue;
                }
                TaskChange::AtSignal(signal) => signal,
                TaskChange::AtCall => 0,
                TaskChange::AtEvent { event, .. } => {
                    if makes_task(event)
                        && let Some(new) = ptrace::event_message(task)
                    {
                        self.tasks.entry(new).or_default();
                    }
                    0
                }
            };
            request(libc::PTRACE_DETACH, task, signal)?;
            self.tasks.remove(&task);
        }
        Ok(())
    }
}

fn makes_task(event: c_int) -> bool {
    matches!(
        event,
        libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK
    )
}

fn request(what: libc::c_uint, task: pid_t, signal: c_int) -> Result<(), TraceError> {
    ptrace::request(what, task, signal.into()).map_err(TraceError::call("tracing a process"))
}

/// A descriptor's state, from /proc/PID/fdinfo.
struct TracedDescriptor {
    position: u64,
    /// Writes are durable when they return (`O_SYNC`, `O_DSYNC`).
    is_synced: bool,
    /// Each write is at the end, whatever its offset (`O_APPEND`).
    appends: bool,
}

impl TracedDescriptor {
    fn of(task: pid_t, number: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{task}/fdinfo/{number}")).ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim)
        };
        let flags = i32::from_str_radix(field("flags:")?, 8).ok()?;
        Some(Self {
            position: field("pos:")?.parse().ok()?,
            is_synced: flags & libc::O_DSYNC != 0,
            appends: flags & libc::O_APPEND != 0,
        })
    }
}

fn descriptor_path(task: pid_t, number: i32) -> String {
    format!("/proc/{task}/fd/{number}")
}

/// The file or directory behind a descriptor.
fn open_file(task: pid_t, number: i32) -> Option<Metadata> {
    let metadata = fs::metadata(descriptor_path(task, number)).ok()?;
    (metadata.is_file() || metadata.is_dir()).then_some(metadata)
}

/// All threads of a process and of those below it.
fn tasks_below(pid: pid_t) -> Vec<pid_t> {
    let mut tasks = Vec::new();
    let mut processes = vec![pid];
    while let Some(process) = processes.pop() {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
            continue;
        };
        for thread in threads.flatten() {
            let name = thread.file_name();
            let Some(task) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            tasks.push(task);
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            processes.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<pid_t>().ok()),
            );
        }
    }
    tasks
}
