//! A supervisor's status. Others find it by [`discover`](super::discover).

use super::{
    OutsideWatch, SupervisorState, file_names::newest_path, member::RunMember,
    pattern_sums::PatternSum, run::RunState,
};
use crate::{
    FilesError,
    shared::{DurationHistogram, FileState},
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{self, Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use uuid::Uuid;

/// A file's absorbed writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileStatus {
    /// Its path.
    #[serde(serialize_with = "crate::readable")]
    pub path: PathBuf,
    /// Writes that went to the pool too.
    pub writes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Syncs that returned at once.
    pub syncs: u64,
    /// True if it is plain now: another process wrote to it, or the program changed it in a way
    /// that is not logged.
    pub retired: bool,
    /// The error with which it cannot be synced at present, if it cannot.
    pub error: Option<String>,
}

/// A process of the database that absorbs, or has absorbed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its process id.
    pub pid: u32,
    /// Its program's name.
    pub program: String,
    /// True if it ended.
    pub ended: bool,
}

/// The run's lane.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunLaneStatus {
    /// Bytes of the pool that it has now; it takes more while the disk is behind.
    pub bytes: u64,
    /// Log address below which it is durable in the files.
    pub drained: u64,
    /// Bytes that are acknowledged and not yet on the disk.
    pub drain_lag_bytes: u64,
    /// Complete segments that wait to be synced.
    pub segments_waiting: u64,
    /// Real syncs made for it.
    pub real_syncs: u64,
    /// Time that they took, seconds.
    pub real_sync_seconds: f64,
    /// Syncs of the program's that were real ones, because a name, a size or an attribute on that
    /// file system had changed before.
    pub order_syncs: u64,
    /// Times that a process waited because it was full.
    pub waits: u64,
    /// The reason that it was left in the pool, if it was.
    pub left: Option<String>,
    /// Age of the oldest byte that is not yet on the disk, seconds: not too small, and too large by
    /// a tenth of a second as a rule.
    pub lag_seconds: f64,
    /// Durations of the run's work.
    pub durations: RunDurations,
    /// Absorbed writes, by pattern.
    pub absorbed: Vec<PatternSum>,
}

/// Durations of a run's work.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunDurations {
    /// Commits to a pool on a disk, which a sync waits for; of the writes to a pool in memory one
    /// in 64.
    pub commit: DurationHistogram,
    /// Complete segments to be synced behind the program, and released.
    pub drain: DurationHistogram,
    /// Processes for room in the lane.
    pub wait: DurationHistogram,
    /// Files to be made plain.
    pub retire: DurationHistogram,
}

/// A file that a pattern names and that stays plain in a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlainFile {
    /// Its path.
    #[serde(serialize_with = "crate::readable")]
    pub path: PathBuf,
    /// The process.
    pub pid: u32,
    /// Its program's name.
    pub program: String,
    /// The reason that it stays plain there.
    pub reason: String,
}

/// A program that has an agent of its own, since a process with the library executed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildAgentStatus {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub program: String,
}

/// The front end that sees the calls of a run's programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunFrontEnd {
    /// The library, in each process.
    #[default]
    Library,
    /// An agent, which is a member for all of them.
    Agent,
    /// Nobody: there was to be an agent, and none can be had here.
    Nobody,
}

/// The choice of the front end that is to see the calls of a run's programs, and the reason.
#[derive(Clone, Debug, Default)]
pub struct FrontEndChoice {
    /// The front end.
    pub front_end: RunFrontEnd,
    /// In words; may be empty.
    pub reason: String,
    /// An agent could be asked for instead.
    pub can_be_agent: bool,
}

impl RunFrontEnd {
    /// For a reader.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Library => "a library in it",
            Self::Agent => "an agent beside it (experimental)",
            Self::Nobody => "nobody",
        }
    }

    /// The same, with why it is so.
    #[must_use]
    pub fn with_reason(self, reason: &str) -> String {
        match reason {
            "" => self.in_words().to_owned(),
            reason => format!("{}: {reason}", self.in_words()),
        }
    }
}

