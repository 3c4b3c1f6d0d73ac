//! The run's counts of changes (names, sizes and attributes) that the journals of its file systems
//! may still lack. docs/files-write.md, "Order with the rest of the file system".
//!
//! A plain sync of a file that grew commits the journal of its file system, and with it every
//! earlier change of metadata, of whatever file. An absorbed sync does not. So the processes of a
//! run count such changes by file system, in memory that all of them share, and a sync that finds
//! one which no real sync followed is a real one.
//!
//! | field | raised by | when |
//! |---|---|---|
//! | `changes` | the process that makes a change | as soon as the kernel has made it |
//! | `ordered` | who had the journal committed | afterwards, to what `changes` was before |
//!
//! A file system whose first log is registered begins with one change that is not ordered, so what
//! was changed before is never counted: without a log on it, a change costs one load.

use crate::{run_files::order_path, sys};
use forebay_pool::media::{Atomics, Mapped};
use rustix::{
    fs::{Mode, OFlags, Timespec, Timestamps, UTIME_OMIT},
    io::Errno,
};
use std::{
    ffi::OsStr,
    ops::{Deref, Range},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

/// File systems with absorbed files that a run may have at a time.
pub(crate) const FILE_SYSTEMS_MAX: usize = 64;
/// In the place of a device: changes anywhere count. Of a file system that shows its files under
/// several devices (overlayfs).
pub(crate) const ANY_DEVICE: u64 = u64::MAX;

/// A file system.
#[repr(C, align(64))]
pub(crate) struct JournalOrder {
    /// Its device plus one; 0 while the place is free, [`ANY_DEVICE`] for any.
    device: AtomicU64,
    changes: AtomicU64,
    ordered: AtomicU64,
    /// Real syncs that were made for the order's sake.
    pub(crate) syncs: AtomicU64,
}

impl JournalOrder {
    /// Changes so far.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// True if a commit of the journal has followed the first `changes` changes.
    #[inline]
    pub(crate) fn is_ordered(&self, changes: u64) -> bool {
        changes <= self.ordered.load(Acquire)
    }

    /// A commit of the journal has followed the first `changes` changes.
    pub(crate) fn note_ordered(&self, changes: u64) {
        self.ordered.fetch_max(changes, AcqRel);
    }

    fn is_of(&self, device: u64) -> bool {
        let mine = self.device.load(Acquire);
        mine == ANY_DEVICE || mine == device.wrapping_add(1)
    }
}

/// The memory that all processes of the run share.
#[repr(C)]
pub(crate) struct OrderPage {
    journals: [JournalOrder; FILE_SYSTEMS_MAX],
}

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "memory shared with other processes")]
unsafe impl Atomics for OrderPage {}

impl OrderPage {
    /// True if any log may be ordered behind a change. Costs a load.
    #[inline]
    pub(crate) fn has_logs(&self) -> bool {
        self.journals[0].device.load(Acquire) != 0
    }

    /// True if a log on `device` may be ordered behind a change.
    pub(crate) fn has_logs_on(&self, device: u64) -> bool {
        self.used().any(|journal| journal.is_of(device))
    }

    /// The kernel has changed a name, a size or an attribute on `device`.
    pub(crate) fn changed(&self, device: u64) {
        for journal in self.used().filter(|journal| journal.is_of(device)) {
            journal.changes.fetch_add(1, AcqRel);
        }
    }

    /// The same, where it is not known on which file system.
    pub(crate) fn changed_somewhere(&self) {
        for journal in self.used() {
            journal.changes.fetch_add(1, AcqRel);
        }
    }

    /// The order of the file system at `place`.
    #[inline]
    pub(crate) fn journal(&self, place: usize) -> Option<&JournalOrder> {
        self.journals.get(place)
    }

    /// Real syncs that were made for the order's sake, on all file systems.
    pub(crate) fn syncs(&self) -> u64 {
        self.used().map(|it| it.syncs.load(Relaxed)).sum()
    }

