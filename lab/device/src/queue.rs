//! A device's queue: when a request that arrives now is done. All processes of a run reserve here,
//! without locks.

use crate::profile::{CHANNELS_MAX, Cost};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The queue's state: points in time, nanoseconds of the monotonic clock.
#[repr(C)]
pub(crate) struct Queue {
    /// When each channel has served what it has.
    channels: [AtomicU64; CHANNELS_MAX],
    /// When the bytes of all that is reserved are transferred.
    bus: AtomicU64,
    /// Where the last request ended: its file's number plus the offset.
    head: AtomicU64,
}

impl Queue {
    /// When a request of `bytes` at `place` that arrives at `now` is done. `place` is the offset in
    /// a file plus a number of the file.
    ///
    /// The request takes the channel that is free first: it waits for it, then takes its fixed
    /// time, and the transfer of its bytes, which is also behind all bytes reserved before.
    pub(crate) fn reserve(
        &self,
        channels: u32,
        cost: &Cost,
        place: u64,
        bytes: u64,
        now: u64,
    ) -> u64 {
        let is_sequential = self.head.swap(place.wrapping_add(bytes), Relaxed) == place;
        let (fixed, transfer) = cost.of(bytes, is_sequential);
        self.reserve_for(channels, fixed, transfer, now)
    }

    /// As [`reserve`](Self::reserve), of a request with these times, in nanoseconds.
    pub(crate) fn reserve_for(&self, channels: u32, fixed: u64, transfer: u64, now: u64) -> u64 {
        let channels = &self.channels[..(channels as usize).clamp(1, CHANNELS_MAX)];
        let mut transferred = None;
        loop {
            let (channel, free) = first_free(channels);
            let start = free.max(now);
            let transferred = *transferred.get_or_insert_with(|| self.transfer(start, transfer));
            let done = (start + fixed + transfer).max(transferred);
            if channel
                .compare_exchange(free, done, AcqRel, Relaxed)
                .is_ok()
            {
                return done;
            }
        }
    }

    fn transfer(&self, start: u64, transfer: u64) -> u64 {
        let behind = |bus: u64| bus.max(start) + transfer;
        match self
            .bus
            .fetch_update(AcqRel, Acquire, |bus| Some(behind(bus)))
        {
            Ok(before) | Err(before) => behind(before),
        }
    }

    /// When the device could begin to serve a request.
    pub(crate) fn free_at(&self, channels: u32) -> u64 {
        first_free(&self.channels[..(channels as usize).clamp(1, CHANNELS_MAX)]).1
    }
}

fn first_free(channels: &[AtomicU64]) -> (&AtomicU64, u64) {
    let mut first = (&channels[0], channels[0].load(Acquire));
    for channel in &channels[1..] {
        let free = channel.load(Acquire);
        if free < first.1 {
            first = (channel, free);
        }
    }
    first
}
