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
    let writer = Writer {
        store,
        values: data::Values::new(config.value_bytes),
        seed,
        keys,
        threads: config.threads as u64,
        deadline: seconds.map(|limit| Instant::now() + limit),
    };
    share_out(
        config.threads,
        limit.ops.unwrap_or(u64::MAX),
        |thread, share| match config.latencies {
            true => writer.run::<true>(thread, share),
            false => writer.run::<false>(thread, share),
        },
    )
}

/// What the writing threads have in common.
struct Writer<'a> {
    store: &'a Store,
    values: data::Values,
    seed: u64,
    keys: Keys,
    threads: u64,
    deadline: Option<Instant>,
}

impl Writer<'_> {
    fn run<const LATENCIES: bool>(
        &self,
        thread: u64,
        ops_max: u64,
    ) -> Result<(u64, Latencies), BenchError> {
        let mut latencies = Latencies::new();
        let mut random = data::Random::new(data::fresh_seed());
        let mut long = *b"the key 12345678";
        let mut done = 0;
        let mut last = Instant::now();
        while done < ops_max {
            let index = match self.keys {
                Keys::New(first) => first + done * self.threads + thread,
                Keys::Among(keys) => random.below(keys),
                Keys::Long => done * self.threads + thread,
            };
            let short = data::key(self.seed, index);
            let key = match self.keys {
                Keys::Long => {
                    long[8..].copy_from_slice(&short);
                    &long[..]
                }
                _ => &short[..],
            };
            self.store.put(key, self.values.value(done))?;
            done += 1;
            if LATENCIES {
                latencies.record(clock::lap_ns(&mut last));
            }
            if !LATENCIES && done.is_multiple_of(STEP) {
                last = Instant::now();
            }
            if self.deadline.is_some_and(|deadline| last >= deadline) {
                break;
            }
        }
        Ok((done, latencies))
    }
}
