//! The session: this process's lane, and its connection to the supervisor.
//!
//! A record goes to the lane by [`Session::log`]. When a segment is full, whoever finds it so takes the *turn*: it seals the segment,
//! asks the supervisor to sync the files in it, releases those that are synced, and opens the next. With no segment free it waits.
//!
//! If the supervisor is gone, the turn syncs the files itself. If a file cannot be synced and the lane is full, a write stays *unlogged*: only a
//! real sync can acknowledge it then ([`Session::settle`]), and the file's older records must not be written over it.

use super::{
    CONFIG,
    open::open_here,
    own,
    table::{self, FILES, File, Gone},
};
use crate::{
    ENV_SLOWED, FILES_MAX, identity,
    record::{
        self, HEAD, Head, KIND_FILE, KIND_GONE, KIND_KEPT, KIND_TOUCHED, KIND_TRUNCATE, KIND_WRITE,
    },
    replay::{self, Mark, final_parts, write_at},
    shared::SharedPage,
    sys,
    wire::{self, Answer, Request, VERSION},
};
use forebay_pool::{
    ClaimOptions, Lane, Lsn, Pool, Sealed,
    media::Profile,
    record::record_bytes,
    segment::{Records, SegmentHeader},
};
use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::OFlags,
    io::Errno,
    net::{RecvFlags, SendFlags},
    time::ClockId,
};
use std::{
    io::IoSlice,
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd},
    path::Path,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};
use uuid::Uuid;

/// How long to wait for the supervisor before looking whether it is still there.
const LOOK: Duration = Duration::from_millis(20);
/// How long something that has no answer may take to be said.
const TELL_WAIT: Duration = Duration::from_secs(2);
/// How long the supervisor may take to have a file let go of, asked by a signal handler.
const LET_GO_WAIT: Duration = Duration::from_secs(5);
/// Attempts to be welcomed by a supervisor that has too many connections.
const WELCOME_ATTEMPTS: u32 = 500;
/// Parts of one record at most; a write of more becomes several records.
const PARTS: usize = 16;

/// Where the supervisor is, and how to say who we are.
pub(super) struct Address {
    pub(super) socket: Vec<u8>,
    pub(super) token: Uuid,
}

impl Address {
    /// A connection; with a limit, no call of it takes longer.
    pub(super) fn connect(&self, limit: Option<Duration>) -> Result<OwnedFd, Errno> {
        wire::connect(&self.socket, limit)
    }

    /// Tells the supervisor something that has no answer, by a connection of its own.
    pub(super) fn tell(&self, request: &Request) {
        if let Ok(socket) = self.connect(Some(TELL_WAIT)) {
            let _ = wire::send(socket.as_fd(), request, &[]);
        }
    }

