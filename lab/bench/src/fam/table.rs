//! The same figures as tables for people.

use super::{Comparison, Policy, Report, STORES, WORKLOADS};
use crate::{
    report::{Column, Table, figure, notes},
    rounds::Span,
};
use std::fmt::Write;

/// What `forebay-lab fam` prints.
#[must_use]
pub fn fam(report: &Report) -> String {
    let mut text = format!(
        "{} pairs, median of {} rounds, microseconds an operation; in brackets per cent below uc\n",
        report.pairs, report.rounds
    );
    for store in STORES {
        for workload in WORKLOADS {
            let table = of_workload(report, store, workload);
            if !table.is_empty() {
                let title = format!("\n{store}, {}\n", workload);
                text += &(title + &table.render());
            }
        }
    }
    let columns: [Column<&Comparison>; 4] = [
        ("against uc", |line| line.what.to_owned()),
        ("", |line| line.store.to_string()),
        ("paper", |line| percent(Some(line.paper_percent))),
        ("here", |line| percent(line.measured_percent)),
    ];
    let against_uc = Table::of(&columns, &report.comparison).render();
    let _ = write!(text, "\n{against_uc}");
    for missing in &report.missing {
        let _ = writeln!(text, "\n{}: {}", missing.store, missing.error);
    }
    text + &notes(&report.notes)
}

fn percent(span: Option<Span>) -> String {
    span.map_or_else(
        || "not measured".to_owned(),
        |span| format!("{:.0} to {:.0} %", span.min, span.max),
    )
}

/// A line for each size, a column for each policy.
fn of_workload(report: &Report, store: &str, workload: &str) -> Table {
    let rows: Vec<_> = report
        .rows
        .iter()
        .filter(|row| row.store == store && row.workload == workload)
        .collect();
    let mut sizes: Vec<u64> = rows.iter().map(|row| row.pair_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut table = Table::new(&["bytes", "uc", "wt", "wc"]);
    for size in sizes {
        let mut cells = vec![size.to_string()];
        cells.extend(Policy::ALL.map(|policy| {
            let row = rows
                .iter()
                .find(|row| row.policy == policy && row.pair_bytes == size);
            let below = report.reductions.iter().find(|r| {
                (r.store, r.policy, r.workload, r.pair_bytes) == (store, policy, workload, size)
            });
            let below = below.map_or_else(String::new, |r| format!(" ({:.0})", r.percent_below_uc));
            format!("{}{below}", figure(row.map(|row| row.us_per_op)))
        }));
        table.row(cells);
    }
    table
}
