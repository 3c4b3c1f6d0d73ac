//! The logs that the program has open: each has a number in the *window*, which only logs have, and
//! the same number in the agent.
//!
//! The program may close a number, be forked, execute another program or die without the agent's
//! being told. So a number is let go of only once no process has its open file there. Before a call
//! by a number the kernel is asked whether both have the same one (`kcmp`).
//!
//! Lock order: the table, then a number's count of uses. Who lets go of a number waits for the
//! calls that use it, so nothing else gets it meanwhile.
#![expect(unsafe_code, reason = "owns descriptors by their number")]

use crate::{
    caller::{CallerThread, PlainReason, process_of},
    held_numbers::HeldNumbers,
    listener::last_errno,
    number_window::NumberWindow,
    open_files::{lacks, others, share, share_with},
    spent_numbers::SpentNumbers,
};
use forebay_files::client;
use libc::c_int;
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::io::Errno;
use std::{
    collections::HashMap,
    ops::Deref,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

/// A number of the window that is open.
pub(crate) struct OpenNumber {
    /// The agent's own descriptor, which has the number.
    fd: OwnedFd,
    /// It appends.
    pub(crate) appends: AtomicBool,
    /// Its opening cut the file off: its closing has the file written, as ext4 and XFS begin to do.
    pub(crate) was_cut_off: bool,
    /// A process that had it when that was asked last; 0 as long as it was given to none.
    holder: AtomicU32,
    /// Held while it is given to the first.
    giving: Mutex<()>,
    /// Device and inode.
    file: Option<(u64, u64)>,
    /// Held, of all numbers of a file, by calls that move the file position or append: between the
    /// question where that is and the answer nothing else moves it.
    pub(crate) position: Arc<Mutex<()>>,
}

impl OpenNumber {
    pub(crate) fn number(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// True if this process had it when that was asked last.
    pub(crate) fn was_of(&self, process: Option<u32>) -> bool {
        let holder = self.holder.load(Relaxed);
        process.is_some() && (Some(holder) == process || process_of(holder) == process)
    }

    /// From now on this number is of another open file.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn become_other(&self, file: &OwnedFd) -> Result<(), Errno> {
        // SAFETY: the number stays this one's own.
        let done = unsafe { libc::dup3(file.as_raw_fd(), self.number(), libc::O_CLOEXEC) };
        if done < 0 { Err(last_errno()) } else { Ok(()) }
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
    /// The agent's.
    process: u32,
    open: RwLock<HashMap<c_int, Arc<CountedNumber>>>,
    /// Held while it is looked for numbers that no process has.
    sweeping: Mutex<()>,
    /// Numbers that threads are about to close.
    pub(crate) held: HeldNumbers,
    pub(crate) spent: SpentNumbers,
}

impl NumberTable {
    /// Numbers just below the window that the program has free when it gets a log.
    const ROOM: c_int = 32;

    /// # Errors
    /// There is no descriptor to be had.
    pub(crate) fn new(window: NumberWindow, spent: SpentNumbers) -> Result<Self, Errno> {
        Ok(Self {
            window,
            process: std::process::id(),
            open: RwLock::default(),
            sweeping: Mutex::default(),
            held: HeldNumbers::new()?,
            spent,
        })
    }

    /// Gives `fd` a number of the window that is free here and in a thread's process, from `least`
    /// on.
    ///
    /// # Errors
    /// `EMFILE` if all are taken.
    pub(crate) fn duplicate(
        &self,
        fd: BorrowedFd<'_>,
        least: c_int,
        thread: u32,
    ) -> Result<OwnedFd, Errno> {
        self.duplicate_free(fd, least, thread).or_else(|_| {
            self.held.look();
            self.duplicate_free(fd, least, thread)
        })
    }

    fn duplicate_free(
        &self,
        fd: BorrowedFd<'_>,
        least: c_int,
        thread: u32,
    ) -> Result<OwnedFd, Errno> {
        let mut least = least.max(self.window.first);
        while self.window.has(least) {
            let made = rustix::io::fcntl_dupfd_cloexec(fd, least).map_err(|_| Errno::MFILE)?;
            let number = made.as_raw_fd();
            if !self.window.has(number) {
                break;
            }
            match share(thread, number, number) {
                Err(Errno::BADF) if self.spent.is_free(number) => return Ok(made),
                // The program has something else there, which would be closed.
                Ok(_) | Err(Errno::BADF) => least = number + 1,
                Err(_) => break,
            }
        }
        Err(Errno::MFILE)
    }

    /// Fails if a thread's process can have no further log.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_room(&self, thread: u32) -> Result<(), PlainReason> {
        let placeholder = self.held.placeholder();
        let made = self.duplicate(placeholder, 0, thread);
        let Ok(made) = made else {
            return Err("it has no number left for another log (1,024)");
        };
        if CallerThread(thread).numbers_limit() <= made.as_raw_fd() as u64 {
            return Err("its limit of open files was lowered (ulimit -n)");
        }
        // The kernel gives out the lowest number that is free: soon one of these.
        let mut below = self.window.first - Self::ROOM..self.window.first;
        match below.all(|number| share(thread, number, placeholder.as_raw_fd()) == Err(Errno::BADF))
        {
            true => Ok(()),
            false => Err("it has nearly as many open files as it may"),
        }
    }

    /// Notes an open one that a process is about to have.
    pub(crate) fn add(&self, fd: OwnedFd, appends: bool, was_cut_off: bool) {
        let number = fd.as_raw_fd();
        let stat = rustix::fs::fstat(&fd).ok();
        let file = stat.map(|stat| (stat.st_dev, stat.st_ino));
        let mut all = self.open.write();
        let twin = all
            .values()
            .find(|it| file.is_some() && it.open.file == file);
        let position = twin.map_or_else(Arc::default, |it| Arc::clone(&it.open.position));
        let open = OpenNumber {
            fd,
            file,
            position,
            appends: AtomicBool::new(appends),
            was_cut_off,
            holder: AtomicU32::new(0),
            giving: Mutex::default(),
        };
        let counted = CountedNumber {
            open,
            uses: Mutex::default(),
            unused: Condvar::default(),
        };
        all.insert(number, Arc::new(counted));
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

    /// The thread's use of this number, if that is one of these.
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
        match share_with(self.process, thread, number, number) {
            Ok(true) => {
                used.holder.store(thread, Relaxed);
                Ok(Some(used))
            }
            // One that is gone has nothing.
            Ok(false) | Err(Errno::BADF | Errno::SRCH) => Ok(None),
            Err(_) => Err(used),
        }
    }

    /// True if the program has the open file by another number, or in another process than this.
    pub(crate) fn is_shared(&self, open: &OpenNumber, process: Option<u32>) -> bool {
        let (number, own) = (open.number(), std::process::id());
        let others_here = self.between(0, u32::MAX).into_iter();
        others_here
            .filter(|other| *other != number)
            .any(|other| share(own, other, number) != Ok(false))
            || others(number, process).is_some()
    }

    /// The agent's use of this number.
    pub(crate) fn used(&self, number: c_int) -> Option<UsedNumber> {
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
            if holder.is_some_and(|holder| holder != 0 && lacks(holder, number)) {
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
        if client::hidden_flags(number) & libc::O_DSYNC != 0 {
            self.spent.add(number);
        }
        client::closing(number);
        self.held.close(counted.open.fd);
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

/// A descriptor that the client opened, and that nothing else owns.
pub(crate) fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: the client returned it just now, or it was made by `duplicate` and forgotten.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
