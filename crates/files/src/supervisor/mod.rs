//! The supervisor: the database's parent, which makes writes durable behind it that the pool made
//! durable at once.
//!
//! It listens on a Unix socket for members (processes of the database) and for those who look at
//! it. A run has one lane (`run`; `settle` where it fails): each member has a thread that answers
//! it (`member`, `register`), and two threads of the run prepare its segments and sync its files
//! (`drain`). What keeps a file from being absorbed twice is in `accept` (who may say what),
//! `other_runs` and `watch`, `open_gate`, `inotify` (processes outside). When the last member
//! has ended, what the lane holds is synced, and the lane goes back to the pool.

mod accept;
mod bell;
mod candidate;
mod child_agents;
mod dead_members;
mod degraded;
mod discover;
mod drain;
mod drain_progress;
mod file_names;
mod first_sync;
mod foreign_writers;
mod forgotten_files;
mod idle_filesystems;
mod inotify;
mod known_files;
mod lag_age;
mod lane_mark;
mod layer;
mod member;
mod open_gate;
mod other_pools;
mod other_runs;
mod pattern_sums;
mod questions;
mod register;
mod run;
mod settle;
mod status;
mod watch;

pub use child_agents::{ChildAgentOutcome, ChildAgentRequest, ChildAgentStarter};
pub use discover::{
    FoundRuns, OrphanedRun, RunScope, WaitingPool, status_of, status_of_running, status_within,
};
pub use layer::SyncLayer;
pub use pattern_sums::PatternSum;
pub use status::{
    ChildAgentStatus, FileStatus, FrontEndChoice, PlainFile, ProcessStatus, RunDurations,
    RunFrontEnd, RunLaneStatus, SupervisorStatus, run_dir_remedy,
};
pub use watch::OutsideWatch;

use crate::{
    ENV_ABSORB, ENV_ENTER, ENV_GUARD, ENV_IO_URING, ENV_SOCKET, ENV_TABLE, ENV_TOKEN, FilesError,
    IO_URING_REFUSED,
    absorbed::{self, AbsorbedTable},
    boot, guard,
    marks::Marks,
    order::OrderFile,
    run_files::order_path,
    sys, wire,
};
use forebay_pool::{MonotonicTime, Pool, disks, failpoint, media::PoolPersistence};
use member::RunMember;
use parking_lot::Mutex;
use run::{END_WAIT, RunState};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, Release},
        },
    },
    thread,
    time::Duration,
};
use uuid::Uuid;

/// A supervisor's options.
#[derive(Clone)]
pub struct SupervisorOptions {
    /// `fnmatch` patterns of the files to absorb.
    pub patterns: Vec<String>,
    /// Those of them that stay plain if they lie on the disk of the pool.
    pub preallocated: Vec<String>,
    /// The database's attempts to make an `io_uring` fail with `ENOSYS`.
    pub refuse_io_uring: bool,
    /// The directory, below the program's working directory, that a [guard] is laid in; none if
    /// there is to be none.
    pub guard: Option<String>,
    /// Segments of the run's lane, while the disk keeps up.
    pub segments: u16,
    /// The directory in which running supervisors leave a note of themselves, for
    /// [`status_of_running`].
    pub run_dir: PathBuf,
    /// The database in words, for status and labels.
    pub program: String,
    /// The front end that sees its calls.
    pub front_end: FrontEndChoice,
    /// A laboratory's layer under the supervisor's syncs.
    pub layer: Option<Arc<dyn SyncLayer>>,
}

/// State that all threads of a supervisor share.
struct SupervisorState {
    pool: Pool,
    /// The disks that the pool lies on, if an append to it has to be committed.
    pool_disks: Vec<String>,
    options: SupervisorOptions,
    token: Uuid,
    boot: Uuid,
    started: MonotonicTime,
    /// The run's lane, once a process has asked for it.
    run: Mutex<Option<Arc<RunState>>>,
    draining: Mutex<Option<thread::JoinHandle<()>>>,
    /// Its processes, those that ended included.
    members: Mutex<Vec<RunMember>>,
    /// The run has ended: no process joins it any more. Set and looked at with `members` locked.
    over: AtomicBool,
    /// One of them ended, and nothing of it is left to do.
    changed: bell::Bell,
    /// The table of absorbed files, for all to see.
    table: AbsorbedTable,
    /// Changes that the file systems of the logs may still lack, which all processes of the run
    /// count.
    order: OrderFile,
    /// The tables of other runs.
    tables: other_runs::RunTables,
    /// Of programs that the library does not fit.
    child_agents: child_agents::ChildAgents,
    /// Connections that have said nothing yet.
    silent: accept::SilentConnections,
    /// Sees who opens what is absorbed.
    watch: watch::Watch,
    /// Files that a pattern names and that stay plain.
    plain: Mutex<Vec<PlainFile>>,
    /// Notices of a run that absorbs nothing.
    effect: degraded::DegradedNotices,
    stopping: AtomicBool,
    /// Directories with a mark that this pool may hold records of their files.
    marks: Marks,
    /// Guards laid for a server that is started without Forebay.
    guards: guard::LaidGuards,
}

