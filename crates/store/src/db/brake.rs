//! The brake: writers slow down, little by little, as the memtable fills faster than it goes into
//! the index.
//!
//! The *load* is the memtable's content in chunks: the frozen ones, less what of the oldest is
//! ingested, and the active one; more if the index's runs wait for compaction. Up to [`FREE`]
//! chunks writers go as fast as they can. From there each write has a price in time that doubles
//! every fifth of a chunk, from a microsecond to [`PAUSE_MAX`]; small prices add up until they are
//! worth a sleep. So writers settle at the load whose price is the pace of the ingestion. None
//! waits longer than `PAUSE_MAX`, and the budget's end is never a wall, unless the index cannot be
//! written: then writes are refused.
//!
//! The disk behind the pool has a brake of its own. Where the lane is crowded
//! ([`forebay_pool::Lane::crowding`]), it says by how much writers are ahead of the drain, and they
//! wait once that is worth a sleep. So a sync that takes long makes many writes a little slower,
//! and none wait for all of it.

use super::{StoreCore, indexer::FROZEN_MAX, locks::thread_number};
use crate::{error::StoreError, memtable::Chunk, stats::WaitStats};
use forebay_pool::{Crowded, Lane, WaitMeter};
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
/// Load of the memtable alone at which writers stand still, whatever the price: only one that the
/// index cannot be written at, or values of many megabytes, reach.
const STOP: f64 = END + 0.25;
/// What a write at load [`FREE`] costs, nanoseconds, and how often that doubles until [`END`].
const PRICE_MIN: f64 = 1000.0;
const DOUBLINGS: f64 = 13.3;
/// The longest pause of one write.
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// Debts below this are not slept for.
const PAUSE_MIN: Duration = Duration::from_micros(250);
/// Writers that are ahead of the drain by less do not sleep for it. One alone sleeps as seldom as
/// it can, about once for each segment where the disk is the bound, since few writes are slow then.
/// If several did, a few writes of each would be slow for each segment, which is many: they take
/// turns of sleeping a little.
const AHEAD_ALONE: Duration = Duration::from_millis(5);
const AHEAD_OF_SEVERAL: Duration = Duration::from_micros(80);
/// A thread that came here so many times in a row is alone.
const ALONE_AFTER: u32 = 256;
/// Runs of the index that count as no load, and so many more that count as a chunk.
const RUNS_FREE: u64 = 16;
const RUNS_PER_CHUNK: f64 = 8.0;

/// The messages of the threads behind to writers.
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
    debt: SleepDebt,
    waits: WaitMeter,
    /// The thread that wrote last where the lane is crowded, and how often it did in a row.
    last_writer: AtomicU64,
    drain_waits: WaitMeter,
}

/// Prices that were not worth a sleep yet, nanoseconds.
#[derive(Default)]
struct SleepDebt(AtomicU64);

impl SleepDebt {
    /// What the next write has to wait, if anything, by a price that is added to what is owed.
    fn pay(&self, price: Duration) -> Option<Duration> {
        let price = u64::try_from(price.as_nanos()).unwrap_or(u64::MAX);
        let owed = self.0.fetch_add(price, Relaxed).saturating_add(price);
        let owed = Duration::from_nanos(owed);
        if owed < PAUSE_MIN {
            return None;
        }
        self.0.store(0, Relaxed);
        Some(owed.min(PAUSE_MAX))
    }
}

impl Brake {
    /// Waits of writers for the index, and for the drain.
    pub(super) fn waits(&self) -> (WaitStats, WaitStats) {
        (self.waits.read().into(), self.drain_waits.read().into())
    }

    /// Slows a writer down whose record is ahead of the drain.
    #[cold]
    pub(super) fn slow_for_drain(&self, lane: &Lane, crowded: Crowded) {
        let Crowded {
            ahead,
            another_is_free,
        } = crowded;
        let alone = self.writes_alone();
        let least = if alone { AHEAD_ALONE } else { AHEAD_OF_SEVERAL };
        if ahead < least || alone && another_is_free {
            return;
        }
        let _waiting = self.drain_waits.begin();
        // Several that were all woken by the same segment would wait for processors instead.
        match alone {
            true => lane.wait_free(ahead.min(PAUSE_MAX)),
            false => thread::sleep(ahead.min(PAUSE_MAX)),
        }
    }

    /// True if no other thread wrote of late where the lane is crowded. Threads that come here at
    /// the same time may miss each other once.
    fn writes_alone(&self) -> bool {
        // Not 0, which stands for none.
        let thread = thread_number() as u32 + 1;
        let last = self.last_writer.load(Relaxed);
        let times = match (last >> 32) as u32 == thread {
            true => (last as u32).saturating_add(1),
            false => 0,
        };
        if times < ALONE_AFTER {
            (self.last_writer).store(u64::from(thread) << 32 | u64::from(times), Relaxed);
        }
        times >= ALONE_AFTER
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

    /// What the index's runs count for. However many they are, snapshots make as many as they like,
    /// they alone slow writers only.
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
    let doublings = ((load - FREE) / (END - FREE) * DOUBLINGS).min(30.0);
    Duration::from_secs_f64(PRICE_MIN * 1e-9 * doublings.exp2()).min(PAUSE_MAX)
}

impl StoreCore {
    /// The frozen chunks' load.
    pub(super) fn frozen_load(&self) -> f64 {
        let bytes = self.options.memtable_bytes as f64;
        let full = |chunk: &Arc<Chunk>| {
            let keys = chunk.load() as f64 / bytes;
            keys.max(chunk.range_fullness()).min(1.0)
        };
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
            _ => self.background.brake.debt.pay(price(load)),
        };
        let Some(pause) = pause else {
            return Ok(());
        };
        let _waiting = self.background.brake.waits.begin();
        thread::sleep(pause);
        // Only while there is something to ingest: one long key may fill its part of the active
        // chunk many times over, and it takes a writer to freeze that.
        let is_on = || self.background.brake.on.load(Relaxed);
        while is_on() && self.memtable_load() >= STOP && !self.stopping() {
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
    fn a_fuller_memtable_slows_a_write_more_up_to_a_longest_pause() {
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

    /// Promise (store): A writer that outruns the index or the pool's disk is slowed down
    /// gradually: neither brake holds a put for longer than 10 ms.
    #[test]
    fn small_prices_add_up_to_pauses_of_at_most_the_longest() {
        let debt = SleepDebt::default();
        let price = PAUSE_MIN / 10;
        assert_eq!((0..9).find_map(|_| debt.pay(price)), None);
        assert_eq!(debt.pay(price), Some(PAUSE_MIN));
        assert_eq!(debt.pay(price), None);
        assert_eq!(debt.pay(Duration::from_secs(9)), Some(PAUSE_MAX));
    }

    #[test]
    fn a_thread_writes_alone_until_another_one_does() {
        let brake = Brake::default();
        let times = |n: u32| (0..n).filter(|_| brake.writes_alone()).count();
        assert_eq!(times(ALONE_AFTER), 0);
        assert_eq!(times(100), 100);
        thread::scope(|scope| scope.spawn(|| assert!(!brake.writes_alone())).join()).unwrap();
        assert_eq!(times(ALONE_AFTER), 0);
        assert_eq!(times(1), 1);
    }

    #[test]
    fn a_brake_counts_waiting_runs_and_no_ingested_part_of_a_chunk() {
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
