//! Requests to the device's queue.

use super::{Device, FileKey};
use crate::{
    profile::ns,
    shared::{FileState, count},
};
use std::sync::atomic::Ordering::Relaxed;

/// What is written back together.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    pub(super) bytes: u64,
    /// Places that it is in.
    pub(super) runs: u64,
    /// If it is in one: where that begins.
    from: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Read,
    Write,
}

impl Device<'_> {
    /// One request at one place.
    pub(super) fn request(
        &self,
        kind: Kind,
        key: FileKey,
        offset: u64,
        bytes: u64,
        now: u64,
    ) -> u64 {
        let (cost, requests, sum) = match kind {
            Kind::Read => (&self.profile.read, count::READS, count::READ_BYTES),
            Kind::Write => {
                self.state.unflushed.store(1, Relaxed);
                (&self.profile.write, count::WRITES, count::WRITE_BYTES)
            }
        };
        self.count(requests, 1);
        self.count(sum, bytes);
        let queue = &self.state.queue;
        queue.reserve(self.profile.channels, cost, key.place(offset), bytes, now)
    }

    /// Writes back what was taken: the channels share its places.
    pub(super) fn request_runs(
        &self,
        key: FileKey,
        Taken { bytes, runs, from }: Taken,
        now: u64,
    ) -> u64 {
        if bytes == 0 || runs == 0 {
            return now;
        }
        self.state.unflushed.store(1, Relaxed);
        self.count(count::WRITES, runs);
        self.count(count::WRITE_BYTES, bytes);
        let (queue, cost) = (&self.state.queue, &self.profile.write);
        if runs == 1 {
            return queue.reserve(self.profile.channels, cost, key.place(from), bytes, now);
        }
        let parts = runs.min(u64::from(self.profile.channels));
        let fixed = ns(cost.random_us) * runs / parts;
        let transfer = cost.transfer_ns(bytes / parts);
        let part = |_| queue.reserve_for(self.profile.channels, fixed, transfer, now);
        (0..parts).map(part).max().unwrap_or(now)
    }

    /// Takes at most about `bytes_max` of what waits to be written. The pages count as clean from
    /// then on.
    pub(super) fn take_dirty(&self, file: &FileState, bytes_max: u64) -> Taken {
        if file.dirty.load(Relaxed) == 0 {
            return Taken::default();
        }
        let runs = file.runs.swap(0, Relaxed).max(1);
        let all = file.dirty.swap(0, Relaxed);
        let bytes = all.min(bytes_max);
        let taken = Taken {
            bytes,
            runs: (u128::from(runs) * u128::from(bytes)).div_ceil(u128::from(all.max(1))) as u64,
            from: file.write_end.load(Relaxed).saturating_sub(all),
        };
        if bytes < all {
            file.dirty.fetch_add(all - bytes, Relaxed);
            file.runs.fetch_add((runs - taken.runs).max(1), Relaxed);
        }
        file.epoch.fetch_add(1, Relaxed);
        self.forgive(bytes);
        taken
    }
}
