//! The brake: writers slow down, little by little, as the memtable fills faster than it goes into the index.
//!
//! The *load* is the memtable's content in chunks: the frozen ones, less what of the oldest is ingested, and the active one; more if the
//! index's runs wait for compaction. Up to [`FREE`] chunks writers go as fast as they can. From there each write has a price in time
//! that doubles every fifth of a chunk, from a microsecond to [`PAUSE_MAX`]; small prices add up until they are worth a sleep. So writers settle
//! at the load whose price is the pace of the ingestion, none waits longer than `PAUSE_MAX`, and the budget's end is never a wall, unless
//! the index cannot be written: then writes are refused.
//!
//! The disk behind the pool has the same brake: in the crowded end of the last free segment ([`forebay_pool::Lane::crowding`]) a write has
//! a price that doubles likewise. So a sync that takes long makes many writes a little slower, and none wait for all of it.

use super::{Shared, indexer::FROZEN_MAX};
use crate::{error::StoreError, memtable::Chunk, stats::Wait};
use forebay_pool::{Lane, WaitMeter};
use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::Duration,
};

/// Load below which writers are not slowed down, chunks: one that is ingested, and the active one.
const FREE: f64 = 2.0;
/// Load at the end of the budget, chunks.
const END: f64 = FROZEN_MAX as f64 + 1.0;
/// Load of the memtable alone at which writers stand still, whatever the price: only one that the index cannot be written at, or values of
/// many megabytes, reach.
const STOP: f64 = END + 0.25;
/// What a write at load [`FREE`] costs, nanoseconds, and how often that doubles until [`END`].
const PRICE_MIN: f64 = 1000.0;
const DOUBLINGS: f64 = 13.3;
/// The longest pause of one write.
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// Debts below this are not slept for.
const PAUSE_MIN: Duration = Duration::from_micros(250);
/// The same of debts to the drain. A pause for it ends when a segment is free, so it may be long: where the disk is the bound there is one
/// for each segment then, as if writers waited at its end.
const DRAIN_PAUSE_MIN: Duration = Duration::from_millis(5);
/// Runs of the index that count as no load, and so many more that count as a chunk.
const RUNS_FREE: u64 = 16;
const RUNS_PER_CHUNK: f64 = 8.0;

/// What the threads behind tell writers.
#[derive(Default)]
pub(super) struct Brake {
    /// Writers have to look at the load.
    on: AtomicBool,
    /// The frozen chunks' load, and what of it is ingested, thousandths of a chunk.
    frozen: AtomicU64,
    ingested: AtomicU64,
    /// The index's runs.
    runs: AtomicU64,
    /// What writers owe.
    debt: Debt,
    waits: WaitMeter,
    /// What they owe the drain.
    drain_debt: Debt,
    drain_waits: WaitMeter,
}

/// Prices that were not worth a sleep yet, nanoseconds.
#[derive(Default)]
struct Debt(AtomicU64);

impl Debt {
    /// What the next write has to wait, if anything, by a price that is added to what is owed.
    fn pay(&self, price: Duration, least: Duration) -> Option<Duration> {
        let price = u64::try_from(price.as_nanos()).unwrap_or(u64::MAX);
        let owed = self.0.fetch_add(price, Relaxed).saturating_add(price);
        let owed = Duration::from_nanos(owed);
        if owed < least {
            return None;
        }
        self.0.store(0, Relaxed);
        Some(owed.min(PAUSE_MAX))
    }
}

impl Brake {
    /// How writers waited for the index, and for the drain.
    pub(super) fn waits(&self) -> (Wait, Wait) {
        (self.waits.read().into(), self.drain_waits.read().into())
    }

    /// Slows a writer down whose record lies so far, from 0 to 1, in the crowded end of the lane.
    #[cold]
    pub(super) fn slow_for_drain(&self, lane: &Lane, crowding: f64) {
        if let Some(pause) = self
            .drain_debt
            .pay(doubling_price(crowding), DRAIN_PAUSE_MIN)
        {
            let _waiting = self.drain_waits.begin();
            lane.wait_free(pause);
        }
    }

    /// The frozen chunks were replaced, and none of them is ingested.
    pub(super) fn begin(&self, frozen: f64) {
        self.frozen.store((frozen * 1000.0) as u64, Relaxed);
        self.ingested.store(0, Relaxed);
        self.on.store(frozen > 0.0, SeqCst);
    }

    /// So much of the oldest chunk is ingested.
    pub(super) fn ingested(&self, share: f64) {
        self.ingested.store((share * 1000.0) as u64, Relaxed);
    }

    pub(super) fn set_runs(&self, runs: u64) {
        self.runs.store(runs, Relaxed);
    }

    /// Chunks that are frozen and not ingested.
    fn frozen_left(&self) -> f64 {
        let frozen = self.frozen.load(Relaxed);
        frozen.saturating_sub(self.ingested.load(Relaxed)) as f64 / 1000.0
    }