/// A running supervisor.
pub struct Supervisor {
    shared: Arc<SupervisorState>,
    socket_name: Vec<u8>,
    note: PathBuf,
}

/// Starts a thread of the supervisor's.
fn start_thread(
    shared: &Arc<SupervisorState>,
    name: &str,
    run: impl FnOnce(&Arc<SupervisorState>) + Send + 'static,
) -> Result<(), FilesError> {
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new().name(name.into());
    let started = thread.spawn(move || run(&shared));
    started
        .map(drop)
        .map_err(FilesError::io("starting a thread"))
}

impl Supervisor {
    /// Begins to listen. Lanes that earlier runs left are not its business: recover them first.
    ///
    /// # Errors
    /// Of the socket and of the note in the run directory.
    pub fn start(pool: Pool, options: SupervisorOptions) -> Result<Self, FilesError> {
        sys::ignore_signals();
        let socket_name = format!("{}{}", discover::SOCKET_PREFIX, Uuid::new_v4()).into_bytes();
        let socket =
            wire::listen(&socket_name).map_err(FilesError::errno("listening for the database"))?;
        let boot = boot::id()?;
        absorbed::clean_up(Path::new(absorbed::SHARED_DIR), boot);
        absorbed::clean_up(&options.run_dir, boot);
        status::make_run_dir(&options.run_dir)?;
        let table = AbsorbedTable::new(&options.run_dir, &socket_name, boot)
            .map_err(FilesError::errno("making the table of absorbed files"))?;
        let order = OrderFile::new(&table.path).map_err(FilesError::errno(
            "making the memory in which changes are counted",
        ))?;
        let shared = Arc::new(SupervisorState {
            pool_disks: (pool.descriptor())
                .filter(|_| pool.needs_commit() && !pool.is_elsewhere())
                .map_or_else(Vec::new, disks::of),
            pool,
            token: Uuid::new_v4(),
            boot,
            started: MonotonicTime::now(),
            run: Mutex::default(),
            draining: Mutex::default(),
            members: Mutex::default(),
            over: AtomicBool::new(false),
            changed: bell::Bell::default(),
            table,
            order,
            tables: other_runs::RunTables::default(),
            child_agents: child_agents::ChildAgents::default(),
            silent: accept::SilentConnections::default(),
            watch: watch::Watch::new(),
            plain: Mutex::default(),
            effect: degraded::DegradedNotices::default(),
            stopping: AtomicBool::new(false),
            marks: Marks::default(),
            guards: guard::LaidGuards::default(),
            options,
        });
        let note = status::leave_note(&shared, &socket_name)?;
        start_thread(&shared, "accept", move |shared| {
            accept::run(shared, &socket);
        })?;
        start_thread(&shared, "asked", questions::run)?;
        start_thread(&shared, "effect", degraded::run)?;
        start_thread(&shared, "watch", watch::run)?;
        Ok(Self {
            shared,
            socket_name,
            note,
        })
    }

