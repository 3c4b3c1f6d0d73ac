//! Measurement of transactions and what they cost others, not a check: `cargo test --release -p
//! forebay-store --test transaction_speed -- --ignored --nocapture`, with `KEYS` (thousands,
//! default 200), `ROUNDS` (thousands, default 200) and `THREADS` (default 2). The pool is emulated.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use forebay_pool::PoolOptions;
use forebay_store::{ScanRange, Store, StoreError, StoreOptions};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Instant,
};

fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Has each thread do `work` so many times, with random keys; nanoseconds that one takes a thread.
fn measure(what: &str, threads: u64, rounds: u64, work: impl Fn(u64, u64) + Sync) {
    let keys = setting("KEYS", 200) * 1000;
    let begun = Instant::now();
    thread::scope(|scope| {
        for thread in 1..=threads {
            let work = &work;
            scope.spawn(move || {
                let mut state = 0x1234_5678_9abc_def1 * thread;
                for _ in 0..rounds {
                    work(random(&mut state) % keys, random(&mut state) % keys);
                }
            });
        }
    });
    let each = begun.elapsed().as_nanos() as f64 / rounds as f64;
    println!("  {what}, {threads} threads: {each:.0} ns");
}

/// Replaces two values that it reads.
fn exchange(store: &Store, a: u64, b: u64) -> Result<(), StoreError> {
    store.transaction(|tx| {
        let (first, second) = (tx.get(&a.to_be_bytes())?, tx.get(&b.to_be_bytes())?);
        tx.put(&a.to_be_bytes(), &second.unwrap_or_default())?;
        tx.put(&b.to_be_bytes(), &first.unwrap_or_default())
    })
}

/// Writes a value after it has read ten others as a range.
fn sum_up(store: &Store, a: u64, b: u64) -> Result<(), StoreError> {
    store.transaction(|tx| {
        let mut bytes = 0;
        for pair in tx.scan(ScanRange::new(a.to_be_bytes()..))?.take(10) {
            bytes += pair?.1.len();
        }
        tx.put(&b.to_be_bytes(), &[bytes as u8; 100])
    })
}

#[test]
#[ignore = "a measurement"]
fn transactions_beside_plain_reads_and_writes() {
    let (rounds, many) = (setting("ROUNDS", 200) * 1000, setting("THREADS", 2));
    let dir = tempfile::tempdir().unwrap();
    let pool = PoolOptions::new().emulated(true);
    let pool = pool.create(dir.path().join("pool")).unwrap();
    let store = StoreOptions::new()
        .open(dir.path().join("store"), &pool)
        .unwrap();
    let put = |key: u64, with: u64| store.put(&key.to_be_bytes(), &[with as u8; 100]).unwrap();
    (0..setting("KEYS", 200) * 1000).for_each(|key| put(key, 0));
    let get = |key: u64| drop(store.get(&key.to_be_bytes()).unwrap());
    for threads in [1, many] {
        measure("get", threads, rounds, |a, _| get(a));
        measure("put", threads, rounds, put);
        measure("batch of two puts", threads, rounds, |a, b| {
            let mut batch = store.batch();
            batch.put(&a.to_be_bytes(), &[1; 100]).unwrap();
            batch.put(&b.to_be_bytes(), &[2; 100]).unwrap();
            store.write(&batch).unwrap();
        });
        measure("get, and put with the sum", threads, rounds, |a, b| {
            get(a);
            put(a, b);
        });
        measure("increment", threads, rounds, |a, _| {
            store
                .increment(&[b'n', a as u8, (a >> 8) as u8], 1)
                .map(drop)
                .unwrap();
        });
        measure(
            "transaction: two gets, two puts",
            threads,
            rounds,
            |a, b| {
                exchange(&store, a, b).unwrap();
            },
        );
        measure(
            "transaction: ten keys scanned, one put",
            threads,
            rounds / 4,
            |a, b| {
                sum_up(&store, a, b).unwrap();
            },
        );
    }
    let (done, committed) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 77;
            while !done.load(Relaxed) {
                sum_up(&store, random(&mut state) % 1000, random(&mut state) % 1000).unwrap();
                committed.fetch_add(1, Relaxed);
            }
        });
        measure("put, beside transactions that scan", 1, rounds, put);
        done.store(true, Relaxed);
    });
    println!("  {} of these meanwhile", committed.load(Relaxed));
}
