//! The table of the files that a run absorbs, for all processes of the machine to read.
//! docs/files-membership.md, "The table of absorbed files".
//!
//! The supervisor alone writes it. The run's processes map it when they start, and compare what
//! they open for writing with it, by device and inode ([`index`]). A file that another process
//! absorbs has to be let go of first, by whatever name it was opened. Other runs read a copy of it.
//! A word of it is marked by the kernel when the supervisor dies, however it dies; from then on its
//! processes say in another one what became of the lane ([`lane`]). In a part of its own they ask
//! that a file be made plain ([`questions`]). A process is named by its number and its start, since
//! the kernel gives the number of one that has ended to another.

mod index;
mod lane;
mod questions;
mod sweep;
mod tables;

pub(crate) use questions::{AskingView, FileQuestion, QuestionOutcome, QuestionTable};
pub(crate) use sweep::{clean_up, give_up, is_over, of_lane};
#[cfg(test)]
pub(crate) use tables::head_of_another_layout;
pub(crate) use tables::{StrangeTable, of_users, strange_of_users};

use crate::{
    FILES_MAX,
    lane_place::LanePlace,
    processes::{self, NotedProcess},
    run_files::TABLE_PREFIX,
    shared_text::SharedText,
    sys,
};
use forebay_pool::media::Mapped;
use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
    mm::ProtFlags,
};
use std::{
    ffi::OsString,
    mem::offset_of,
    ops::{Deref, Range},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
            fence,
        },
        mpsc,
    },
    thread,
};
use uuid::Uuid;

/// Device and inode.
pub(crate) type FileKey = (u64, u64);

/// Directory of tables, if it is there: visible to all users and all processes, and gone after a
/// reboot.
pub(crate) const SHARED_DIR: &str = "/dev/shm";
/// "absorbed" and the version of the table's layout, as in every layout followed by the boot id.
/// Whoever raises it raises [`wire::VERSION`](crate::wire::VERSION): a library that does not know
/// the table of its supervisor would follow no change of what is absorbed.
const MAGIC: u64 = u64::from_be_bytes(*b"absorb\0\x01");

/// That of the tables that this process makes and knows: a test may want two releases.
fn magic() -> u64 {
    MAGIC + u64::from(forebay_pool::fault_enabled!("next-version"))
}

/// Bytes of a page of memory at most: aarch64 has kernels with 16 and with 64 KiB.
const PAGE_MAX: usize = 64 << 10;
/// Entries: as many as a run absorbs files, and some, so that the next part begins where a page
/// does.
const ENTRIES: usize = FILES_MAX.next_multiple_of(8192);
/// Bytes of a socket's name at most.
const NAME_MAX: usize = 62;
/// Bytes of a run directory's path at most: a longer one is not said.
const RUN_DIR_MAX: usize = 1022;
/// The kernel's bits of a word in a thread's robust list that say which thread has it.
const OWNER: u32 = 0x3FFF_FFFF;

/// A file that is absorbed. Its number in the run is the entry's.
#[repr(C)]
struct TableEntry {
    dev: AtomicU64,
    ino: AtomicU64,
    /// 1 if it is absorbed, 0 if the entry is free.
    present: AtomicU64,
    /// Time at which the file was made, ns since 1970; 0 if that is not known. Its inode may be
    /// another's after the run's end.
    born: AtomicU64,
    /// A process of the run: the one that opened it first.
    pid: AtomicU32,
    /// Counts the files that have had the entry.
    published: AtomicU32,
    /// The last question about the file ([`questions`]) that was answered.
    answered: AtomicU32,
    /// The [start](processes::start) of process `pid`; 0 if it is not known.
    start: AtomicU32,
    /// The number, plus one, of the next file in the same chain of the [`index`]; 0 for none.
    next: AtomicU32,
    _unused: AtomicU32,
}

/// The table's bytes.
#[repr(C)]
pub(crate) struct TablePage {
    magic: AtomicU64,
    boot: [AtomicU64; 2],
    /// Node of a robust list (see `sys::mark_at_end_of_thread`), and the word that belongs to it.
    node: AtomicUsize,
    life: AtomicU32,
    /// Entries behind this were never used.
    used: AtomicU32,
    /// The start of the supervisor's thread; 0 if it is not known.
    start: AtomicU32,
    /// The supervisor's abstract socket.
    name: SharedText<NAME_MAX>,
    /// The run directory, by which a look at the runs of one directory finds this one.
    run_dir: SharedText<RUN_DIR_MAX>,
    /// The run's lane.
    pub(crate) lane: lane::LaneNote,
    /// Odd while the index is changed, and another number afterwards.
    changes: AtomicU64,
    /// Files that are absorbed, and some that are about to be.
    present: AtomicU64,
    /// By number.
    entries: [TableEntry; ENTRIES],
    index: index::IndexHeads,
    /// So that the next part, which is mapped alone, begins where a page of any kernel does.
    _gap: [AtomicU64; GAP],
    asking: QuestionTable,
}

