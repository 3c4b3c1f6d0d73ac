//! Finds runs: those whose supervisor lives, those that lost it, and pools that hold records of a
//! run that is over.
//!
//! A note in the run directory says how to ask a supervisor, and goes with the directory (a logout
//! takes `$XDG_RUNTIME_DIR` away). So there are two more ways, and each finds what the others lost:
//! the tables of absorbed files ([`absorbed`](crate::absorbed)), and the names of the abstract
//! sockets that the kernel knows. docs/operations.md, "Watching it".

use super::status::{SupervisorNote, SupervisorStatus};
use crate::{
    FilesError,
    absorbed::{self, SHARED_DIR},
    pending_records::{self, LaneRemains},
    processes::{self, NotedProcess},
    sys,
    wire::{self, ClientRequest, SupervisorAnswer},
};
use rustix::io::Errno;
use serde::Serialize;
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Seek, SeekFrom},
    iter,
    os::fd::AsFd,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};
use uuid::Uuid;

/// A supervisor's answer, or the reason that there is none.
type StatusAnswer = Result<SupervisorStatus, Errno>;

/// The longest time of a supervisor to give its status.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// The longest time of one that is found by its socket alone: it may be another directory's.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);
/// Bytes of an answer at most: it may be another user's.
const ANSWER_MAX: u64 = 64 << 20;
/// Supervisors that are asked at a time, at most: one that is stopped holds up no other.
const ASKED_AT_ONCE: usize = 8;
/// Leads the names of supervisors' sockets; a random number follows.
pub(super) const SOCKET_PREFIX: &str = "forebay-";

/// The users whose runs are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunScope {
    /// This user's, begun with the run directory that is looked in.
    Directory,
    /// This user's.
    User,
    /// All users'.
    All,
}

/// A run that goes on without its supervisor.
#[derive(Clone, Debug, Serialize)]
pub struct OrphanedRun {
    /// The pool, if its path is known.
    #[serde(serialize_with = "crate::readable_if")]
    pub pool: Option<PathBuf>,
    /// Its processes that opened a log, and their programs' names.
    pub processes: Vec<(u32, String)>,
}

/// A pool with records of a run that is over.
#[derive(Clone, Debug, Serialize)]
pub struct WaitingPool {
    /// Its path.
    #[serde(serialize_with = "crate::readable")]
    pub pool: PathBuf,
    /// The number of records, if they can be counted.
    pub records: Option<u64>,
}

/// The runs found.
#[derive(Debug, Default)]
pub struct FoundRuns {
    /// The statuses of those that answer.
    pub statuses: Vec<SupervisorStatus>,
    /// Process ids of supervisors that do not, since they are stopped, for instance.
    pub silent: Vec<u32>,
    /// Runs whose supervisor was killed.
    pub orphaned: Vec<OrphanedRun>,
    /// The pools with records of such runs when all of their processes had ended.
    pub waiting: Vec<WaitingPool>,
}

/// Asks every supervisor of this user that was begun with `run_dir`, and whose note or table is
/// there. Notes of those that died are removed.
///
/// # Errors
/// If the directory is there and cannot be read.
pub fn status_of_running(run_dir: &Path) -> Result<FoundRuns, FilesError> {
    let mut look = RunSearch::new(run_dir, RunScope::Directory);
    look.by_notes(run_dir)?;
    look.by_tables(run_dir);
    Ok(look.found(ANSWER_WAIT))
}

/// Asks every supervisor that is looked for, whichever of its notes were removed; and finds the
/// remains of runs without one.
///
/// # Errors
/// As [`status_of_running`].
pub fn status_of(run_dir: &Path, whose: RunScope) -> Result<FoundRuns, FilesError> {
    status_within(run_dir, whose, ANSWER_WAIT)
}

/// The same, where no supervisor has longer than `limit` for its answer.
///
/// # Errors
/// As [`status_of_running`].
pub fn status_within(
    run_dir: &Path,
    whose: RunScope,
    limit: Duration,
) -> Result<FoundRuns, FilesError> {
    let mut look = RunSearch::new(run_dir, whose);
    look.by_notes(run_dir)?;
    look.by_tables(run_dir);
    look.by_strange_tables(run_dir);
    look.by_sockets();
    Ok(look.found(limit))
}

/// The findings so far.
struct RunSearch {
    whose: RunScope,
    user: u32,
    run_dir: PathBuf,
    /// Sockets of which nothing more is to be learnt by another way.
    known: BTreeSet<Vec<u8>>,
    /// Supervisors that are to be asked.
    asked: Vec<FoundSocket>,
    all: FoundRuns,
}

