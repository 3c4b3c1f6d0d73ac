//! `forebay-lab fam`: P5's figures, on a store whose data device is fabric-attached memory under the cache policies uc, wt and wc.
//!
//! Two contestants, round after round: our store, [resident](forebay_store::StoreOptions::resident) in a pool that is as slow as the device (`ours`),
//! and LevelDB with its directory on the emulated device (`leveldb`). docs/benchmarks.md, "forebay-lab fam".

mod leveldb;
mod ours;
mod report;
mod table;

pub use report::{Comparison, Missing, Reduction, Report, Row};
pub use table::fam as table;

use crate::{
    BenchError, peers,
    rounds::{median, span},
    scratch::ScratchDir,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// How the processor's cache stands before the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Uncached.
    Uc,
    /// Write-through: reads are cached, each write goes to the device.
    Wt,
    /// Write-combining: writes leave in bursts, reads are uncached.
    Wc,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Uc, Self::Wt, Self::Wc];

    /// The device's profile under this policy.
    #[must_use]
    pub fn profile(self) -> String {
        format!("gen-z-{self}")
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uc => "uc",
            Self::Wt => "wt",
            Self::Wc => "wc",
        })
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.to_string() == text)
            .ok_or_else(|| "there is no such cache policy; there are uc, wt and wc".to_owned())
    }
}

/// What is done with all pairs, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Puts in the order of the keys.
    SequentialPut,
    /// Puts in random order.
    RandomPut,
    /// Puts in random order, each synced. Ours are durable in any case.
    RandomPutSync,
    /// Gets in the order of the keys.
    SequentialGet,
    /// Gets in random order.
    RandomGet,
}

impl Workload {
    /// All of them, in the paper's order.
    pub const ALL: [Self; 5] = [
        Self::SequentialPut,
        Self::RandomPut,
        Self::RandomPutSync,
        Self::SequentialGet,
        Self::RandomGet,
    ];

    fn is_get(self) -> bool {
        matches!(self, Self::SequentialGet | Self::RandomGet)
    }

    /// As it stands in the JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SequentialPut => "sequential_put",
            Self::RandomPut => "random_put",
            Self::RandomPutSync => "random_put_sync",
            Self::SequentialGet => "sequential_get",
            Self::RandomGet => "random_get",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|workload| workload.name() == name)
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where directories are made, in one that is removed again.
    pub dir: PathBuf,
    /// Cache policies. Reductions need `uc` among them.
    pub policies: Vec<Policy>,
    /// Bytes of key and value together, [`Config::PAIR_BYTES_MIN`] at least.
    pub sizes: Vec<u64>,
    /// Pairs.
    pub pairs: u64,
    /// Rounds.
    pub rounds: usize,
    /// How to start this program: `forebay`.
    pub forebay: PathBuf,
}

impl Config {
    /// Bytes of a key.
    pub const KEY_BYTES: u64 = 8;
    /// The smallest pair: a key, and a byte to be found again.
    pub const PAIR_BYTES_MIN: u64 = Self::KEY_BYTES + 1;
    /// The largest: beyond, half a segment is not enough for one.
    pub const PAIR_BYTES_MAX: u64 = 1 << 20;

