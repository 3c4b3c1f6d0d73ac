//! A machine whose processes are real, and whose scheduler, clock, random numbers and disk are the
//! seed's.
//!
//! Each thread of each process stops at the system calls that matter ([`CALLS`]), and one goes on
//! at a time: the seed says which. A call that would wait (a futex, a poll, a read of a pipe) is
//! not done until what it waits for is there; if all wait, the clock goes on to the first limit. So
//! nothing depends on the real machine's scheduler, and an hour of waiting costs nothing. A process
//! dies, or the power fails, between two calls.

use super::{
    disk::Disk,
    ptrace::{self, Stop},
};
use forebay_random::Rng;
use libc::{c_int, c_long, pid_t, user_regs_struct};
use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    io::{self, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

/// The wall clock's beginning, seconds since 1970: later than any machine's, so that a time of the
/// real one is seen.
const EPOCH: u64 = 2_000_000_000;
const SECOND: u64 = 1_000_000_000;
/// A run of more steps than these makes no progress.
const STEPS_MAX: u64 = 200_000;

/// Files of simulated machines have names that begin so.
pub const PLACES: &str = "/dev/shm/simulation";

/// The calls at which a thread stops.
const CALLS: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_fallocate,
    libc::SYS_fanotify_init,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_inotify_init1,
    libc::SYS_ioctl,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_stat,
    libc::SYS_statx,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_truncate,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
];

/// The kernel's number of an error, as a call's result.
const fn failed(errno: c_int) -> u64 {
    (-(errno as i64)) as u64
}

/// What a thread waits for before it does its call.
enum Wait {
    Nothing,
    /// A word that is not this any more.
    Word(u64, u32),
    Descriptors(Vec<(OwnedFd, i16)>),
    /// The end of a child.
    Child,
    /// Nothing but the clock.
    Clock,
    /// Any other thread's step, after this one.
    Others(u64),
}

/// A thread.
struct Task {
    process: pid_t,
    /// The call that it is stopped at; none if it has not come to one yet.
    call: Option<user_regs_struct>,
    wait: Wait,
    /// When it goes on in any case.
    until: Option<u64>,
    /// The content that a file had when its sync began.
    sync: Option<(u64, Vec<u8>)>,
    /// It reads the database's input, and has not been heard.
    asks: bool,
    /// In the order of their beginnings.
    order: u64,
}

/// The role of a process: `lab run`, its database, the database's other process, a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Supervisor,
    Database,
    Other,
}

struct Process {
    role: Role,
    memory: File,
    descriptor: File,
    parent: pid_t,
    /// Its children that ended.
    ended: u64,
}

/// What a step told.
#[derive(Debug)]
pub enum Told {
    Nothing,
    /// A database asks for its next call.
    Asks,
    /// A process wrote a line on its standard output.
    Said(Role, String),
    /// A file has other contents, or there are other names.
    Changed(u64),
    Named,
    /// There is no process any more.
    Over,
}

/// A disk that refuses some writes.
#[derive(Clone, Copy, Default)]
pub struct BrokenSyncs {
    pub left: u64,
    pub errno: c_int,
    /// Those of `fsync`, by which a file is synced first; otherwise of `fdatasync`.
    pub are_first: bool,
}

pub struct Machine {
    pub disk: Disk,
    pub rng: Rng,
    /// Nanoseconds since it began.
    pub now: u64,
    pub steps: u64,
    pub story: VecDeque<String>,
    /// How seldom another thread goes on: once in so many steps.
    pub patience: u64,
    /// Syncs by this call fail with this error, so many times.
    pub broken_syncs: BrokenSyncs,
    /// By inode: how many syncs have failed, the last one with what error.
    sync_errors: BTreeMap<u64, (u64, c_int)>,
    /// By process and descriptor: how many of them it was told of, or had been when it was opened.
    told_errors: BTreeMap<(pid_t, u64), u64>,
    tasks: BTreeMap<pid_t, Task>,
    processes: BTreeMap<pid_t, Process>,
    last: pid_t,
    /// Has a lease, and goes on alone until it gave that back.
    alone: Option<pid_t>,
    input: Option<ChildStdin>,
    child: Option<Child>,
    device: u64,
    names_of: BTreeMap<pid_t, String>,
    begun: u64,
    data: String,
}

