//! This process's registry of the run's files, and its locks. A forked child has its own: its
//! parent's threads may have held the locks. Each lock of the client is a word that the kernel
//! waits on, and a thread that waits allocates nothing. There is no table of waiting threads, which
//! a child would have as its parent's threads left it.
//!
//! Lock order: the registry, then a file's own lock in this process, then the one that all
//! processes share. See docs/files-membership.md, "Locks".

use super::{
    fd_table::{self, FdEntry},
    fork_local::ForkLocal,
    last_write_cache::LastWriteCache,
    private_fds,
    session::{self, MemberSession},
};
use crate::{
    FILES_MAX,
    log::ENDED,
    shared::{FileState, SharedFile},
};
use rustix::io::Errno;
use std::{
    ffi::c_int,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicU32, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

/// See the module's head.
pub(super) struct ClientProcess {
    /// By file number, in parts that begin when one of their files is used first: of a write that
    /// comes back. A file's own lock is this one.
    copies: Box<[OnceLock<CachePart>]>,
    /// Held while a file begins to be absorbed, is renamed or unlinked.
    pub(super) registry: Mutex<()>,
}

/// The generation of the file, among those that had a number, that the descriptors in the table are
/// of; 0 for none. A forked child has its parent's.
static GENERATIONS: [AtomicU32; FILES_MAX] = [const { AtomicU32::new(0) }; FILES_MAX];

/// No number from this one on has been used here.
static USED: AtomicUsize = AtomicUsize::new(0);

/// So many files' caches begin at a time.
type CachePart = Box<[Mutex<LastWriteCache>]>;

/// Files of a part.
const PART: usize = 256;

/// Those of a file at first. A forked child has its parent's descriptors, but none of its copies.
fn first_copies(number: usize) -> LastWriteCache {
    match generation(number) {
        0 => LastWriteCache::default(),
        _ => LastWriteCache::new(),
    }
}

static PROCESS: ForkLocal<ClientProcess> = ForkLocal::new(|| ClientProcess {
    copies: (0..FILES_MAX.div_ceil(PART))
        .map(|_| OnceLock::new())
        .collect(),
    registry: Mutex::default(),
});

/// This process's.
#[inline]
pub(super) fn process() -> &'static ClientProcess {
    PROCESS.get()
}

/// Begins all that a process has anew, so that nothing of it is allocated later.
pub(super) fn begin() {
    session::prepare();
    private_fds::prepare();
    // Those of all files of most runs.
    drop(local(0));
}

/// In a forked child: all of it begins anew when it is asked for first. Neither allocates nor
/// locks.
pub(super) fn renew() {
    session::renew();
    private_fds::renew();
    PROCESS.renew();
}

/// None of the descriptors is known to be of any file.
pub(super) fn forget_all() {
    // Memory that no file has used is not there.
    for generation in GENERATIONS.iter().take(USED.load(Acquire)) {
        if generation.load(Relaxed) != 0 {
            generation.store(0, Release);
        }
    }
}

/// The generation of the file that descriptors with this number are of.
#[inline]
pub(super) fn generation(number: usize) -> u32 {
    GENERATIONS
        .get(number)
        .map_or(0, |generation| generation.load(Acquire))
}

/// The numbers of files that descriptors of this process may be of.
pub(super) fn numbers() -> impl Iterator<Item = usize> {
    (0..USED.load(Acquire)).filter(|number| generation(*number) != 0)
}

/// This process's notes of a file, under its own lock only.
pub(super) fn local(number: usize) -> MutexGuard<'static, LastWriteCache> {
    let (part, at) = (number / PART, number % PART);
    let first = |at| Mutex::new(first_copies(part * PART + at));
    let copies = process().copies[part].get_or_init(|| (0..PART).map(first).collect());
    copies[at].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Its descriptors are plain from now on.
pub(super) fn make_plain(number: usize, plain: u32) {
    let mut copies = local(number);
    if generation(number) == plain {
        sweep(number);
        *copies = LastWriteCache::default();
        GENERATIONS[number].store(0, Release);
    }
}

fn sweep(number: usize) {
    for (fd, entry) in fd_table::descriptors_of(number) {
        fd_table::set_entry(fd, entry.plain());
    }
}

/// An absorbed file, with both its locks.
pub(super) struct HeldFile {
    pub(super) session: &'static MemberSession,
    pub(super) number: usize,
    /// The state that all processes share.
    pub(super) shared: &'static SharedFile,
    /// This process's copy of its last write.
    pub(super) copies: MutexGuard<'static, LastWriteCache>,
}

