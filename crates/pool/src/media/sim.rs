//! [`SimMedia`]: memory that remembers its durable bytes, for tests of recovery.
//!
//! Faults that a pool must survive, all of which [`CrashImages`] produces:
//! * the power fails between any two stores or fences of any thread;
//! * of the stores not yet fenced by their thread, any subset has reached the medium, in units
//!   of eight bytes (the processor promises no more), later ones possibly without earlier ones;
//! * several threads have stores in flight at once;
//! * a thread dies before it fences: its stores are seen, and stay in flight for ever, unless
//!   another one fences a later store to the same words.
//!
//! A *disk* ([`SimMedia::disk`]) is simulated as `media::disk` is one: memory that no crash image
//! has, and behind it a disk that gets the tables with every store, and everything else when it is
//! written back. There a write is in flight from its first byte until it returns, in sectors of 512
//! bytes of which any subset may have arrived. A killed process's write stays in flight until
//! another process [settles](Media::settle) the disk. The disk may be told to fail.
//!
//! Faults it does not produce: a fenced store that is lost, and bits that flip by themselves (tests
//! flip bits in an image themselves).

mod disk;
mod images;

use super::{Media, PoolPersistence, held_locks::HeldLocks};
use crate::{
    checksum::Checksum,
    format::layout::PAGE,
    persist::{LINE, load_once},
    steps,
};
use disk::{SECTOR, SimDisk};
pub use images::{CrashImages, CrashPoint};
use parking_lot::Mutex;
use std::{
    cell::UnsafeCell,
    io::{self, IoSlice},
    thread::{self, ThreadId},
    time::Duration,
};

/// One thing that happened to a [`SimMedia`], in the order of the whole machine.
#[derive(Clone, Debug)]
pub enum SimEvent {
    /// A thread stored bytes (in whole lines).
    Store {
        /// The thread that stored.
        thread: ThreadId,
        /// Byte offset in the pool.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A thread fenced: its earlier stores are durable.
    Fence {
        /// The thread that fenced.
        thread: ThreadId,
    },
    /// Everything stored before, by whatever thread, is durable.
    Settle,
    /// The test noted something, for instance that a write was acknowledged.
    Note(u64),
}

/// A processor's memory keeps its promises in words of so many bytes.
const WORD: usize = 8;

/// Volatile memory, or a disk behind it, with a record of its stores and fences.
pub struct SimMedia {
    words: Box<[UnsafeCell<u64>]>,
    state: Mutex<SimState>,
    held: HeldLocks,
}

struct SimState {
    /// Contents when recording began.
    base: Vec<u8>,
    events: Vec<SimEvent>,
    recording: bool,
    /// A disk's contents, written by whomever; none for persistent memory.
    disk: Option<SimDisk>,
}

impl SimState {
    fn record(&mut self, event: impl FnOnce() -> SimEvent) {
        if self.recording {
            self.events.push(event());
        }
    }
}

#[expect(unsafe_code, reason = "interior mutability shared between threads")]
// SAFETY: writes happen under `state`'s lock in `stream`; readers either take that lock (`load`)
// or promise that no thread writes (`slice`).
unsafe impl Sync for SimMedia {}

impl SimMedia {
    /// `bytes` bytes of zeros (rounded up to whole lines).
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self::from_image(vec![0; bytes.next_multiple_of(LINE)])
    }

    /// Memory with the contents of `image`, as it is found after a crash.
    #[must_use]
    pub fn from_image(mut image: Vec<u8>) -> Self {
        image.resize(image.len().next_multiple_of(LINE), 0);
        let words = image
            .chunks_exact(8)
            .map(|word| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(word);
                UnsafeCell::new(u64::from_ne_bytes(bytes))
            })
            .collect();
        Self {
            words,
            state: Mutex::new(SimState {
                base: image,
                events: Vec::new(),
                recording: true,
                disk: None,
            }),
            held: HeldLocks::default(),
        }
    }

    /// A disk with the contents of `image`, as it is found after a crash.
    #[must_use]
    pub fn disk(mut image: Vec<u8>) -> Self {
        image.resize(image.len().next_multiple_of(SECTOR), 0);
        let mut sim = Self::from_image(image.clone());
        sim.state.get_mut().disk = Some(SimDisk::new(image));
        sim
    }

    /// Another one of its kind with the contents of `image`.
    #[must_use]
    pub fn of_its_kind(&self, image: Vec<u8>) -> Self {
        match self.needs_commit() {
            true => Self::disk(image),
            false => Self::from_image(image),
        }
    }

    /// The disk fails after so many more writes, in the middle of the last one.
    pub fn fail_after(&self, writes: u64) {
        if let Some(disk) = &mut self.state.lock().disk {
            disk.fail_after(writes);
        }
    }

    /// True if the disk was told to fail, and has.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let state = self.state.lock();
        (state.disk.as_ref()).is_some_and(SimDisk::has_failed)
    }

    /// A process that was killed left `bytes` on their way to `offset`, both multiples of 512: the
    /// next one finds them, and a power cut may still take any of them.
    pub fn leave_in_flight(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.state.lock();
        if let Some(disk) = &mut state.disk {
            disk.put(offset, bytes);
        }
        let thread = thread::current().id();
        state.record(|| SimEvent::Store {
            thread,
            offset,
            bytes: bytes.to_vec(),
        });
    }

    /// Remembers no events from now on: the memory is ordinary memory then, for tests that make no
    /// crash images.
    pub fn stop_recording(&self) {
        self.state.lock().recording = false;
    }

    /// Forgets all events: the present contents are the base of those to come, as if all of it were
    /// durable.
    #[cfg(test)]
    pub(crate) fn record_anew(&self) {
        let image = self.image();
        let mut state = self.state.lock();
        state.base = image;
        state.events.clear();
    }

    /// Notes `what` in the order of events.
    pub fn note(&self, what: u64) {
        self.state.lock().record(|| SimEvent::Note(what));
    }

    /// The crash images of everything that happened so far.
    #[must_use]
    pub fn crash_images(&self) -> CrashImages {
        let state = self.state.lock();
        CrashImages {
            unit: state.disk.as_ref().map_or(WORD, |_| SECTOR),
            base: state.base.clone(),
            events: state.events.clone(),
        }
    }

    /// The present contents of the memory, or the disk: those that are there if only the process
    /// dies.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        if let Some(disk) = &self.state.lock().disk {
            return disk.bytes().to_vec();
        }
        let mut image = vec![0; self.words.len() * 8];
        self.load(0, &mut image);
        image
    }

    /// Stores `bytes`, the last line filled with zeros.
    #[expect(unsafe_code, reason = "writes the shared words")]
    fn store(&self, offset: u64, mut bytes: Vec<u8>) {
        assert!(
            offset.is_multiple_of(LINE as u64),
            "offset {offset} is not line-aligned"
        );
        bytes.resize(bytes.len().next_multiple_of(LINE), 0);
        let to = self.pointer(offset, bytes.len());
        let mut state = self.state.lock();
        if let Some(disk) = &state.disk {
            let is_table = disk.is_table(offset);
            if is_table && state.write(offset, &bytes).is_err() {
                // `check` says so.
                return;
            }
            // SAFETY: as below.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            return;
        }
        // SAFETY: `pointer` checked the range; the lock keeps other writers and `load` out.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        state.record(|| SimEvent::Store {
            thread: thread::current().id(),
            offset,
            bytes,
        });
    }

    fn pointer(&self, offset: u64, bytes: usize) -> *mut u8 {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        assert!(
            start
                .checked_add(bytes)
                .is_some_and(|end| end <= self.words.len() * 8),
            "{bytes} bytes at {offset} lie outside the simulated medium"
        );
        UnsafeCell::raw_get(self.words.as_ptr())
            .cast::<u8>()
            .wrapping_add(start)
    }
}

