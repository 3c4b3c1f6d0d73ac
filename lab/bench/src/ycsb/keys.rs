//! The record of each operation, chosen as YCSB does.
//!
//! *Zipfian*: some records are asked for much more often than others (theta 0.99), and are spread
//! over all keys: the rank is drawn out of ten thousand million, and hashed. *Latest*: the newest
//! records most often. *Uniform*: all alike.

use crate::data::{Random, mix};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fmt,
    str::FromStr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// How much the most popular records stand out, as in YCSB.
const THETA: f64 = 0.99;
/// What ranks are drawn out of before they are hashed, as in YCSB.
const RANKS: u64 = 10_000_000_000;
/// The sum of `1 / n^THETA` up to [`RANKS`], which takes long to add up. YCSB has it, too.
const RANKS_ZETA: f64 = 26.469_028_201_783_02;

/// How records are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Few records have most of the requests.
    Zipfian,
    /// The newest records have most of the requests.
    Latest,
    /// All records are alike.
    Uniform,
}

impl Distribution {
    /// All of them.
    const ALL: [Self; 3] = [Self::Zipfian, Self::Latest, Self::Uniform];

    fn name(self) -> &'static str {
        match self {
            Self::Zipfian => "zipfian",
            Self::Latest => "latest",
            Self::Uniform => "uniform",
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("unknown distribution {text:?}: zipfian, latest or uniform"))
    }
}

/// Ranks from 0 on, of which rank n comes `1 / (n + 1)^THETA` times as often as rank 0 (Gray et
/// al., "Quickly generating billion-record synthetic databases").
#[derive(Clone, Debug)]
struct ZipfianRanks {
    ranks: u64,
    zeta: f64,
    eta: f64,
}

impl ZipfianRanks {
    /// Of so many ranks, one at least.
    fn new(ranks: u64) -> Self {
        Self::with_zeta(ranks.max(1), zeta(0, ranks.max(1)))
    }

    fn with_zeta(ranks: u64, zeta: f64) -> Self {
        let of_two = 1.0 + 0.5_f64.powf(THETA);
        let eta = (1.0 - (2.0 / ranks as f64).powf(1.0 - THETA)) / (1.0 - of_two / zeta);
        Self { ranks, zeta, eta }
    }

    /// The same with as many ranks as there are now: what was added up is added to.
    fn grow(&mut self, ranks: u64) {
        if ranks > self.ranks {
            *self = Self::with_zeta(ranks, self.zeta + zeta(self.ranks, ranks));
        }
    }

    fn next(&self, random: &mut Random) -> u64 {
        // 53 bits: what a double can tell apart.
        let share = (random.number() >> 11) as f64 / (1_u64 << 53) as f64;
        let scaled = share * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1.min(self.ranks - 1);
        }
        let rank = self.ranks as f64
            * self
                .eta
                .mul_add(share, 1.0 - self.eta)
                .powf(1.0 / (1.0 - THETA));
        (rank as u64).min(self.ranks - 1)
    }
}

/// The sum of `1 / n^THETA` for n from `from + 1` to `to`.
fn zeta(from: u64, to: u64) -> f64 {
    (from + 1..=to).map(|n| 1.0 / (n as f64).powf(THETA)).sum()
}

/// Chooses records for one thread.
pub(super) struct RecordChooser {
    distribution: Distribution,
    ranks: ZipfianRanks,
    /// Records that there may be in the end. Zipfian choices are spread over all of them from the
    /// beginning, so that inserts do not move what is popular.
    expected: u64,
}

impl RecordChooser {
    /// Of records up to `expected`, of which there are `records` now.
    pub fn new(distribution: Distribution, records: u64, expected: u64) -> Self {
        Self {
            distribution,
            ranks: match distribution {
                Distribution::Latest => ZipfianRanks::new(records),
                _ => ZipfianRanks::with_zeta(RANKS, RANKS_ZETA),
            },
            expected: expected.max(1),
        }
    }

    /// One of the first `records`, of which there is one at least.
    pub fn next(&mut self, random: &mut Random, records: u64) -> u64 {
        match self.distribution {
            Distribution::Uniform => random.below(records),
            Distribution::Latest => {
                self.ranks.grow(records);
                records - 1 - self.ranks.next(random).min(records - 1)
            }
            Distribution::Zipfian => loop {
                let record = mix(self.ranks.next(random)) % self.expected;
                if record < records {
                    return record;
                }
            },
        }
    }
}

