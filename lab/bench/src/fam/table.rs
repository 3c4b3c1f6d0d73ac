//! The same figures as tables for people.

use super::{Contestant, Policy, Report, Workload};
use crate::{
    report::{Table, figure},
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
    for store in [Contestant::Forebay, Contestant::Leveldb] {
        for workload in Workload::ALL {
            let table = of_workload(report, store, workload);
            if !table.is_empty() {
                write_line(&mut text, &format!("\n{store}, {}\n", workload.name()));
                text.push_str(&table.render());
            }
        }
    }
    let mut table = Table::new(&["against uc", "", "paper", "here"]);
    for line in &report.comparison {
        table.row(vec![
            line.what.to_owned(),
            line.store.to_string(),
            percent(Some(line.paper_percent)),
            percent(line.measured_percent),
        ]);
    }
    write_line(&mut text, &format!("\n{}", table.render()));
    for missing in &report.missing {
        write_line(
            &mut text,
            &format!("\n{}: {}\n", missing.store, missing.error),
        );
    }
    for note in &report.notes {
        write_line(&mut text, &format!("note: {note}\n"));
    }
    text
}

fn write_line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = text.write_str(line);
}

fn percent(span: Option<Span>) -> String {
    span.map_or_else(
        || "not measured".to_owned(),
        |span| format!("{:.0} to {:.0} %", span.min, span.max),
    )
}

/// A line for each size, a column for each policy.
fn of_workload(report: &Report, store: Contestant, workload: Workload) -> Table {
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