impl Machine {
    pub fn new(disk: Disk, data: &Path, seed: u64) -> io::Result<Self> {
        Ok(Self {
            disk,
            rng: Rng(seed),
            now: 0,
            steps: 0,
            story: VecDeque::new(),
            patience: 2,
            broken_syncs: BrokenSyncs::default(),
            sync_errors: BTreeMap::new(),
            told_errors: BTreeMap::new(),
            tasks: BTreeMap::new(),
            processes: BTreeMap::new(),
            last: 0,
            alone: None,
            input: None,
            child: None,
            device: fs::metadata(data)?.dev(),
            names_of: BTreeMap::new(),
            begun: 0,
            data: data.display().to_string(),
        })
    }

    /// The wall clock.
    pub fn time(&self) -> u64 {
        EPOCH * SECOND + self.now
    }

    pub fn note(&mut self, what: String) {
        if self.story.len() >= 4000 && std::env::var_os("FOREBAY_TRACE").is_none() {
            self.story.pop_front();
        }
        self.story.push_back(what);
    }

    /// Starts a program, which is its first process.
    pub fn start(&mut self, command: &mut Command, said: &Path) -> io::Result<()> {
        let errors = File::options().create(true).append(true).open(said)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = ptrace::start(command.stderr(errors), CALLS)?;
        let pid = child.id().cast_signed();
        self.input = child.stdin.take();
        self.child = Some(child);
        self.add_process(pid, 0)?;
        self.add_task(pid, pid);
        self.executed(pid)
    }

    pub fn is_over(&self) -> bool {
        self.tasks.is_empty()
    }

    pub fn has(&self, role: Role) -> bool {
        self.processes.values().any(|process| process.role == role)
    }

    /// Gives the database its next line, or ends its input.
    pub fn say(&mut self, line: Option<&str>) -> io::Result<()> {
        match line {
            Some(line) => {
                let shown = line.replace(&self.data, "@");
                self.note(format!("{:>9} CALL {shown}", self.now / 1000));
                let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
                writeln!(input, "{line}")
            }
            None => {
                self.input = None;
                Ok(())
            }
        }
    }

    /// A process is killed. What its calls did stays.
    pub fn kill(&mut self, role: Role) -> io::Result<()> {
        let found = self.processes.iter().find(|(_, it)| it.role == role);
        let Some((&pid, _)) = found else {
            return Ok(());
        };
        self.note(format!("{:>9} KILL {role:?}", self.now / 1000));
        // What it waits for is open nowhere else.
        self.tasks_of(pid).iter().for_each(|task| {
            if let Some(task) = self.tasks.get_mut(task) {
                task.wait = Wait::Nothing;
            }
        });
        ptrace::kill(pid);
        self.bury(pid)
    }

    pub fn kill_all(&mut self) -> io::Result<()> {
        for role in [Role::Supervisor, Role::Database, Role::Other] {
            while self.has(role) {
                self.kill(role)?;
            }
        }
        self.input = None;
        self.alone = None;
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
        Ok(())
    }

    fn tasks_of(&self, process: pid_t) -> Vec<pid_t> {
        let its = |(task, it): (&pid_t, &Task)| (it.process == process).then_some(*task);
        self.tasks.iter().filter_map(its).collect()
    }

    /// Waits for the end of all threads of a process that is dying, the first of them last.
    fn bury(&mut self, process: pid_t) -> io::Result<()> {
        let mut tasks = self.tasks_of(process);
        tasks.sort_by_key(|task| *task == process);
        for task in tasks {
            while ptrace::wait(task)? != Stop::Gone {
                let _ = ptrace::go_on(task, 0);
            }
            self.gone(task);
        }
        Ok(())
    }

    fn gone(&mut self, task: pid_t) {
        let Some(gone) = self.tasks.remove(&task) else {
            return;
        };
        if self.alone == Some(task) {
            self.alone = None;
        }
        if self.tasks_of(gone.process).is_empty() {
            let process = self.processes.remove(&gone.process);
            let parent = process.map_or(0, |process| process.parent);
            if let Some(parent) = self.processes.get_mut(&parent) {
                parent.ended += 1;
            }
        }
    }

