//! Measurement of the index, not a check: `cargo test --release -p forebay-store --test index_speed
//! -- --ignored --nocapture`, with `INDEX_KEYS` (millions, default 10), `INDEX_RUN` (thousands,
//! default 1000) and `INDEX_DIR` (default: the temporary directory).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use forebay_store::index::{Index, IndexOptions, RecordAddress, ValueForm};
use std::{
    ops::Bound,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

/// A permutation of the numbers below 2^32 (odd multiplier), so keys are distinct and in random
/// order.
fn key(n: u64) -> u64 {
    ((n as u32).wrapping_mul(0x9E37_79B1) as u64) << 20
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn measure_gets(what: &str, index: &Index, keys: u64, present: bool) {
    let snapshot = index.snapshot();
    let mut state = 0x1234_5678_9abc_def1;
    const GETS: u32 = 1_000_000;
    for round in ["first", "again"] {
        let mut times = Vec::with_capacity(GETS as usize);
        let begun = Instant::now();
        for _ in 0..GETS {
            let key = key(random(&mut state) % keys) + u64::from(!present);
            let at = Instant::now();
            let found = snapshot.get(&key.to_be_bytes()).unwrap();
            times.push(at.elapsed().as_nanos() as u64);
            assert_eq!(found.is_some(), present);
        }
        let mean = begun.elapsed() / GETS;
        times.sort_unstable();
        let at = |q: f64| times[(q * times.len() as f64) as usize];
        eprintln!(
            "  get {what} ({round} million): mean {} ns, p50 {} p99 {} p99.9 {} ns",
            mean.as_nanos(),
            at(0.5),
            at(0.99),
            at(0.999)
        );
    }
}

fn measure_scans(index: &Index, keys: u64) {
    let snapshot = index.snapshot();
    let mut state = 77;
    for (what, back) in [("forward", false), ("backward", true)] {
        let mut spent = Duration::ZERO;
        for _ in 0..20_000 {
            let from = key(random(&mut state) % keys).to_be_bytes();
            let at = Instant::now();
            let count = if back {
                snapshot
                    .range((Bound::Unbounded, Bound::Included(&from)))
                    .rev()
                    .take(100)
                    .count()
            } else {
                snapshot
                    .range((Bound::Included(&from), Bound::Unbounded))
                    .take(100)
                    .count()
            };
            spent += at.elapsed();
            assert!(count > 0);
        }
        eprintln!(
            "  scan of 100 {what}: {:.1} us",
            spent.as_secs_f64() * 1e6 / 20_000.0
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_of_the_index() {
    let keys = setting("INDEX_KEYS", 10) * 1_000_000;
    let run = setting("INDEX_RUN", 1000) * 1000;
    let dir = match std::env::var("INDEX_DIR") {
        Ok(dir) => tempfile::tempdir_in(dir).unwrap(),
        Err(_) => tempfile::tempdir().unwrap(),
    };
    let options = IndexOptions {
        cache_bytes: setting("INDEX_CACHE_MIB", 1024) << 20,
        pinned_bytes: setting("INDEX_PINNED_MIB", 256) << 20,
        ..IndexOptions::default()
    };
    let index = Index::open(&dir.path().join("i"), options).unwrap();
    let (mut ingesting, mut compacting) = (Duration::ZERO, Duration::ZERO);
    let mut longest = Duration::ZERO;
    let mut merged = 0;
    for first in (0..keys).step_by(run as usize) {
        let mut sorted: Vec<u64> = (first..(first + run).min(keys)).map(key).collect();
        sorted.sort_unstable();
        let sorted: Vec<([u8; 8], u64)> = sorted.iter().map(|k| (k.to_be_bytes(), *k)).collect();
        let at = Instant::now();
        let mut entries = sorted.iter().map(|(k, n)| {
            let address = RecordAddress {
                lsn: (n >> 12) + (1 << 33),
                len: 1100,
                form: ValueForm::Record,
            };
            (&k[..], address)
        });
        index.ingest(&mut entries, first).unwrap();
        ingesting += at.elapsed();
        loop {
            let (at, before) = (Instant::now(), index.stats());
            let more = index.compact().unwrap();
            longest = longest.max(at.elapsed());
            compacting += at.elapsed();
            if index.stats().runs < before.runs {
                let after = index.stats();
                merged += before.runs - after.runs;
            }
            if !more {
                break;
            }
        }
    }
    let per = |n: u64, t: Duration| n as f64 / t.as_secs_f64() / 1e6;
    eprintln!(
        "{keys} keys of 8 bytes in runs of {run}, {:?}",
        index.stats()
    );
    eprintln!("  ingest {:.2} M/s ({ingesting:.1?})", per(keys, ingesting));
    eprintln!(
        "  compaction {compacting:.1?} in all, longest step {longest:.2?}, {merged} runs merged away"
    );
    measure_gets("hit", &index, keys, true);
    measure_gets("hit among a thousand", &index, 1000, true);
    measure_gets("miss", &index, keys, false);
    measure_scans(&index, keys);

    let at = Instant::now();
    index.merge_all().unwrap();
    eprintln!(
        "merged into one run: {:.2} M/s, {:?}",
        per(keys, at.elapsed()),
        index.stats()
    );
    measure_gets("hit", &index, keys, true);
    measure_gets("hit among a thousand", &index, 1000, true);
    measure_gets("miss", &index, keys, false);
    measure_scans(&index, keys);
    let at = Instant::now();
    index.verify().unwrap();
    eprintln!("  verify {:.1} M/s", per(keys, at.elapsed()));
    drop(index);
    let at = Instant::now();
    let index = Index::open(&dir.path().join("i"), options).unwrap();
    eprintln!("  open {:.1?}", at.elapsed());
    assert_eq!(index.stats().entries, keys);
}

#[test]
#[ignore = "a measurement"]
fn ingestion_beside_compaction() {
    let keys = setting("INDEX_KEYS", 10) * 1_000_000;
    let run = setting("INDEX_RUN", 1000) * 1000;
    let dir = tempfile::tempdir().unwrap();
    let index = Index::open(&dir.path().join("i"), IndexOptions::default()).unwrap();
    let done = AtomicBool::new(false);
    let (mut runs_most, mut longest) = (0, Duration::ZERO);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let more = index.compact().unwrap();
                if !more && done.load(Ordering::Relaxed) {
                    break;
                }
                if !more {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        for first in (0..keys).step_by(run as usize) {
            let mut sorted: Vec<u64> = (first..(first + run).min(keys)).map(key).collect();
            sorted.sort_unstable();
            let sorted: Vec<[u8; 8]> = sorted.iter().map(|k| k.to_be_bytes()).collect();
            let address = RecordAddress {
                lsn: first + (1 << 33),
                len: 1100,
                form: ValueForm::Record,
            };
            let at = Instant::now();
            index
                .ingest(&mut sorted.iter().map(|k| (&k[..], address)), first)
                .unwrap();
            longest = longest.max(at.elapsed());
            runs_most = runs_most.max(index.stats().runs);
        }
        eprintln!(
            "{keys} keys in runs of {run}: {:.2} M/s with the sorting, longest ingestion {longest:.2?}, {runs_most} runs at most",
            keys as f64 / begun.elapsed().as_secs_f64() / 1e6,
        );
        done.store(true, Ordering::Relaxed);
    });
    eprintln!(
        "compacted after {:.1?}: {:?}",
        begun.elapsed(),
        index.stats()
    );
}
