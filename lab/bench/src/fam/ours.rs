//! Our store, resident in a pool on the emulated memory. Each write workload has a pool of its own,
//! made for the data.

use super::{Config, Measured, Policy};
use crate::{
    BenchError,
    data::{Random, Values},
    scratch::{self, PoolSource, ScratchDir, ScratchPool},
};
use forebay_device::memory::Profile;
use forebay_pool::record_bytes;
use forebay_store::{Durability, Store, StoreOptions};
use std::{path::Path, time::Instant};

/// Bytes of pairs that fit.
pub(super) const BYTES_MAX: u64 = 2 << 30;
/// Segments that the data is spread over.
const SEGMENTS: u64 = 40;
/// What a resident store keeps free, one that is open, and one for what does not divide evenly.
const SEGMENTS_MORE: u64 = 6;
/// Bytes that an operation's header takes in a record (store-format.md, "Operations").
const OP_BYTES: u64 = 2;

/// A store and what it lies on.
struct Bench {
    store: Store,
    _pool: ScratchPool,
    _dir: ScratchDir,
}

impl Bench {
    fn new(
        config: &Config,
        parent: &Path,
        policy: Policy,
        pair_bytes: u64,
    ) -> Result<Self, BenchError> {
        let profile = Profile::named(policy.profile())
            .ok_or_else(|| BenchError::Wrong(format!("no profile {}", policy.profile())))?;
        let record = record_bytes(usize::try_from(OP_BYTES + pair_bytes).unwrap_or(usize::MAX));
        let least = (4 * record).max(64 << 10);
        let segment_bytes = (config.pairs * record / SEGMENTS)
            .max(least)
            .next_power_of_two();
        // A record that does not fit leaves the rest of a segment unused.
        let used = (config.pairs * record).div_ceil(segment_bytes - record);
        let buffers = used + SEGMENTS_MORE;
        let pool = scratch::pool(&PoolSource::Emulated, buffers, segment_bytes, Some(profile))?;
        let dir = ScratchDir::new_in(parent)?;
        let buffers = u16::try_from(buffers).unwrap_or(u16::MAX);
        // Hardly any cache: what is read comes from the device.
        let options = StoreOptions::new()
            .resident(true)
            .durability(Durability::Buffered(buffers))
            .memtable_size(8 << 20)
            .cache_size(64 << 10);
        let store = options.open(dir.path().join("store"), pool.pool())?;
        Ok(Self {
            store,
            _pool: pool,
            _dir: dir,
        })
    }

    fn put_all(&self, order: &[u64], values: &Values) -> Result<f64, BenchError> {
        timed(order, |at, number| {
            Ok(self
                .store
                .put(&number.to_be_bytes(), values.value(at as u64))?)
        })
    }

    fn get_all(&self, order: &[u64], value_bytes: usize) -> Result<f64, BenchError> {
        let mut buffer = Vec::new();
        timed(order, |_, number| {
            match self.store.get_into(&number.to_be_bytes(), &mut buffer)? {
                Some(value) if value.len() == value_bytes => Ok(()),
                _ => Err(BenchError::Wrong(format!(
                    "pair {number} was put and is not found"
                ))),
            }
        })
    }
}

/// Does `work` for each number; microseconds each.
fn timed(
    order: &[u64],
    mut work: impl FnMut(usize, u64) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let start = Instant::now();
    for (at, &number) in order.iter().enumerate() {
        work(at, number)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / order.len() as f64)
}

fn shuffled(pairs: u64) -> Vec<u64> {
    let mut random = Random::new(crate::data::fresh_seed());
    let mut order: Vec<u64> = (0..pairs).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    order
}

/// All workloads once.
pub(super) fn measure(
    config: &Config,
    scratch: &Path,
    policy: Policy,
    pair_bytes: u64,
) -> Result<Measured, BenchError> {
    let in_order: Vec<u64> = (0..config.pairs).collect();
    let value_bytes = usize::try_from(pair_bytes - Config::KEY_BYTES).unwrap_or(usize::MAX);
    let values = Values::new(value_bytes);
    let new = || Bench::new(config, scratch, policy, pair_bytes);
    let put_in_order = new()?.put_all(&in_order, &values)?;
    let put_synced = new()?.put_all(&shuffled(config.pairs), &values)?;
    let bench = new()?;
    let put = bench.put_all(&shuffled(config.pairs), &values)?;
    bench.get_all(&in_order, value_bytes)?;
    Ok(Measured::from([
        ("sequential_put", put_in_order),
        ("random_put_sync", put_synced),
        ("random_put", put),
        ("sequential_get", bench.get_all(&in_order, value_bytes)?),
        (
            "random_get",
            bench.get_all(&shuffled(config.pairs), value_bytes)?,
        ),
    ]))
}
