//! [`Sim`]: memory that remembers what was made durable, for tests of recovery.
//!
//! Faults that a pool must survive, all of which [`CrashImages`] produces:
//! * the power fails between any two stores or fences of any thread;
//! * of the stores not yet fenced by their thread, any subset has reached the medium, in units
//!   of eight bytes (the processor promises no more), later ones possibly without earlier ones;
//! * several threads have stores in flight at once.
//!
//! Faults it does not produce: a fenced store that is lost, and bits that flip by themselves (tests flip
//! bits in an image themselves).

use super::{Media, Survives, held::HeldLocks};
use crate::persist::LINE;
use parking_lot::Mutex;
use std::{
    cell::UnsafeCell,
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
            }),
            held: HeldLocks::default(),
        }
    }

    /// Notes `what` in the order of events.
    pub fn note(&self, what: u64) {
        self.state.lock().events.push(Event::Note(what));
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
        assert!(
            offset.is_multiple_of(LINE as u64),
            "offset {offset} is not line-aligned"
        );
        let mut bytes: Vec<u8> = parts
            .iter()
            .flat_map(|p| p.iter().copied())
            .skip(skip)
            .collect();
        bytes.resize(bytes.len().next_multiple_of(LINE), 0);
        let to = self.pointer(offset, bytes.len());
        let mut state = self.state.lock();
        // SAFETY: `pointer` checked the range; the lock keeps other writers and `load` out.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        state.events.push(Event::Store {
            thread: thread::current().id(),
            offset,
            bytes,
        });
    }

    fn fence(&self) {
        self.state.lock().events.push(Event::Fence {
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
    pub fn at(&self, point: usize, mut persisted: impl FnMut() -> bool) -> Vec<u8> {
        let mut image = self.base.clone();
        let mut in_flight: Vec<(ThreadId, u64, &[u8])> = Vec::new();
        for event in &self.events[..point] {
            match event {
                Event::Store {
                    thread,
                    offset,
                    bytes,
                } => in_flight.push((*thread, *offset, bytes)),
                Event::Fence { thread } => in_flight.retain(|(by, offset, bytes)| {
                    if by == thread {
                        put(&mut image, *offset, bytes);
                    }
                    by != thread
                }),
                Event::Note(_) => {}
            }
        }
        for (_, offset, bytes) in in_flight {
            for (word, at) in bytes.chunks(8).zip((offset..).step_by(8)) {
                if persisted() {
                    put(&mut image, at, word);
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
mod tests {
    use super::*;

    #[test]
    fn a_fenced_store_is_in_every_image_and_an_unfenced_one_only_if_it_arrived() {
        let sim = Sim::new(256);
        sim.stream(0, &[IoSlice::new(&[1; 64])], 0);
        sim.fence();
        sim.stream(64, &[IoSlice::new(&[2; 64])], 0);
        let images = sim.crash_images();
        assert_eq!(images.points(), 4);
        assert_eq!(images.at(0, || true)[0], 0);
        assert_eq!(images.at(1, || false)[0], 0);
        assert_eq!(images.at(1, || true)[0], 1);
        assert_eq!(images.at(3, || false)[..128], [[1; 64], [0; 64]].concat());
        assert_eq!(images.at(3, || true)[..128], [[1; 64], [2; 64]].concat());
        let mut words = 0;
        let torn = images.at(3, || {
            words += 1;
            words == 2
        });
        assert_eq!(torn[64..88], [[0; 8], [2; 8], [0; 8]].concat());
    }

    #[test]
    fn a_fence_of_one_thread_does_not_cover_anothers_stores() {
        let sim = Sim::new(256);
        thread::scope(|scope| {
            scope.spawn(|| sim.stream(0, &[IoSlice::new(&[1; 64])], 0));
        });
        sim.fence();
        assert_eq!(sim.crash_images().at(2, || false)[0], 0);
        assert_eq!(sim.image()[0], 1);
    }
}
