//! What a supervisor says of itself, and how those who look find it.

use super::{Outside, Shared, member::Member, run::Run};
use crate::{
    FilesError, sys,
    wire::{self, Answer, Request},
};
use forebay_pool::PAGE;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    os::{
        fd::AsFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt},
    },
    path::{self, Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};
use uuid::Uuid;

/// How long a supervisor may take to say how it is doing.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// What a file absorbed.
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
    /// True if it is plain now: another process wrote to it, or the program changed it in a way that is not logged.
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
pub struct LaneStatus {
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
    /// Syncs of the program's that were real ones, because a name, a size or an attribute on that file system had changed before.
    pub order_syncs: u64,
    /// Times that a process waited because it was full.
    pub waits: u64,
    /// Why it was left in the pool, if it was.
    pub left: Option<String>,
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
    /// Why it stays plain there.
    pub reason: String,
}

/// A supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its process id.
    pub pid: u32,
    /// The database.
    pub program: String,
    /// The pool.
    #[serde(serialize_with = "crate::readable")]
    pub pool: PathBuf,
    /// What the pool is.
    pub medium: String,
    /// What the pool survives, in words.
    pub survives: String,
    /// Patterns of the files that are absorbed.
    pub patterns: Vec<String>,
    /// What becomes of a process outside the run that opens an absorbed file for writing.
    pub outside_writer: Outside,
    /// How long it has been running, seconds.
    pub uptime_seconds: f64,
    /// The lane; none as long as no process has asked to absorb.
    pub lane: Option<LaneStatus>,
    /// The database's processes that absorb, those that ended included.
    pub processes: Vec<ProcessStatus>,
    /// What is absorbed, or was.
    pub files: Vec<FileStatus>,
    /// Files that a pattern names and that stay plain.
    pub plain: Vec<PlainFile>,
}

impl Run {
    fn file_status(&self) -> Vec<FileStatus> {
        // A file is in one of the two at any time.
        let known = self.files.lock();
        let forgotten = self.forgotten.lock();
        let before = forgotten.iter().map(|sum| FileStatus {
            path: sum.path.clone(),
            writes: sum.counts[0],
            bytes: sum.counts[1],
            syncs: sum.counts[2],
            retired: sum.retired,
            error: None,
        });
        let mut files: Vec<FileStatus> = before.collect();
        drop(forgotten);
        for (known, file) in known.iter().zip(&self.page.files) {
            let Some(known) = known else { continue };
            let at = files.iter().position(|before| before.path == known.path);
            let at = at.unwrap_or_else(|| {
                files.push(FileStatus {
                    path: known.path.clone(),
                    writes: 0,
                    bytes: 0,
                    syncs: 0,
                    retired: false,
                    error: None,
                });
                files.len() - 1
            });
            files[at].writes += file.writes.load(Relaxed);
            files[at].bytes += file.bytes.load(Relaxed);
            files[at].syncs += file.syncs.load(Relaxed);
            files[at].retired = false;
            files[at].error = file.error().map(|errno| errno.to_string());
        }
        files
    }

    fn status(&self, order_syncs: u64) -> LaneStatus {
        let usage = self.lane.usage();
        let segment_bytes = self.pool.geometry().segment_bytes;
        let waiting = self.lane.complete().len() as u64;
        // An empty segment has its header.
        let lag = usage.tail.saturating_sub(usage.head + PAGE);
        LaneStatus {
            bytes: segment_bytes * usage.segments as u64,
            drained: usage.head,
            drain_lag_bytes: lag,
            segments_waiting: waiting,
            real_syncs: self.syncs.load(Relaxed),
            real_sync_seconds: self.sync_ns.load(Relaxed) as f64 / 1e9,
            order_syncs,
            waits: self.page.waits.load(Relaxed),
            left: self.left.lock().clone(),
        }
    }
}

impl Shared {
    pub(super) fn status(&self) -> Status {
        let run = self.running();
        let pool = self.pool.path();
        let members = self.members.lock();
        let processes = members.iter().map(Member::status);
        Status {
            pid: std::process::id(),
            program: self.options.program.clone(),
            pool: path::absolute(pool).unwrap_or_else(|_| pool.to_owned()),
            medium: self.pool.describe(),
            survives: self.pool.durability().to_string(),
            patterns: self.options.patterns.clone(),
            outside_writer: self.watch.outside(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            lane: run.as_ref().map(|run| run.status(self.order.page.syncs())),
            processes: processes.collect(),
            files: run.map(|run| run.file_status()).unwrap_or_default(),
            plain: self.plain.lock().clone(),
        }
    }
}

/// How to find a supervisor.
#[derive(Serialize, Deserialize)]
struct Note {
    socket: String,
    token: Uuid,
}

/// Makes the run directory, for this user only, if it is not there.
pub(super) fn make_run_dir(directory: &Path) -> Result<(), FilesError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(FilesError::io(format!("making {}", directory.display())))
}

/// Leaves a note in the run directory, readable for its owner only.
pub(super) fn leave_note(shared: &Shared, socket: &[u8]) -> Result<PathBuf, FilesError> {
    let directory = &shared.options.run_dir;
    let doing = || format!("leaving a note in {}", directory.display());
    let path = directory.join(format!(
        "{}-{}.json",
        std::process::id(),
        shared.token.simple()
    ));
    let note = Note {
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
    write().map_err(FilesError::io(doing()))?;
    Ok(path)
}

/// The supervisors of a run directory.
#[derive(Debug, Default)]
pub struct Running {
    /// What those say that answer.
    pub statuses: Vec<Status>,
    /// Process ids of those that do not, since they are stopped, for instance.
    pub silent: Vec<u32>,
}

/// Asks every supervisor that left a note in `run_dir`. Notes of those that died are removed.
///
/// # Errors
/// If the directory is there and cannot be read.
pub fn status_of_running(run_dir: &Path) -> Result<Running, FilesError> {
    let mut all = Running::default();
    let entries = match fs::read_dir(run_dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(all),
        Err(e) => return Err(FilesError::io(format!("reading {}", run_dir.display()))(e)),
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let Some(note) = fs::read(&path)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Note>(&bytes).ok())
        else {
            continue;
        };
        match ask(&note) {
            Ok(status) => all.statuses.push(status),
            Err(Errno::CONNREFUSED) => {
                let _ = fs::remove_file(&path);
            }
            // It ends just now.
            Err(Errno::CONNRESET | Errno::PIPE) => {}
            Err(_) => all.silent.extend(pid_of(&path)),
        }
    }
    all.statuses.sort_by_key(|status| status.pid);
    all.silent.sort_unstable();
    Ok(all)
}

/// Whose note this is, by its name.
fn pid_of(note: &Path) -> Option<u32> {
    let name = note.file_name()?.to_str()?;
    name.split_once('-')?.0.parse().ok()
}

fn ask(note: &Note) -> Result<Status, Errno> {
    let socket = wire::connect(note.socket.as_bytes(), Some(ANSWER_WAIT))?;
    wire::send(socket.as_fd(), &Request::Status { token: note.token }, &[])?;
    match wire::receive::<Answer>(socket.as_fd())? {
        (Answer::Status, fds) => {
            let status = fds.into_iter().next().ok_or(Errno::PROTO)?;
            let mut status = fs::File::from(status);
            // It is sent as it was written: behind its end.
            status
                .seek(SeekFrom::Start(0))
                .map_err(|e| sys::errno_of(&e))?;
            serde_json::from_reader(std::io::BufReader::new(status)).map_err(|_| Errno::PROTO)
        }
        _ => Err(Errno::PROTO),
    }
}
