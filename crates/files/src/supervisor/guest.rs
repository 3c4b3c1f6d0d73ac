//! One client of a supervisor: what it asks, and what is known of its files.

use super::{PlainFile, Shared, drain, let_go::LOCKED_WAIT, register::Watching, watch::Watched};
use crate::{
    FILES_MAX,
    absorbed::Key,
    processes,
    replay::{self, Mark, Outcome, RecoverOptions, Whose},
    shared::SharedPage,
    sys,
    wire::{self, Answer, Request},
};
use parking_lot::Mutex;
use rustix::{fs::Stat, io::Errno, net::sockopt};
use std::{
    ffi::OsString,
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// How often that is tried.
const AGAIN: Duration = Duration::from_millis(20);

/// A file that a client absorbs.
#[derive(Clone)]
pub(super) struct GuestFile {
    pub(super) path: PathBuf,
    /// Device and inode; none for a file that is released, whose inode may be another's.
    pub(super) key: Option<Key>,
    /// What its records may name it by.
    pub(super) identities: Vec<Vec<u8>>,
    /// Whose it was, and who might write to it, when it was registered.
    pub(super) stat: Stat,
    /// An open file of the supervisor's own, for reading: it shares no lock, position or flag with the program's, and keeps no program from
    /// being executed. None for a file that is released.
    pub(super) file: Option<Arc<File>>,
    /// The directory that had its last name.
    pub(super) unlinked_from: Option<Arc<File>>,
    pub(super) watched: Watched,
}

/// A client.
pub(super) struct Guest {
    pub(super) pid: u32,
    /// Its program's name.
    pub(super) program: String,
    pub(super) owner: Uuid,
    /// Its number in the table of absorbed files.
    pub(super) holder: u64,
    pub(super) page: SharedPage,
    /// By number.
    pub(super) files: Mutex<Vec<Option<Arc<GuestFile>>>>,
    /// After it ended: files that its lane may hold something of, by device and inode.
    pub(super) ending: Mutex<Vec<Key>>,
    /// What it absorbed before, path by path: writes, bytes, syncs; and whether it was retired at last.
    pub(super) forgotten: Mutex<Vec<(PathBuf, [u64; 3], bool)>>,
    /// Log address below which everything was synced while the client was idle.
    pub(super) synced: AtomicU64,
    /// Segments that were handed over and not synced yet.
    pub(super) queued: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) sync_ns: AtomicU64,
    /// Why its lane could not be recovered, if so.
    pub(super) left: Mutex<Option<String>>,
}

/// What a client's drain is to do.
pub(super) enum Work {
    /// Sync the files, then everything below the address is drained.
    Drain(u64, Vec<u32>),
    /// The client repaired the file.
    Repaired(u32),
}

