//! One client of a supervisor: what it asks, and what is known of its files.

use super::{Shared, drain};
use crate::{
    FILES_MAX, identity,
    replay::{self, Mark, Outcome, RecoverOptions, Whose},
    shared::SharedPage,
    sys,
    wire::{self, Answer, Request, VERSION},
};
use forebay_device::clock;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::{
    ffi::OsString,
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// How long somebody who wants to write to an absorbed file plainly waits for the client that absorbs it to notice. A client that does
/// nothing does not notice; but then it logged nothing in that time, and a replay sees that the file was changed later.
const FOREIGN_WAIT: Duration = Duration::from_secs(2);
/// How long a lane whose owner is gone may be locked still, by a child that is about to execute something, say.
const LOCKED_WAIT: Duration = Duration::from_secs(10);
/// How often that is tried.
const AGAIN: Duration = Duration::from_millis(20);

/// A file that a client absorbs.
pub(super) struct GuestFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) dev: u64,
    pub(super) ino: u64,
    /// The directory that had its last name.
    pub(super) unlinked_from: Option<File>,
}

/// A client.
pub(super) struct Guest {
    pub(super) pid: u32,
    pub(super) owner: Uuid,
    pub(super) page: SharedPage,
    /// By number.
    pub(super) files: Mutex<Vec<Option<Arc<GuestFile>>>>,
    /// After it ended: files that its lane may hold something of, by device and inode.
    pub(super) ending: Mutex<Vec<(u64, u64)>>,
    /// What it absorbed before, path by path: writes, bytes, syncs.
    pub(super) forgotten: Mutex<Vec<(PathBuf, [u64; 3])>>,
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

/// Serves one connection.
pub(super) fn serve(shared: &Arc<Shared>, connection: &OwnedFd) {
    let Ok((first, _)) = wire::receive::<Request>(connection.as_fd()) else {
        return;
    };
    let answer = match first {
        Request::Hello {
            version,
            token,
            pid,
        } if token == shared.token => {
            if version == VERSION {
                return welcome(shared, connection, pid);
            }
            let reason = format!("the library speaks version {version}, the supervisor {VERSION}");
            Answer::Refused { reason }
        }
        Request::Status { token } if token == shared.token => {
            Answer::Status(Box::new(serde_json::json!(shared.status())))
        }
        Request::Foreign { token, dev, ino } if token == shared.token => {
            shared.foreign.lock().insert((dev, ino));
            drop(shared.let_go((dev, ino), None));
            Answer::Done
        }
        _ => Answer::Refused {
            reason: "that is not this supervisor's secret".into(),
        },
    };
    // Whoever asked may be gone.
    let _ = wire::send(connection.as_fd(), &answer, &[]);
}

fn welcome(shared: &Arc<Shared>, connection: &OwnedFd, pid: u32) {
    let refuse = |reason: String| {
        sys::complain(&format!("process {pid} stays plain: {reason}"));
        let _ = wire::send(connection.as_fd(), &Answer::Refused { reason }, &[]);
    };
    // Its own open file, so that the lock on its lane is its own, and dies with it.
    let pool = File::options()
        .read(true)
        .write(true)
        .open(shared.pool.path());
    let (pool, page) = match (pool, SharedPage::new()) {
        (Ok(pool), Ok(page)) => (pool, page),
        (Err(e), _) => return refuse(format!("opening the pool: {e}")),
        (_, Err(e)) => return refuse(format!("a page to share: {e}")),
    };
    let (page, page_fd) = page;
    let guest = Arc::new(Guest {
        pid,
        owner: Uuid::new_v4(),
        page,
        files: Mutex::new((0..FILES_MAX).map(|_| None).collect()),
        ending: Mutex::default(),
        forgotten: Mutex::default(),
        queued: AtomicU64::new(0),
        syncs: AtomicU64::new(0),
        sync_ns: AtomicU64::new(0),
        left: Mutex::default(),
    });
    let welcome = Answer::Welcome {
        pool: shared.pool.path().to_owned(),
        owner: guest.owner,
        buffers: shared.options.buffers,
        label: guest.label(shared, Mark::None),
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
                let answer = match self.register(shared, file, path, fds) {
                    Ok(alone) => Answer::Absorb { alone },
                    Err(reason) => Answer::Refused { reason },
                };
                return wire::send(connection.as_fd(), &answer, &[]).is_ok();
            }
            Request::Drain { end, files } => {
                self.queued.fetch_add(1, Relaxed);
                Work::Drain(end, files)
            }
            Request::Repaired { file } => Work::Repaired(file),
            Request::Unlinked { file, path } => {
                self.unlinked(file, &PathBuf::from(OsString::from_vec(path)));
                return true;
            }
            // Nothing that is queued needs it: the lane holds nothing of the file. And its number may be given anew at once.
            Request::Forget { file } => {
                self.forget(file);
                shared.changed.notify_all();
                return true;
            }
            Request::Hello { .. } | Request::Status { .. } | Request::Foreign { .. } => {
                return false;
            }
        };
        work.send(todo).is_ok()
    }

    /// Really syncs a file and its directory; from then on it is absorbed. True if nobody else has it open.
    fn register(
        &self,
        shared: &Shared,
        number: u32,
        path: Vec<u8>,
        fds: Vec<OwnedFd>,
    ) -> Result<bool, String> {
        let path = PathBuf::from(OsString::from_vec(path));
        let [file]: [OwnedFd; 1] = fds.try_into().map_err(|_| "no descriptor".to_owned())?;
        let file = File::from(file);
        let stat = rustix::fs::fstat(&file).map_err(|e| e.to_string())?;
        let key = (stat.st_dev, stat.st_ino);
        let known = Arc::new(GuestFile {
            path,
            file,
            dev: key.0,
            ino: key.1,
            unlinked_from: None,
        });
        self.reserve(shared, number, key, &known)
            .and_then(|alone| {
                sync_first(shared, &known)?;
                Ok(alone)
            })
            .inspect_err(|_| {
                // It is open there, to be written to plainly.
                shared.foreign.lock().insert(key);
                self.forget(number);
                shared.changed.notify_all();
            })
    }

    /// Makes the file this client's, unless it is another's. True if nobody else has it open.
    fn reserve(
        &self,
        shared: &Shared,
        number: u32,
        key: (u64, u64),
        known: &Arc<GuestFile>,
    ) -> Result<bool, String> {
        // While nobody else can: of two that ask at a time, the second finds the first.
        let (guests, found) = shared.let_go(key, Some(self));
        if found {
            return Err("another process writes to it".into());
        }
        {
            let mut files = self.files.lock();
            let place = files
                .get_mut(number as usize)
                .ok_or("its number is too large")?;
            let counts = &self.page.files[number as usize];
            counts.writes.store(0, Relaxed);
            counts.bytes.store(0, Relaxed);
            counts.syncs.store(0, Relaxed);
            counts.retire.store(0, Relaxed);
            *place = Some(Arc::clone(known));
        }
        drop(guests);
        // Whoever opens it plainly from now on says so afterwards, and finds it here.
        let mut foreign = shared.foreign.lock();
        let alone = sys::alone(known.file.as_fd()).unwrap_or(false);
        if alone {
            foreign.remove(&key);
        } else if foreign.contains(&key) {
            return Err("another process has it open, and may write to it plainly".into());
        }
        Ok(alone)
    }

    /// The label of its lane.
    fn label(&self, shared: &Shared, mark: Mark) -> String {
        replay::label(mark, &format!("{} {}", shared.options.program, self.pid))
    }

    /// Marks its lane, for a recovery.
    pub(super) fn mark(&self, shared: &Shared, mark: Mark) {
        // A damaged lane table is what a recovery finds, too.
        let _ = shared.pool.relabel(self.owner, &self.label(shared, mark));
    }

    /// From now on the directory that had the file's last name is synced instead of it, if that can be.
    fn unlinked(&self, number: u32, path: &Path) {
        let mut files = self.files.lock();
        let directory = path
            .parent()
            .and_then(|directory| File::open(directory).ok());
        if let Some(Some(known)) = files.get_mut(number as usize)
            // It may have got another name since, or the number another file.
            && rustix::fs::fstat(&known.file).is_ok_and(|stat| stat.st_nlink == 0)
            && let (Ok(file), Some(directory)) = (known.file.try_clone(), directory)
        {
            *known = Arc::new(GuestFile {
                path: known.path.clone(),
                file,
                unlinked_from: Some(directory),
                ..**known
            });
        }
    }

    /// Lets go of a file.
    pub(super) fn forget(&self, number: u32) {
        let known = self
            .files
            .lock()
            .get_mut(number as usize)
            .and_then(Option::take);
        if let Some(file) = known {
            self.page.recovered(number as usize);
            let counts = &self.page.files[number as usize];
            let counts =
                [&counts.writes, &counts.bytes, &counts.syncs].map(|count| count.load(Relaxed));
            let mut forgotten = self.forgotten.lock();
            match forgotten.iter_mut().find(|(path, _)| *path == file.path) {
                Some((_, sums)) => sums
                    .iter_mut()
                    .zip(counts)
                    .for_each(|(sum, count)| *sum += count),
                None => forgotten.push((file.path.clone(), counts)),
            }
        }
    }
}

