//! A process of the run: its way to membership, its questions, and the work left when it is gone.

use super::{PlainFile, ProcessStatus, SupervisorState, drain, first_sync, run::RunState};
use crate::{
    directories::open_directory,
    processes, sys,
    wire::{self, ClientRequest, SupervisorAnswer},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    net::{Shutdown, sockopt},
    process::{Pid, PidfdFlags},
};
use std::{
    ffi::OsString,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, Release},
    },
    thread,
    time::Duration,
};

/// The longest time of a member's own wish to have a file plain: another process may be stopped in
/// the middle of a write.
const RETIRE_WAIT: Duration = Duration::from_secs(30);

/// Interval of looks if a child that shares a dead member's memory is another program by now.
const CHILD_AGAIN: Duration = Duration::from_millis(10);

/// A process that appends to the run's lane.
#[derive(Clone)]
pub(super) struct RunMember {
    /// The number by which the lane knows it.
    pub(super) number: u32,
    pub(super) pid: u32,
    /// Its program's name.
    pub(super) program: String,
    /// None once it has ended.
    connection: Option<Arc<OwnedFd>>,
}

impl RunMember {
    pub(super) fn has_ended(&self) -> bool {
        self.connection.is_none()
    }

    /// Its status. One that has ended may not be buried yet.
    pub(super) fn status(&self) -> ProcessStatus {
        ProcessStatus {
            pid: self.pid,
            program: self.program.clone(),
            ended: !self.is_connected(),
        }
    }

    /// True until it is dead or another program. A program that is executed has not got the
    /// connection from its first instruction on.
    fn is_connected(&self) -> bool {
        self.connection.as_deref().is_some_and(is_open)
    }
}

/// True if a process has the other end of the connection.
fn is_open(connection: &OwnedFd) -> bool {
    let mut wait = [PollFd::new(connection, PollFlags::empty())];
    let found = rustix::event::poll(&mut wait, Some(&Timespec::default()));
    found.is_ok() && wait[0].revents().is_empty()
}

/// Serves a process, whose secret is right, of this process id and user.
pub(super) fn handshake(
    shared: &Arc<SupervisorState>,
    connection: &Arc<OwnedFd>,
    (pid, uid): (u32, u32),
) {
    // Only the first message is waited for impatiently.
    for which in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        let _ = sockopt::set_socket_timeout(connection, which, None);
    }
    // Known before it is told, and before there is a lane: from now on the run does not end without
    // it.
    let joined = may_write(shared, uid).and_then(|()| shared.join(pid, connection));
    let joined = joined.and_then(|number| {
        let run = shared.run().inspect_err(|_| shared.take_back(number))?;
        Ok((number, run))
    });
    let (number, run) = match joined {
        Ok(joined) => joined,
        Err(reason) => {
            sys::complain_repeated(&reason, &format!("process {pid} stays plain: {reason}"));
            let _ = wire::send(
                connection.as_fd(),
                &SupervisorAnswer::Refused { reason },
                &[],
            );
            return;
        }
    };
    let Some(pool) = run.pool.descriptor() else {
        shared.take_back(number);
        return;
    };
    let welcome = SupervisorAnswer::Welcome {
        pool: shared.pool.path().as_os_str().as_bytes().to_vec(),
        member: number,
        boot: shared.boot,
    };
    let mut along = vec![pool, run.lane.state_fd(), run.page_fd.as_fd()];
    along.extend(run.pool.shared_memory());
    if wire::send(connection.as_fd(), &welcome, &along).is_err() {
        // It waits for the answer, and hears that the connection is closed.
        shared.take_back(number);
        return;
    }
    let process = process(pid);
    while is_there(connection, process.as_ref()) && serve(shared, &run, pid, connection) {}
    // Until then its threads append, though it is not served any more.
    until_gone(connection, process.as_ref());
    while is_open(connection) && shared.has_sharing_child(&run) {
        thread::sleep(CHILD_AGAIN);
    }
    run.bury(shared, number);
    shared.part(number);
}

/// Does what the next message asks. False if the member is gone, or cannot be served any more: then
/// it hears that the connection is closed.
fn serve(shared: &SupervisorState, run: &RunState, pid: u32, connection: &OwnedFd) -> bool {
    let is_served = match wire::receive::<ClientRequest>(connection.as_fd()) {
        Ok((request, fds)) => handle_request(shared, run, pid, connection, request, fds),
        // It has sent a descriptor, and this process can have no more.
        Err(Errno::MFILE) => {
            let reason = "the supervisor has too many files open (ulimit -n)".to_owned();
            wire::send(
                connection.as_fd(),
                &SupervisorAnswer::Refused { reason },
                &[],
            )
            .is_ok()
        }
        Err(_) => false,
    };
    if !is_served {
        let _ = rustix::net::shutdown(connection, Shutdown::Write);
    }
    is_served
}