/// A supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SupervisorStatus {
    /// Its process id.
    pub pid: u32,
    /// The database.
    pub program: String,
    /// The front end that sees its calls.
    pub front_end: RunFrontEnd,
    /// The reason, in words.
    pub front_end_reason: String,
    /// Programs that have an agent of their own beside.
    pub child_agents: Vec<ChildAgentStatus>,
    /// The pool.
    #[serde(serialize_with = "crate::readable")]
    pub pool: PathBuf,
    /// The pool's medium.
    pub medium: String,
    /// The losses that the pool survives, in words.
    pub survives: String,
    /// The same as a word: `power_cut`, `power_cut_once_committed` or `process_crash`.
    pub persistence: String,
    /// Patterns of the files that are absorbed.
    pub patterns: Vec<String>,
    /// The treatment of a process outside the run that opens an absorbed file for writing.
    pub outside_writer: OutsideWatch,
    /// Time since its start, seconds.
    pub uptime_seconds: f64,
    /// The lane; none as long as no process has asked to absorb.
    pub lane: Option<RunLaneStatus>,
    /// The database's processes that absorb, those that ended included.
    pub processes: Vec<ProcessStatus>,
    /// Files that are absorbed, or were.
    pub files: Vec<FileStatus>,
    /// Files that a pattern names and that stay plain.
    pub plain: Vec<PlainFile>,
    /// The directory of the supervisor's note of itself.
    #[serde(serialize_with = "crate::readable")]
    pub run_dir: PathBuf,
    /// The obstacles that keep the run from its purpose, in words: nothing is absorbed, or not any
    /// more.
    pub degraded: Vec<String>,
}

impl FileStatus {
    fn add(&mut self, [writes, bytes, syncs]: [u64; 3]) {
        // Any process of the run may write over the counts.
        self.writes = self.writes.wrapping_add(writes);
        self.bytes = self.bytes.wrapping_add(bytes);
        self.syncs = self.syncs.wrapping_add(syncs);
    }
}

/// The statuses of files, each once, by their paths.
#[derive(Default)]
struct FileList {
    files: Vec<FileStatus>,
    places: HashMap<PathBuf, usize>,
}

impl FileList {
    /// The status of the file at a path, which begins now if there was none.
    fn of_path(&mut self, path: &Path) -> &mut FileStatus {
        let at = self.places.get(path).copied();
        let at = at.unwrap_or_else(|| {
            self.files.push(FileStatus {
                path: path.to_owned(),
                writes: 0,
                bytes: 0,
                syncs: 0,
                retired: false,
                error: None,
            });
            let at = self.files.len() - 1;
            self.places.insert(path.to_owned(), at);
            at
        });
        &mut self.files[at]
    }
}

impl SupervisorStatus {
    /// The front ends that see the calls of its programs, in words: also of those that have an
    /// agent of their own.
    #[must_use]
    pub fn seen_by(&self) -> String {
        let mut said = self.front_end.with_reason(&self.front_end_reason);
        for it in &self.child_agents {
            let (program, pid) = (&it.program, it.pid);
            said += &format!(
                "; those of {program} (process {pid}) by an agent of its own (experimental)"
            );
        }
        said
    }
}

impl RunState {
    fn file_status(&self) -> Vec<FileStatus> {
        let mut all = FileList::default();
        // A file is in one of the two at any time.
        let known = self.files.lock();
        for ((path, _), sum) in &self.forgotten.lock().by_path {
            let file = all.of_path(path);
            file.add(sum.counts);
            file.retired = sum.retired;
        }
        for (number, known) in known.iter() {
            let file = &self.page.files[number];
            let status = all.of_path(&newest_path(file, &known.path));
            let count = |count: &AtomicU64| count.load(Relaxed);
            status.add([&file.writes, &file.bytes, &file.syncs].map(count));
            status.retired = false;
            status.error = file.error().map(|errno| errno.to_string());
        }
        all.files
    }

    /// True once a file was absorbed.
    pub(super) fn has_absorbed(&self) -> bool {
        let files = self.files.lock();
        let state = |number: usize| self.page.files[number].stamp().state;
        let any = (files.iter()).any(|(number, _)| state(number) == FileState::Absorbed);
        drop(files);
        any || !self.forgotten.lock().is_empty()
    }

