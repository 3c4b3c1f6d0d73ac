//! Puts from several threads.

use super::config::{Config, Limit};
use crate::{BenchError, clock, data, histogram::Latencies, threads::share_out};
use forebay_store::Store;
use std::time::{Duration, Instant};

/// Operations between two looks at the clock where latencies do not need it.
const STEP: u64 = 64;

/// Which key a Put has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keys {
    /// Keys that no other Put has, from this index on.
    New(u64),
    /// One of the first so many, at random.
    Among(u64),
    /// New ones of 16 bytes, of which the first eight are the same.
    Long,
}

/// Fills the data set: every key once, in random order.
pub(super) fn load(config: &Config, store: &Store, seed: u64) -> Result<(), BenchError> {
    let config = Config {
        latencies: false,
        ..config.clone()
    };
    let limit = Limit::of_ops(config.data_keys());
    write(&config, store, seed, Keys::New(0), limit).map(drop)
}

/// Puts from all threads up to `limit`. Returns how many, and their latencies.
pub(super) fn write(
    config: &Config,
    store: &Store,
    seed: u64,
    keys: Keys,
    limit: Limit,
) -> Result<(u64, Latencies), BenchError> {
    let seconds = limit.seconds.map(Duration::from_secs_f64);
    let deadline = seconds.map(|limit| Instant::now() + limit);
    let values = data::Values::new(config.value_bytes);
    let threads = config.threads as u64;
    let ops_max = limit.ops.unwrap_or(u64::MAX);
    share_out(config.threads, ops_max, |thread, share| {
        let mut latencies = Latencies::default();
        let mut random = data::Random::new(data::fresh_seed());
        let mut long = *b"the key 12345678";
        let mut done = 0;
        let mut last = Instant::now();
        while done < share {
            let index = match keys {
                Keys::New(first) => first + done * threads + thread,
                Keys::Among(keys) => random.below(keys),
                Keys::Long => done * threads + thread,
            };
            long[8..].copy_from_slice(&data::key(seed, index));
            let key = match keys {
                Keys::Long => &long[..],
                Keys::New(_) | Keys::Among(_) => &long[8..],
            };
            store.put(key, values.value(done))?;
            done += 1;
            if config.latencies {
                latencies.record(clock::lap_ns(&mut last));
            } else if done.is_multiple_of(STEP) {
                last = Instant::now();
            }
            if deadline.is_some_and(|deadline| last >= deadline) {
                break;
            }
        }
        Ok((done, latencies))
    })
}