/// Before anything of a file is logged.
fn sync_first(shared: &Shared, known: &GuestFile) -> Result<(), String> {
    let file = &known.file;
    forebay_pool::failpoint!("files:register");
    if !forebay_pool::broken!("no-registration-sync") {
        let begun = clock::now_ns();
        file.sync_all().map_err(|e| format!("syncing it: {e}"))?;
        shared.charge_sync(file, false, begun);
        let directory = known
            .path
            .parent()
            .map(File::open)
            .transpose()
            .map_err(|e| format!("opening its directory: {e}"))?;
        if let Some(directory) = &directory {
            let begun = clock::now_ns();
            directory
                .sync_all()
                .map_err(|e| format!("syncing its directory: {e}"))?;
            shared.charge_sync(directory, false, begun);
        }
    }
    forebay_pool::failpoint!("files:registered");
    shared.snapshot(&known.path, file);
    Ok(())
}

impl Shared {
    /// Asks every client but `asking` that absorbs the file to let it be plain, and waits; also for lanes of clients that ended, and
    /// may hold something of it. The clients, locked, and true if the file must not be absorbed.
    fn let_go(
        &self,
        key: (u64, u64),
        asking: Option<&Guest>,
    ) -> (MutexGuard<'_, Vec<Arc<Guest>>>, bool) {
        let begun = Instant::now();
        let mut found = false;
        let mut guests = self.guests.lock();
        loop {
            let (mut absorbed, mut ending) = (false, false);
            for guest in guests
                .iter()
                .filter(|guest| asking.is_none_or(|us| us.owner != guest.owner))
            {
                ending |= guest.ending.lock().contains(&key);
                for (number, file) in guest.files.lock().iter().enumerate() {
                    if file.as_ref().is_some_and(|f| (f.dev, f.ino) == key) {
                        guest.page.files[number].retire.store(1, Relaxed);
                        absorbed = true;
                    }
                }
            }
            found |= absorbed;
            let waits = absorbed && begun.elapsed() < FOREIGN_WAIT
                || ending && begun.elapsed() < LOCKED_WAIT;
            if !waits {
                return (guests, found || ending);
            }
            self.changed.wait_for(&mut guests, Duration::from_millis(2));
        }
    }