/// Words of it. What is before the entries has between 4 and 8 KiB; a page that is not full is
/// filled by the alignment of [`QuestionTable`].
const GAP: usize = (PAGE_MAX - (8 << 10)) / size_of::<AtomicU64>();

const _: () = assert!(
    offset_of!(TablePage, asking).is_multiple_of(PAGE_MAX),
    "GAP does not fit the rest of the table any more"
);

impl TablePage {
    /// True as long as the supervisor lives.
    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        self.supervisor() != 0
    }

    /// The supervisor's thread that lives as long as it does; 0 once that has ended.
    #[inline]
    pub(crate) fn supervisor(&self) -> u32 {
        self.life.load(Relaxed) & OWNER
    }

    /// That thread, if it has not ended; its number may be another one's once the machine, or its
    /// process namespace, was started again.
    pub(crate) fn noted_supervisor(&self) -> Option<NotedProcess> {
        let start = self.start.load(Relaxed);
        self.is_alive().then(|| NotedProcess {
            id: self.supervisor(),
            start,
        })
    }

    /// True if it is a table of this layout and of this boot.
    pub(crate) fn is_of(&self, boot: Uuid) -> bool {
        let (high, low) = boot.as_u64_pair();
        self.magic.load(Acquire) == magic()
            && self.boot[0].load(Relaxed) == high
            && self.boot[1].load(Relaxed) == low
    }

    /// The supervisor's socket.
    pub(crate) fn socket(&self) -> Vec<u8> {
        self.name.get()
    }

    /// The run directory; none if its path is too long to be said.
    pub(crate) fn run_dir(&self) -> Option<PathBuf> {
        let path = self.run_dir.get();
        (!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path)))
    }

    fn used(&self) -> impl Iterator<Item = &TableEntry> {
        let used = self.used.load(Acquire) as usize;
        self.entries.iter().take(used)
    }

    /// True if the run absorbs anything.
    pub(crate) fn any(&self) -> bool {
        // What is asked about was opened before: either its opening is seen by who absorbs it
        // later, or the entry by us.
        fence(SeqCst);
        self.present.load(Relaxed) != 0
    }

    /// True if the run absorbs the file.
    pub(crate) fn has(&self, key: FileKey) -> bool {
        self.entry_of(key).is_some()
    }

    /// The number of the file, if the run absorbs it, or is about to.
    pub(crate) fn number_of(&self, key: FileKey) -> Option<usize> {
        self.entry_of(key).map(|(number, _)| number)
    }

    /// The process of a run, which may have ended, that absorbs the file made then. None if nothing
    /// that the run's lane has is needed any more.
    pub(crate) fn holder_of(&self, key: FileKey, born: u64) -> Option<NotedProcess> {
        if self.lane.is_settled() {
            return None;
        }
        let (_, found) = self.entry_of(key)?;
        (found.born.load(Relaxed) == born).then(|| found.process())
    }

    /// Processes that opened an absorbed file, and have not ended.
    pub(crate) fn living(&self) -> Vec<NotedProcess> {
        let mut living: Vec<_> = self.all_present().map(TableEntry::process).collect();
        living.sort_unstable();
        living.dedup();
        living.retain(|process| process.lives());
        living
    }

    fn all_present(&self) -> impl Iterator<Item = &TableEntry> {
        self.used().filter(|entry| entry.present.load(Acquire) != 0)
    }

    /// Says by the entry `at`, which is free, that `file` is absorbed, for all to see.
    fn publish(&self, at: usize, process: NotedProcess, (dev, ino): FileKey, born: u64) {
        let entry = &self.entries[at];
        let before = (entry.dev.load(Relaxed), entry.ino.load(Relaxed));
        self.withdraw(at, before);
        self.present.fetch_add(1, Relaxed);
        entry.dev.store(dev, Relaxed);
        entry.ino.store(ino, Relaxed);
        entry.born.store(born, Relaxed);
        entry.pid.store(process.id, Relaxed);
        entry.start.store(process.start, Relaxed);
        // What was asked before was asked about another one.
        entry.answered.store(self.asking.last(at), Relaxed);
        entry.published.fetch_add(1, Relaxed);
        entry.present.store(1, Release);
        let used = u32::try_from(at + 1).unwrap_or(u32::MAX);
        self.used.fetch_max(used, Release);
        self.link(at, (dev, ino));
        fence(SeqCst);
    }

    /// Frees the entry `at`, if it is still that of this file.
    fn withdraw(&self, at: usize, key: FileKey) {
        let entry = self.entries.get(at);
        let its = |entry: &&TableEntry| entry.present.load(Relaxed) != 0 && entry.is_of(key);
        if let Some(entry) = entry.filter(its) {
            self.unlink(at, key);
            entry.present.store(0, Release);
            self.present.fetch_sub(1, Relaxed);
        }
    }
}