    /// P5's sizes and policies; `quick` shows that it runs, not how fast.
    #[must_use]
    pub fn usual(dir: &Path, forebay: &Path, quick: bool) -> Self {
        let (rounds, pairs) = if quick { (1, 200) } else { (3, 10_000) };
        Self {
            dir: dir.to_owned(),
            policies: Policy::ALL.to_vec(),
            sizes: (4..=14).map(|power| 1 << power).collect(),
            pairs,
            rounds,
            forebay: forebay.to_owned(),
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let bad = |what: &str| Err(BenchError::Config(what.to_owned()));
        if self.rounds == 0 || self.pairs == 0 {
            return bad("at least one round and one pair are needed");
        }
        if self.policies.is_empty() || self.sizes.is_empty() {
            return bad("no cache policy or size to measure");
        }
        let possible = Self::PAIR_BYTES_MIN..=Self::PAIR_BYTES_MAX;
        if let Some(size) = self.sizes.iter().find(|size| !possible.contains(size)) {
            return Err(BenchError::Config(format!(
                "pairs of {size} bytes; {} to {} are possible",
                Self::PAIR_BYTES_MIN,
                Self::PAIR_BYTES_MAX
            )));
        }
        let largest = self.sizes.iter().max().copied().unwrap_or(0);
        if self.pairs.saturating_mul(largest) > ours::BYTES_MAX {
            return Err(BenchError::Config(format!(
                "{} pairs of {largest} bytes; a resident store holds {} MiB here. Take fewer pairs",
                self.pairs,
                ours::BYTES_MAX >> 20
            )));
        }
        Ok(())
    }
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Contestant {
    /// Our store, resident in the memory.
    Forebay,
    /// LevelDB, with its directory on the device.
    Leveldb,
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forebay => "forebay",
            Self::Leveldb => peers::leveldb::NAME,
        })
    }
}

/// Microseconds an operation, by workload.
type Measured = Vec<(Workload, f64)>;

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong. What is not installed is reported, and is no error.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, BenchError> {
    config.check()?;
    let scratch = ScratchDir::new_in(&config.dir)?;
    let mut missing = Vec::new();
    let mut leveldb = match leveldb::Runner::new(config, scratch.path()) {
        Ok(runner) => Some(runner),
        Err(BenchError::Config(error)) => {
            missing.push(Missing {
                store: Contestant::Leveldb,
                error,
            });
            None
        }
        Err(error) => return Err(error),
    };
    let mut rounds: BTreeMap<(Contestant, u64, Policy, Workload), Vec<f64>> = BTreeMap::new();
    let turns = config.rounds * config.sizes.len() * config.policies.len();
    let mut turn = 0;
    for _ in 0..config.rounds {
        for &pair_bytes in &config.sizes {
            for &policy in &config.policies {
                turn += 1;
                note(&format!(
                    "{turn} of {turns}: pairs of {pair_bytes} bytes, {policy}"
                ));
                let mut take = |contestant, measured: Measured| {
                    for (workload, us) in measured {
                        let key = (contestant, pair_bytes, policy, workload);
                        rounds.entry(key).or_default().push(us);
                    }
                };
                take(
                    Contestant::Forebay,
                    ours::measure(config, scratch.path(), policy, pair_bytes)?,
                );
                match leveldb.as_ref().map(|it| it.measure(policy, pair_bytes)) {
                    None => {}
                    Some(Ok(measured)) => take(Contestant::Leveldb, measured),
                    // Ours are measured all the same.
                    Some(Err(error)) => {
                        leveldb = None;
                        missing.push(Missing {
                            store: Contestant::Leveldb,
                            error: format!(
                                "not measured from pairs of {pair_bytes} bytes under {policy} on: {error}"
                            ),
                        });
                    }
                }
            }
        }
    }
    let rows = rounds
        .into_iter()
        .map(|((store, pair_bytes, policy, workload), us)| Row {
            store,
            policy,
            workload,
            pair_bytes,
            ops: config.pairs,
            us_per_op: median(&us),
            us_per_op_span: span(&us),
        })
        .collect();
    Ok(Report::new(config, rows, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_run_is_refused() {
        let good = Config {
            dir: PathBuf::new(),
            policies: Policy::ALL.to_vec(),
            sizes: vec![16, 16384],
            pairs: 10_000,
            rounds: 3,
            forebay: PathBuf::new(),
        };
        assert!(good.check().is_ok());
        let broken: [fn(&mut Config); 5] = [
            |c| c.rounds = 0,
            |c| c.pairs = 0,
            |c| c.policies.clear(),
            |c| c.sizes = vec![8],
            |c| c.pairs = 1 << 40,
        ];
        for breaks in broken {
            let mut config = good.clone();
            breaks(&mut config);
            assert!(config.check().is_err());
        }
    }
}
