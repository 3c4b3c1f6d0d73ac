//! The logs that the program has open: each has a number in the *window*, which only logs have, and
//! the same number in the agent.
//!
//! The program may close a number, be forked, execute another program or die without the agent's
//! being told: so a number is let go of only once no process has its open file there, and before a
//! call by a number the kernel is asked whether both have the same one (`kcmp`).
//!
//! Lock order: the table, then a number's count of uses. Who lets go of a number waits for the
//! calls that use it, so nothing else gets it meanwhile.
#![expect(
    unsafe_code,
    reason = "asks the kernel; owns descriptors by their number"
)]

use crate::listener::last_errno;
use forebay_files::client;
use libc::c_int;
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::io::Errno;
use std::{
    collections::HashMap,
    fs,
    ops::Deref,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

/// Numbers that only logs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberWindow {
    pub(crate) first: c_int,
    /// Behind the last.
    pub(crate) end: c_int,
}

impl NumberWindow {
    /// As many logs as a program has open, duplicates included.
    const COUNT: u64 = 1024;
    /// Below, programs expect numbers of their own.
    const FIRST_MIN: u64 = 512;

    /// The highest numbers that the limit of open files allows. None if it is too low.
    pub(crate) fn below(limit: u64) -> Option<Self> {
        let end = limit.min(client::DESCRIPTORS as u64);
        let first = end.checked_sub(Self::COUNT)?;
        (first >= Self::FIRST_MIN).then_some(Self {
            first: first as c_int,
            end: end as c_int,
        })
    }

    pub(crate) fn has(self, number: c_int) -> bool {
        (self.first..self.end).contains(&number)
    }
}

/// One of them that is open.
pub(crate) struct OpenNumber {
    /// The agent's own descriptor, which has the number.
    fd: OwnedFd,
    /// It appends.
    pub(crate) appends: AtomicBool,
    /// A process that had it when that was asked last; 0 as long as it was given to none.
    holder: AtomicU32,
    /// Held while it is given to the first.
    giving: Mutex<()>,
}

impl OpenNumber {
    pub(crate) fn number(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.fd.as_fd()
    }
}

/// A number, and the calls that use it.
struct CountedNumber {
    open: OpenNumber,
    uses: Mutex<u32>,
    unused: Condvar,
}

/// A number in use: it stays what it is meanwhile.
pub(crate) struct UsedNumber(Arc<CountedNumber>);

impl Deref for UsedNumber {
    type Target = OpenNumber;

    fn deref(&self) -> &OpenNumber {
        &self.0.open
    }
}

impl Drop for UsedNumber {
    fn drop(&mut self) {
        let mut uses = self.0.uses.lock();
        *uses -= 1;
        if *uses == 0 {
            self.0.unused.notify_all();
        }
    }
}

/// All of them.
pub(crate) struct NumberTable {
    pub(crate) window: NumberWindow,
    open: RwLock<HashMap<c_int, Arc<CountedNumber>>>,
    /// Held while it is looked for numbers that no process has.
    sweeping: Mutex<()>,
}

impl NumberTable {
    pub(crate) fn new(window: NumberWindow) -> Self {
        Self {
            window,
            open: RwLock::default(),
            sweeping: Mutex::default(),
        }
    }

    /// Gives `fd` a number of the window that is free, from `least` on.
    ///
    /// # Errors
    /// `EMFILE` if all are taken.
    pub(crate) fn duplicate(&self, fd: BorrowedFd<'_>, least: c_int) -> Result<OwnedFd, Errno> {
        let least = least.max(self.window.first);
        let made = rustix::io::fcntl_dupfd_cloexec(fd, least)?;
        match self.window.has(made.as_raw_fd()) {
            true => Ok(made),
            false => Err(Errno::MFILE),
        }
    }

    /// Notes an open one that a process is about to have.
    pub(crate) fn add(&self, fd: OwnedFd, appends: bool) {
        let number = fd.as_raw_fd();
        let open = OpenNumber {
            fd,
            appends: AtomicBool::new(appends),
            holder: AtomicU32::new(0),
            giving: Mutex::default(),
        };
        let counted = CountedNumber {
            open,
            uses: Mutex::default(),
            unused: Condvar::default(),
        };
        self.open.write().insert(number, Arc::new(counted));
    }

    /// Gives a new one to a thread's process by `give`; takes it back if that fails.
    ///
    /// # Errors
    /// Those of `give`.
    pub(crate) fn giving(
        &self,
        number: c_int,
        thread: u32,
        give: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let used = self.used(number).ok_or(Errno::BADF)?;
        let one = used.giving.lock();
        let given = give(used.fd());
        if given.is_ok() {
            used.holder.store(thread, Relaxed);
        }
        drop(one);
        drop(used);
        given.inspect_err(|_| self.let_go(number))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.read().is_empty()
    }