    /// After the client ended: its files are synced, and its lane goes back to the pool.
    fn recover(&self, guest: &Arc<Guest>) {
        let status = guest.status();
        let keys = |file: &Option<Arc<GuestFile>>| file.as_ref().map(|f| (f.dev, f.ino));
        *guest.ending.lock() = guest.files.lock().iter().filter_map(keys).collect();
        // What its lane may name; and its files, open since before it wrote to them, hear of every sync that failed.
        let mut registered: Vec<Arc<GuestFile>> =
            guest.files.lock().iter().flatten().cloned().collect();
        let identities: Vec<Vec<u8>> = registered
            .iter()
            .flat_map(|known| identity::all_of(known.file.as_fd()))
            .collect();
        let numbers = 0..u32::try_from(FILES_MAX).unwrap_or(0);
        numbers.for_each(|number| guest.forget(number));
        let deadline = Instant::now() + LOCKED_WAIT;
        let left = loop {
            // A client that was refused by the pool has none.
            match self.pool.has_lane(guest.owner) {
                Ok(false) => break None,
                Ok(true) => {}
                Err(e) => break Some(e.to_string()),
            }
            let open: Vec<&File> = registered.iter().map(|known| &known.file).collect();
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
        let mut ended = self.ended.lock();
        ended.push(super::GuestStatus {
            ended: true,
            left,
            ..status
        });
        drop(ended);
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
