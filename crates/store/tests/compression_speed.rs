//! Measurement of compression, not a check: `cargo test --release -p forebay-store --features zstd
//! --test compression_speed -- --ignored --nocapture`, with `MIB` (of values of each kind and size,
//! default 32). The pool is emulated; nothing is synced by a put.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Rng, compressions};
use forebay_pool::PoolOptions;
use forebay_store::{Compression, StoreOptions};
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

/// Puts so many values and gets them again; prints what that cost and gained.
fn measure(kind: &str, bytes: usize, by: Compression, count: usize) {
    let dir = tempfile::tempdir().unwrap();
    let pool = PoolOptions::new().emulated(true).size(128 << 20);
    let pool = pool.create(dir.path().join("pool")).unwrap();
    let options = StoreOptions::new().compression(by).cache_size(1 << 20);
    let store = options.open(dir.path().join("store"), &pool).unwrap();
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
    let stats = store.stats();
    let raw = (count * bytes) as f64;
    println!(
        "  {kind:9} {bytes:>8}  {:8}  put {put:>9.0} ns  get {get:>9.0} ns  values {:.2}  log {:.2}  kept raw {:3.0} %",
        by.to_string(),
        match by {
            Compression::None => 1.0,
            _ => raw / stats.compression.stored_bytes as f64,
        },
        raw / (stats.log_tail + stats.large_value_bytes) as f64,
        100.0 * stats.compression.kept_raw as f64 / stats.compression.values.max(1) as f64,
    );
}

#[test]
#[ignore = "a measurement"]
fn compression_beside_none() {
    let mib = std::env::var("MIB").ok().and_then(|mib| mib.parse().ok());
    let mib: usize = mib.unwrap_or(32);
    println!("times smaller: the values, and the log with all headers");
    for kind in ["JSON rows", "text", "random"] {
        for bytes in [100, 400, 1000, 4096, 32 << 10, 1 << 20] {
            let count = ((mib << 20) / bytes).clamp(8, 100_000);
            for by in compressions() {
                measure(kind, bytes, by, count);
            }
        }
    }
}

/// What Zstandard makes of small values with a dictionary of 16 KiB of earlier ones, as a log
/// segment could carry, and without.
#[cfg(feature = "zstd")]
#[test]
#[ignore = "a measurement"]
fn a_dictionary_of_earlier_values_beside_none() {
    use zstd::{bulk::Compressor, dict::EncoderDictionary};
    for kind in ["JSON rows", "text"] {
        for bytes in [100, 200, 400, 1000] {
            let mut random = Rng(2);
            let mut earlier = Vec::new();
            while earlier.len() < 16 << 10 {
                earlier.extend(value(kind, bytes, &mut random));
            }
            let values: Vec<_> = (0..20_000)
                .map(|_| value(kind, bytes, &mut random))
                .collect();
            let dictionary = EncoderDictionary::copy(&earlier, 1);
            let with = Compressor::with_prepared_dictionary(&dictionary).unwrap();
            for (what, mut compressor) in [
                ("without", Compressor::new(1).unwrap()),
                ("with a dictionary", with),
            ] {
                let mut room = vec![0; 2 * bytes + 100];
                let begun = Instant::now();
                let stored: usize = values
                    .iter()
                    .map(|value| compressor.compress_to_buffer(value, &mut room[..]).unwrap())
                    .sum();
                let each = begun.elapsed().as_nanos() / values.len() as u128;
                let times = (bytes * values.len()) as f64 / stored as f64;
                println!("  {kind:9} {bytes:>5}  {what:17}  {times:.2} times smaller  {each} ns");
            }
        }
    }
}
