//! The rows of a run, how much less each takes than under uc, and the paper's statements of that beside ours.

use super::{Config, Policy, STORES};
use crate::rounds::{Span, span};
use serde::Serialize;

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `fam`.
    pub bench: &'static str,
    /// Pairs of each workload.
    pub pairs: u64,
    /// Rounds.
    pub rounds: usize,
    /// The rows.
    pub rows: Vec<Row>,
    /// What there are no rows of, and why.
    pub missing: Vec<Missing>,
    /// How much less an operation takes than under uc.
    pub reductions: Vec<Reduction>,
    /// The paper's reductions beside ours.
    pub comparison: Vec<Comparison>,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Whose.
    pub store: &'static str,
    /// Under which cache policy.
    pub policy: Policy,
    /// Of what.
    pub workload: &'static str,
    /// Bytes of key and value.
    pub pair_bytes: u64,
    /// Operations of a round.
    pub ops: u64,
    /// Microseconds an operation, the median of the rounds.
    pub us_per_op: f64,
    /// Fastest and slowest round.
    pub us_per_op_span: Span,
}

/// Something that could not be measured.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// Whose rows are missing.
    pub store: &'static str,
    /// Why, and what to do.
    pub error: String,
}

/// A figure against the same under uc.
#[derive(Clone, Debug, Serialize)]
pub struct Reduction {
    /// Whose.
    pub store: &'static str,
    /// wt or wc.
    pub policy: Policy,
    /// Of what.
    pub workload: &'static str,
    /// Bytes of key and value.
    pub pair_bytes: u64,
    /// Per cent below uc; negative is above.
    pub percent_below_uc: f64,
}

/// One of the paper's statements, and what the rows give.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Whose rows.
    pub store: &'static str,
    /// What is compared.
    pub what: &'static str,
    /// The paper's span, per cent below uc.
    pub paper_percent: Span,
    /// Ours, over all sizes; none if it was not measured.
    pub measured_percent: Option<Span>,
}

/// The paper's statements: what, which reductions, from, to.
type Statement = (&'static str, fn(&Reduction) -> bool, f64, f64);
const PAPER: [Statement; 3] = [
    (
        "writes, wc below uc, but for synced ones of 16 to 128 B",
        |r| r.policy == Policy::Wc && !is_get(r) && !is_small_sync(r),
        11.0,
        47.0,
    ),
    (
        "synced random puts of 16 to 128 B, wc below uc",
        |r| r.policy == Policy::Wc && is_small_sync(r),
        -13.0,
        -4.0,
    ),
    (
        "reads, wt below uc",
        |r| r.policy == Policy::Wt && is_get(r),
        31.0,
        99.0,
    ),
];

fn is_get(reduction: &Reduction) -> bool {
    reduction.workload.ends_with("_get")
}

fn is_small_sync(reduction: &Reduction) -> bool {
    reduction.workload == "random_put_sync" && reduction.pair_bytes <= 128
}

impl Report {
    pub(super) fn new(config: &Config, rows: Vec<Row>, missing: Vec<Missing>) -> Self {
        let reductions: Vec<Reduction> = rows
            .iter()
            .filter(|row| row.policy != Policy::Uc)
            .filter_map(|row| {
                let uc = rows.iter().find(|uc| {
                    (uc.store, uc.policy, uc.workload, uc.pair_bytes)
                        == (row.store, Policy::Uc, row.workload, row.pair_bytes)
                })?;
                Some(Reduction {
                    store: row.store,
                    policy: row.policy,
                    workload: row.workload,
                    pair_bytes: row.pair_bytes,
                    percent_below_uc: (1.0 - row.us_per_op / uc.us_per_op) * 100.0,
                })
            })
            .collect();
        let comparison = STORES
            .into_iter()
            .flat_map(|store| PAPER.map(|statement| (store, statement)))
            .map(|(store, (what, concerns, min, max))| {
                let found: Vec<f64> = reductions
                    .iter()
                    .filter(|r| r.store == store && concerns(r))
                    .map(|r| r.percent_below_uc)
                    .collect();
                Comparison {
                    store,
                    what,
                    paper_percent: Span { min, max },
                    measured_percent: (!found.is_empty()).then(|| span(&found)),
                }
            })
            .collect();
        let notes = [
            "the memory is emulated: ordinary memory with the latency and bandwidth of the paper's device, one access at a time; \
             docs/devices-memory.md",
            "our puts are durable when they return, in every workload",
            "gets are counted after one pass over all pairs",
        ];
        Self {
            bench: "fam",
            pairs: config.pairs,
            rounds: config.rounds,
            rows,
            missing,
            reductions,
            comparison,
            notes: notes.map(str::to_owned).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn row(policy: Policy, workload: &'static str, pair_bytes: u64, us_per_op: f64) -> Row {
        Row {
            store: "forebay",
            policy,
            workload,
            pair_bytes,
            ops: 1,
            us_per_op,
            us_per_op_span: span(&[us_per_op]),
        }
    }

    #[test]
    fn reductions_are_against_uc_and_fall_under_the_papers_statements() {
        let config = Config {
            dir: PathBuf::new(),
            policies: Policy::ALL.to_vec(),
            sizes: vec![64, 256],
            pairs: 1,
            rounds: 1,
            forebay: PathBuf::new(),
        };
        let rows = vec![
            row(Policy::Uc, "random_put", 256, 20.0),
            row(Policy::Wc, "random_put", 256, 15.0),
            row(Policy::Uc, "random_put_sync", 64, 10.0),
            row(Policy::Wc, "random_put_sync", 64, 11.0),
            row(Policy::Uc, "random_get", 64, 10.0),
            row(Policy::Wt, "random_get", 64, 1.0),
            // Without a figure under uc there is no reduction.
            row(Policy::Wt, "sequential_get", 64, 1.0),
        ];
        let report = Report::new(&config, rows, Vec::new());
        assert_eq!(report.reductions.len(), 3);
        let spans: Vec<_> = report
            .comparison
            .iter()
            .map(|c| c.measured_percent.map(|s| (s.min.round(), s.max.round())))
            .collect();
        let ours = [Some((25.0, 25.0)), Some((-10.0, -10.0)), Some((90.0, 90.0))];
        assert_eq!(spans[..3], ours);
        assert_eq!(spans[3..], [None; 3]);
    }
}
