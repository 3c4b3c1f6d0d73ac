//! `forebay-lab fam`: P5's figures, on a store whose data device is fabric-attached memory under
//! the cache policies uc, wt and wc.
//!
//! Two contestants, round after round: our store, [resident](forebay_store::StoreOptions::resident)
//! in a pool that is as slow as the device (`ours`), and LevelDB with its directory on the emulated
//! device (`leveldb`). docs/benchmarks.md, "forebay-lab fam".

mod leveldb;
mod ours;

pub use forebay_device::fabric::Policy;

use crate::{
    BenchError,
    report::{self, Report, Row, notes},
    rounds::take_turns,
    scratch::ScratchDir,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
};

/// Who is measured: our store, resident in the memory, and LevelDB, with its directory on the
/// device.
const OURS: &str = "forebay";
const LEVELDB: &str = "leveldb";

/// What is done with all pairs, one after the other, in the paper's order. Our puts are durable in
/// any case: synced ones are random ones once more.
pub const WORKLOADS: [&str; 5] = [
    "sequential_put",
    "random_put",
    "random_put_sync",
    "sequential_get",
    "random_get",
];

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
        let possible = Self::PAIR_BYTES_MIN..=Self::PAIR_BYTES_MAX;
        for size in &self.sizes {
            if !possible.contains(size) {
                let [min, max] = [possible.start(), possible.end()];
                let what = format!("pairs of {size} bytes; {min} to {max} are possible");
                return Err(BenchError::Config(what));
            }
            if self.pairs.saturating_mul(*size) > ours::BYTES_MAX {
                return Err(BenchError::Config(format!(
                    "{} pairs of {size} bytes; a resident store holds {} MiB here. Take fewer pairs",
                    self.pairs,
                    ours::BYTES_MAX >> 20
                )));
            }
        }
        Ok(())
    }
}

/// Microseconds an operation, by workload.
type Measured = BTreeMap<&'static str, f64>;

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong. What is not installed is reported, and is no error.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, BenchError> {
    config.check()?;
    let scratch = ScratchDir::new_in(&config.dir)?;
    let mut missing = Vec::new();
    let absent = |error: String| Row::of(json!({"store": LEVELDB, "error": error}));
    let program = leveldb::program(scratch.path());
    let mut leveldb = program.map(Some).or_else(|error| match error {
        BenchError::Config(error) => {
            missing.push(absent(error));
            Ok(None)
        }
        error => Err(error),
    })?;
    let mut cases = Vec::new();
    for &pair_bytes in &config.sizes {
        for &policy in &config.policies {
            cases.extend([OURS, LEVELDB].map(|store| (store, pair_bytes, policy)));
        }
    }
    let rounds = take_turns(&cases, config.rounds, |&(store, pair_bytes, policy)| {
        note(&format!("{store}: pairs of {pair_bytes} bytes, {policy}"));
        if store == OURS {
            return ours::measure(config, scratch.path(), policy, pair_bytes);
        }
        let Some(program) = &leveldb else {
            return Ok(Measured::new());
        };
        leveldb::measure(config, scratch.path(), program, (policy, pair_bytes)).or_else(|error| {
            // Ours are measured all the same.
            leveldb = None;
            let from = format!("from pairs of {pair_bytes} bytes under {policy} on");
            missing.push(absent(format!("not measured {from}: {error}")));
            Ok(Measured::new())
        })
    })?;
    let mut rows = Vec::new();
    let mut measured: Vec<_> = cases.into_iter().zip(rounds).collect();
    measured.sort_by_key(|(case, _)| *case);
    // Policies of the same stand beside each other.
    for workload in WORKLOADS {
        for ((store, pair_bytes, policy), rounds) in &measured {
            let its = rounds.iter().filter_map(|round| round.get(workload));
            let us: Vec<f64> = its.copied().collect();
            let row = Row::of(json!({
                "store": store,
                "policy": policy,
                "workload": workload,
                "pair_bytes": pair_bytes,
                "ops": config.pairs,
            }));
            rows.extend((!us.is_empty()).then(|| row.of_rounds("us_per_op", &us)));
        }
    }
    let below: Vec<_> = rows.iter().map(|row| below_uc(row, &rows)).collect();
    for (row, below) in rows.iter_mut().zip(below) {
        row.add(json!({"percent_below_uc": below}));
    }
    let notes = [
        "the memory is emulated: ordinary memory with the latency and bandwidth of the paper's device, one access at a time; \
         docs/devices-memory.md",
        "our puts are durable when they return, in every workload",
        "gets are counted after one pass over all pairs",
    ];
    let about = json!({"pairs": config.pairs, "rounds": config.rounds, "missing": missing});
    Ok(Report {
        rows,
        notes: notes.map(str::to_owned).to_vec(),
        ..Report::new("fam", about)
    })
}

/// How much less a row takes than the same under uc, in per cent; negative is more. None under uc
/// itself, or where that was not measured.
fn below_uc(row: &Row, rows: &[Row]) -> Option<f64> {
    let is_uc = |uc: &&Row| {
        uc.text("policy") == "uc" && uc.agrees(row, &["store", "workload", "pair_bytes"])
    };
    let uc = rows.iter().find(is_uc)?.number("us_per_op")?;
    let is_other = row.text("policy") != "uc";
    is_other.then_some((1.0 - row.number("us_per_op")? / uc) * 100.0)
}

/// What there are no rows of, `store`, and why, `error`.
#[must_use]
pub fn missing(report: &Report) -> Vec<Row> {
    let list = report.about.get("missing").and_then(Value::as_array);
    list.into_iter().flatten().cloned().map(Row::of).collect()
}

/// The report for people.
#[must_use]
pub fn table(report: &Report) -> String {
    let [pairs, rounds] = ["pairs", "rounds"].map(|name| report.about.shown(name));
    let table = report::table("fam", &report.rows).render();
    let mut text = format!("{pairs} pairs, median of {rounds} rounds\n\n{table}");
    for missing in missing(report) {
        let (store, error) = (missing.text("store"), missing.text("error"));
        let _ = writeln!(text, "{store}: {error}");
    }
    text + &notes(&report.notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_so_much_below_the_same_under_uc() {
        let row = |policy, workload, us: f64| {
            Row::of(json!({"store": OURS, "policy": policy, "workload": workload, "us_per_op": us}))
        };
        let rows = [
            row("uc", "random_put", 20.0),
            row("wc", "random_put", 15.0),
            row("wt", "random_get", 1.0),
        ];
        let below = rows.each_ref().map(|row| below_uc(row, &rows));
        assert_eq!(below, [None, Some(25.0), None]);
    }
}