#[expect(unsafe_code, reason = "writes the shared words")]
impl Media for SimMedia {
    fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    fn durability(&self) -> PoolPersistence {
        match self.needs_commit() {
            true => PoolPersistence::PowerCutOnceCommitted,
            false => PoolPersistence::PowerCut,
        }
    }

    fn describe(&self) -> String {
        match self.needs_commit() {
            true => "simulated disk".to_owned(),
            false => "simulated persistent memory".to_owned(),
        }
    }

    fn needs_commit(&self) -> bool {
        self.state.lock().disk.is_some()
    }

    fn set_tables(&self, end: u64) {
        if let Some(disk) = &mut self.state.lock().disk {
            disk.set_tables(end);
        }
    }

    unsafe fn load_in(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let to = self.pointer(offset, bytes);
        let state = self.state.lock();
        if let Some(disk) = &state.disk {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            let from = &disk.bytes()[at..at + bytes];
            // SAFETY: `pointer` checked the range; the lock keeps other writers and `load` out.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, bytes) };
        }
        Ok(())
    }

    fn settle(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.disk.is_some() {
            state.record(|| SimEvent::Settle);
        }
        Ok(())
    }

    unsafe fn write_back(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if !self.needs_commit() {
            return Ok(());
        }
        let end = offset + bytes;
        assert!(
            offset.is_multiple_of(PAGE) && end.is_multiple_of(PAGE),
            "{offset}..{end} are no whole pages"
        );
        let mut copy = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        self.load(offset, &mut copy);
        self.state.lock().begin_write(offset, &copy)?;
        // Others write meanwhile.
        steps::pass("media:writing");
        if !steps::is_scheduled() {
            thread::sleep(Duration::from_micros(20));
        }
        self.state.lock().end_write();
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        match self.has_failed() {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }

    unsafe fn stream(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize) {
        self.store(offset, gather(parts, skip));
        steps::pass("media:stored");
    }

    unsafe fn stream_once(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
        skip: usize,
        sum: &mut Checksum,
    ) {
        let bytes = gather(parts, skip);
        sum.add(&bytes);
        self.store(offset, bytes);
        steps::pass("media:stored");
    }

    fn fence(&self) {
        let mut state = self.state.lock();
        if state.disk.is_none() {
            state.record(|| SimEvent::Fence {
                thread: thread::current().id(),
            });
        }
    }

    fn load(&self, offset: u64, to: &mut [u8]) {
        let from = self.pointer(offset, to.len());
        let _writers_out = self.state.lock();
        // SAFETY: `pointer` checked the range; the lock keeps writers out.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    }

    unsafe fn slice(&self, offset: u64, bytes: usize) -> &[u8] {
        // SAFETY: the range is checked, the caller keeps writers out.
        unsafe { std::slice::from_raw_parts(self.pointer(offset, bytes), bytes) }
    }

    fn lock(&self, lock: u32, wait: bool) -> io::Result<()> {
        self.held.take(lock, wait)
    }

    unsafe fn unlock(&self, lock: u32) {
        self.held.give(lock);
    }
}

/// The concatenation of `parts` from byte `skip` on, each byte loaded once.
fn gather(parts: &[IoSlice<'_>], skip: usize) -> Vec<u8> {
    let mut bytes = vec![0; parts.iter().map(|p| p.len()).sum()];
    let mut to = &mut bytes[..];
    for part in parts {
        let (now, later) = to.split_at_mut(part.len());
        load_once(now, part);
        to = later;
    }
    bytes.drain(..skip.min(bytes.len()));
    bytes
}

#[cfg(test)]
mod tests;