    fn status(&self, shared: &SupervisorState) -> RunLaneStatus {
        let usage = self.lane.usage();
        let segment_bytes = self.pool.geometry().segment_bytes;
        let waiting = self.lane.complete().len() as u64;
        let (lag, age) = self.lag(shared.started.elapsed());
        RunLaneStatus {
            bytes: segment_bytes * usage.segments as u64,
            drained: usage.head,
            drain_lag_bytes: lag,
            segments_waiting: waiting,
            real_syncs: self.syncs.load(Relaxed),
            real_sync_seconds: self.sync_ns.load(Relaxed) as f64 / 1e9,
            order_syncs: shared.order.page.syncs(),
            waits: self.page.waits.load(Relaxed),
            left: self.left.lock().clone(),
            lag_seconds: age.as_secs_f64(),
            durations: RunDurations {
                commit: self.page.commits.read(),
                drain: self.drains.read(),
                wait: self.page.waited.read(),
                retire: self.retires.read(),
            },
            absorbed: self.absorbed(shared),
        }
    }
}

impl SupervisorState {
    pub(super) fn status(&self) -> SupervisorStatus {
        let run = self.running();
        let pool = self.pool.path();
        let processes: Vec<ProcessStatus> =
            self.members.lock().iter().map(RunMember::status).collect();
        let files = run.as_ref().map(|run| run.file_status());
        let files = files.unwrap_or_default();
        let plain = self.plain.lock().clone();
        let (front_end, front_end_reason) = self.front_end();
        SupervisorStatus {
            degraded: self.degraded(&files, &plain),
            run_dir: absolute(&self.options.run_dir),
            pid: std::process::id(),
            program: self.options.program.clone(),
            front_end,
            front_end_reason,
            child_agents: self.child_agents.living(),
            pool: path::absolute(pool).unwrap_or_else(|_| pool.to_owned()),
            medium: self.pool.describe(),
            survives: self.pool.durability().to_string(),
            persistence: self.pool.durability().name().to_owned(),
            patterns: self.options.patterns.clone(),
            outside_writer: self.watch.outside(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            lane: run.as_ref().map(|run| run.status(self)),
            processes,
            files,
            plain,
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    let real = path.canonicalize().or_else(|_| path::absolute(path));
    real.unwrap_or_else(|_| path.to_owned())
}

/// A supervisor's note of its address.
#[derive(Serialize, Deserialize)]
pub(super) struct SupervisorNote {
    pub(super) socket: String,
    pub(super) token: Uuid,
}

/// Makes the run directory, for this user only, if it is not there.
pub(super) fn make_run_dir(directory: &Path) -> Result<(), FilesError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|e| unwritable(directory, "making", &e))
}

/// The remedy if nothing can be left in the run directory because of this: the line of a unit that
/// is to be changed.
#[must_use]
pub fn run_dir_remedy(error: &std::io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::ROFS) => {
            ". It is read-only: in a unit of systemd by ProtectSystem= or ReadOnlyPaths=. Add RuntimeDirectory=forebay and Environment=FOREBAY_RUN_DIR=%t/forebay. \
             In a container, mount a tmpfs (an emptyDir) and name it with the environment variable FOREBAY_RUN_DIR"
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            ". Name a directory of this user's with the environment variable FOREBAY_RUN_DIR (in a unit of systemd: RuntimeDirectory=forebay and \
             Environment=FOREBAY_RUN_DIR=%t/forebay)"
        }
        _ => "",
    }
}

fn unwritable(directory: &Path, doing: &str, error: &std::io::Error) -> FilesError {
    let remedy = run_dir_remedy(error);
    FilesError::Config(format!("{doing} {}: {error}{remedy}", directory.display()))
}

/// Leaves a note in the run directory, readable for its owner only.
pub(super) fn leave_note(shared: &SupervisorState, socket: &[u8]) -> Result<PathBuf, FilesError> {
    let directory = &shared.options.run_dir;
    let path = directory.join(format!(
        "{}-{}.json",
        std::process::id(),
        shared.token.simple()
    ));
    let note = SupervisorNote {
        socket: String::from_utf8_lossy(socket).into_owned(),
        token: shared.token,
    };
    let write = || -> std::io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(&serde_json::to_vec(&note)?)
    };
    write().map_err(|e| unwritable(directory, "leaving a note in", &e))?;
    Ok(path)
}