/// Serves a client, whose secret is right, of this process and user.
pub(super) fn welcome(shared: &Arc<Shared>, connection: &OwnedFd, (pid, uid): (u32, u32)) {
    let refuse = |reason: String| {
        sys::complain(&format!("process {pid} stays plain: {reason}"));
        let _ = wire::send(connection.as_fd(), &Answer::Refused { reason }, &[]);
    };
    // Only the first message is waited for impatiently.
    for which in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        let _ = sockopt::set_socket_timeout(connection, which, None);
    }
    let (pool, page) = match (pool_for(shared, uid), SharedPage::new("forebay")) {
        (Ok(pool), Ok(page)) => (pool, page),
        (Err(reason), _) => return refuse(reason),
        (_, Err(e)) => return refuse(format!("a page to share: {e}")),
    };
    let (page, page_fd) = page;
    let guest = Arc::new(Guest {
        pid,
        program: processes::name_of_process(pid),
        owner: Uuid::new_v4(),
        holder: shared.holders.fetch_add(1, Relaxed) + 1,
        page,
        files: Mutex::new((0..FILES_MAX).map(|_| None).collect()),
        ending: Mutex::default(),
        forgotten: Mutex::default(),
        queued: AtomicU64::new(0),
        synced: AtomicU64::new(0),
        syncs: AtomicU64::new(0),
        sync_ns: AtomicU64::new(0),
        left: Mutex::default(),
    });
    let welcome = Answer::Welcome {
        pool: shared.pool.path().to_owned(),
        owner: guest.owner,
        holder: guest.holder,
        buffers: shared.options.buffers,
        label: guest.label(Mark::None),
        boot: shared.boot,
    };
    let (work, todo) = mpsc::channel();
    let draining = {
        let (shared, guest) = (Arc::clone(shared), Arc::clone(&guest));
        thread::Builder::new()
            .name("drain".into())
            .spawn(move || drain::run(&shared, &guest, &todo))
    };
    let draining = match draining {
        Ok(draining) => draining,
        Err(e) => return refuse(format!("starting a thread: {e}")),
    };
    // Known before it is told: from now on nobody finishes without it.
    shared.guests.lock().push(Arc::clone(&guest));
    if wire::send(
        connection.as_fd(),
        &welcome,
        &[pool.as_fd(), page_fd.as_fd()],
    )
    .is_ok()
    {
        drop((pool, page_fd));
        while let Ok((request, fds)) = wire::receive::<Request>(connection.as_fd()) {
            if !guest.obey(shared, connection, request, fds, &work) {
                break;
            }
        }
    }
    // It is gone, and its drain ends with what was handed over.
    drop(work);
    let _ = draining.join();
    shared.recover(&guest);
}

/// The pool for a client: an open file of its own, so that the lock on its lane is its own, and dies with it. By the supervisor's
/// descriptor: its path may lead elsewhere by now. And only for whom it belongs to: who writes to a pool can make a recovery write to files.
fn pool_for(shared: &Shared, uid: u32) -> Result<File, String> {
    let opening = |e: String| format!("opening the pool: {e}");
    let pool = shared
        .pool
        .descriptor()
        .ok_or_else(|| opening("it has no file".into()))?;
    let stat = rustix::fs::fstat(pool).map_err(|e| opening(e.to_string()))?;
    if stat.st_uid != uid {
        return Err(format!(
            "it runs as user {uid}, and the pool {} belongs to user {}, whose alone it is to write to. Run forebay as the program's user, \
             with a pool of that user's: chown it, and `runuser -u USER -- forebay run …`",
            shared.pool.path().display(),
            stat.st_uid
        ));
    }
    let mut options = File::options();
    options.read(true).write(true);
    options
        .open(sys::link_of(pool))
        .map_err(|e| opening(e.to_string()))
}

impl Guest {
    /// Does what the client asks. False if it speaks nonsense.
    fn obey(
        self: &Arc<Self>,
        shared: &Shared,
        connection: &OwnedFd,
        request: Request,
        fds: Vec<OwnedFd>,
        work: &Sender<Work>,
    ) -> bool {
        let todo = match request {
            Request::Register { file, path } => {
                let answer = self.register(shared, file, path, fds);
                return wire::send(connection.as_fd(), &answer, &[]).is_ok();
            }
            Request::Drain { end, files } => {
                self.queued.fetch_add(1, Relaxed);
                Work::Drain(end, files)
            }
            Request::Repaired { file } => Work::Repaired(file),
            Request::Unlinked { file, path, closed } => {
                self.unlinked(file, &PathBuf::from(OsString::from_vec(path)));
                if closed {
                    self.release(shared, file);
                }
                return true;
            }
            Request::Released { file } => {
                self.release(shared, file);
                return true;
            }
            Request::Plain { path, reason, .. } => {
                shared.stays_plain(self.pid, path, reason);
                return true;
            }
            // Nothing that is queued needs it: the lane holds nothing of the file. And its number may be given anew at once.
            Request::Forget { file, retired } => {
                self.forget(shared, file, retired);
                shared.changed.notify_all();
                return true;
            }
            Request::Hello { .. }
            | Request::Status { .. }
            | Request::Foreign { .. }
            | Request::OtherRun { .. }
            | Request::Table { .. } => return false,
        };
        work.send(todo).is_ok()
    }