/// Numbers of records that are inserted by several threads. Only records whose insertion has
/// returned are chosen.
pub(super) struct InsertedRecords {
    next: AtomicU64,
    /// All records below this are there.
    present: AtomicU64,
    /// Those that are there while one before them is not yet.
    early: Mutex<BTreeSet<u64>>,
}

impl InsertedRecords {
    /// After so many that were loaded.
    pub fn after(records: u64) -> Self {
        Self {
            next: AtomicU64::new(records),
            present: AtomicU64::new(records),
            early: Mutex::default(),
        }
    }

    /// Records that are there, all of them.
    pub fn present(&self) -> u64 {
        self.present.load(Ordering::Acquire)
    }

    /// The number of a new one.
    pub fn begin(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// It is there.
    pub fn end(&self, record: u64) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        early.insert(record);
        let mut present = self.present.load(Ordering::Relaxed);
        while early.remove(&present) {
            present += 1;
        }
        self.present.store(present, Ordering::Release);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    /// How often each of so many records was chosen.
    fn choices(distribution: Distribution, records: u64) -> Vec<u64> {
        let mut chooser = RecordChooser::new(distribution, records, records);
        let mut random = Random::new(9);
        let mut counts = vec![0; records as usize];
        for _ in 0..DRAWS {
            counts[chooser.next(&mut random, records) as usize] += 1;
        }
        counts
    }

    #[test]
    fn ranks_come_as_often_as_their_law_says() {
        let (ranks, mut random) = (ZipfianRanks::new(1000), Random::new(5));
        let mut counts = vec![0_u64; 1000];
        (0..DRAWS).for_each(|_| counts[ranks.next(&mut random) as usize] += 1);
        for rank in [0, 1, 9, 99] {
            let law = 1.0 / ((rank + 1) as f64).powf(THETA) / zeta(0, 1000);
            let share = counts[rank] as f64 / DRAWS as f64;
            // The method is exact for the first two, and close for the others.
            assert!(
                (0.7..1.3).contains(&(share / law)),
                "{rank}: {share}, {law}"
            );
        }
    }

    #[test]
    fn adding_ranks_gives_what_as_many_at_once_give() {
        let (mut grown, whole) = (ZipfianRanks::new(10), ZipfianRanks::new(5000));
        (10..=5000).for_each(|ranks| grown.grow(ranks));
        assert!((grown.zeta - whole.zeta).abs() < 1e-9);
        assert!((grown.eta - whole.eta).abs() < 1e-9);
    }

    #[test]
    fn zeta_of_all_ranks_is_the_integral_of_the_law() {
        // Added up to a million, and integrated from there.
        let from = 1_000_000.0_f64;
        let rest = ((RANKS as f64).powf(1.0 - THETA) - from.powf(1.0 - THETA)) / (1.0 - THETA);
        assert!((zeta(0, 1_000_000) + rest - RANKS_ZETA).abs() < 1e-4);
    }

    #[test]
    fn zipfian_choices_are_skewed_and_spread_over_all_records() {
        let counts = choices(Distribution::Zipfian, 1000);
        let mut sorted = counts.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let top: u64 = sorted[..100].iter().sum();
        // Uniform choices would have an eighth there.
        assert!(top > DRAWS / 4, "{top}");
        assert!(counts.iter().filter(|count| **count > 0).count() > 990);
        let hot: u64 = counts[..500].iter().sum();
        assert!((DRAWS / 4..DRAWS * 3 / 4).contains(&hot), "{hot}");
    }

    #[test]
    fn latest_choices_are_the_newest_and_uniform_ones_are_not() {
        let newest = |counts: &[u64]| counts[900..].iter().sum::<u64>();
        assert!(newest(&choices(Distribution::Latest, 1000)) > DRAWS / 2);
        let uniform = newest(&choices(Distribution::Uniform, 1000));
        assert!((DRAWS * 9 / 100..DRAWS * 11 / 100).contains(&uniform));
    }

    #[test]
    fn records_are_chosen_only_when_all_before_are_there() {
        let inserted = InsertedRecords::after(10);
        let [first, second] = [inserted.begin(), inserted.begin()];
        assert_eq!((first, second), (10, 11));
        inserted.end(second);
        assert_eq!(inserted.present(), 10);
        inserted.end(first);
        assert_eq!(inserted.present(), 12);
        let mut chooser = RecordChooser::new(Distribution::Zipfian, 10, 4000);
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| chooser.next(&mut random, 12) < 12));
    }

    #[test]
    fn distributions_have_their_names() {
        for one in Distribution::ALL {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert!("normal".parse::<Distribution>().is_err());
    }
}
