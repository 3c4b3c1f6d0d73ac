//! [`Timed`]: any medium, slowed down to a device profile by busy waiting. docs/devices-memory.md.

use super::{
    line_cache::LineCache,
    profile::{CachePolicy, Profile},
};
use forebay_pool::media::{Media, PoolPersistence};
use std::{
    cell::Cell,
    hint, io,
    io::IoSlice,
    os::fd::{BorrowedFd, RawFd},
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

/// A medium whose accesses take as long as a [`Profile`] says.
pub struct Timed {
    inner: Arc<dyn Media>,
    profile: Profile,
    /// What a write-through cache holds.
    cache: Option<LineCache>,
    /// Its number among those of this process.
    number: usize,
    made: Instant,
    /// Nanoseconds since `made` at which a device that serves one access at a time is free.
    free_at_ns: AtomicU64,
}

/// What this thread has copied since its last fence to memory that combines writes.
#[derive(Clone, Copy)]
struct Combined {
    medium: usize,
    bytes: usize,
}

thread_local! {
    static COMBINED: Cell<Option<Combined>> = const { Cell::new(None) };
}

impl Timed {
    /// Slows `inner` down to `profile`.
    pub fn new(inner: Arc<dyn Media>, profile: Profile) -> Self {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let cache = match profile.cache {
            CachePolicy::WriteThrough { cache_bytes } => Some(LineCache::new(cache_bytes)),
            CachePolicy::Uncached | CachePolicy::WriteCombining => None,
        };
        Self {
            inner,
            profile,
            cache,
            number: NUMBERS.fetch_add(1, Relaxed),
            made: Instant::now(),
            free_at_ns: AtomicU64::new(0),
        }
    }

    /// Waits for an access that takes `cost`, and for the device if it is busy.
    fn access(&self, cost: Duration) {
        if cost.is_zero() {
            return;
        }
        let now = self.made.elapsed();
        let end = if self.profile.one_at_a_time {
            let (now, cost) = (nanoseconds(now), nanoseconds(cost));
            let after = |free_at: u64| free_at.max(now) + cost;
            let before = self
                .free_at_ns
                .fetch_update(SeqCst, SeqCst, |free_at| Some(after(free_at)));
            Duration::from_nanos(after(before.unwrap_or_default()))
        } else {
            now + cost
        };
        while self.made.elapsed() < end {
            hint::spin_loop();
        }
    }

    fn read(&self, offset: u64, bytes: usize) {
        let from_memory = match &self.cache {
            Some(cache) => match cache.read(offset, bytes) {
                0 => return,
                missed => missed,
            },
            None => bytes,
        };
        self.access(self.profile.read_cost(from_memory));
    }

    /// Pays for copying `parts` from byte `skip` on, or remembers to.
    fn wrote(&self, parts: &[IoSlice<'_>], skip: usize) {
        let bytes: usize = parts.iter().map(|p| p.len()).sum();
        let bytes = bytes.saturating_sub(skip);
        if self.profile.cache != CachePolicy::WriteCombining {
            return self.access(self.profile.write_cost(bytes));
        }
        // A thread that turns to another such memory leaves its buffers to the first one: at worst
        // that one is not charged.
        let before = COMBINED.get().filter(|c| c.medium == self.number);
        COMBINED.set(Some(Combined {
            medium: self.number,
            bytes: bytes + before.map_or(0, |c| c.bytes),
        }));
    }

    /// Pays for what this thread copied to memory number `medium` and did not fence.
    fn flush_combined(&self) {
        if let Some(combined) = COMBINED
            .get()
            .filter(|combined| combined.medium == self.number)
        {
            COMBINED.set(None);
            self.access(self.profile.write_cost(combined.bytes));
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(unsafe_code, reason = "implements the trait's unsafe methods")]
impl Media for Timed {
    forebay_pool::forward_media!(medium inner then wrote);

    fn durability(&self) -> PoolPersistence {
        self.inner.durability()
    }

    fn describe(&self) -> String {
        format!("{}, slowed to {}", self.inner.describe(), self.profile.name)
    }

    fn fence(&self) {
        self.inner.fence();
        if self.profile.cache == CachePolicy::WriteCombining {
            self.flush_combined();
        }
    }

    fn load(&self, offset: u64, to: &mut [u8]) {
        self.inner.load(offset, to);
        self.read(offset, to.len());
    }

    fn charge_read(&self, offset: u64, bytes: usize) {
        self.read(offset, bytes);
    }

    fn needs_commit(&self) -> bool {
        self.inner.needs_commit()
    }

    fn set_tables(&self, end: u64) {
        self.inner.set_tables(end);
    }

    unsafe fn load_in(&self, offset: u64, bytes: u64) -> io::Result<()> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.inner.load_in(offset, bytes) }
    }

    fn settle(&self) -> io::Result<()> {
        self.inner.settle()
    }

    unsafe fn write_back(&self, offset: u64, bytes: u64) -> io::Result<()> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.inner.write_back(offset, bytes) }
    }

    fn check(&self) -> io::Result<()> {
        self.inner.check()
    }

    fn shared_memory(&self) -> Option<BorrowedFd<'_>> {
        self.inner.shared_memory()
    }

    fn moved(&self, to: RawFd) {
        self.inner.moved(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_pool::media::SimMedia;

    #[test]
    fn a_timed_medium_takes_its_profiles_time_and_keeps_the_bytes() {
        let pcm = Profile::named("pcm").unwrap();
        let timed = Timed::new(Arc::new(SimMedia::new(4096)), pcm);
        let start = Instant::now();
        for _ in 0..100 {
            stream(&timed, 0, b"water");
        }
        timed.fence();
        assert!(start.elapsed() >= 100 * pcm.write_cost(5));
        let mut got = [0; 5];
        timed.load(0, &mut got);
        assert_eq!(&got, b"water");
        assert!(timed.describe().contains("pcm"));
    }

    #[expect(unsafe_code, reason = "stores to a medium by itself")]
    fn stream(memory: &Timed, at: u64, bytes: &[u8]) {
        // SAFETY: each test's thread has its memory alone, and lends out nothing.
        unsafe { memory.stream(at, &[IoSlice::new(bytes)], 0) };
    }

    fn fam(name: &str) -> (Timed, Profile) {
        let profile = Profile::named(name).unwrap();
        (
            Timed::new(Arc::new(SimMedia::new(1 << 20)), profile),
            profile,
        )
    }

    fn timed(work: impl FnOnce()) -> Duration {
        let start = Instant::now();
        work();
        start.elapsed()
    }

    #[test]
    fn uncached_copies_each_pay_latency_and_combined_ones_pay_once() {
        let line = [1; 64];
        let write = |memory: &Timed| {
            for _ in 0..20 {
                stream(memory, 64, &line);
            }
            memory.fence();
        };
        let (uncached, profile) = fam("gen-z-uc");
        assert!(timed(|| write(&uncached)) >= 20 * profile.write_cost(64));
        // The least of several: the machine may be busy with something else.
        let (combining, _) = fam("gen-z-wc");
        let once = (0..20).map(|_| timed(|| write(&combining))).min().unwrap();
        assert!(once >= profile.write_cost(20 * 64), "{once:?}");
        assert!(once < 10 * profile.write_cost(64), "{once:?}");
        // Paid once: nothing is left for the next fence.
        let nothing = (0..20).map(|_| timed(|| combining.fence())).min().unwrap();
        assert!(nothing < profile.write_cost(64), "{nothing:?}");
    }

    #[test]
    fn written_through_a_read_pays_once_and_every_write_pays() {
        let (memory, profile) = fam("gen-z-wt");
        let mut to = [0; 64];
        assert!(timed(|| memory.load(128, &mut to)) >= profile.read_cost(64));
        let again = (0..20).map(|_| timed(|| memory.charge_read(128, 64))).min();
        assert!(again.unwrap() < profile.read_cost(64));
        let write = || stream(&memory, 128, &[2; 64]);
        assert!(timed(|| (0..5).for_each(|_| write())) >= 5 * profile.write_cost(64));
    }

    #[test]
    fn a_device_of_one_access_at_a_time_delays_two_threads_as_one() {
        let (memory, profile) = fam("gen-z-uc");
        let read = || (0..50).for_each(|_| memory.charge_read(0, 64));
        let both = timed(|| {
            std::thread::scope(|scope| {
                scope.spawn(read);
                scope.spawn(read);
            });
        });
        assert!(both >= 100 * profile.read_cost(64), "{both:?}");
    }
}
