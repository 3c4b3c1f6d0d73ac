//! [`Sim`]: memory that remembers what was made durable, for tests of recovery.
//!
//! Faults that a pool must survive, all of which [`CrashImages`] produces:
//! * the power fails between any two stores or fences of any thread;
//! * of the stores not yet fenced by their thread, any subset has reached the medium, in units
//!   of eight bytes (the processor promises no more), later ones possibly without earlier ones;
//! * several threads have stores in flight at once;
//! * a thread dies before it fences: its stores are seen, and stay in flight for ever, unless somebody
//!   fences a later store to the same words.
//!
//! Faults it does not produce: a fenced store that is lost, and bits that flip by themselves (tests flip
//! bits in an image themselves).

use super::{Media, Survives, held::HeldLocks};
use crate::{
    checksum::Checksum,
    persist::{LINE, load_once},
};
use parking_lot::Mutex;
use std::{
    cell::UnsafeCell,
    collections::{BTreeMap, HashMap},
    io::{self, IoSlice},
    thread::{self, ThreadId},
};

/// One thing that happened to a [`Sim`], in the order of the whole machine.
#[derive(Clone, Debug)]
pub enum Event {
    /// A thread stored bytes (in whole lines).
    Store {
        /// Who stored.
        thread: ThreadId,
        /// Byte offset in the pool.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A thread fenced: its earlier stores are durable.
    Fence {
        /// Who fenced.
        thread: ThreadId,
    },
    /// The test noted something, for instance that a write was acknowledged.
    Note(u64),
}

/// Volatile memory with a record of its stores and fences.
pub struct Sim {
    words: Box<[UnsafeCell<u64>]>,
    state: Mutex<State>,
    held: HeldLocks,
}

struct State {
    /// Contents when recording began.
    base: Vec<u8>,
    events: Vec<Event>,
    recording: bool,
}

impl State {
    fn record(&mut self, event: impl FnOnce() -> Event) {
        if self.recording {
            self.events.push(event());
        }
    }
}

#[expect(unsafe_code, reason = "interior mutability shared between threads")]
// SAFETY: writes happen under `state`'s lock in `stream`; readers either take that lock (`load`)
// or promise that nobody writes (`slice`).
unsafe impl Sync for Sim {}

impl Sim {
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
            state: Mutex::new(State {
                base: image,
                events: Vec::new(),
                recording: true,
            }),
            held: HeldLocks::default(),
        }
    }

    /// Remembers no events from now on: the memory is ordinary memory then, for tests that make no crash images.
    pub fn stop_recording(&self) {
        self.state.lock().recording = false;
    }

    /// Notes `what` in the order of events.
    pub fn note(&self, what: u64) {
        self.state.lock().record(|| Event::Note(what));
    }

    /// The crash images of everything that happened so far.
    #[must_use]
    pub fn crash_images(&self) -> CrashImages {
        let state = self.state.lock();
        CrashImages {
            base: state.base.clone(),
            events: state.events.clone(),
        }
    }

    /// The memory's present contents: what is there if only the process dies.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
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
        // SAFETY: `pointer` checked the range; the lock keeps other writers and `load` out.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        state.record(|| Event::Store {
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
impl Media for Sim {
    fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    fn survives(&self) -> Survives {
        Survives::PowerCut
    }

    fn describe(&self) -> String {
        "simulated persistent memory".to_owned()
    }

    fn stream(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize) {
        self.store(offset, gather(parts, skip));
    }

    fn stream_once(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize, sum: &mut Checksum) {
        let bytes = gather(parts, skip);
        sum.add(&bytes);
        self.store(offset, bytes);
    }

    fn fence(&self) {
        self.state.lock().record(|| Event::Fence {
            thread: thread::current().id(),
        });
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

    fn unlock(&self, lock: u32) {
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

/// Every state a [`Sim`] can be found in after a crash.
#[derive(Clone)]
pub struct CrashImages {
    base: Vec<u8>,
    events: Vec<Event>,
}

impl CrashImages {
    /// Number of points in time at which the crash can be: before each event and after the last.
    #[must_use]
    pub fn points(&self) -> usize {
        self.events.len() + 1
    }

    /// The notes that were made before crash point `point`.
    pub fn notes_before(&self, point: usize) -> impl Iterator<Item = u64> {
        self.events[..point].iter().filter_map(|event| match event {
            Event::Note(what) => Some(*what),
            _ => None,
        })
    }

    /// The medium as found when the power failed at `point`. `persisted` is asked for each
    /// eight-byte word of each store in flight whether it had arrived.
    pub fn at(&self, point: usize, persisted: impl FnMut() -> bool) -> Vec<u8> {
        let mut moment = self.start();
        while moment.point < point && moment.step() {}
        moment.image(persisted)
    }

    /// The first crash point; [`step`](CrashPoint::step) goes through all of them at the cost of one.
    #[must_use]
    pub fn start(&self) -> CrashPoint<'_> {
        CrashPoint {
            events: &self.events,
            point: 0,
            durable: self.base.clone(),
            in_flight: BTreeMap::new(),
            unfenced: HashMap::new(),
        }
    }
}

/// One point in time at which the power can fail.
pub struct CrashPoint<'a> {
    events: &'a [Event],
    point: usize,
    /// What is there for certain.
    durable: Vec<u8>,
    /// For each word with stores in flight, by its offset: who stored what, in order.
    in_flight: BTreeMap<u64, Vec<(ThreadId, [u8; 8])>>,
    /// The words that each thread stored since its last fence.
    unfenced: HashMap<ThreadId, Vec<u64>>,
}

impl CrashPoint<'_> {
    /// Its number: that of the events before it.
    #[must_use]
    pub fn point(&self) -> usize {
        self.point
    }

    /// Goes on to the next point. False at the last one.
    pub fn step(&mut self) -> bool {
        let Some(event) = self.events.get(self.point) else {
            return false;
        };
        self.point += 1;
        match event {
            Event::Store {
                thread,
                offset,
                bytes,
            } => {
                let unfenced = self.unfenced.entry(*thread).or_default();
                for (at, word) in (*offset..).step_by(8).zip(bytes.chunks_exact(8)) {
                    let mut value = [0; 8];
                    value.copy_from_slice(word);
                    self.in_flight.entry(at).or_default().push((*thread, value));
                    unfenced.push(at);
                }
            }
            Event::Fence { thread } => {
                for at in self.unfenced.remove(thread).unwrap_or_default() {
                    let Some(stores) = self.in_flight.get_mut(&at) else {
                        continue;
                    };
                    // What others stored there before cannot arrive any more after this.
                    if let Some(last) = stores.iter().rposition(|(by, _)| by == thread) {
                        put(&mut self.durable, at, &stores[last].1);
                        stores.drain(..=last);
                    }
                    if stores.is_empty() {
                        self.in_flight.remove(&at);
                    }
                }
            }
            Event::Note(_) => {}
        }
        true
    }

    /// The medium as found when the power failed here. `persisted` is asked for each eight-byte
    /// word of each store in flight whether it had arrived.
    pub fn image(&self, mut persisted: impl FnMut() -> bool) -> Vec<u8> {
        let mut image = self.durable.clone();
        for (at, stores) in &self.in_flight {
            for (_, word) in stores {
                if persisted() {
                    put(&mut image, *at, word);
                }
            }
        }
        image
    }
}

fn put(image: &mut [u8], offset: u64, bytes: &[u8]) {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests;