impl HeldFile {
    /// Takes a record that cannot be logged because the lane has ended for none: the next sync is a
    /// real one.
    pub(super) fn logged(&self, done: Result<(), Errno>) -> Result<(), Errno> {
        match done {
            Err(ENDED) => {
                // Without a supervisor a member sees to that; with one, the file is made plain.
                if !self.session.is_orphan() {
                    self.shared.stray(self.generation());
                }
                Ok(())
            }
            done => done,
        }
    }

    pub(super) fn generation(&self) -> u32 {
        self.shared.stamp().generation
    }
}

impl Drop for HeldFile {
    #[inline]
    fn drop(&mut self) {
        self.shared.lock.free();
    }
}

/// The file with this number, in whatever state it is, with both its locks; none if the supervisor
/// is dead, or the lock was written over.
#[inline]
pub(super) fn lock(session: &'static MemberSession, number: usize) -> Option<HeldFile> {
    let copies = local(number);
    let shared = &session.page.files[number];
    if !shared.lock.take(session.number, || session.is_orphan()) {
        return None;
    }
    let held = HeldFile {
        session,
        number,
        shared,
        copies,
    };
    (!session.is_orphan()).then_some(held)
}

/// The file with this number and generation, which may be changed: its first sync is not under way.
/// None if it is plain, and then its descriptors here are.
///
/// # Errors
/// It is to be plain, and what the lane has of it cannot be synced.
#[inline]
pub(super) fn hold(
    session: &'static MemberSession,
    number: usize,
    wanted: u32,
) -> Result<Option<HeldFile>, Errno> {
    loop {
        match hold_to_open(session, number, wanted)? {
            Some(held) if held.shared.first_sync.is_under_way() => {
                drop(held);
                let file = &session.page.files[number];
                file.outlast_first_sync(wanted, || session.is_orphan());
            }
            found => return Ok(found),
        }
    }
}

/// The number is another file's than it was.
// What it makes is not to be in its callers' frames: they go on deep on a small stack.
#[cold]
#[inline(never)]
fn begin_anew(copies: &mut LastWriteCache, number: usize, wanted: u32) {
    // Descriptors of the file that had the number before.
    sweep(number);
    *copies = LastWriteCache::new();
    USED.fetch_max(number + 1, AcqRel);
    GENERATIONS[number].store(wanted, Release);
}

/// As [`hold`], of a file that is not changed, also while its first sync is under way.
///
/// # Errors
/// As [`hold`].
#[inline]
pub(super) fn hold_to_open(
    session: &'static MemberSession,
    number: usize,
    wanted: u32,
) -> Result<Option<HeldFile>, Errno> {
    loop {
        if session.is_orphan() {
            let settled = session.settle(number);
            make_plain(number, wanted);
            return settled.map(|()| None);
        }
        let Some(mut held) = lock(session, number) else {
            if session.page.files[number].lock.is_damaged() {
                session.give_up_lane(number, wanted)?;
            }
            continue;
        };
        let stamp = held.shared.stamp();
        match stamp.state {
            FileState::Absorbed if stamp.generation == wanted => {
                if generation(number) != wanted {
                    begin_anew(&mut held.copies, number, wanted);
                }
                return Ok(Some(held));
            }
            state if state.leaves() && stamp.generation == wanted => {
                drop(held);
                session.retire(number, wanted)?;
            }
            FileState::Damaged if session.is_current() => {
                drop(held);
                session.give_up_lane(number, wanted)?;
            }
            _ => {
                drop(held);
                make_plain(number, wanted);
                return Ok(None);
            }
        }
    }
}

/// As [`hold`], of the file that `fd` leads to by the table; none also if the table says something
/// else by now.
///
/// # Errors
/// As [`hold`].
#[inline]
pub(super) fn hold_open(
    session: &'static MemberSession,
    fd: c_int,
    entry: FdEntry,
    number: usize,
) -> Result<Option<HeldFile>, Errno> {
    let held = hold(session, number, generation(number))?;
    Ok(held.filter(|_| fd_table::entry(fd) == Some(entry)))
}

/// A signal handler, above a call that may have a record unfinished, changed the file, or made its
/// contents unknown. Nothing is logged of it from now on, and the next call that uses it has it
/// made plain. Neither allocates nor locks.
pub(super) fn mark_range_unknown(number: usize) {
    if let Some(session) = session::there() {
        session.page.files[number].stray(generation(number));
    }
}