    fn add_process(&mut self, pid: pid_t, parent: pid_t) -> io::Result<()> {
        let role = match self.processes.get(&parent).map(|it| it.role) {
            None => Role::Supervisor,
            Some(Role::Supervisor) => Role::Database,
            Some(_) => Role::Other,
        };
        let process = Process {
            role,
            memory: memory_of(pid)?,
            descriptor: ptrace::process(pid)?,
            parent,
            ended: 0,
        };
        self.processes.insert(pid, process);
        Ok(())
    }

    fn add_task(&mut self, task: pid_t, process: pid_t) {
        let number = self.tasks_of(process).len();
        if let Some(its) = self.processes.get(&process) {
            self.names_of
                .insert(task, format!("{:?}.{number}", its.role));
        }
        let new = Task {
            process,
            call: None,
            wait: Wait::Nothing,
            until: None,
            sync: None,
            asks: false,
            order: self.begun,
        };
        self.begun += 1;
        self.tasks.insert(task, new);
    }

    /// A task has become another program: it asks the kernel for the time by a call.
    fn executed(&mut self, task: pid_t) -> io::Result<()> {
        /// `AT_SYSINFO_EHDR`, and `AT_IGNORE`.
        const CALLS_OF_NO_KERNEL: (u64, u64) = (33, 1);
        let process = self.processes.get_mut(&task);
        let process = process.ok_or(io::ErrorKind::NotFound)?;
        process.memory = memory_of(task)?;
        let mut at = ptrace::registers(task)?.rsp;
        let memory = &process.memory;
        let word = |at: u64| -> io::Result<u64> {
            let mut bytes = [0; 8];
            memory.read_exact_at(&mut bytes, at)?;
            Ok(u64::from_ne_bytes(bytes))
        };
        at += 8 * (2 + word(at)?);
        while word(at)? != 0 {
            at += 8;
        }
        at += 8;
        while word(at)? != 0 {
            if word(at)? == CALLS_OF_NO_KERNEL.0 {
                memory.write_all_at(&CALLS_OF_NO_KERNEL.1.to_ne_bytes(), at)?;
            }
            at += 16;
        }
        Ok(())
    }

    /// Waits until a task that goes on is at its next call, or has ended.
    fn come_to_a_call(&mut self, task: pid_t) -> io::Result<()> {
        loop {
            match ptrace::wait(task)? {
                Stop::Gone => {
                    self.gone(task);
                    return Ok(());
                }
                Stop::Entry => {
                    let call = ptrace::registers(task)?;
                    if !self.is_done_at_once(task, &call)? {
                        return self.wait_of(task, &call);
                    }
                }
                Stop::Made(new) => {
                    self.made(task, new)?;
                    ptrace::go_on(task, 0)?;
                }
                Stop::MadeAndWaits(new) => {
                    self.made(task, new)?;
                    ptrace::go_on(task, 0)?;
                    self.until_it_executes(new)?;
                }
                Stop::Executed => {
                    self.executed(task)?;
                    if let Some(it) = self.tasks.get_mut(&task) {
                        it.call = None;
                    }
                    ptrace::go_on(task, 0)?;
                }
                Stop::Signal(signal) => ptrace::go_on(task, signal)?,
                Stop::Exit | Stop::Begun => ptrace::go_on(task, 0)?,
            }
        }
    }

    /// A new task, which is stopped at its beginning.
    fn made(&mut self, by: pid_t, new: pid_t) -> io::Result<()> {
        ptrace::wait(new)?;
        let parent = self.tasks.get(&by).map_or(by, |by| by.process);
        let status = fs::read_to_string(format!("/proc/{new}/status"))?;
        let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        let process = group
            .and_then(|group| group.trim().parse().ok())
            .unwrap_or(new);
        if process == new {
            self.add_process(new, parent)?;
        }
        self.add_task(new, process);
        Ok(())
    }

