//! [`ValueSampler`]: some of the small values that are put, for a dictionary. A put copies one in
//! [`STRIDE`] of them to memory that is there already, and only while a sample is wanted; it waits
//! for no other put for that.

use super::dictionary::SMALL;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// One in so many small values is taken.
const STRIDE: usize = 4;

const IDLE: u8 = 0;
const WANTED: u8 = 1;
const FULL: u8 = 2;

/// Takes a sample when one is wanted.
#[derive(Default)]
pub(super) struct ValueSampler {
    state: AtomicU8,
    sample: Mutex<SmallSample>,
}

/// Small values, one behind the other.
#[derive(Default)]
pub(super) struct SmallSample {
    bytes: Vec<u8>,
    lengths: Vec<u16>,
    stride: usize,
}

impl SmallSample {
    /// The values, in the order in which they were put.
    pub(super) fn values(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        self.lengths.iter().map(move |&length| {
            let (value, behind) = rest.split_at(usize::from(length));
            rest = behind;
            value
        })
    }

    /// Adds a value; false if it has no room for it.
    fn add(&mut self, value: &[u8]) -> bool {
        let has_room = self.bytes.len() + value.len() <= self.bytes.capacity()
            && self.lengths.len() < self.lengths.capacity();
        if has_room && let Ok(length) = u16::try_from(value.len()) {
            self.bytes.extend_from_slice(value);
            self.lengths.push(length);
        }
        has_room
    }
}

impl ValueSampler {
    /// Wants a sample of so many bytes, of which puts allocate none.
    pub(super) fn begin(&self, bytes: usize) {
        let sample = SmallSample {
            bytes: Vec::with_capacity(bytes),
            lengths: Vec::with_capacity(bytes / SMALL.start()),
            // Of the few values of a test, all.
            stride: if bytes < 1 << 18 { 1 } else { STRIDE },
        };
        *self.sample.lock() = sample;
        self.state.store(WANTED, Relaxed);
    }

    /// Takes the `number`th small value of a thread, if it is wanted.
    #[inline]
    pub(super) fn offer(&self, number: usize, value: &[u8]) {
        if self.state.load(Relaxed) == WANTED {
            self.take_some(number, value);
        }
    }

    #[cold]
    fn take_some(&self, number: usize, value: &[u8]) {
        // Who is kept out by another thread's value goes on without.
        let Some(mut sample) = self.sample.try_lock() else {
            return;
        };
        if number.is_multiple_of(sample.stride.max(1)) && !sample.add(value) {
            self.state.store(FULL, Relaxed);
        }
    }

    /// True while one is being taken.
    pub(super) fn is_wanted(&self) -> bool {
        self.state.load(Relaxed) == WANTED
    }

    /// True once one is there to be taken away.
    pub(super) fn is_full(&self) -> bool {
        self.state.load(Relaxed) == FULL
    }

    /// Takes it away. None is wanted then.
    pub(super) fn take(&self) -> SmallSample {
        let mut sample = self.sample.lock();
        self.state.store(IDLE, Relaxed);
        std::mem::take(&mut *sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_some_of_the_values_and_allocates_nothing() {
        let sampler = ValueSampler::default();
        sampler.offer(4, b"before it is wanted");
        assert!(!sampler.is_wanted() && !sampler.is_full());
        sampler.begin(1 << 20);
        let room = sampler.sample.lock().bytes.as_ptr();
        let mut number = 0;
        while sampler.is_wanted() {
            number += 1;
            sampler.offer(number, format!("value {number:058}").as_bytes());
        }
        assert!(sampler.is_full());
        let sample = sampler.take();
        assert_eq!(sample.bytes.as_ptr(), room);
        let values: Vec<_> = sample.values().collect();
        assert_eq!(values.len(), (1 << 20) / 64);
        assert!(values[0].ends_with(b"4") && values[1].ends_with(b"8"));
        assert!(!sampler.is_full());
    }
}