    /// The label of its lane.
    fn label(&self, mark: Mark) -> String {
        replay::label(mark, &format!("{} {}", self.program, self.pid))
    }

    /// Marks its lane, for a recovery.
    pub(super) fn mark(&self, shared: &Shared, mark: Mark) {
        // A damaged lane table is what a recovery finds, too.
        let _ = shared.pool.relabel(self.owner, &self.label(mark));
    }
}

impl Shared {
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
        let mut plain = self.plain.lock();
        plain.retain(|known| (&known.path, known.pid) != (&file.path, pid));
        if plain.len() < NOTED_MAX {
            plain.push(file);
        }
    }

    /// After the client ended: its files are synced, and its lane goes back to the pool.
    fn recover(&self, guest: &Arc<Guest>) {
        let status = guest.status();
        // What its lane may name; and its files, open since before it wrote to them, hear of every sync that failed.
        let mut registered: Vec<Arc<GuestFile>> =
            guest.files.lock().iter().flatten().cloned().collect();
        // The table has them until the lane is recovered.
        let keys: Vec<Key> = registered.iter().filter_map(|known| known.key).collect();
        guest.ending.lock().clone_from(&keys);
        let identities: Vec<Vec<u8>> = registered
            .iter()
            .flat_map(|known| known.identities.iter().cloned())
            .collect();
        // Whoever opens one of them to write waits until then.
        let watched = self.watch.keep(&registered);
        let numbers = 0..u32::try_from(FILES_MAX).unwrap_or(0);
        numbers.for_each(|number| drop(guest.close(self, number, false, Watching::GoesOn)));
        let deadline = Instant::now() + LOCKED_WAIT;
        let left = loop {
            // A client that was refused by the pool has none.
            match self.pool.has_lane(guest.owner) {
                Ok(false) => break None,
                Ok(true) => {}
                Err(e) => break Some(e.to_string()),
            }
            let open: Vec<(&[Vec<u8>], &File)> = registered
                .iter()
                .filter_map(|known| Some((&known.identities[..], known.file.as_deref()?)))
                .collect();
            let whose = Whose::Ended {
                boot: self.boot,
                identities: &identities,
                open: &open,
            };
            let options = RecoverOptions::default();
            let done = replay::recover_lane(&self.pool, guest.owner, &options, &whose);
            if done.is_ok() {
                // Open here, they would not be found alone.
                registered.clear();
            }
            match done {
                Ok(report) if report.outcome != Outcome::Refused => break None,
                Ok(report) if Instant::now() >= deadline => {
                    let reasons = report.files.into_iter().filter_map(|file| file.refused);
                    break Some(reasons.collect::<Vec<_>>().join("; "));
                }
                Err(e) if Instant::now() >= deadline => break Some(e.to_string()),
                // A child of the client has the lane locked still, or a file open; or a sync may succeed the next time.
                Ok(_) | Err(_) => thread::sleep(AGAIN),
            }
        };
        if let Some(why) = &left {
            sys::complain(&format!(
                "what process {} wrote is in the pool, but not in its files: {why}",
                guest.pid
            ));
        }
        if left.is_none() {
            keys.iter()
                .for_each(|key| self.table.withdraw(guest.holder, *key));
        }
        let mut ended = self.ended.lock();
        ended.push(super::GuestStatus {
            ended: true,
            left,
            ..status
        });
        drop(ended);
        self.watch.let_go(watched);
        let mut guests = self.guests.lock();
        guests.retain(|known| known.owner != guest.owner);
        drop(guests);
        self.changed.notify_all();
    }

    /// In tests: keeps a copy of what is known to be on the disk, the worst that a power cut could leave.
    pub(super) fn snapshot(&self, path: &std::path::Path, file: &File) {
        if let Some(to) = std::env::var_os("FOREBAY_TEST_SYNCED") {
            drain::snapshot(&PathBuf::from(to), path, file);
        }
    }
}

/// Tells the kernel's errors that are worth another attempt by the client from those that are its own doing.
pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