/// Waits until the process is dead, or has closed its connection, which it does before it becomes
/// another program or another member.
fn until_gone(connection: &OwnedFd, process: Option<&OwnedFd>) {
    loop {
        let mut wait = vec![PollFd::new(connection, PollFlags::empty())];
        wait.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
        match rustix::event::poll(&mut wait, None) {
            Err(Errno::INTR) => {}
            Err(_) | Ok(_) => return,
        }
    }
}

/// The descriptor by which the kernel tells that the process is dead, though a child may have its
/// connection still.
fn process(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits for a message, or for the end of the process: false if that comes first.
fn is_there(connection: &OwnedFd, process: Option<&OwnedFd>) -> bool {
    loop {
        let mut wait = vec![PollFd::new(connection, PollFlags::IN)];
        wait.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
        match rustix::event::poll(&mut wait, None) {
            Err(Errno::INTR) => {}
            Err(_) => return true,
            Ok(_) => return !wait[0].revents().is_empty(),
        }
    }
}

/// A member writes to the pool, and who does that can make a recovery write to files: only for whom
/// it belongs to.
fn may_write(shared: &SupervisorState, uid: u32) -> Result<(), String> {
    let opening = |e: String| format!("opening the pool: {e}");
    let pool = shared
        .pool
        .descriptor()
        .ok_or_else(|| opening("it has no file".into()))?;
    let stat = rustix::fs::fstat(pool).map_err(|e| opening(e.to_string()))?;
    if stat.st_uid != uid {
        return Err(format!(
            "it runs as user {uid}, and the pool {} belongs to user {}, who alone may write to it. Run forebay as the program's user, \
             with a pool of that user's: chown it, and `runuser -u USER -- forebay run …`",
            shared.pool.path().display(),
            stat.st_uid
        ));
    }
    Ok(())
}

/// Does what the member asks. False if it speaks nonsense, or is gone.
fn handle_request(
    shared: &SupervisorState,
    run: &RunState,
    pid: u32,
    connection: &OwnedFd,
    request: ClientRequest,
    fds: Vec<OwnedFd>,
) -> bool {
    let done = |done: Result<(), Errno>| match done {
        Ok(()) => SupervisorAnswer::Done,
        Err(errno) => SupervisorAnswer::Failed {
            errno: errno.raw_os_error(),
        },
    };
    let answer = match request {
        ClientRequest::Register { path } => run.register(shared, pid, path, fds),
        ClientRequest::Retire { file, generation } => {
            let Some(number) = run.number(file) else {
                return false;
            };
            done(run.retire(shared, number, generation, RETIRE_WAIT))
        }
        ClientRequest::Repair { file } => {
            let Some(number) = run.number(file) else {
                return false;
            };
            done(run.repair(shared, number))
        }
        ClientRequest::Unlinked { file, path } => {
            let path = PathBuf::from(OsString::from_vec(path));
            let directory = path.parent().map(open_directory);
            if let Some(number) = run.number(file) {
                run.unlinked(number, directory.and_then(Result::ok));
                let _ = run.release(shared, number);
            }
            return true;
        }
        ClientRequest::Released { file } => {
            if let Some(number) = run.number(file) {
                release_soon(shared, run, number);
            }
            return true;
        }
        ClientRequest::Plain { path, reason, .. } => {
            shared.stays_plain(pid, path, reason);
            return true;
        }
        ClientRequest::Hello { .. }
        | ClientRequest::Status { .. }
        | ClientRequest::Foreign { .. }
        | ClientRequest::OtherRunAnswer { .. }
        | ClientRequest::Agent { .. }
        | ClientRequest::Table { .. } => return false,
    };
    wire::send(connection.as_fd(), &answer, &[]).is_ok()
}

/// Releases a file whose last descriptor is about to be closed.
fn release_soon(shared: &SupervisorState, run: &RunState, number: usize) {
    /// Milliseconds that the close may take; otherwise another process has it open, or the drain
    /// finds it later.
    const ATTEMPTS: u32 = 20;
    for _ in 0..ATTEMPTS {
        if run.release(shared, number) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

impl SupervisorState {
    /// The run's lane; claimed when it is asked for first.
    fn run(self: &Arc<Self>) -> Result<Arc<RunState>, String> {
        let mut known = self.run.lock();
        if let Some(run) = &*known {
            return Ok(Arc::clone(run));
        }
        let run = Arc::new(RunState::begin(self)?);
        let draining = self.start_threads(&run).inspect_err(|_| {
            // Each process that asks claims one. What is not given back is empty, for a recovery.
            run.ended.store(true, Release);
            let _ = run.lane.give_back();
        })?;
        *self.draining.lock() = Some(draining);
        *known = Some(Arc::clone(&run));
        Ok(run)
    }

    /// Has the lane prepared and drained. The thread that drains it.
    fn start_threads(
        self: &Arc<Self>,
        run: &Arc<RunState>,
    ) -> Result<thread::JoinHandle<()>, String> {
        let thread = |name: &str, work: fn(&Arc<Self>, &Arc<RunState>)| {
            let (shared, run) = (Arc::clone(self), Arc::clone(run));
            thread::Builder::new()
                .name(name.into())
                .spawn(move || work(&shared, &run))
                .map_err(|e| format!("starting a thread: {e}"))
        };
        thread("prepare", |shared, run| drain::prepare(shared, run))?;
        thread("first syncs", first_sync::run)?;
        thread("drain", |shared, run| drain::run(shared, run))
    }

    /// The run's lane, if any process has asked for it.
    pub(super) fn running(&self) -> Option<Arc<RunState>> {
        self.run.lock().clone()
    }

    /// A new member: its number.
    ///
    /// # Errors
    /// In words: the run has ended.
    fn join(&self, pid: u32, connection: &Arc<OwnedFd>) -> Result<u32, String> {
        let mut members = self.members.lock();
        if self.over.load(Relaxed) {
            return Err("the run has ended".to_owned());
        }
        let is_free = |number: &u32| {
            !members
                .iter()
                .any(|member| member.number == *number && !member.has_ended())
        };
        let number = (1..).find(is_free).unwrap_or(u32::MAX);
        members.push(RunMember {
            number,
            pid,
            program: processes::name_of_process(pid),
            connection: Some(Arc::clone(connection)),
        });
        Ok(number)
    }

    /// It has not become one after all.
    fn take_back(&self, number: u32) {
        let mut members = self.members.lock();
        members.retain(|member| member.has_ended() || member.number != number);
        drop(members);
        self.changed.ring();
    }

    /// It is gone, and nothing of it is left.
    fn part(&self, number: u32) {
        /// More are as little to be read as these.
        const ENDED_MAX: usize = 1000;
        let mut members = self.members.lock();
        for member in members.iter_mut().filter(|member| member.number == number) {
            member.connection = None;
        }
        let ended = members.iter().filter(|member| member.has_ended()).count();
        if ended > ENDED_MAX
            && let Some(first) = members.iter().position(|member| member.has_ended())
        {
            members.remove(first);
        }
        drop(members);
        self.changed.ring();
    }

    /// The processes that are members now.
    pub(super) fn member_processes(&self) -> Vec<u32> {
        let members = self.members.lock();
        let living = members.iter().filter(|member| !member.has_ended());
        living.map(|member| member.pid).collect()
    }

    /// True if a process that is no member has the run's memory: a child of `vfork`, which writes
    /// by its parent's number until it executes a program, also when its parent is dead. A forked
    /// child has not got that memory.
    fn has_sharing_child(&self, run: &RunState) -> bool {
        let members = self.member_processes();
        let Ok(page) = rustix::fs::fstat(&run.page_fd) else {
            return false;
        };
        let is_other = |id: &u32| *id != std::process::id() && !members.contains(id);
        let mut others = processes::all().filter(is_other);
        others.any(|id| processes::has_mapped(id, &page))
    }

    /// True if the process is a member now, and no other program yet.
    pub(super) fn is_member(&self, pid: u32) -> bool {
        let members = self.members.lock();
        let mut its = members.iter().filter(|member| member.pid == pid);
        its.any(RunMember::is_connected)
    }

    /// Notes that a file that a pattern names stays plain in a process.
    pub(super) fn stays_plain(&self, pid: u32, path: Vec<u8>, reason: String) {
        /// More are as little to be read as these.
        const NOTED_MAX: usize = 1000;
        let file = PlainFile {
            path: PathBuf::from(OsString::from_vec(path)),
            pid,
            program: processes::name_of_process(pid),
            reason,
        };
        self.say_plain(&file);
        let mut plain = self.plain.lock();
        plain.retain(|known| (&known.path, known.pid) != (&file.path, pid));
        if plain.len() < NOTED_MAX {
            plain.push(file);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
