//! The reports of `forebay-lab pool` and `forebay-lab device`.

use super::{Table, figure};
use crate::{emulated, pool_bench};
use std::fmt::Write;

/// Emulated devices beside their profiles.
#[must_use]
pub fn emulated(report: &emulated::Report) -> String {
    let mut table = Table::new(&[
        "device",
        "request",
        "profile µs",
        "measured µs",
        "deviation %",
        "profile MB/s",
        "measured MB/s",
    ]);
    for row in &report.rows {
        let kind = row.kind;
        let order = if kind.sequential {
            "sequential"
        } else {
            "random"
        };
        let what = if kind.write { "write" } else { "read" };
        table.row(vec![
            row.profile.clone(),
            format!("{order} {what}, {} KiB", kind.bytes >> 10),
            figure(Some(row.profile_us)),
            figure(Some(row.measured_us)),
            format!("{:+.1}", row.deviation_percent),
            figure(Some(row.profile_mb_s)),
            figure(Some(row.measured_mb_s)),
        ]);
    }
    table.render()
}

/// The report of `forebay-lab pool`.
#[must_use]
pub fn pool(report: &pool_bench::Report) -> String {
    let (copy, flush) = report.instructions;
    let mut text = format!(
        "{}: {}\ncopies by {copy}, other lines by {flush}; segments of {} MiB; medians of {} rounds\n\n",
        report.medium,
        report.survives,
        report.segment_bytes >> 20,
        report.rounds
    );
    let mut table = Table::new(&[
        "bytes",
        "threads",
        "append ns",
        "min-max",
        "floor ns",
        "min-max",
        "append/floor",
        "append MB/s",
        "x 1 thread",
        "p99.9 µs",
    ]);
    let span = |s: crate::rounds::Span| format!("{}-{}", figure(Some(s.min)), figure(Some(s.max)));
    for row in &report.rows {
        table.row(vec![
            row.bytes.to_string(),
            match row.processes {
                Some(1) if row.threads > 1 => format!("{} of 1 process", row.threads),
                Some(1) => "1 process".to_owned(),
                Some(processes) => format!("{processes} processes"),
                None => row.threads.to_string(),
            },
            figure(Some(row.append_ns)),
            span(row.append_ns_span),
            figure(row.floor_ns),
            row.floor_ns_span.map_or_else(|| "-".to_owned(), span),
            figure(row.ratio),
            figure(Some(row.append_mb_s)),
            figure(row.of_one_thread),
            figure(row.append_p999_us),
        ]);
    }
    text.push_str(&table.render());
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}