    /// Supervisor, one thread at a time: the place of the file system with this device. None if
    /// there are too many.
    pub(crate) fn claim(&self, device: u64) -> Option<usize> {
        let wanted = match device {
            ANY_DEVICE => ANY_DEVICE,
            device => device.wrapping_add(1),
        };
        for (place, journal) in self.journals.iter().enumerate() {
            match journal.device.load(Acquire) {
                0 => {
                    journal.changes.store(1, Relaxed);
                    journal.device.store(wanted, Release);
                    return Some(place);
                }
                known if known == wanted => return Some(place),
                _ => {}
            }
        }
        None
    }

    fn used(&self) -> impl Iterator<Item = &JournalOrder> {
        let is_used = |journal: &&JournalOrder| journal.device.load(Acquire) != 0;
        self.journals.iter().take_while(is_used)
    }
}

/// A process's view of it.
pub(crate) struct OrderView(Mapped<OrderPage>);

impl Deref for OrderView {
    type Target = OrderPage;

    fn deref(&self) -> &OrderPage {
        &self.0
    }
}

impl OrderView {
    /// That of the run with this table. Only the run's user may open it by its name.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn open(table: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::open(order_path(table), flags, Mode::empty())?;
        Self::of(file.as_fd())
    }

    /// The page that is open as `fd`.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` for something smaller.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        Mapped::map(fd).map(Self)
    }

    /// The range that it is mapped at.
    pub(crate) fn memory(&self) -> Range<usize> {
        self.0.memory()
    }
}

/// The supervisor's. Removed when it is dropped.
pub(crate) struct OrderFile {
    pub(crate) page: OrderView,
    pub(crate) file: OwnedFd,
    path: PathBuf,
}

impl OrderFile {
    /// Makes the one of the run with this table.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn new(table: &Path) -> Result<Self, Errno> {
        let path = order_path(table);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
        let made = sys::reserve_memory(&file, 0..size_of::<OrderPage>() as u64)
            .and_then(|()| OrderView::of(file.as_fd()));
        match made {
            Ok(page) => Ok(Self { page, file, path }),
            Err(errno) => {
                let _ = rustix::fs::unlink(&path);
                Err(errno)
            }
        }
    }
}

impl Drop for OrderFile {
    fn drop(&mut self) {
        let _ = rustix::fs::unlink(&self.path);
    }
}

/// Under which device changes of metadata on the file system of `file` are counted. A file system
/// of several layers does not show its directories and its files under the same one.
pub(crate) fn device_of(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    /// `OVERLAYFS_SUPER_MAGIC`.
    const OVERLAY: i64 = 0x794c_7630;
    match sys::kind_of_file_system(file)? {
        OVERLAY => Ok(ANY_DEVICE),
        _ => Ok(sys::stat_of(file)?.st_dev),
    }
}

/// True if a file system has contents in its journal as well (ext4 with `data=journal`): then a
/// sync of bytes written in place commits it. False where that cannot be told.
pub(crate) fn journals_contents(device: u64) -> bool {
    const OPTION: &str = "data=journal";
    let Some(mount) = mount_of(device) else {
        return false;
    };
    let mut words = mount.split(' ').skip(1);
    let source = words.next().and_then(|source| source.rsplit('/').next());
    // Also one that the file system has by default is here, and not in the mount's options.
    let path = format!("/proc/fs/ext4/{}/options", source.unwrap_or_default());
    let is_default = || std::fs::read_to_string(path).unwrap_or_default();
    words.any(|options| options.split(',').any(|it| it == OPTION))
        || is_default().lines().any(|it| it == OPTION)
}

/// True if the file system has one journal for all its metadata, names and extended attributes
/// among them, in the order of the changes: a sync of a file that was changed makes durable all
/// earlier changes of any directory. XFS is such a one, and ext4 with a journal of its own. False
/// where that cannot be told.
pub(crate) fn journals_names(device: u64) -> bool {
    let mount = mount_of(device).unwrap_or_default();
    match mount.split(' ').next() {
        Some("xfs") => true,
        Some("ext4") => has_jbd2(device),
        _ => false,
    }
}