    /// Variables that a process needs in its environment to find this supervisor and become a
    /// member.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment = vec![
            (
                ENV_SOCKET.into(),
                OsString::from_vec(self.socket_name.clone()),
            ),
            (ENV_TOKEN.into(), self.shared.token.to_string().into()),
            (ENV_TABLE.into(), self.shared.table.path.clone().into()),
            (
                ENV_ABSORB.into(),
                self.shared.options.patterns.join("\n").into(),
            ),
        ];
        if self.shared.options.refuse_io_uring {
            environment.push((ENV_IO_URING.into(), IO_URING_REFUSED.into()));
        }
        // Also where none is laid: one that an earlier run of the pool left is of no use, since the
        // pool is recovered.
        if self.shared.options.guard.is_some() {
            environment.push((
                ENV_GUARD.into(),
                guard::name(self.shared.pool.uuid()).into(),
            ));
        }
        if let Some(command) = self.shared.child_agents.command() {
            environment.push((ENV_ENTER.into(), command.into()));
        }
        environment
    }

    /// From now on a program that a process with the library executes, and that this does not fit,
    /// has an agent: the process asks for it by this command, and `starter` starts one.
    pub fn serve_children(&self, command: PathBuf, starter: Box<ChildAgentStarter>) {
        let environment = self.environment();
        let agents = &self.shared.child_agents;
        agents.set_maker(command, environment, starter);
    }

    /// Notes why such programs have none, for the status.
    pub fn serve_no_children(&self, why: String) {
        self.shared.child_agents.set_unserved(why);
    }

    /// Makes all files plain, when that is called: an agent has died, and the kernel does its work
    /// for the program from now on.
    pub fn letting_go(&self) -> impl FnOnce() + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.let_go_of_all()
    }

    /// Notes, when that is called with a reason, that no agent can serve the program.
    pub fn without_agent(&self) -> impl FnOnce(String) + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move |why| drop(shared.effect.no_agent.set(why))
    }

    /// The treatment of processes outside the run that open an absorbed file for writing.
    #[must_use]
    pub fn outside(&self) -> OutsideWatch {
        self.shared.watch.outside()
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> SupervisorStatus {
        self.shared.status()
    }

    /// The same, for as long as the run goes on, without this.
    pub fn watch(&self) -> impl Fn() -> SupervisorStatus + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.status()
    }

    /// Waits, for so long at most, until all processes of the run have ended: those that have not,
    /// or of which something is left to do. Once there is none, no process joins it any more.
    #[must_use]
    pub fn outlast(&self, limit: Duration) -> Vec<ProcessStatus> {
        self.shared.outlast(limit)
    }

    /// After the database ended: waits until all its processes have, and their lane is drained, and
    /// stops.
    ///
    /// # Errors
    /// If a file cannot be synced: its records stay in the pool.
    pub fn finish(self) -> Result<SupervisorStatus, FilesError> {
        let shared = &self.shared;
        shared.outlast_members();
        // The kernel asks about what the drain itself opens, too.
        let left = shared
            .running()
            .and_then(|run| run.end(shared, END_WAIT).err());
        shared.stopping.store(true, Release);
        shared.effect.end();
        // A last connection ends the wait for one.
        let _ = wire::connect(&self.socket_name, None);
        match left {
            Some(why) => Err(FilesError::Config(format!(
                "the acknowledged writes are in the pool, but not in their files: {why}. When the cause is remedied: forebay recover --pool {}",
                shared.pool.path().display()
            ))),
            None => {
                shared.marks.take_back(&shared.pool);
                Ok(shared.status())
            }
        }
    }
}

impl SupervisorState {
    /// Lays the guard before a process absorbs a file. A pool that is gone after a power cut, with
    /// its records, needs none.
    fn lay_guard(&self, pid: u32, run: Uuid) {
        let survives =
            self.pool.durability() != PoolPersistence::ProcessCrash || failpoint::pool_survived();
        if let Some(kind) = self.options.guard.as_deref().filter(|_| survives) {
            self.guards.note(kind, pid, &self.pool, run);
        }
    }

    /// Returns when all members have ended.
    fn outlast_members(&self) {
        while !self.outlast(Duration::from_secs(1)).is_empty() {}
    }

    /// The members that have not ended within the limit. Once there is none, there will be none:
    /// the lane is about to be given back.
    fn outlast(&self, limit: Duration) -> Vec<ProcessStatus> {
        let begun = MonotonicTime::now();
        let members = loop {
            let rung = self.changed.rung();
            let members = self.members.lock();
            let waits = members.iter().any(|it| !it.has_ended());
            let left = limit.saturating_sub(begun.elapsed());
            if !waits || left.is_zero() {
                break members;
            }
            drop(members);
            self.changed.wait(rung, left);
        };
        let left = members.iter().filter(|member| !member.has_ended());
        let left: Vec<ProcessStatus> = left.map(RunMember::status).collect();
        if left.is_empty() {
            self.over.store(true, Relaxed);
        }
        left
    }
}

/// The environment variable by which the dynamic linker puts the library before the program's other
/// libraries.
#[must_use]
pub fn preload(library: &Path) -> (OsString, OsString) {
    let mut preload = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(OsStr::new(":"));
        preload.push(others);
    }
    ("LD_PRELOAD".into(), preload)
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.note);
        // Threads that end a little later have the table still.
        let _ = std::fs::remove_file(&self.shared.table.path);
        let _ = std::fs::remove_file(order_path(&self.shared.table.path));
    }
}