    /// Asks to be a client. A supervisor that has too many connections closes some: they come again.
    fn ask_welcome(&self) -> Result<(OwnedFd, Answer, Vec<OwnedFd>), Errno> {
        let hello = Request::Hello {
            version: VERSION,
            token: self.token,
        };
        let mut attempts = 0..WELCOME_ATTEMPTS;
        loop {
            let socket = self.connect(None)?;
            let answered = wire::send(socket.as_fd(), &hello, &[])
                .and_then(|()| wire::receive::<Answer>(socket.as_fd()));
            match answered {
                Ok((answer, fds)) => return Ok((socket, answer, fds)),
                Err(Errno::PIPE | Errno::CONNRESET) if attempts.next().is_some() => {
                    std::thread::sleep(LOOK);
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// As [`foreign`](Self::foreign), for a signal handler: does not allocate.
    pub(super) fn foreign_at_once(&self, (dev, ino): (u64, u64)) -> Result<(), Errno> {
        let socket = self.connect(Some(LET_GO_WAIT))?;
        let token = self.token;
        let mut message = [0; 256];
        let bytes = wire::encode(&Request::Foreign { token, dev, ino }, &mut message)?;
        rustix::net::send(&socket, bytes, SendFlags::NOSIGNAL)?;
        loop {
            // Whatever the answer is, or how long.
            match rustix::net::recv(&socket, &mut [0_u8; 256], RecvFlags::TRUNC) {
                Ok((_, 1..)) => return Ok(()),
                Ok(_) => return Err(Errno::CONNRESET),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// The files of a segment, by number.
#[derive(Clone, Copy, Default)]
struct FileSet([u64; FILES_MAX / 64]);

impl FileSet {
    fn insert(&mut self, file: usize) {
        self.0[file / 64] |= 1 << (file % 64);
    }

    fn iter(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..FILES_MAX).filter(|file| self.0[file / 64] >> (file % 64) & 1 == 1)
    }
}

/// A segment that was handed over and is not released yet.
struct Held {
    sealed: Sealed<'static>,
    files: FileSet,
}

/// What only one thread at a time does.
#[derive(Default)]
struct Turn {
    held: Vec<Held>,
    /// Epoch to read records with.
    epoch: u32,
}

/// This process's session.
pub(super) struct Session {
    pub(super) page: SharedPage,
    /// This process's number in the table of absorbed files.
    pub(super) holder: u64,
    lane: &'static Lane,
    /// Device and inode of the pool.
    pool_file: (u64, u64),
    boot: [u8; 16],
    /// The lane's label if a sync failed.
    label_failed: String,
    /// And if the supervisor is gone.
    label_orphan: String,
    orphaned: AtomicBool,
    turn: Mutex<Turn>,
    /// Which files each segment that is not handed over names.
    sets: Mutex<Vec<(Lsn, FileSet)>>,
}

static SESSION: OnceLock<Session> = OnceLock::new();

/// The session, once there is one.
#[inline]
pub(super) fn current() -> Option<&'static Session> {
    SESSION.get()
}

/// The session; begins it if there is none. Under the registry's lock.
pub(super) fn begin(address: &Address) -> Result<&'static Session, String> {
    if let Some(session) = SESSION.get() {
        return Ok(session);
    }
    let session = Session::begin(address)?;
    Ok(SESSION.get_or_init(|| session))
}

/// The device that the pool is to be as slow as: a measurement's wish.
fn slowed_to() -> Option<Profile> {
    Profile::named(&std::env::var(ENV_SLOWED).ok()?)
}

impl Session {
    fn begin(address: &Address) -> Result<Self, String> {
        let lost = |errno: Errno| format!("the supervisor does not answer: {errno}");
        let (socket, answer, fds) = address.ask_welcome().map_err(lost)?;
        let Answer::Welcome {
            pool,
            holder,
            owner,
            buffers,
            label,
            boot,
        } = answer
        else {
            return Err(match answer {
                Answer::Refused { reason } => reason,
                other => format!("the supervisor answers {other:?}"),
            });
        };
        let [pool_fd, page]: [OwnedFd; 2] = fds
            .try_into()
            .map_err(|_| "the supervisor sent no pool".to_owned())?;
        let page = SharedPage::map(page.as_fd()).map_err(|e| format!("the shared page: {e}"))?;
        // The pool is mapped and locked by this number: it does not move before.
        let ([socket, pool_fd], stays) = own::adopt(socket, pool_fd);
        let pool_file = rustix::fs::fstat(&pool_fd).map_err(|e| format!("the pool: {e}"))?;
        let label_failed = replay::relabelled(&label, Mark::Failed);
        let label_orphan = format!("{label} (its forebay run is gone)");
        let claimed = Pool::open_file(&pool, pool_fd.into()).and_then(|pool| {
            let options = ClaimOptions {
                buffers,
                label,
                ..ClaimOptions::default()
            };
            match slowed_to() {
                Some(profile) => pool.slowed(profile),
                None => pool,
            }
            .claim(owner, &options)
        });
        let (lane, recovered) = match claimed {
            Ok(claimed) => claimed,
            Err(e) => {
                own::unset();
                return Err(e.to_string());
            }
        };
        drop((recovered, stays));
        let lane: &'static Lane = Box::leak(Box::new(lane));
        // From now on it is where `own` says.
        let _ = socket.into_raw_fd();
        Ok(Self {
            page,
            holder,
            pool_file: (pool_file.st_dev, pool_file.st_ino),
            boot: *boot.as_bytes(),
            label_failed,
            label_orphan,
            orphaned: AtomicBool::new(false),
            turn: Mutex::new(Turn {
                held: Vec::with_capacity(64),
                epoch: lane.epoch(),
            }),
            sets: Mutex::new(Vec::with_capacity(64)),
            lane,
        })
    }

    /// Asks the supervisor to sync and follow a file: `EBUSY` if it refuses, `EIO` if the file must not be written to. Under the
    /// registry's lock, which makes the answer ours.
    pub(super) fn register(
        &self,
        file: usize,
        fd: BorrowedFd<'_>,
        path: Vec<u8>,
    ) -> Result<(), Errno> {
        let file = u32::try_from(file).map_err(|_| Errno::INVAL)?;
        // What it dies of is no answer, and no error of the file's.
        let lost = |_| Errno::NOTCONN;
        let request = Request::Register { file, path };
        let socket = own::connection();
        wire::send(socket.as_fd(), &request, &[fd]).map_err(lost)?;
        match wire::receive::<Answer>(socket.as_fd()).map_err(lost)? {
            (Answer::Absorb, _) => Ok(()),
            (Answer::Unheard { reason }, _) => {
                sys::complain(&format!("a file cannot be opened for writing: {reason}"));
                Err(Errno::IO)
            }
            // It knows that the file is plain here.
            _ => Err(Errno::BUSY),
        }
    }

    /// The process has no right to the pool any more: it is not in its memory from now on. No call may touch the session afterwards.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn unmap_pool(&self) -> Result<(), Errno> {
        sys::unmap_file(self.pool_file.0, self.pool_file.1)
    }

    /// True if the supervisor is dead, as the kernel says. Costs a load.
    #[inline]
    pub(super) fn is_orphan(&self) -> bool {
        CONFIG
            .get()
            .is_some_and(|config| config.table.as_ref().is_some_and(|table| !table.is_alive()))
    }

    /// Says that the supervisor is gone, the first time.
    #[cold]
    pub(super) fn note_orphan(&self) {
        static SAID: AtomicBool = AtomicBool::new(false);
        self.orphaned.store(true, Release);
        if !SAID.swap(true, Relaxed) {
            self.lane.relabel(&self.label_orphan);
            sys::complain(
                "the supervisor (forebay run) is gone: nothing is absorbed any more, and every sync is a real one. Restart the program under \
                 forebay run when convenient",
            );
        }
    }

    /// Tells the supervisor something that has no answer. If it is gone, it need not know.
    pub(super) fn tell(&self, request: &Request) {
        if wire::send(own::connection().as_fd(), request, &[]).is_err() {
            self.orphaned.store(true, Release);
        }
    }

    /// Log address below which everything is released from the lane.
    pub(super) fn released(&self) -> Lsn {
        self.lane.usage().head
    }

    /// Logs what a write put at file offset `at`: the first `bytes` bytes of `parts`. If it cannot be logged, the file is *unlogged* from now on.
    #[inline]
    pub(super) fn log_write(
        &self,
        number: usize,
        file: &mut File,
        mut at: u64,
        parts: &[IoSlice<'_>],
        bytes: usize,
    ) {
        let record_max = self.lane.payload_max() - HEAD;
        let mut left = bytes;
        let mut parts = parts.iter();
        let mut part: &[u8] = &[];
        while left > 0 {
            let head = self.head(number, at).encode();
            // After the time was taken: a signal handler that wrote above us since then did so later than the record says.
            if FILES[number].unlogged.load(Relaxed) {
                self.note_unlogged(number, file, at..at + left as u64);
                return;
            }
            let mut slices = [IoSlice::new(&[]); PARTS + 1];
            slices[0] = IoSlice::new(&head);
            let mut used = 1;
            let mut taken = 0;
            while used <= PARTS && taken < left.min(record_max) {
                if part.is_empty() {
                    match parts.next() {
                        Some(next) => part = next,
                        // The kernel cannot have written more than there was.
                        None => return,
                    }
                    continue;
                }
                let take = part.len().min(left.min(record_max) - taken);
                let (now, later) = part.split_at(take);
                slices[used] = IoSlice::new(now);
                used += 1;
                taken += take;
                part = later;
            }
            if !self.log(number, file, KIND_WRITE, &slices[..used]) {
                self.note_unlogged(number, file, at..at + left as u64);
                return;
            }
            at += taken as u64;
            left -= taken;
        }
        let counts = &self.page.files[number];
        counts
            .writes
            .store(counts.writes.load(Relaxed) + 1, Relaxed);
        counts
            .bytes
            .store(counts.bytes.load(Relaxed) + bytes as u64, Relaxed);
    }

    /// Notes that the kernel has something in `range` that the lane has not.
    fn note_unlogged(&self, number: usize, file: &mut File, range: Range<u64>) {
        // Whoever syncs goes no further after an error, until the file is repaired.
        if self.page.files[number].errno.load(Relaxed) == 0 {
            FILES[number].exposed.store(true, Relaxed);
        }
        FILES[number].unlogged.store(true, Release);
        file.note_unlogged(range);
    }

    /// Logs that the file has `bytes` bytes now.
    pub(super) fn log_truncate(&self, number: usize, file: &mut File, bytes: u64) {
        let head = self.head(number, bytes).encode();
        if FILES[number].unlogged.load(Relaxed)
            || !self.log(number, file, KIND_TRUNCATE, &[IoSlice::new(&head)])
        {
            self.note_unlogged(number, file, bytes..u64::MAX);
        }
    }

    /// Logs whether the file has a name. Also if its content is unlogged: there may be records of it.
    pub(super) fn log_gone(&self, number: usize, file: &mut File, gone: Gone) {
        // First, so that a segment that is begun meanwhile says so too.
        file.gone = gone;
        let (kind, at) = gone_record(gone);
        let head = self.head_of_name(number, at).encode();
        self.log(number, file, kind, &[IoSlice::new(&head)]);
    }

    /// Logs that the file's modification time is this one (ns since 1970), though nothing that is logged has changed it.
    pub(super) fn log_touched(&self, number: usize, file: &mut File, modified: u64) {
        if file.touched != modified {
            let head = self.head(number, modified).encode();
            if self.log(number, file, KIND_TOUCHED, &[IoSlice::new(&head)]) {
                file.touched = modified;
            }
        }
    }

    /// Names the file again, by a path. Also if its content is unlogged.
    pub(super) fn log_name(&self, number: usize, file: &mut File, path: &Path) {
        let named = self.name(number, file, path);
        self.log(number, file, KIND_FILE, &[IoSlice::new(&named)]);
    }

    fn head(&self, number: usize, at: u64) -> Head {
        let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        Head {
            file: number as u32,
            at,
            time: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
        }
    }

    /// As [`head`](Self::head), of a record that says nothing of the content. Of a file that changed without the lane it has no time: it would
    /// make that change look older than the last record.
    fn head_of_name(&self, number: usize, at: u64) -> Head {
        let head = self.head(number, at);
        let time = match FILES[number].unlogged.load(Relaxed) {
            true => 0,
            false => head.time,
        };
        Head { time, ..head }
    }

    fn name(&self, number: usize, file: &File, path: &Path) -> Vec<u8> {
        record::encode_file(
            self.head_of_name(number, file.mount),
            self.boot,
            &file.identity,
            path,
        )
    }

    /// Appends a record to a segment that names the file. False if it could not be, and the file is unlogged now.
    #[inline]
    fn log(&self, number: usize, file: &mut File, kind: u16, parts: &[IoSlice<'_>]) -> bool {
        loop {
            let segment = self.lane.segment();
            if let Some(segment) = segment
                && (file.named_in == Some(segment) || self.name_in(segment, number, file))
                && let Ok(Some(lsn)) = self.lane.append_in(segment, kind, parts)
            {
                file.end = lsn + record_bytes(parts.iter().map(|p| p.len()).sum());
                self.page.files[number].end.store(file.end, Release);
                return true;
            }
            if !self.turn(segment, (number, file)) {
                FILES[number].unlogged.store(true, Release);
                return false;
            }
        }
    }

    /// Names the file in the segment. False if there is no room.
    #[cold]
    fn name_in(&self, segment: Lsn, number: usize, file: &mut File) -> bool {
        // First the set: whoever hands the segment over after our append sees it.
        {
            let mut sets = self.sets.lock();
            // One that was named too late for its segment stays behind; the next segment has it again.
            let head = self.lane.usage().head;
            sets.retain(|(start, _)| *start >= head);
            match sets.iter_mut().find(|(start, _)| *start == segment) {
                Some((_, set)) => set.insert(number),
                None => {
                    let mut set = FileSet::default();
                    set.insert(number);
                    sets.push((segment, set));
                }
            }
        }
        let append = |kind, payload: &[u8]| {
            let appended = self.lane.append_in(segment, kind, &[IoSlice::new(payload)]);
            matches!(appended, Ok(Some(_)))
        };
        // A segment is understood without those before it. The newest name is the last.
        for path in file.links.iter().chain([&file.path]) {
            if !append(KIND_FILE, &self.name(number, file, path)) {
                return false;
            }
        }
        if file.gone != Gone::No {
            let (kind, at) = gone_record(file.gone);
            if !append(kind, &self.head_of_name(number, at).encode()) {
                return false;
            }
        }
        file.named_in = Some(segment);
        true
    }

    /// Opens the segment after `full`, waiting for the drain if need be. False if the drain cannot go on. The caller has `locked`.
    #[cold]
    fn turn(&self, full: Option<Lsn>, locked: (usize, &File)) -> bool {
        let mut turn = self.turn.lock();
        let mut waited = false;
        loop {
            let seen = self.page.changes();
            self.release(&mut turn);
            let Ok(next) = self.lane.next_segment(full) else {
                return false;
            };
            self.hand_over(&mut turn);
            if next.is_some() {
                return true;
            }
            if !waited {
                self.page.waits.fetch_add(1, Relaxed);
                waited = true;
            }
            if self.page.failing() || !self.wait(&mut turn, seen, Some(locked)) {
                return false;
            }
        }
    }

    /// Hands sealed segments over to the supervisor.
    fn hand_over(&self, turn: &mut Turn) {
        while let Some(sealed) = self.lane.take_sealed(Duration::ZERO) {
            let mut sets = self.sets.lock();
            let known = sets.iter().position(|(start, _)| *start == sealed.start());
            let files = known.map_or_else(FileSet::default, |at| sets.swap_remove(at).1);
            drop(sets);
            let end = sealed.end();
            let request = Request::Drain {
                end,
                files: files
                    .iter()
                    .filter_map(|file| u32::try_from(file).ok())
                    .collect(),
            };
            turn.held.push(Held { sealed, files });
            self.page.handed_over.store(end, Relaxed);
            self.tell(&request);
        }
    }

    /// Releases the segments that are drained.
    fn release(&self, turn: &mut Turn) {
        let drained = self.page.drained();
        while turn
            .held
            .first()
            .is_some_and(|held| held.sealed.end() <= drained)
        {
            turn.held.remove(0).sealed.release();
        }
    }

    /// Waits for the supervisor, or does its work if it is gone. False if that fails. The caller has `locked`.
    fn wait(
        &self,
        turn: &mut MutexGuard<'_, Turn>,
        seen: u32,
        locked: Option<(usize, &File)>,
    ) -> bool {
        if !self.orphaned() {
            self.page.wait(seen, LOOK);
            return true;
        }
        // It died in the middle of a sync, whose error it may have got instead of us.
        if let Some(file) = self.page.take_syncing() {
            self.fail(file, Errno::IO);
            return false;
        }
        let files: Vec<usize> = (0..FILES_MAX)
            .filter(|file| {
                turn.held
                    .iter()
                    .any(|held| held.files.iter().any(|f| f == *file))
            })
            .collect();
        for file in files {
            match sync_now(file, locked) {
                Ok(()) => {}
                // Whoever has it locked may be waiting for the turn.
                Err(Errno::BUSY) => {
                    MutexGuard::bump(turn);
                    return true;
                }
                Err(errno) => {
                    self.fail(file, errno);
                    return false;
                }
            }
        }
        if let Some(last) = turn.held.last() {
            self.page.set_drained(last.sealed.end());
        }
        true
    }

    /// Without a supervisor: the file could not be synced.
    fn fail(&self, file: usize, errno: Errno) {
        self.lane.relabel(&self.label_failed);
        self.page.fail(file, errno);
    }

    /// True if the supervisor is gone.
    fn orphaned(&self) -> bool {
        if self.orphaned.load(Acquire) {
            return true;
        }
        let mut byte = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let gone = match rustix::net::recv(own::connection(), &mut byte, flags) {
            Ok((0, _)) => true,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => true,
        };
        if gone {
            self.orphaned.store(true, Release);
        }
        gone
    }

    /// Seals the lane and waits until everything in it is durable in the files. The caller may have one `locked`.
    ///
    /// # Errors
    /// That of a file that cannot be synced.
    pub(super) fn drain(&self, locked: Option<(usize, &File)>) -> Result<(), Errno> {
        let mut turn = self.turn.lock();
        self.lane.seal();
        self.hand_over(&mut turn);
        loop {
            let seen = self.page.changes();
            self.release(&mut turn);
            if turn.held.is_empty() {
                return Ok(());
            }
            if let Some(errno) = self.failure() {
                return Err(errno);
            }
            if !self.wait(&mut turn, seen, locked) {
                return Err(self.failure().unwrap_or(Errno::IO));
            }
        }
    }

    fn failure(&self) -> Option<Errno> {
        if !self.page.failing() {
            return None;
        }
        let mut errors = self.page.files.iter().map(|file| file.errno.load(Relaxed));
        errors
            .find(|errno| *errno != 0)
            .map(Errno::from_raw_os_error)
    }

    /// Makes everything durable the slow way: files that could not be synced are written again from the lane and synced, and the
    /// lane is drained.
    ///
    /// # Errors
    /// That of the file that still cannot be synced. Its records stay.
    pub(super) fn settle(&self) -> Result<(), Errno> {
        self.repair_all()?;
        self.drain(None).or_else(|_| {
            // Of a sync that failed meanwhile. Now it is known which.
            self.repair_all()?;
            self.drain(None)
        })
    }

    fn repair_all(&self) -> Result<(), Errno> {
        let failing = |file: &usize| self.page.files[*file].errno.load(Relaxed) != 0;
        (0..FILES_MAX)
            .filter(failing)
            .try_for_each(|file| self.repair(file))
    }

    /// Writes again what the lane has of the file, and syncs it: a failed sync may have left clean what never reached the disk. Only where
    /// the lane has it last; what was changed without the lane is newer.
    fn repair(&self, number: usize) -> Result<(), Errno> {
        let slot = &FILES[number];
        let guard = slot.file.lock();
        let Ok(cell) = guard.try_borrow() else {
            return Err(Errno::DEADLK);
        };
        let Some(file) = &*cell else {
            self.page.recovered(number);
            return Ok(());
        };
        let failed = self.page.files[number].errno.load(Relaxed);
        if failed == 0 {
            // Another thread did it.
            return Ok(());
        }
        let mut turn = self.turn.lock();
        self.lane.seal();
        self.hand_over(&mut turn);
        self.release(&mut turn);
        let mut changes = Vec::new();
        for held in &turn.held {
            let bytes = held.sealed.bytes();
            let header = SegmentHeader::decode(bytes).ok_or(Errno::IO)?;
            let records = Records::new(bytes, header, turn.epoch);
            let decoded = records.filter_map(|r| record::decode(r.header.kind, r.payload).ok());
            changes.extend(decoded.filter(|(head, _)| head.file as usize == number));
        }
        let parts = final_parts(&changes, &file.unlogged);
        if slot.unplaced.load(Relaxed) && !parts.is_empty() {
            // Which of the two is newer, lane or kernel, nobody knows.
            return Err(Errno::from_raw_os_error(failed));
        }
        let write = |to: BorrowedFd<'_>| -> Result<(), Errno> {
            for (at, bytes) in &parts {
                write_at(to, bytes, *at)?;
            }
            rustix::fs::fdatasync(to)
        };
        let done = with_descriptor(number, file, Use::Write, write);
        let exposes = done.is_err() && slot.unlogged.load(Relaxed);
        if slot.exposed.swap(exposes, Relaxed) {
            slot.owed.store(failed, Relaxed);
        }
        done?;
        drop(turn);
        self.page.recovered(number);
        self.tell(&Request::Repaired {
            file: number as u32,
        });
        Ok(())
    }

    /// Before the process ends: nothing is left to others if there are none.
    pub(super) fn end(&self) {
        if self.orphaned() {
            // If it fails, the records stay in the pool for `forebay recover`.
            let _ = self.settle();
        }
    }
}

/// Kind and `at` of the record that says whether a file has a name.
fn gone_record(gone: Gone) -> (u16, u64) {
    match gone {
        Gone::No => (KIND_KEPT, 0),
        Gone::Maybe => (KIND_GONE, 0),
        Gone::Yes => (KIND_GONE, 1),
    }
}

/// Syncs a file of the lane. The caller may have one `locked`. `EBUSY` if another thread has this one.
fn sync_now(number: usize, locked: Option<(usize, &File)>) -> Result<(), Errno> {
    // Not under the slot's lock: who waits for the turn may hold it. What it could miss was not in the segments to be synced.
    while let Some((fd, entry)) = table::descriptors_of(number).next()
        && let Some(raw) = sys::borrow(fd)
    {
        let done = rustix::fs::fdatasync(raw);
        // Closed meanwhile, it may have been another file that we synced. The entry goes first.
        if table::entry(fd) == Some(entry) {
            return done;
        }
    }
    let sync =
        |file: &File| with_descriptor(number, file, Use::Sync, |fd| rustix::fs::fdatasync(fd));
    if let Some((_, file)) = locked.filter(|(file, _)| *file == number) {
        return sync(file);
    }
    let guard = FILES[number].file.try_lock_for(LOOK).ok_or(Errno::BUSY)?;
    let Ok(cell) = guard.try_borrow() else {
        // A signal handler, above a call of this thread that has it: waiting would be for ever.
        return Err(Errno::DEADLK);
    };
    cell.as_ref().map_or(Ok(()), sync)
}

/// What is done with a descriptor of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Sync,
    Write,
}

/// Calls `work` with a descriptor of the file that does not append when it is to be written by.
///
/// None is closed by this that the program can notice: closing one drops the program's POSIX locks on the file.
fn with_descriptor(
    number: usize,
    file: &File,
    use_for: Use,
    work: impl Fn(BorrowedFd<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let known = table::descriptors_of(number).next();
    if let Some(fd) = known.and_then(|(fd, _)| sys::borrow(fd)) {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        let append = use_for == Use::Write && flags.contains(OFlags::APPEND);
        if append {
            rustix::fs::fcntl_setfl(fd, flags - OFlags::APPEND)?;
        }
        let done = work(fd);
        if append {
            rustix::fs::fcntl_setfl(fd, flags)?;
        }
        return done;
    }
    let key = (file.dev, file.ino);
    if use_for == Use::Sync {
        // One that the client does not follow: of a reader, or one that was left open below.
        let is_it = |fd: BorrowedFd<'_>| identity::of(fd).as_ref() == Ok(&file.identity);
        if let Some(fd) = open_here(key, |fd, _| is_it(fd)).flatten() {
            let done = work(fd);
            // Closed meanwhile, it may have been another file that we synced.
            if is_it(fd) {
                return done;
            }
        }
    }
    let paths: Vec<&Path> = file
        .links
        .iter()
        .chain([&file.path])
        .map(|path| path.as_path())
        .collect();
    let Some(again) = identity::open(&file.identity, &paths)? else {
        // It was unlinked and is closed: nobody can miss it.
        return Ok(());
    };
    let done = work(again.as_fd());
    let other = |fd: BorrowedFd<'_>, _: OFlags| fd.as_raw_fd() != again.as_raw_fd();
    if open_here(key, other).is_none_or(|found| found.is_some()) {
        // It stays open, for the next time.
        std::mem::forget(again);
    }
    done
}