impl TableEntry {
    fn is_of(&self, key: FileKey) -> bool {
        (self.dev.load(Relaxed), self.ino.load(Relaxed)) == key
    }

    fn process(&self) -> NotedProcess {
        NotedProcess {
            id: self.pid.load(Relaxed),
            start: self.start.load(Relaxed),
        }
    }
}

/// A process's view of a table.
pub(crate) struct TableView(Mapped<TablePage>);

impl Deref for TableView {
    type Target = TablePage;

    fn deref(&self) -> &TablePage {
        &self.0
    }
}

impl TableView {
    /// The table at `path`, mapped to be read.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` for what is no table.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        Self::of(open_table(path)?.as_fd())
    }

    /// The table that is open as `fd`, which is locked as long as the view is there: so other users
    /// see that a process has it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        sys::lock_shared(fd)?;
        let view = Self(Mapped::map_as(fd, ProtFlags::READ)?);
        (view.magic.load(Acquire) == magic())
            .then_some(view)
            .ok_or(Errno::INVAL)
    }

    /// The same table at `path`, to note the lane's fate in it: none if it is not there, or this
    /// process may not.
    pub(crate) fn to_note(&self, path: &Path) -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let is_whole = sys::stat_of(&fd)
            .is_ok_and(|stat| stat.st_size.unsigned_abs() >= size_of::<TablePage>() as u64);
        let view = Self(Mapped::map(fd.as_fd()).ok().filter(|_| is_whole)?);
        let is_it = view.magic.load(Acquire) == magic() && view.socket() == self.socket();
        is_it.then_some(view)
    }

    /// The range that it is mapped at.
    pub(crate) fn memory(&self) -> Range<usize> {
        self.0.memory()
    }

    /// A copy of the table that is open as `fd`: its owner cannot take memory away under it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn copy_of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let copy = rustix::fs::memfd_create("forebay", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&copy, size_of::<TablePage>() as u64)?;
        // First what says how many entries there are, then those: most tables have a few.
        copy_range(fd, copy.as_fd(), 0..offset_of!(TablePage, entries))?;
        let head = Self::of(copy.as_fd())?;
        let used = (head.used.load(Relaxed) as usize).min(ENTRIES);
        let start = offset_of!(TablePage, entries);
        copy_range(
            fd,
            copy.as_fd(),
            start..start + used * size_of::<TableEntry>(),
        )?;
        // It has no index.
        let changes = (offset_of!(TablePage, changes)) as u64;
        crate::sys::write_at(copy.as_fd(), &index::CHANGING.to_ne_bytes(), changes)?;
        Ok(head)
    }
}

/// Copies a part of a file to the same place of another.
fn copy_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, range: Range<usize>) -> Result<(), Errno> {
    let mut buffer = vec![0; range.len()];
    let mut at = 0;
    while at < buffer.len() {
        match rustix::io::pread(from, &mut buffer[at..], (range.start + at) as u64)? {
            0 => return Err(Errno::INVAL),
            read => at += read,
        }
    }
    crate::sys::write_at(to, &buffer, range.start as u64)
}

/// Opens a file that may be a table. Whichever user's it is, it is not waited for.
pub(crate) fn open_table(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let regular = FileType::from_raw_mode(sys::stat_of(&fd)?.st_mode) == FileType::RegularFile;
    regular.then_some(fd).ok_or(Errno::INVAL)
}

/// The supervisor's table.
pub(crate) struct AbsorbedTable {
    page: Arc<TableView>,
    pub(crate) file: OwnedFd,
    pub(crate) path: PathBuf,
    /// One at a time. Entries behind this have no memory yet.
    writing: parking_lot::Mutex<usize>,
    /// The thread by whose end the kernel knows that the supervisor is dead: it ends when the
    /// channel does.
    life: Option<(mpsc::Sender<()>, thread::JoinHandle<()>)>,
}