/// A supervisor's socket, and what it was found by.
struct FoundSocket {
    socket: Vec<u8>,
    by: SocketSource,
}

enum SocketSource {
    /// Its note, which is at a path.
    Note(PathBuf, Uuid),
    /// Its table, or its name alone: its secret is not known. Its process id may be.
    Unknown(Option<u32>),
}

impl FoundSocket {
    /// Asks it. It may take so long, and has to be of a user whose runs are wanted.
    fn ask(
        &self,
        limit: Duration,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Result<SupervisorStatus, Errno> {
        match &self.by {
            SocketSource::Note(_, token) => ask((&self.socket, limit), *token, |_| true),
            SocketSource::Unknown(pid) => {
                let wait = pid.map_or(UNKNOWN_WAIT, |_| limit);
                ask((&self.socket, wait.min(limit)), Uuid::nil(), is_wanted)
            }
        }
    }
}

impl RunSearch {
    fn new(run_dir: &Path, whose: RunScope) -> Self {
        let real = run_dir.canonicalize();
        Self {
            whose,
            user: rustix::process::geteuid().as_raw(),
            run_dir: real.unwrap_or_else(|_| run_dir.to_owned()),
            known: BTreeSet::new(),
            asked: Vec::new(),
            all: FoundRuns::default(),
        }
    }

    /// Runs of another version of forebay: what their tables say is not known, but which processes
    /// have them is.
    fn by_strange_tables(&mut self, run_dir: &Path) {
        let Ok(boot) = crate::boot::id() else { return };
        let is_wanted = |user| self.whose == RunScope::All || user == self.user;
        let places = [Path::new(SHARED_DIR), run_dir];
        let tables = places.map(|place| absorbed::strange_of_users(place, is_wanted, boot));
        for table in tables.into_iter().flatten() {
            let all = table.processes();
            let supervisors = all.iter().filter(|process| process.writes);
            let supervisors: Vec<u32> = supervisors.map(|process| process.id).collect();
            if supervisors.is_empty() && !all.is_empty() {
                let named = |id| (id, processes::name_of_process(id));
                self.all.orphaned.push(OrphanedRun {
                    pool: None,
                    processes: all.into_iter().map(|process| named(process.id)).collect(),
                });
            }
            self.all.silent.extend(supervisors);
        }
    }

    /// Asks all of them, each for so long.
    fn found(mut self, limit: Duration) -> FoundRuns {
        let asked = std::mem::take(&mut self.asked);
        let answers = self.answers(&asked, limit);
        for (at, answer) in answers {
            self.take(&asked[at], answer);
        }
        self.all.statuses.sort_by_key(|status| status.pid);
        self.all.silent.sort_unstable();
        self.all.silent.dedup();
        let answered = &self.all.statuses;
        let is_heard = |pid| answered.iter().any(|status| status.pid == pid);
        self.all.silent.retain(|pid| !is_heard(*pid));
        self.all
    }

    fn by_notes(&mut self, run_dir: &Path) -> Result<(), FilesError> {
        let entries = match fs::read_dir(run_dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(FilesError::io(format!("reading {}", run_dir.display()))(e)),
        };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let bytes = fs::read(&path).ok();
            let note =
                bytes.and_then(|bytes| serde_json::from_slice::<SupervisorNote>(&bytes).ok());
            let Some(note) = note else { continue };
            let socket = note.socket.into_bytes();
            self.known.insert(socket.clone());
            let by = SocketSource::Note(path, note.token);
            self.asked.push(FoundSocket { socket, by });
        }
        Ok(())
    }

    fn by_tables(&mut self, run_dir: &Path) {
        let is_wanted = |user| self.whose == RunScope::All || user == self.user;
        let places = [Path::new(SHARED_DIR), run_dir];
        let tables = places.map(|place| absorbed::of_users(place, is_wanted));
        for found in tables.into_iter().flatten() {
            let table = &found.table;
            if !is_of_this_boot(table) {
                continue;
            }
            if !self.is_of_directory(table.run_dir().as_deref()) {
                self.known.insert(table.socket());
            } else if table.is_alive() {
                let supervisor = processes::of_thread(table.supervisor());
                self.ask_unknown(table.socket(), supervisor);
            } else if !absorbed::is_over(table) {
                self.all.orphaned.push(orphaned(table));
            } else if let Some(waiting) = waiting_pool(table) {
                self.all.waiting.push(waiting);
            }
        }
    }

