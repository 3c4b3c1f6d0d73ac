//! Measurement of compression, not a check: `cargo test --release -p forebay-store --features zstd
//! --test compression_speed -- --ignored --nocapture`, with `MIB` (of values of each kind and size,
//! default 32), and `KIND` and `BYTES` for one of them. The pool is emulated; nothing is synced by
//! a put. A dictionary is made of other values of the kind before.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Rng, compressions};
use forebay_pool::PoolOptions;
use forebay_store::{Compression, Stats, Store, StoreOptions};
use std::time::Instant;

const WORDS: [&str; 24] = [
    "the", "of", "boat", "harbour", "wind", "and", "a", "sail", "north", "was", "in", "to",
    "light", "evening", "captain", "said", "that", "water", "rope", "had", "with", "under",
    "rising", "tide",
];

fn json(random: &mut Rng) -> String {
    format!(
        "{{\"id\":{},\"name\":\"{} {}\",\"created_at\":\"2025-{:02}-{:02}T{:02}:{:02}:00Z\",\"active\":{},\"balance\":{}.{:02},\"tags\":[\"{}\",\"{}\"]}}",
        random.below(1 << 40),
        WORDS[random.below(24) as usize],
        WORDS[random.below(24) as usize],
        1 + random.below(12),
        1 + random.below(28),
        random.below(24),
        random.below(60),
        random.chance(2),
        random.below(100_000),
        random.below(100),
        WORDS[random.below(24) as usize],
        WORDS[random.below(24) as usize],
    )
}

/// A value of a kind.
fn value(kind: &str, bytes: usize, random: &mut Rng) -> Vec<u8> {
    let mut value = Vec::new();
    while value.len() < bytes {
        match kind {
            "JSON rows" => value.extend(json(random).bytes()),
            "text" => {
                value.extend(WORDS[random.below(24) as usize].bytes());
                value.push(b' ');
            }
            _ => value.extend(random.next().to_le_bytes()),
        }
    }
    value.truncate(bytes);
    value
}

/// Puts other values of the kind until the store has a dictionary, if it makes one.
fn warm_up(store: &Store, kind: &str, bytes: usize) {
    let (mut random, begun) = (Rng(7), Instant::now());
    while store.stats().compression.with_dictionary == 0 && begun.elapsed().as_secs() < 3 {
        for i in 0..1000_u64 {
            let value = value(kind, bytes, &mut random);
            store.put(&i.to_be_bytes(), &value).unwrap();
        }
    }
    store.flush().unwrap();
}

/// Puts so many values and gets them again; prints what that cost and gained.
fn measure(kind: &str, bytes: usize, by: Compression, count: usize) {
    let dir = tempfile::tempdir().unwrap();
    let pool = PoolOptions::new().emulated(true).size(128 << 20);
    let pool = pool.create(dir.path().join("pool")).unwrap();
    let options = StoreOptions::new().compression(by).cache_size(1 << 20);
    let store = options.open(dir.path().join("store"), &pool).unwrap();
    if matches!(by, Compression::ZstdDictionary(_)) && bytes <= 4096 {
        warm_up(&store, kind, bytes);
    }
    let before = store.stats();
    let mut random = Rng(1);
    // Some are put again and again: making them is not to be measured.
    let values: Vec<_> = (0..count.min(2000))
        .map(|_| value(kind, bytes, &mut random))
        .collect();
    let each = |begun: Instant| begun.elapsed().as_nanos() as f64 / count as f64;
    let begun = Instant::now();
    for i in 0..count {
        let value = &values[i % values.len()];
        store.put(&(i as u64).to_be_bytes(), value).unwrap();
    }
    let put = each(begun);
    let begun = Instant::now();
    let mut buffer = Vec::new();
    for i in 0..count {
        let key = (random.below(count as u64)).to_be_bytes();
        let found = store.get_into(&key, &mut buffer).unwrap();
        assert!(found.is_some_and(|found| found.len() == bytes), "{i}");
    }
    let get = each(begun);
    let after = store.stats();
    let since = |of: fn(&Stats) -> u64| (of(&after) - of(&before)) as f64;
    let raw = (count * bytes) as f64;
    println!(
        "  {kind:9} {bytes:>8}  {:11}  put {put:>9.0} ns  get {get:>9.0} ns  values {:.2}  log {:.2}  kept raw {:3.0} %",
        by.to_string(),
        match by {
            Compression::None => 1.0,
            _ => raw / since(|stats| stats.compression.stored_bytes),
        },
        raw / since(|stats| stats.log_tail + stats.large_value_bytes),
        100.0 * since(|stats| stats.compression.kept_raw)
            / since(|stats| stats.compression.values).max(1.0),
    );
}

#[test]
#[ignore = "a measurement"]
fn compression_beside_none() {
    let mib = std::env::var("MIB").ok().and_then(|mib| mib.parse().ok());
    let mib: usize = mib.unwrap_or(32);
    let only = |name: &str| std::env::var(name).ok();
    let (only_kind, only_bytes) = (only("KIND"), only("BYTES"));
    let is_asked = |only: &Option<String>, it: &str| only.as_ref().is_none_or(|only| only == it);
    let mut all = compressions();
    if cfg!(feature = "zstd") {
        all.push(Compression::ZstdDictionary(1));
    }
    println!("times smaller: the values, and the log with all headers");
    for kind in ["JSON rows", "text", "random"] {
        for bytes in [100, 200, 400, 1000, 4096, 32 << 10, 1 << 20_usize] {
            if !is_asked(&only_kind, kind) || !is_asked(&only_bytes, &bytes.to_string()) {
                continue;
            }
            let count = ((mib << 20) / bytes).clamp(8, 100_000);
            for by in &all {
                measure(kind, bytes, *by, count);
            }
        }
    }
}