    /// A task whose parent stands still until then.
    fn until_it_executes(&mut self, task: pid_t) -> io::Result<()> {
        ptrace::go_on(task, 0)?;
        loop {
            match ptrace::wait(task)? {
                Stop::Gone => {
                    self.gone(task);
                    return Ok(());
                }
                Stop::Executed => return self.executed(task),
                Stop::Signal(signal) if signal != libc::SIGSTOP => ptrace::go_on(task, signal)?,
                _ => ptrace::go_on(task, 0)?,
            }
        }
    }

    fn process(&self, task: pid_t) -> io::Result<&Process> {
        let process = self.tasks.get(&task).map(|it| it.process);
        let process = process.and_then(|it| self.processes.get(&it));
        process.ok_or_else(|| io::Error::other("a task of no process"))
    }

    fn bytes(&self, task: pid_t, at: u64, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize];
        self.process(task)?.memory.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn number(&self, task: pid_t, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.process(task)?.memory.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn word(&self, task: pid_t, at: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.process(task)?.memory.read_exact_at(&mut bytes, at)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn text(&self, task: pid_t, at: u64) -> io::Result<String> {
        let mut bytes = vec![0; 4096];
        let got = self.process(task)?.memory.read_at(&mut bytes, at)?;
        let end = bytes[..got].iter().position(|byte| *byte == 0);
        Ok(String::from_utf8_lossy(&bytes[..end.unwrap_or(got)]).into_owned())
    }

    fn put(&self, task: pid_t, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.process(task)?.memory.write_all_at(bytes, at)
    }

    /// The time in a `timespec` of the task's, if there is one.
    fn time_at(&self, task: pid_t, at: u64) -> io::Result<Option<u64>> {
        if at == 0 {
            return Ok(None);
        }
        let seconds = self.number(task, at)?;
        Ok(Some(
            seconds.saturating_mul(SECOND) + self.number(task, at + 8)?,
        ))
    }

    /// Lets a task do its call: what it returned; none if it is no more.
    fn do_call(&mut self, task: pid_t) -> io::Result<Option<i64>> {
        ptrace::do_call(task)?;
        loop {
            match ptrace::wait(task)? {
                Stop::Exit => return Ok(Some(ptrace::registers(task)?.rax.cast_signed())),
                Stop::Gone => {
                    self.gone(task);
                    return Ok(None);
                }
                Stop::Signal(signal) => ptrace::go_on(task, signal)?,
                _ => ptrace::do_call(task)?,
            }
        }
    }

    /// The task goes on with this result, and without the call.
    fn answer(&self, task: pid_t, call: &user_regs_struct, result: u64) -> io::Result<()> {
        let mut after = *call;
        (after.orig_rax, after.rax) = (u64::MAX, result);
        ptrace::set_registers(task, &after)?;
        ptrace::go_on(task, 0)
    }

    fn tell_time(&self, task: pid_t, call: &user_regs_struct) -> io::Result<()> {
        let now = match call.rdi as c_int {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => self.time(),
            _ => self.now + SECOND,
        };
        let time = [(now / SECOND).to_ne_bytes(), (now % SECOND).to_ne_bytes()];
        self.put(task, call.rsi, &time.concat())?;
        self.answer(task, call, 0)
    }

    /// Random ones, which come again with the seed.
    fn give_numbers(&mut self, task: pid_t, call: &user_regs_struct) -> io::Result<()> {
        let bytes: Vec<u8> = (0..call.rsi).map(|_| self.rng.next() as u8).collect();
        self.put(task, call.rdi, &bytes)?;
        self.answer(task, call, call.rsi)
    }

    /// Does what no other task notices, and says so.
    fn is_done_at_once(&mut self, task: pid_t, call: &user_regs_struct) -> io::Result<bool> {
        match call.orig_rax as c_long {
            libc::SYS_clock_gettime => self.tell_time(task, call)?,
            libc::SYS_getrandom => self.give_numbers(task, call)?,
            // Nobody is asked before a file is opened, since the kernel would wait for a thread
            // that stands still, nor told of it: there is no process outside.
            libc::SYS_fanotify_init | libc::SYS_inotify_init1 => {
                self.answer(task, call, failed(libc::EPERM))?;
            }
            // The model says what a cut leaves of the pool: no real disk is waited for.
            libc::SYS_pwritev2 if call.r9 & SYNCHRONOUS != 0 => {
                let mut after = *call;
                after.r9 &= !SYNCHRONOUS;
                ptrace::set_registers(task, &after)?;
                return Ok(false);
            }
            libc::SYS_stat | libc::SYS_newfstatat | libc::SYS_fstat | libc::SYS_statx => {
                self.look_at_file(task, call)?;
                if self.tasks.contains_key(&task) {
                    ptrace::go_on(task, 0)?;
                }
            }
            libc::SYS_open | libc::SYS_openat => {
                let at = match call.orig_rax as c_long {
                    libc::SYS_open => call.rdi,
                    _ => call.rsi,
                };
                let path = self.text(task, at)?;
                if self.disk.has(Path::new(&path)) || path.contains("/fd/") {
                    return Ok(false);
                }
                match is_outside(&path) {
                    true => self.answer(task, call, failed(libc::ENOENT))?,
                    false => ptrace::go_on(task, 0)?,
                }
            }
            libc::SYS_faccessat => {
                if !self.text(task, call.rsi)?.starts_with('/') {
                    // A failpoint.
                    return Ok(false);
                }
                ptrace::go_on(task, 0)?;
            }
            libc::SYS_fcntl => match call.rsi as c_int {
                libc::F_SETLEASE | libc::F_SETLKW | libc::F_OFD_SETLKW => return Ok(false),
                _ => ptrace::go_on(task, 0)?,
            },
            libc::SYS_ioctl if call.rsi != FIEMAP => ptrace::go_on(task, 0)?,
            libc::SYS_read => {
                let is_input = call.rdi == 0 && self.process(task)?.role != Role::Supervisor;
                if is_input || self.may_wait(task, call.rdi)? {
                    return Ok(false);
                }
                ptrace::go_on(task, 0)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether a read of this descriptor may wait: it is a pipe or a socket.
    fn may_wait(&self, task: pid_t, fd: u64) -> io::Result<bool> {
        let process = self.tasks.get(&task).map_or(task, |it| it.process);
        let link = fs::read_link(format!("/proc/{process}/fd/{fd}"));
        Ok(link.is_ok_and(|link| {
            let link = link.to_string_lossy();
            link.starts_with("pipe:")
                || link.starts_with("socket:")
                || link.starts_with("anon_inode:")
        }))
    }

    /// Lets the task look at a file, and hides the name that the model has of it.
    fn look_at_file(&mut self, task: pid_t, call: &user_regs_struct) -> io::Result<()> {
        if self.do_call(task)? != Some(0) {
            return Ok(());
        }
        // `struct stat`: device 8, inode 8, links 8. `struct statx`: links at 16, inode at 32,
        // device at 136.
        let (at, inode_at, links_at, is_wide) = match call.orig_rax as c_long {
            libc::SYS_newfstatat => (call.rdx, 8, 16, true),
            libc::SYS_statx => (call.r8, 32, 16, false),
            _ => (call.rsi, 8, 16, true),
        };
        let inode = self.number(task, at + inode_at)?;
        if !self.disk.knows(inode) {
            return Ok(());
        }
        let device = match is_wide {
            true => self.number(task, at)?,
            false => {
                let (major, minor) = (self.word(task, at + 136)?, self.word(task, at + 140)?);
                rustix::fs::makedev(major, minor)
            }
        };
        if device == self.device {
            let links = self.word(task, at + links_at)? - 1;
            self.put(task, at + links_at, &links.to_ne_bytes())?;
        }
        Ok(())
    }
}

/// The real machine's processes, and what its runs have in its memory, are not to be seen.
fn is_outside(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    path == "/proc" || path.starts_with("/dev/shm") && !path.starts_with(PLACES)
}

/// `RWF_DSYNC` and `RWF_SYNC`.
const SYNCHRONOUS: u64 = 2 | 4;

/// `FS_IOC_FIEMAP`.
pub(super) const FIEMAP: u64 = 0xC020_660B;

fn memory_of(process: pid_t) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{process}/mem"))
}

mod calls;