    /// Sockets of which there is neither a note nor a table.
    fn by_sockets(&mut self) {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        for socket in sockets.lines().filter_map(supervisors_socket) {
            self.ask_unknown(socket.as_bytes().to_vec(), None);
        }
    }

    /// A supervisor whose secret is not known, which answers its own user and root, is to be asked;
    /// `pid` is its process id, if that is known.
    fn ask_unknown(&mut self, socket: Vec<u8>, pid: Option<u32>) {
        if self.known.insert(socket.clone()) {
            let by = SocketSource::Unknown(pid);
            self.asked.push(FoundSocket { socket, by });
        }
    }

    /// The answer of each of them, by its place; several are asked at a time.
    fn answers(&self, asked: &[FoundSocket], limit: Duration) -> Vec<(usize, StatusAnswer)> {
        let (whose, user) = (self.whose, self.user);
        let is_wanted = |by: u32| whose == RunScope::All || by == user;
        let next = AtomicUsize::new(0);
        let ask_next = || {
            let at = next.fetch_add(1, Relaxed);
            Some((at, asked.get(at)?.ask(limit, is_wanted)))
        };
        let ask_some = || iter::from_fn(ask_next).collect::<Vec<_>>();
        let mut answers = thread::scope(|scope| {
            let threads = (1..asked.len().min(ASKED_AT_ONCE)).map(|_| {
                let builder = thread::Builder::new().name("status".into());
                builder.spawn_scoped(scope, ask_some)
            });
            // Where there can be no more threads, this one asks them all.
            let threads: Vec<_> = threads.map_while(Result::ok).collect();
            let mut answers = ask_some();
            for thread in threads {
                // Without its answers a run that goes on would be passed over.
                answers.extend(thread.join().unwrap_or_else(|why| resume_unwind(why)));
            }
            answers
        });
        answers.sort_unstable_by_key(|(at, _)| *at);
        answers
    }

    /// Takes up what one of them said.
    fn take(&mut self, supervisor: &FoundSocket, answer: StatusAnswer) {
        match (&supervisor.by, answer) {
            (SocketSource::Note(..), Ok(status)) => self.all.statuses.push(status),
            (SocketSource::Note(note, _), Err(Errno::CONNREFUSED)) => {
                let _ = fs::remove_file(note);
            }
            // It ends just now.
            (SocketSource::Note(..), Err(Errno::CONNRESET | Errno::PIPE)) => {}
            (SocketSource::Note(note, _), Err(_)) => self.all.silent.extend(pid_of(note)),
            (SocketSource::Unknown(_), Ok(status)) => {
                if self.is_of_directory(Some(&status.run_dir)) {
                    self.all.statuses.push(status);
                }
            }
            // Another user's, or gone.
            (
                SocketSource::Unknown(_),
                Err(Errno::ACCESS | Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE),
            ) => {}
            (SocketSource::Unknown(pid), Err(_)) => {
                if pid.is_some() || self.whose != RunScope::Directory {
                    let pid = pid.or_else(|| peer_of(&supervisor.socket));
                    self.all.silent.extend(pid);
                }
            }
        }
    }

    /// True if a run of that directory is looked for; where it is not known which, it may be.
    fn is_of_directory(&self, run_dir: Option<&Path>) -> bool {
        self.whose != RunScope::Directory || run_dir.is_none_or(|run_dir| run_dir == self.run_dir)
    }
}

fn is_of_this_boot(table: &absorbed::TableView) -> bool {
    crate::boot::id().is_ok_and(|boot| table.is_of(boot))
}

fn orphaned(table: &absorbed::TableView) -> OrphanedRun {
    let named = |process: NotedProcess| (process.id, processes::name_of_process(process.id));
    OrphanedRun {
        pool: table.lane.place().map(|place| place.path),
        processes: table.living().into_iter().map(named).collect(),
    }
}

/// The records in the pool of a run without any process left. A pool that is not there any more was
/// given up.
fn waiting_pool(table: &absorbed::TableView) -> Option<WaitingPool> {
    let place = table.lane.place().filter(|_| !table.lane.is_settled())?;
    let records = match pending_records::left(&place) {
        LaneRemains::Nothing => return None,
        LaneRemains::Records(records) => Some(records),
        LaneRemains::Unknown => None,
    };
    let pool = place.path;
    Some(WaitingPool { pool, records })
}

