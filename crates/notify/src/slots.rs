//! Memory that outlives the agent: the calls that it had received, and the phase of each. Each of
//! its threads has a slot, into which the kernel itself writes a call that the thread receives, so
//! no call is lost between the two. docs/notify.md, "When the agent dies".
#![expect(unsafe_code, reason = "memory that two processes share")]

use crate::{
    listener::{CallAnswer, CallId},
    number_window::NumberWindow,
};
use libc::{c_int, seccomp_notif};
use rustix::{
    fs::{MemfdFlags, SealFlags},
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap},
};
use std::{
    cell::UnsafeCell,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr,
    sync::atomic::{
        AtomicI32, AtomicI64, AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Threads of an agent, at most: as many calls may wait for something.
pub(crate) const SLOTS: usize = 512;
const WINDOW: usize = NumberWindow::COUNT as usize;

/// Of a slot's number: there was no file before.
pub(crate) const WAS_FREE: c_int = -2;

/// The phase of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum CallPhase {
    /// Nothing was done yet.
    Received,
    /// It may have been done, or in part.
    Begun,
    /// It was done; the answer stands in the slot.
    Done,
    /// The kernel was to do it.
    Passed,
}

impl CallPhase {
    const ALL: [Self; 4] = [Self::Received, Self::Begun, Self::Done, Self::Passed];
}

/// An inode, in the room that a position has.
pub(crate) fn inode_mark(inode: u64) -> i64 {
    inode.cast_signed() & i64::MAX
}

/// A thread's slot.
#[repr(C, align(256))]
pub(crate) struct CallSlot {
    call: UnsafeCell<seccomp_notif>,
    phase: AtomicU32,
    /// The result, or a negative error number.
    result: AtomicI64,
    /// The file's position before, or its size, where the call moves that. Of an exchange of names
    /// which file the first one was, as [`inode_mark`] has it. Else -1.
    before: AtomicI64,
    /// A number that the program is to get as the answer, or [`WAS_FREE`]; else -1.
    number: AtomicI32,
}

// SAFETY: a slot's call is written by the kernel for its one thread, and read by the guardian when
// that thread is dead.
unsafe impl Sync for CallSlot {}

/// A call, as the kernel reports it.
#[derive(Clone, Copy)]
pub(crate) struct SeenCall {
    pub(crate) id: CallId,
    pub(crate) thread: u32,
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
}

impl CallSlot {
    /// Makes it ready for a call, which the kernel writes there.
    pub(crate) fn place(&self) -> *mut seccomp_notif {
        self.number.store(-1, Relaxed);
        self.before.store(-1, Relaxed);
        self.phase.store(CallPhase::Received as u32, Release);
        let place = self.call.get();
        // SAFETY: its one thread calls this, and the call that was there is answered.
        unsafe { ptr::write_volatile(place, std::mem::zeroed()) };
        place
    }

    /// The call in it, unless there is none.
    pub(crate) fn call(&self) -> Option<SeenCall> {
        // SAFETY: see above; any bytes are a call.
        let call = unsafe { ptr::read_volatile(self.call.get()) };
        (call.id != 0).then_some(SeenCall {
            id: call.id,
            thread: call.pid,
            number: call.data.nr.into(),
            arguments: call.data.args,
        })
    }

    pub(crate) fn phase(&self) -> CallPhase {
        let word = self.phase.load(Acquire) as usize;
        CallPhase::ALL
            .get(word)
            .copied()
            .unwrap_or(CallPhase::Begun)
    }

    /// The call is about to be done.
    pub(crate) fn begin(&self) {
        self.phase.store(CallPhase::Begun as u32, Release);
    }

    /// The same, with the mark from before.
    pub(crate) fn begin_at(&self, before: i64) {
        self.before.store(before, Release);
        self.begin();
    }

    pub(crate) fn before(&self) -> i64 {
        self.before.load(Acquire)
    }

    /// The program is to get this number as the answer.
    pub(crate) fn set_number(&self, number: c_int) {
        self.number.store(number, Release);
    }

    pub(crate) fn number(&self) -> c_int {
        self.number.load(Acquire)
    }

    /// Before it is answered.
    pub(crate) fn set_answer(&self, answer: CallAnswer) {
        let (phase, result) = match answer {
            CallAnswer::GoOn => (CallPhase::Passed, 0),
            CallAnswer::Done(value) => (CallPhase::Done, value),
            CallAnswer::Failed(errno) => (CallPhase::Done, -i64::from(errno.raw_os_error())),
        };
        self.result.store(result, Relaxed);
        self.phase.store(phase as u32, Release);
    }

    /// The answer of one that was done. Only an error number is negative.
    pub(crate) fn answer(&self) -> CallAnswer {
        const ERRNO_MAX: i64 = 4095;
        match self.result.load(Relaxed) {
            result if (-ERRNO_MAX..0).contains(&result) => {
                CallAnswer::Failed(Errno::from_raw_os_error(-result as i32))
            }
            result => CallAnswer::Done(result),
        }
    }
}

#[repr(C)]
struct SlotPage {
    /// The window's.
    first: AtomicI32,
    /// Not 0 once the agent has done anything for a log.
    has_served: AtomicI32,
    /// By number: the flags (`O_DSYNC` …) that the kernel does not know of.
    hidden: [AtomicI32; WINDOW],
    slots: [CallSlot; SLOTS],
}

/// The memory, mapped.
pub(crate) struct CallSlots {
    page: &'static SlotPage,
    fd: OwnedFd,
}

impl CallSlots {
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(window: NumberWindow) -> Result<Self, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("forebay-calls", flags)?;
        rustix::fs::ftruncate(&fd, size_of::<SlotPage>() as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        let slots = Self::map(fd)?;
        slots.page.first.store(window.first, Relaxed);
        Ok(slots)
    }

    /// Maps another process's memory.
    ///
    /// # Errors
    /// It has another size, or cannot be mapped.
    pub(crate) fn map(fd: OwnedFd) -> Result<Self, Errno> {
        let bytes = size_of::<SlotPage>();
        if rustix::fs::fstat(&fd)?.st_size != bytes as i64 {
            return Err(Errno::INVAL);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new memory, at an address of the kernel's choice, which is never unmapped. The
        // file cannot become shorter.
        let page = unsafe {
            let place = mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &fd, 0)?;
            &*place.cast::<SlotPage>()
        };
        Ok(Self { page, fd })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn slot(&self, number: usize) -> &'static CallSlot {
        &self.page.slots[number]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &'static CallSlot> {
        self.page.slots.iter()
    }

    /// The agent is about to serve the program's logs.
    pub(crate) fn note_serving(&self) {
        self.page.has_served.store(1, Release);
    }

    /// True if the agent has done anything for a log: false of one that was idle or dormant.
    pub(crate) fn has_served(&self) -> bool {
        self.page.has_served.load(Acquire) != 0
    }

    /// Flags of the numbers that the kernel does not know.
    pub(crate) fn hidden_flags(&self) -> HiddenFlags {
        HiddenFlags(self.page)
    }

    /// Notes flags of a number that the kernel does not know.
    pub(crate) fn set_hidden(&self, number: c_int, flags: c_int) {
        self.hidden_flags().set(number, flags);
    }

    /// Flags of which the kernel does not know; of a number below the window none.
    pub(crate) fn hidden(&self, number: c_int) -> c_int {
        self.hidden_flags().of(number)
    }
}

/// Flags (`O_DSYNC` …) that the kernel does not know of, by number.
#[derive(Clone, Copy)]
pub(crate) struct HiddenFlags(&'static SlotPage);

impl HiddenFlags {
    fn place(self, number: c_int) -> Option<&'static AtomicI32> {
        let at = usize::try_from(number.checked_sub(self.0.first.load(Relaxed))?).ok()?;
        self.0.hidden.get(at)
    }

    pub(crate) fn set(self, number: c_int, flags: c_int) {
        if let Some(place) = self.place(number) {
            place.store(flags, Relaxed);
        }
    }

    pub(crate) fn of(self, number: c_int) -> c_int {
        self.place(number).map_or(0, |place| place.load(Relaxed))
    }
}
