//! Writers' locks: a key's, and a thread's.
//!
//! A key's lock makes its order in the log its order in the memtable, and lets garbage collection
//! compare and relocate as one step. A thread's *stripe* lets a freeze, which takes all stripes,
//! find no write between the log and the memtable.
//!
//! A thread that loses its processor is away for milliseconds, and every lock that it holds is for
//! as long. There are so many of the one, and of the other as many as threads, that other writers
//! hardly ever come to them.

use crate::memtable::Chunk;
use parking_lot::{Mutex, MutexGuard};
use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Keys' locks; a power of two.
const KEYS: usize = 1 << 16;
/// Stripes; a power of two.
const STRIPES: usize = 256;

/// The locks of a store's writers. A key's is locked before a stripe.
pub(super) struct Locks {
    keys: Box<[Mutex<()>]>,
    stripes: Box<[Stripe]>,
}

/// A writing thread's lock, on a cache line of its own; with more threads than stripes, that of a
/// few.
#[repr(align(128))]
struct Stripe(Mutex<Writers>);

/// State for the writers of a stripe, found where they lock anyway.
pub(super) struct Writers {
    /// Writes done under this stripe.
    pub(super) writes: u64,
    /// The view's active chunk; replaced under all stripes.
    pub(super) active: Arc<Chunk>,
}

impl Locks {
    pub(super) fn new(active: &Arc<Chunk>) -> Self {
        let stripe = |_| {
            Stripe(Mutex::new(Writers {
                writes: 0,
                active: Arc::clone(active),
            }))
        };
        Self {
            keys: (0..KEYS).map(|_| Mutex::default()).collect(),
            stripes: (0..STRIPES).map(stripe).collect(),
        }
    }

    /// That of the key with this hash.
    #[inline]
    pub(super) fn key(&self, hash: u64) -> &Mutex<()> {
        &self.keys[number(hash)]
    }

    /// Locks all keys with these hashes, in order.
    pub(super) fn lock_keys(&self, hashes: impl Iterator<Item = u64>) -> Vec<MutexGuard<'_, ()>> {
        let mut numbers: Vec<usize> = hashes.map(number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let lock = |number: usize| self.keys[number].lock();
        numbers.into_iter().map(lock).collect()
    }

    /// Locks this thread's stripe, or `all`.
    pub(super) fn hold(&self, all: bool) -> HeldStripes<'_> {
        match all {
            false => HeldStripes::Own(self.stripe().lock()),
            true => HeldStripes::All(self.stripes().map(Mutex::lock).collect()),
        }
    }

    /// This thread's.
    #[inline]
    pub(super) fn stripe(&self) -> &Mutex<Writers> {
        &self.stripes[own_stripe()].0
    }

    /// All there are.
    pub(super) fn stripes(&self) -> impl Iterator<Item = &Mutex<Writers>> {
        self.stripes.iter().map(|stripe| &stripe.0)
    }
}

/// Stripes that are locked: this thread's or all, as which they are its own one.
pub(super) enum HeldStripes<'l> {
    Own(MutexGuard<'l, Writers>),
    All(Vec<MutexGuard<'l, Writers>>),
}

impl Deref for HeldStripes<'_> {
    type Target = Writers;

    fn deref(&self) -> &Writers {
        match self {
            Self::Own(own) => own,
            Self::All(all) => &all[own_stripe()],
        }
    }
}

impl DerefMut for HeldStripes<'_> {
    fn deref_mut(&mut self) -> &mut Writers {
        match self {
            Self::Own(own) => own,
            Self::All(all) => &mut all[own_stripe()],
        }
    }
}

#[inline]
fn own_stripe() -> usize {
    thread_number() % STRIPES
}

/// The number of a key's lock. A chunk takes the key's shard from the lowest bits.
#[inline]
fn number(hash: u64) -> usize {
    hash as usize >> 8 & (KEYS - 1)
}

/// This thread's number, in the order in which threads came to write to a store of this process.
#[inline]
pub(super) fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = THREADS.fetch_add(1, Relaxed));
    NUMBER.with(|number| *number)
}
