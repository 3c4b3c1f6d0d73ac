//! The rows of a run, how much less each takes than under uc, the paper's statements of that beside ours, and tables of it.

use super::{Config, Policy, STORES, WORKLOADS};
use crate::{
    report::{Report, Row, Shown::Text, Table, figure, notes},
    rounds::{Span, span},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write;

/// What a row and its reduction have in common, but for the policy.
const CELL: [&str; 3] = ["store", "workload", "pair_bytes"];

/// The row of some rounds: microseconds an operation.
pub(super) fn row(store: &str, policy: Policy, workload: &str, pair_bytes: u64, us: &[f64]) -> Row {
    let row = Row::of(json!({
        "store": store,
        "policy": policy,
        "workload": workload,
        "pair_bytes": pair_bytes,
    }));
    row.of_rounds("us_per_op", us)
}

/// The paper's statements: what, which reductions, from, to.
type Statement = (&'static str, fn(&Row) -> bool, f64, f64);
const PAPER: [Statement; 3] = [
    (
        "writes, wc below uc, but for synced ones of 16 to 128 B",
        |row| row.text("policy") == "wc" && !is_get(row) && !is_small_sync(row),
        11.0,
        47.0,
    ),
    (
        "synced random puts of 16 to 128 B, wc below uc",
        |row| row.text("policy") == "wc" && is_small_sync(row),
        -13.0,
        -4.0,
    ),
    (
        "reads, wt below uc",
        |row| row.text("policy") == "wt" && is_get(row),
        31.0,
        99.0,
    ),
];

fn is_get(row: &Row) -> bool {
    row.text("workload").ends_with("_get")
}

fn is_small_sync(row: &Row) -> bool {
    row.text("workload") == "random_put_sync" && row.number("pair_bytes") <= Some(128.0)
}

/// A row with how much less it takes than the same under uc, in per cent; negative is more. None of a row under uc.
fn reduced(row: &Row, rows: &[Row]) -> Option<Row> {
    let is_uc = |uc: &&Row| uc.text("policy") == "uc" && uc.agrees(row, &CELL);
    let uc = rows.iter().find(is_uc)?;
    let ratio = row.number("us_per_op")? / uc.number("us_per_op")?;
    let percent = json!({"percent_below_uc": (1.0 - ratio) * 100.0});
    (row.text("policy") != "uc").then(|| row.clone().with(percent))
}

/// The report of these rows. `missing`: what there are no rows of, and why.
pub(super) fn of(config: &Config, rows: Vec<Row>, missing: Vec<Row>) -> Report {
    let reductions: Vec<Row> = rows.iter().filter_map(|row| reduced(row, &rows)).collect();
    let mut comparison = Vec::new();
    for store in STORES {
        for (what, concerns, min, max) in PAPER {
            let its = reductions
                .iter()
                .filter(|it| it.text("store") == store && concerns(it));
            let found: Vec<f64> = its.filter_map(|it| it.number("percent_below_uc")).collect();
            comparison.push(json!({
                "store": store,
                "what": what,
                "paper_percent": Span { min, max },
                "measured_percent": (!found.is_empty()).then(|| span(&found)),
            }));
        }
    }
    let about = json!({
        "pairs": config.pairs,
        "rounds": config.rounds,
        "missing": missing,
        "reductions": reductions,
        "comparison": comparison,
    });
    let notes = [
        "the memory is emulated: ordinary memory with the latency and bandwidth of the paper's device, one access at a time; \
         docs/devices-memory.md",
        "our puts are durable when they return, in every workload",
        "gets are counted after one pass over all pairs",
    ];
    Report {
        rows,
        notes: notes.map(str::to_owned).to_vec(),
        ..Report::new("fam", about)
    }
}

/// Rows of a list in what a report says of all.
fn listed(report: &Report, name: &str) -> Vec<Row> {
    let list = report.about.get(name).and_then(Value::as_array);
    list.into_iter().flatten().cloned().map(Row::of).collect()
}

/// What there are no rows of, `store`, and why, `error`.
#[must_use]
pub fn missing(report: &Report) -> Vec<Row> {
    listed(report, "missing")
}

/// The report for people.
#[must_use]
pub fn table(report: &Report) -> String {
    let told = |name| report.about.shown(name, Text);
    let mut text = format!(
        "{} pairs, median of {} rounds, microseconds an operation; in brackets per cent below uc\n",
        told("pairs"),
        told("rounds")
    );
    for store in STORES {
        for workload in WORKLOADS {
            let of_it = |row: &&Row| row.text("store") == store && row.text("workload") == workload;
            let rows: Vec<&Row> = report.rows.iter().filter(of_it).collect();
            if !rows.is_empty() {
                let table = of_workload(&rows, &report.rows).render();
                let _ = write!(text, "\n{store}, {workload}\n{table}");
            }
        }
    }
    let mut against_uc = Table::new(&["against uc", "", "paper", "here"]);
    for line in listed(report, "comparison") {
        let [paper, here] =
            ["paper_percent", "measured_percent"].map(|name| percent(line.get(name)));
        let [what, store] = ["what", "store"].map(|name| line.text(name).to_owned());
        against_uc.row(vec![what, store, paper, here]);
    }
    let _ = write!(text, "\n{}", against_uc.render());
    for missing in missing(report) {
        let _ = writeln!(
            text,
            "\n{}: {}",
            missing.text("store"),
            missing.text("error")
        );
    }
    text + &notes(&report.notes)
}

fn percent(span: Option<&Value>) -> String {
    match span.and_then(|span| Span::deserialize(span).ok()) {
        Some(span) => format!("{:.0} to {:.0} %", span.min, span.max),
        None => "not measured".to_owned(),
    }
}

/// A line for each size, a column for each policy.
fn of_workload(rows: &[&Row], all: &[Row]) -> Table {
    let mut table = Table::new(&["bytes", "uc", "wt", "wc"]);
    for same_size in rows.chunk_by(|a, b| a.agrees(b, &CELL)) {
        let mut cells = vec![same_size[0].shown("pair_bytes", Text)];
        cells.extend(Policy::ALL.map(|policy| {
            let row = same_size
                .iter()
                .find(|row| row.text("policy") == policy.to_string());
            let us = figure(row.and_then(|row| row.number("us_per_op")));
            let reduced = row.and_then(|row| reduced(row, all));
            match reduced.and_then(|row| row.number("percent_below_uc")) {
                Some(percent) => format!("{us} ({percent:.0})"),
                None => us,
            }
        }));
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn reductions_are_against_uc_and_fall_under_the_papers_statements() {
        let config = Config::usual(Path::new(""), Path::new(""), true);
        let row = |policy, workload, bytes, us| row("forebay", policy, workload, bytes, &[us]);
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
        let report = of(&config, rows, Vec::new());
        assert_eq!(listed(&report, "reductions").len(), 3);
        let comparison = listed(&report, "comparison");
        let spans: Vec<_> = comparison
            .iter()
            .map(|it| percent(it.get("measured_percent")))
            .collect();
        let ours = ["25 to 25 %", "-10 to -10 %", "90 to 90 %"];
        assert_eq!(spans[..3], ours);
        assert_eq!(spans[3..], ["not measured"; 3]);
    }
}