impl AbsorbedTable {
    /// Makes a table of the run with this socket where all can see it, else in `run_dir`.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn new(run_dir: &Path, socket: &[u8], boot: Uuid) -> Result<Self, Errno> {
        let real = run_dir.canonicalize();
        let said = real.as_deref().unwrap_or(run_dir).as_os_str().as_bytes();
        Self::new_in(Path::new(SHARED_DIR), said, socket, boot)
            .or_else(|_| Self::new_in(run_dir, said, socket, boot))
    }

    fn new_in(directory: &Path, run_dir: &[u8], socket: &[u8], boot: Uuid) -> Result<Self, Errno> {
        let path = directory.join(format!("{TABLE_PREFIX}{}", Uuid::new_v4().simple()));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let file = rustix::fs::open(&path, flags, mode)?;
        let begin = || {
            rustix::fs::fchmod(&file, mode)?;
            rustix::fs::ftruncate(&file, size_of::<TablePage>() as u64)?;
            let index = offset_of!(TablePage, index);
            let bell = offset_of!(TablePage, asking);
            for (start, end) in [
                (0, offset_of!(TablePage, entries)),
                (index, index + size_of::<index::IndexHeads>()),
                (bell, QuestionTable::OFFSET),
            ] {
                sys::reserve_memory(&file, start as u64..end as u64)?;
            }
            sys::lock_shared(file.as_fd())?;
            let page = TableView(Mapped::map(file.as_fd())?);
            let (high, low) = boot.as_u64_pair();
            page.boot[0].store(high, Relaxed);
            page.boot[1].store(low, Relaxed);
            // What is too long is not said.
            let _ = page.name.set(socket) && page.run_dir.set(run_dir);
            let page = Arc::new(page);
            let life = live(&page)?;
            page.magic.store(magic(), Release);
            Ok((page, life))
        };
        match begin() {
            Ok((page, life)) => Ok(Self {
                page,
                file,
                path,
                writing: parking_lot::Mutex::default(),
                life: Some(life),
            }),
            Err(errno) => {
                let _ = rustix::fs::unlink(&path);
                Err(errno)
            }
        }
    }

    /// Files with numbers below `count` may be said to be absorbed from now on.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn reserve(&self, count: usize) -> Result<(), Errno> {
        let mut there = self.writing.lock();
        let parts = [
            (offset_of!(TablePage, entries), size_of::<TableEntry>()),
            (QuestionTable::OFFSET, size_of::<AtomicU32>()),
        ];
        let count = count.clamp(*there, ENTRIES);
        for (start, bytes) in parts {
            let (start, end) = (start + *there * bytes, start + count * bytes);
            if start < end {
                sys::reserve_memory(&self.file, start as u64..end as u64)?;
            }
        }
        *there = count;
        Ok(())
    }

    /// Says that the run absorbs the file, which has this number, was made at `born` and opened
    /// first by process `pid`. False if there is no memory for that.
    pub(crate) fn publish(&self, number: usize, pid: u32, key: FileKey, born: u64) -> bool {
        let start = processes::start(pid);
        let process = NotedProcess { id: pid, start };
        let there = self.writing.lock();
        let is_there = number < *there;
        if is_there {
            self.page.publish(number, process, key, born);
        }
        is_there
    }

    /// Says which lane the run has, before it absorbs any file.
    pub(crate) fn set_lane(&self, place: &LanePlace) {
        self.page.lane.set(place);
    }

    /// Says that it does not any more, unless another file has the number by now.
    pub(crate) fn withdraw(&self, number: usize, key: FileKey) {
        let _writing = self.writing.lock();
        self.page.withdraw(number, key);
    }
}

/// Starts the thread that lives as long as the supervisor, or until the sender is dropped.
fn live(page: &Arc<TableView>) -> Result<(mpsc::Sender<()>, thread::JoinHandle<()>), Errno> {
    let (end, ended) = mpsc::channel::<()>();
    let (said, heard) = mpsc::channel();
    let page = Arc::clone(page);
    let thread = thread::Builder::new()
        .name("life".into())
        .spawn(move || {
            let thread = rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned();
            page.start.store(processes::start(thread), Relaxed);
            let _ = said.send(sys::mark_at_end_of_thread(&page.node, &page.life));
            let _ = ended.recv();
            // If it ends in the orderly way it says so itself.
            page.life.store(0, Release);
        })
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
    heard.recv().unwrap_or(Err(Errno::AGAIN))?;
    Ok((end, thread))
}

impl Drop for AbsorbedTable {
    fn drop(&mut self) {
        let _ = rustix::fs::unlink(&self.path);
        if let Some((end, thread)) = self.life.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