    /// What the thread has by this number, if that is one of these.
    ///
    /// # Errors
    /// One of these has the number, and the kernel does not say whether it is the thread's.
    pub(crate) fn used_by(
        &self,
        thread: u32,
        number: c_int,
    ) -> Result<Option<UsedNumber>, UsedNumber> {
        let Some(used) = self.used(number) else {
            return Ok(None);
        };
        match share(thread, number, number) {
            Ok(true) => {
                used.holder.store(thread, Relaxed);
                Ok(Some(used))
            }
            Ok(false) | Err(Errno::BADF) => Ok(None),
            Err(_) => Err(used),
        }
    }

    fn used(&self, number: c_int) -> Option<UsedNumber> {
        let open = self.open.read();
        let counted = open.get(&number)?;
        *counted.uses.lock() += 1;
        Some(UsedNumber(Arc::clone(counted)))
    }

    /// Lets go of a number that `but`, and no other process, has.
    pub(crate) fn closing(&self, number: c_int, but: Option<u32>) {
        let _one = self.sweeping.lock();
        match others(number, but) {
            Some(holder) => {
                if let Some(used) = self.used(number) {
                    used.holder.store(holder, Relaxed);
                }
            }
            None => self.let_go(number),
        }
    }

    /// Lets go of all numbers that no process has any more.
    pub(crate) fn sweep(&self) {
        let numbers: Vec<c_int> = self.open.read().keys().copied().collect();
        for number in numbers {
            let holder = self.used(number).map(|used| {
                // Who has just got it may be gone already.
                let _given = used.giving.lock();
                used.holder.load(Relaxed)
            });
            if holder.is_some_and(|holder| holder != 0 && !has_same(holder, number)) {
                self.closing(number, None);
            }
        }
    }

    fn let_go(&self, number: c_int) {
        let Some(counted) = self.open.write().remove(&number) else {
            return;
        };
        let mut uses = counted.uses.lock();
        while *uses > 0 {
            counted.unused.wait(&mut uses);
        }
        drop(uses);
        // Its last user lets go of it in a moment, and only then it is closed for certain.
        let mut shared = counted;
        let counted = loop {
            match Arc::try_unwrap(shared) {
                Ok(counted) => break counted,
                Err(again) => shared = again,
            }
            std::thread::yield_now();
        };
        let device = rustix::fs::fstat(&counted.open.fd)
            .ok()
            .map(|stat| stat.st_dev);
        client::closing(number);
        drop(counted);
        // Its file may have been cut off by it, which the file system makes durable at a closing.
        client::changed_on(device);
    }

    /// The numbers between two, both included, that are open.
    pub(crate) fn between(&self, first: u32, last: u32) -> Vec<c_int> {
        let is_between = |number: &&c_int| (first..=last).contains(&number.cast_unsigned());
        let open = self.open.read();
        open.keys().filter(is_between).copied().collect()
    }
}

/// A process other than this one and `but` that has the number's open file by it.
fn others(number: c_int, but: Option<u32>) -> Option<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").ok()?;
    let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut holders = processes.filter(|id: &u32| *id != own && Some(*id) != but);
    holders.find(|id| {
        // One whose first thread has ended has no files by its own number.
        let is_there = |thread: u32| {
            let link = format!("/proc/{thread}/fd/{number}");
            fs::symlink_metadata(link).is_ok() && has_same(thread, number)
        };
        is_there(*id)
            || fs::metadata(format!("/proc/{id}/fd/0")).is_err() && {
                let tasks = fs::read_dir(format!("/proc/{id}/task"))
                    .into_iter()
                    .flatten();
                let mut threads =
                    tasks.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
                threads.any(is_there)
            }
    })
}

/// True if the thread has the same open file by a number as the agent.
pub(crate) fn has_same(thread: u32, number: c_int) -> bool {
    share(thread, number, number) == Ok(true)
}

/// Whether a thread's descriptor and one of this process are of the same open file.
///
/// # Errors
/// The kernel does not say, or may not.
pub(crate) fn share(thread: u32, theirs: c_int, own: c_int) -> Result<bool, Errno> {
    const KCMP_FILE: c_int = 0;
    // SAFETY: it compares, and changes nothing.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            thread,
            std::process::id(),
            KCMP_FILE,
            theirs,
            own,
        )
    };
    match order {
        -1 => Err(last_errno()),
        order => Ok(order == 0),
    }
}

/// A descriptor that the client opened, and that nothing else owns.
pub(crate) fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: the client returned it just now, or it was made by `duplicate` and forgotten.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