/// The name of a supervisor's socket that listens, from a line of /proc/net/unix.
fn supervisors_socket(line: &str) -> Option<&str> {
    /// `__SO_ACCEPTCON`, and `SOCK_SEQPACKET`.
    const LISTENS: [&str; 2] = ["00010000", "0005"];
    let mut words = line.split_ascii_whitespace().skip(3);
    let state = [words.next()?, words.next()?];
    let name = words.last()?.strip_prefix('@')?;
    let number = name.strip_prefix(SOCKET_PREFIX)?;
    (state == LISTENS && Uuid::parse_str(number).is_ok()).then_some(name)
}

/// The process of this note, by its name.
fn pid_of(note: &Path) -> Option<u32> {
    let name = note.file_name()?.to_str()?;
    name.split_once('-')?.0.parse().ok()
}

/// The process that listens.
fn peer_of(socket: &[u8]) -> Option<u32> {
    let socket = wire::connect(socket, Some(UNKNOWN_WAIT)).ok()?;
    sys::peer(socket.as_fd()).ok().map(|(pid, _)| pid)
}

/// Asks the supervisor. `EACCES` if it is a user's whose runs are not wanted.
fn ask(
    (socket, wait): (&[u8], Duration),
    token: Uuid,
    is_wanted: impl Fn(u32) -> bool,
) -> Result<SupervisorStatus, Errno> {
    let socket = wire::connect(socket, Some(wait))?;
    let (pid, user) = sys::peer(socket.as_fd())?;
    if !is_wanted(user) {
        return Err(Errno::ACCESS);
    }
    wire::send(socket.as_fd(), &ClientRequest::Status { token }, &[])?;
    let (SupervisorAnswer::Status, fds) = wire::receive::<SupervisorAnswer>(socket.as_fd())? else {
        return Err(Errno::PROTO);
    };
    let file = File::from(fds.into_iter().next().ok_or(Errno::PROTO)?);
    let mut status = read(file).map_err(|e| sys::errno_of(&e))?;
    // Its own number is that of its pid namespace, and another user may say any. Where it is in
    // none that is seen from here, it has no other.
    if pid != 0 {
        status.pid = pid;
    }
    Ok(status)
}

/// The status in a file. Another user may send something else, which would be waited for.
fn read(mut file: File) -> io::Result<SupervisorStatus> {
    let found = file.metadata()?;
    if !found.is_file() || found.len() > ANSWER_MAX {
        return Err(Errno::PROTO.into());
    }
    // It is sent as it was written: behind its end.
    file.seek(SeekFrom::Start(0))?;
    Ok(serde_json::from_reader(io::BufReader::new(file))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_files::TABLE_PREFIX;
    use forebay_pool::media::Mapped;
    use rustix::mm::ProtFlags;

    #[test]
    fn run_of_another_version_is_found_by_its_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{TABLE_PREFIX}x"));
        let boot = crate::boot::id().unwrap();
        let mut bytes = absorbed::head_of_another_layout(boot);
        bytes.resize(size_of::<absorbed::TablePage>(), 0);
        fs::write(&path, bytes).unwrap();
        let found = || {
            let mut look = RunSearch::new(dir.path(), RunScope::All);
            look.by_strange_tables(dir.path());
            look.all
        };
        let own = std::process::id();
        let is_orphaned = |found: &FoundRuns| {
            let mut processes = found.orphaned.iter().flat_map(|run| &run.processes);
            processes.any(|(id, _)| *id == own)
        };
        let table = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        assert!(!found().silent.contains(&own) && !is_orphaned(&found()));
        let client = Mapped::<absorbed::TablePage>::map_as(table.as_fd(), ProtFlags::READ).unwrap();
        assert!(!found().silent.contains(&own) && is_orphaned(&found()));
        drop(client);
        let _supervisor = Mapped::<absorbed::TablePage>::map(table.as_fd()).unwrap();
        assert!(found().silent.contains(&own) && !is_orphaned(&found()));
    }

    #[test]
    fn socket_of_a_supervisor_is_known_by_its_line() {
        let name = "forebay-1b4e28ba-2fa1-11d2-883f-0016d3cca427";
        let line = |flags, kind, name: &str| {
            format!("0000000000000000: 00000002 00000000 {flags} {kind} 01 4711 @{name}")
        };
        let its = line("00010000", "0005", name);
        assert_eq!(supervisors_socket(&its), Some(name));
        for other in [
            line("00000000", "0005", name),
            line("00010000", "0001", name),
            line("00010000", "0005", "forebay-1b4e28ba"),
            "Num       RefCount Protocol Flags    Type St Inode Path".to_owned(),
        ] {
            assert_eq!(supervisors_socket(&other), None, "{other}");
        }
    }
}