/// True if the block device has a journal of ext4's, of which the kernel shows figures. It has its
/// inode, mostly 8, behind the device's name.
fn has_jbd2(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
    let Some(name) = link
        .ok()
        .and_then(|link| link.file_name().map(OsStr::to_owned))
    else {
        return false;
    };
    let journals = std::fs::read_dir("/proc/fs/jbd2").into_iter().flatten();
    journals.flatten().any(|journal| {
        let found = journal.file_name();
        let rest = found.as_bytes().strip_prefix(name.as_bytes());
        rest.and_then(|rest| rest.strip_prefix(b"-"))
            .is_some_and(|inode| !inode.is_empty() && inode.iter().all(u8::is_ascii_digit))
    })
}

/// The mount of this device: type, source and options.
fn mount_of(device: u64) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let number = format!("{major}:{minor}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut lines = mounts.lines();
    let mount = lines.find(|line| line.split(' ').nth(2) == Some(&number))?;
    mount.split_once(" - ").map(|(_, last)| last.to_owned())
}

/// Has the file system commit all that it has journalled, by a sync of a file or directory of it.
/// The kernel does that only where this was changed itself since: so its modification time is set
/// to what it is.
///
/// # Errors
/// The kernel's; also if the file system shut itself down meanwhile, and said nothing.
#[cold]
pub(crate) fn commit_journal(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let stat = sys::stat_of(fd)?;
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: stat.st_mtime_nsec as _,
        },
    };
    match rustix::fs::futimens(fd, &times) {
        Ok(()) => rustix::fs::fsync(fd),
        // It is another user's: then all of the file system.
        Err(_) => rustix::fs::syncfs(fd),
    }?;
    sys::check_file_system(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_mount::Mounted;

    #[test]
    fn journal_has_names_on_ext4_with_one_and_on_xfs_alone() {
        for (words, has) in [
            (&["mkfs.ext4", "-q"][..], true),
            (&["mkfs.ext4", "-q", "-O", "^has_journal"], false),
            (&["mkfs.ext2", "-q"], false),
            (&["mkfs.xfs", "-q", "-f"], true),
        ] {
            if let Some(mounted) = Mounted::made(words) {
                let dir = std::fs::File::open(mounted.path()).unwrap();
                let device = sys::stat_of(&dir).unwrap().st_dev;
                assert_eq!(journals_names(device), has, "{words:?}");
            }
        }
        let memory = std::fs::File::open("/dev/shm").unwrap();
        assert!(!journals_names(sys::stat_of(&memory).unwrap().st_dev));
    }

    fn page() -> Mapped<OrderPage> {
        Mapped::new("forebay-test").unwrap().0
    }

    #[test]
    fn a_change_is_counted_on_its_own_file_system_only() {
        let page = page();
        assert!(!page.has_logs());
        page.changed(7);
        let (seven, eight) = (page.claim(7).unwrap(), page.claim(8).unwrap());
        let [seven, eight] = [seven, eight].map(|place| page.journal(place).unwrap());
        // What came before the first log is not known, and has to be ordered.
        for journal in [seven, eight] {
            assert!(!journal.is_ordered(journal.changes()));
            journal.note_ordered(journal.changes());
        }
        page.changed(7);
        assert!(!seven.is_ordered(seven.changes()) && eight.is_ordered(eight.changes()));
        seven.note_ordered(seven.changes() - 1);
        assert!(!seven.is_ordered(seven.changes()));
        page.changed_somewhere();
        assert!(!eight.is_ordered(eight.changes()));
    }

    #[test]
    fn a_file_system_of_layers_hears_of_every_change() {
        let page = page();
        let layers = page.claim(ANY_DEVICE).unwrap();
        let layers = page.journal(layers).unwrap();
        layers.note_ordered(layers.changes());
        page.changed(99);
        assert!(!layers.is_ordered(layers.changes()));
    }

    #[test]
    fn file_systems_beyond_the_last_place_are_refused() {
        let page = page();
        for device in 0..FILE_SYSTEMS_MAX as u64 {
            assert_eq!(page.claim(device), Some(device as usize));
        }
        assert_eq!(page.claim(5), Some(5));
        assert_eq!(page.claim(1 << 40), None);
    }
}
