//! A lock that processes share, each of which knows its holder: when that one dies, it is taken
//! away from it.

use forebay_pool::{MonotonicTime, media};
use std::{
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::Duration,
};

/// A thread may sleep until it is free.
const WAITED_FOR: u32 = 1 << 31;
/// Sleep before asking again if it is worth it.
const LOOK: Duration = Duration::from_millis(20);
/// Attempts before sleeping: mostly it is held for as long as a write to the page cache takes.
const SPINS: u32 = 50;

/// A lock word: 0 if free, else its holder. Not reentrant.
#[repr(transparent)]
pub struct Lock(AtomicU32);

/// Bits of a holder's number plus one; those above tell a holder from what a process has written
/// over it, who would never free the lock.
const NUMBER_BITS: u32 = 21;

/// The word while the process with the number `who` has the lock.
#[inline]
fn held_by(who: u32) -> u32 {
    let number = who + 1;
    number | (number.wrapping_mul(0x9E37_79B1) >> (NUMBER_BITS + 1)) << NUMBER_BITS
}

/// True if the word is that of a lock that is free, or that some process has.
fn is_sound(word: u32) -> bool {
    let number = word & ((1 << NUMBER_BITS) - 1);
    word == 0 || number != 0 && word & !WAITED_FOR == held_by(number - 1)
}

impl Lock {
    /// Takes the lock for the process with the number `who`. False if `give_up` said so while it
    /// waited, or [it is damaged](Self::is_damaged).
    #[inline]
    pub fn take(&self, who: u32, give_up: impl Fn() -> bool) -> bool {
        let ours = held_by(who);
        let free = self.0.compare_exchange(0, ours, Acquire, Relaxed);
        free.is_ok() || self.wait_for(ours, give_up)
    }

    /// As [`take`](Self::take), for so long at most.
    pub fn take_for(&self, who: u32, limit: Duration) -> bool {
        let begun = MonotonicTime::now();
        self.take(who, || begun.elapsed() >= limit)
    }

    #[cold]
    fn wait_for(&self, ours: u32, give_up: impl Fn() -> bool) -> bool {
        for _ in 0..SPINS {
            if self.0.load(Relaxed) == 0
                && self.0.compare_exchange(0, ours, Acquire, Relaxed).is_ok()
            {
                return true;
            }
            std::hint::spin_loop();
        }
        loop {
            // A thread that has slept does not know whether others do.
            match self
                .0
                .compare_exchange(0, ours | WAITED_FOR, Acquire, Relaxed)
            {
                Ok(_) => return true,
                Err(held) if !is_sound(held) || give_up() => return false,
                Err(held) => {
                    let marked = held | WAITED_FOR;
                    if held == marked
                        || self
                            .0
                            .compare_exchange(held, marked, Relaxed, Relaxed)
                            .is_ok()
                    {
                        media::wait(&self.0, marked, LOOK);
                    }
                }
            }
        }
    }

    /// Gives it back.
    #[inline]
    pub fn free(&self) {
        if self.0.swap(0, Release) & WAITED_FOR != 0 {
            self.wake();
        }
    }

    /// True unless it is free.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.0.load(Acquire) != 0
    }

    /// True if a process has written over the word: it is no holder's.
    pub fn is_damaged(&self) -> bool {
        !is_sound(self.0.load(Acquire))
    }

    /// The process with the number `who` is dead: true if it had the lock, which still is its own
    /// until [`free`](Self::free).
    pub fn is_held_by(&self, who: u32) -> bool {
        self.0.load(Acquire) & !WAITED_FOR == held_by(who)
    }

    #[cold]
    fn wake(&self) {
        media::wake_one(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::atomic::AtomicU64, thread};

    fn lock() -> Lock {
        Lock(AtomicU32::new(0))
    }

    #[test]
    fn of_many_threads_one_at_a_time_has_it_and_none_is_forgotten() {
        let (lock, value) = (lock(), AtomicU64::new(0));
        thread::scope(|scope| {
            for who in 0..8 {
                let (lock, value) = (&lock, &value);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        assert!(lock.take(who, || false));
                        assert!(lock.is_held_by(who));
                        value.store(value.load(Relaxed) + 1, Relaxed);
                        lock.free();
                    }
                });
            }
        });
        assert_eq!(value.load(Relaxed), 160_000);
        assert_eq!(lock.0.load(Relaxed), 0);
    }

    #[test]
    fn nobody_waits_for_a_lock_that_was_written_over() {
        for byte in 1..=0xFF {
            let lock = Lock(AtomicU32::new(u32::from_ne_bytes([byte; 4])));
            assert!(lock.is_damaged() && lock.is_held(), "{byte:#x}");
            assert!(!lock.take(7, || false), "{byte:#x}");
            lock.free();
            assert!(lock.take(7, || false) && !lock.is_damaged());
        }
        for who in [0, 1, 2, 500, (1 << 20) - 1] {
            let lock = Lock(AtomicU32::new(0));
            assert!(lock.take(who, || false) && lock.is_held_by(who) && !lock.is_damaged());
            assert!(!lock.take_for(who, Duration::ZERO) && !lock.is_damaged());
        }
        assert!(!is_sound(WAITED_FOR));
    }

    #[test]
    fn the_lock_of_a_dead_process_is_freed_for_those_who_wait() {
        let lock = lock();
        assert!(lock.take(5, || false));
        assert!(!lock.take_for(6, Duration::from_millis(1)));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock.take(6, || false));
            thread::sleep(Duration::from_millis(5));
            assert!(lock.is_held_by(5) && !waiting.is_finished());
            lock.free();
            assert!(waiting.join().unwrap());
        });
        assert!(lock.is_held_by(6) && !lock.is_held_by(5));
    }
}