    /// What the index's runs count for. However many they are, snapshots make as many as they like, they alone slow writers only.
    fn runs_load(&self) -> f64 {
        let runs = self.runs.load(Relaxed).saturating_sub(RUNS_FREE);
        (runs as f64 / RUNS_PER_CHUNK).min(END - FREE)
    }
}

/// What a write costs at a load.
fn price(load: f64) -> Duration {
    if load < FREE {
        return Duration::ZERO;
    }
    doubling_price((load - FREE) / (END - FREE))
}

/// What a write costs on the way from where it begins to cost, 0, to where it costs [`PAUSE_MAX`], 1.
fn doubling_price(way: f64) -> Duration {
    let doublings = (way * DOUBLINGS).min(30.0);
    Duration::from_secs_f64(PRICE_MIN * 1e-9 * doublings.exp2()).min(PAUSE_MAX)
}

impl Shared {
    /// The frozen chunks' load.
    pub(super) fn frozen_load(&self) -> f64 {
        let bytes = self.options.memtable_bytes as f64;
        let full = |chunk: &Arc<Chunk>| (chunk.bytes() as f64 / bytes).min(1.0);
        self.view.load().frozen.iter().map(full).sum()
    }

    /// Step 1 of every write: one load, if nothing is frozen.
    #[inline]
    pub(super) fn wait_for_memtable(&self) -> Result<(), StoreError> {
        if self.background.brake.on.load(Relaxed) {
            self.slow_down()?;
        }
        Ok(())
    }

    /// The memtable's part of the load.
    fn memtable_load(&self) -> f64 {
        let view = self.view.load();
        let active = view.active.as_ref().map_or(0.0, |active| active.fullness());
        self.background.brake.frozen_left() + active
    }

    /// Waits as long as the load says.
    #[cold]
    fn slow_down(&self) -> Result<(), StoreError> {
        let load = self.memtable_load() + self.background.brake.runs_load();
        let pause = match load {
            ..FREE => return Ok(()),
            END.. => {
                self.check_index()?;
                Some(PAUSE_MAX)
            }
            _ => self.background.brake.debt.pay(price(load), PAUSE_MIN),
        };
        let Some(pause) = pause else {
            return Ok(());
        };
        let _waiting = self.background.brake.waits.begin();
        thread::sleep(pause);
        while self.memtable_load() >= STOP && !self.stopping() {
            self.check_index()?;
            thread::sleep(PAUSE_MAX);
        }
        Ok(())
    }

    /// An error if the index cannot be written.
    fn check_index(&self) -> Result<(), StoreError> {
        match self.background.state.lock().index_trouble.clone() {
            Some(reason) => Err(StoreError::IndexStalled { reason }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_costs_more_the_fuller_the_memtable_is_and_never_more_than_the_longest_pause() {
        assert_eq!(price(FREE - 0.01), Duration::ZERO);
        assert!(price(FREE) <= Duration::from_micros(1));
        let prices: Vec<_> = (20..80)
            .map(|tenths| price(f64::from(tenths) / 10.0))
            .collect();
        assert!(prices.is_sorted());
        let end = price(END);
        assert!(end > PAUSE_MAX * 9 / 10 && end <= PAUSE_MAX, "{end:?}");
        assert_eq!(price(1000.0), PAUSE_MAX);
    }

    #[test]
    fn small_prices_add_up_to_a_pause_and_none_is_longer_than_the_longest() {
        let debt = Debt::default();
        let price = PAUSE_MIN / 10;
        assert_eq!((0..9).find_map(|_| debt.pay(price, PAUSE_MIN)), None);
        assert_eq!(debt.pay(price, PAUSE_MIN), Some(PAUSE_MIN));
        assert_eq!(debt.pay(price, PAUSE_MIN), None);
        assert_eq!(debt.pay(Duration::from_secs(9), PAUSE_MIN), Some(PAUSE_MAX));
    }

    #[test]
    fn what_is_ingested_of_the_oldest_chunk_counts_no_more_and_runs_that_wait_do() {
        let brake = Brake::default();
        assert!(!brake.on.load(SeqCst));
        brake.begin(3.0);
        assert!(brake.on.load(SeqCst));
        brake.ingested(0.5);
        assert_eq!((brake.frozen_left(), brake.runs_load()), (2.5, 0.0));
        brake.set_runs(RUNS_FREE + 8);
        assert_eq!((brake.frozen_left(), brake.runs_load()), (2.5, 1.0));
        // With an empty memtable writers are never stopped.
        brake.set_runs(10_000);
        assert!(price(brake.runs_load() + 0.5) < PAUSE_MAX / 10);
        brake.begin(0.0);
        assert!(!brake.on.load(SeqCst));
    }
}
