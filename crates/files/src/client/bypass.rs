//! Files that the run absorbs and that this process is about to change past the lane: they are made
//! plain first. docs/files-membership.md, "Other writers".
//!
//! Without a supervisor they are made plain by who settles the lane: a member, or else the process
//! that is about to write past it (`takeover`).
//!
//! Asked about is the file, by device and inode, after it was opened: its name says nothing. What
//! fails here never means that no process absorbs the file.

use super::{
    call_depth::interrupted,
    config::{CONFIG, ClientConfig},
    fd_table,
    fd_table::FdEntry,
    lookup::{FileKey, key, regular, stat_at},
    membership,
    process::hold,
    questions::complain_once,
    session,
    takeover::{TakenOver, take_over},
};
use crate::{
    absorbed::{self, QuestionOutcome, TableView},
    order::OrderView,
    record::silence,
    sys,
    wire::{self, ClientRequest, SupervisorAnswer},
};
use forebay_pool::{MonotonicTime, failpoint};
use rustix::{
    fs::{AtFlags, OFlags},
    io::{Errno, FdFlags},
    time::{ClockId, clock_gettime},
};
use std::{
    ffi::{CStr, c_int},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// Time to try to be heard by a supervisor that lives.
const HEARD_WAIT: Duration = Duration::from_secs(30);
/// The longest time of its answer.
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(20);
/// The same without a supervisor: each looks into the pool.
const AGAIN_ALONE: Duration = Duration::from_millis(100);

/// This process could not connect for [`HEARD_WAIT`].
static UNREACHABLE: AtomicBool = AtomicBool::new(false);

/// Time to try to be heard by a supervisor that lives.
pub(super) fn heard_wait() -> Duration {
    failpoint::limit("heard", HEARD_WAIT)
}

/// Finds the table of absorbed files, and the counts of the run's changes: at their paths, or else
/// from the supervisor.
pub(super) fn find_table(
    config: &ClientConfig,
    path: &Path,
) -> (Option<TableView>, Option<OrderView>) {
    let (table, order) = (TableView::open(path).ok(), OrderView::open(path).ok());
    if table.is_some() && order.is_some() {
        return (table, order);
    }
    let ask = || {
        let token = config.address.token;
        let socket = config.address.connect(Some(ANSWER_WAIT)).ok()?;
        wire::send(socket.as_fd(), &ClientRequest::Table { token }, &[]).ok()?;
        let (_, fds) = wire::receive::<SupervisorAnswer>(socket.as_fd()).ok()?;
        <[OwnedFd; 2]>::try_from(fds).ok()
    };
    let Some([sent_table, sent_order]) = ask() else {
        return (table, order);
    };
    (
        table.or_else(|| TableView::of(sent_table.as_fd()).ok()),
        order.or_else(|| OrderView::of(sent_order.as_fd()).ok()),
    )
}

impl ClientConfig {
    /// True if the run absorbs the file.
    pub(super) fn is_absorbed(&self, file: FileKey) -> bool {
        let has = |table: &TableView| !table.lane.is_settled() && table.has(file);
        self.table.as_ref().is_some_and(has)
    }

    /// True if the run absorbs anything.
    pub(super) fn any_absorbed(&self) -> bool {
        let any = |table: &TableView| !table.lane.is_settled() && table.any();
        self.table.as_ref().is_some_and(any)
    }

    /// The run's table, if its supervisor is dead and it is not known that the lane is settled.
    pub(super) fn orphaned(&self) -> Option<&TableView> {
        let table = self.table.as_ref()?;
        (!table.is_alive() && !table.lane.is_settled()).then_some(table)
    }

    /// The table says to all processes that nothing the lane has is needed any more. If this one
    /// may not write to it, each of the others finds that out.
    pub(super) fn note_settled(&self, table: &TableView) {
        if let Some(note) = table.to_note(&self.table_path) {
            note.lane.set_settled();
        }
    }

    /// Returns when the run does not absorb the file: this process is about to change it past the
    /// lane.
    ///
    /// # Errors
    /// `EIO` if the supervisor lives and does not answer: then the file must not be changed.
    pub(super) fn claim(&self, file: FileKey) -> Result<(), Errno> {
        let begun = MonotonicTime::now();
        let mut refused = None;
        while self.is_absorbed(file) {
            let pause = match self.orphaned() {
                Some(table) if self.is_lane_outlasted(table) => return Ok(()),
                Some(_) => AGAIN_ALONE,
                None => match self.ask(file) {
                    Ok(QuestionOutcome::Yes) => return Ok(()),
                    Ok(_) => continue,
                    Err(errno) => {
                        refused = Some(errno);
                        AGAIN
                    }
                },
            };
            // What is refused once is refused again; only the first time it is tried for long.
            let is_refused =
                UNREACHABLE.load(Relaxed) && refused.is_some_and(|e| e != Errno::AGAIN);
            if is_refused || begun.elapsed() >= self.heard_wait {
                UNREACHABLE.store(refused.is_some_and(|e| e != Errno::AGAIN), Relaxed);
                complain_once(refused);
                return Err(Errno::IO);
            }
            thread::sleep(pause);
        }
        Ok(())
    }

    /// Asks once, by the table if that can be, which needs no connection.
    ///
    /// # Errors
    /// `EAGAIN` if there is no answer; the kernel's, if it could not be asked.
    fn ask(&self, file: FileKey) -> Result<QuestionOutcome, Errno> {
        let limit = ANSWER_WAIT.min(self.heard_wait);
        match self.asking {
            Some(_) => self.ask_by_table(file, limit).ok_or(Errno::AGAIN),
            None => self.ask_for(file).map(|()| QuestionOutcome::Yes),
        }
    }

    fn ask_for(&self, (dev, ino): FileKey) -> Result<(), Errno> {
        let socket = self
            .address
            .connect(Some(ANSWER_WAIT.min(self.heard_wait)))?;
        let token = self.address.token;
        wire::send(
            socket.as_fd(),
            &ClientRequest::Foreign { token, dev, ino },
            &[],
        )?;
        match wire::receive::<SupervisorAnswer>(socket.as_fd())? {
            (SupervisorAnswer::Done, _) => Ok(()),
            _ => Err(Errno::ACCESS),
        }
    }

    /// As [`claim`](Self::claim), of the file that is open as `fd`, if it is one.
    pub(super) fn claim_open(&self, fd: c_int) -> Result<(), Errno> {
        if !self.any_absorbed() {
            return Ok(());
        }
        let Some(raw) = sys::borrow(fd) else {
            return Ok(());
        };
        match regular(raw) {
            Ok((_, key)) => self.claim(key).and_then(|()| self.outlast(raw, key)),
            Err(_) => Ok(()),
        }
    }

    /// Before a file is changed though the lane is not settled: gives it the time of now on its
    /// disk. A write in place, synced by `fdatasync`, moves that time only later, and a recovery
    /// until then would not see that the file was changed.
    fn outlast(&self, fd: BorrowedFd<'_>, key: FileKey) -> Result<(), Errno> {
        if self.orphaned().is_none() || !self.is_absorbed(key) || SETTLED.load(Relaxed) {
            return Ok(());
        }
        match sys::set_changed_now(fd) {
            Ok(()) => rustix::fs::fsync(fd),
            // Who may write to a file of another user's has its time moved by that, or it is not to
            // be had.
            Err(_) => Ok(()),
        }
    }

    /// As [`claim`](Self::claim), of the file at a path, if there is one.
    pub(super) fn claim_at(&self, dir: c_int, path: &CStr) -> Result<(), Errno> {
        if !self.any_absorbed() {
            return Ok(());
        }
        stat_at(dir, path, AtFlags::empty()).map_or(Ok(()), |key| self.claim(key))
    }
}

/// A member has synced what the lane holds, and nothing in it is written to any file. A forked
/// child has that from its parent.
static SETTLED: AtomicBool = AtomicBool::new(false);

/// The lane is settled: this process knows it, and the table says so to the others.
pub(super) fn note_settled() {
    if !SETTLED.swap(true, Relaxed)
        && let Some(config) = CONFIG.get()
        && let Some(table) = config.orphaned()
    {
        config.note_settled(table);
    }
}

/// Since when this process, or the one that it was forked from, knows that it has no supervisor, or
/// that a recovery of the lane was under way. Nanoseconds of the monotonic clock; 0 for never.
static ALONE: AtomicU64 = AtomicU64::new(0);

impl ClientConfig {
    /// The supervisor is dead: true when a file that its table has may be changed all the same.
    fn is_lane_outlasted(&self, table: &TableView) -> bool {
        static REFUSED: AtomicBool = AtomicBool::new(false);
        let now = monotonic_ns();
        let known = ALONE.compare_exchange(0, now, Relaxed, Relaxed);
        let mut alone = known.map_or_else(|since| since, |_| now);
        let can_settle = !interrupted() && !sys::in_vforked_child();
        match session::there().filter(|_| can_settle) {
            // A member does that at its next call in any case.
            Some(session) => drop(session.settle(0)),
            None if can_settle => match take_over(self, table) {
                TakenOver::Settled => return true,
                // What it finds changed while it is about it, it may take for its own.
                TakenOver::ByAnother => {
                    ALONE.store(now, Relaxed);
                    return false;
                }
                // One that was killed may have been about it until a moment ago.
                TakenOver::Refused if !REFUSED.swap(true, Relaxed) => {
                    ALONE.store(now, Relaxed);
                    alone = now;
                }
                TakenOver::Refused | TakenOver::NotNow => {}
            },
            None => {}
        }
        // So long a process whose supervisor is dead has to notice: at its next call. One that
        // makes none in that time logged nothing either, and a replay sees that the file was
        // changed later. The pool may be on a disk.
        SETTLED.load(Relaxed) || u128::from(now.saturating_sub(alone)) >= silence(true).as_nanos()
    }

    /// Before the run's files are renamed or lose a name without a supervisor: settles the lane, if
    /// this process can, so that no recovery has to find them. A process that is no member cannot
    /// log such a change.
    pub(super) fn settle_orphaned(&self) {
        let begun = MonotonicTime::now();
        while let Some(table) = self.orphaned()
            && take_over(self, table) == TakenOver::ByAnother
            && begun.elapsed() < self.heard_wait
        {
            thread::sleep(AGAIN_ALONE);
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    // Zero says that it was never asked.
    u64::try_from(ns).unwrap_or(0).max(1)
}

/// After a file was opened for writing past the client (by `fopen`, `openat2`): returns when the
/// run does not absorb it.
///
/// # Errors
/// `EIO` if that cannot be achieved: the descriptor must not be written to.
pub fn opened(fd: c_int) -> Result<(), Errno> {
    CONFIG.get().map_or(Ok(()), |config| config.claim_open(fd))
}

/// Before a copy may share the blocks of the file that is open as `fd`: returns when the run does
/// not absorb it. Such a block gets another place when it is written next, which the journal has;
/// what is written in place is ordered then. Ext4 shares none.
///
/// # Errors
/// As [`opened`].
pub fn cloning(fd: c_int) -> Result<(), Errno> {
    match sys::borrow(fd).map(sys::kind_of_file_system) {
        Some(Ok(sys::EXT4)) => Ok(()),
        _ => opened(fd),
    }
}

/// The descriptors that may be open: all that may be absorbed where there is no /proc to ask.
fn numbers() -> Vec<c_int> {
    let Ok(entries) = std::fs::read_dir(sys::LINKS) else {
        return (0..fd_table::DESCRIPTORS as c_int).collect();
    };
    let number = |e: std::io::Result<std::fs::DirEntry>| e.ok()?.file_name().to_str()?.parse().ok();
    entries.filter_map(number).collect()
}

impl ClientConfig {
    /// The descriptors of this process that write to files which the run absorbs.
    fn written(&self) -> Vec<(c_int, FileKey)> {
        if !self.any_absorbed() {
            return Vec::new();
        }
        let absorbed = |fd| {
            let raw = sys::borrow(fd)?;
            let flags = rustix::fs::fcntl_getfl(raw).ok()?;
            let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
            let key = key(&sys::stat_of(raw).ok()?);
            (writes && self.is_absorbed(key)).then_some((fd, key))
        };
        numbers().into_iter().filter_map(absorbed).collect()
    }
}

/// Retires every absorbed file that a new program would inherit, before this process or its new
/// child executes that program, which writes past the library. A program inherits a file by a
/// descriptor that the execution leaves open, or by a [copy](super::given) of one that it closes.
///
/// # Errors
/// `EIO` if that cannot be achieved: then the program must not be executed.
pub fn executing_past() -> Result<(), Errno> {
    let Some(config) = CONFIG.get() else {
        return Ok(());
    };
    for (fd, _) in config.written() {
        // One that cannot be asked has been closed meanwhile.
        let flags = sys::borrow(fd).and_then(|raw| rustix::io::fcntl_getfd(raw).ok());
        let stays = flags.is_some_and(|flags| !flags.contains(FdFlags::CLOEXEC));
        if stays || fd_table::may_be_given(fd) {
            config.claim_open(fd)?;
        }
    }
    Ok(())
}

/// False if a program that is executed now would not find the table of absorbed files: it has
/// another root, or may not open the table, or has no descriptor left for it.
#[must_use]
pub fn is_table_in_reach() -> bool {
    CONFIG
        .get()
        .is_none_or(|config| absorbed::open_table(&config.table_path).is_ok())
}

/// True if the run absorbs anything that a program might be given.
#[must_use]
pub fn any_absorbed() -> bool {
    CONFIG.get().is_some_and(ClientConfig::any_absorbed)
}

/// Joins, when the program starts, descriptors that it inherited of files that the run absorbs,
/// before they are written to.
pub(super) fn note_inherited(config: &ClientConfig) {
    let mut asked: Vec<FileKey> = Vec::new();
    for (fd, key) in config.written() {
        let entry = FdEntry::inherited_descriptor();
        fd_table::set_entry(fd, Some(entry));
        membership::note_inherited();
        if !fd_table::must_be_plain(fd) {
            continue;
        }
        // If it fails, the next call by the client tries again; a stream's is none.
        if asked.contains(&key) || config.claim_open(fd).is_ok() {
            asked.push(key);
            // The same file is asked for once: while it is open here, it is not absorbed again.
            fd_table::set_entry(fd, entry.claimed());
        }
    }
}

/// Before an inherited descriptor is used for the first time: its file is absorbed here too, or by
/// no process.
///
/// # Errors
/// As [`opened`].
pub(super) fn claim_inherited(fd: c_int, entry: FdEntry) -> Result<(), Errno> {
    let config = CONFIG.get().ok_or(Errno::NOTCONN)?;
    if !interrupted() && join(config, fd).is_ok() {
        return Ok(());
    }
    opened(fd)?;
    fd_table::set_entry(fd, entry.claimed());
    Ok(())
}

/// Before the position of an inherited descriptor is used or moved: its file is absorbed here, too,
/// if this process can be a member. If it cannot, nothing is lost: it writes nothing, and who does
/// asks the kernel where that went.
pub(super) fn join_inherited(fd: c_int) {
    if let Some(config) = CONFIG.get().filter(|_| !sys::in_vforked_child()) {
        let _ = join(config, fd);
    }
}

/// With a frame of its own, so that none of the deepest chain has what `stat` says.
#[inline(never)]
fn key_of(fd: BorrowedFd<'_>) -> Result<FileKey, Errno> {
    regular(fd).map(|(_, key)| key)
}

/// Makes this process a member, and `fd` a descriptor of a file that the run absorbs.
fn join(config: &ClientConfig, fd: c_int) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    if !membership::may_join() || fd_table::must_be_plain(fd) {
        return Err(Errno::PERM);
    }
    let session = session::begin(&config.address).map_err(|_| Errno::NOTCONN)?;
    let key = key_of(raw)?;
    let (number, stamp) = session.find(key).ok_or(Errno::NOENT)?;
    let flags = rustix::fs::fcntl_getfl(raw)?;
    let flags = c_int::from_ne_bytes(flags.bits().to_ne_bytes());
    // Of a program that was executed the kernel knows them all.
    let flags = flags | fd_table::entry(fd).map_or(0, FdEntry::hidden);
    let held = hold(session, number, stamp.generation)?.ok_or(Errno::NOENT)?;
    fd_table::set_entry(fd, Some(FdEntry::new(Some(number), flags)));
    drop(held);
    Ok(())
}
