//! The report of `forebay-lab pool` for people.

use super::{Report, Row};
use crate::report::{Column, Table, figure, min_max, notes};

/// The report of `forebay-lab pool`.
#[must_use]
pub fn table(report: &Report) -> String {
    let (copy, flush) = report.instructions;
    let columns: [Column<&Row>; 10] = [
        ("bytes", |row| row.bytes.to_string()),
        ("threads", |row| match row.processes {
            Some(1) if row.threads > 1 => format!("{} of 1 process", row.threads),
            Some(1) => "1 process".to_owned(),
            Some(processes) => format!("{processes} processes"),
            None => row.threads.to_string(),
        }),
        ("append ns", |row| figure(Some(row.append_ns))),
        ("min-max", |row| min_max(Some(row.append_ns_span))),
        ("floor ns", |row| figure(row.floor_ns)),
        ("min-max", |row| min_max(row.floor_ns_span)),
        ("append/floor", |row| figure(row.ratio)),
        ("append MB/s", |row| figure(Some(row.append_mb_s))),
        ("x 1 thread", |row| figure(row.of_one_thread)),
        ("p99.9 µs", |row| figure(row.append_p999_us)),
    ];
    let text = format!(
        "{}: {}\ncopies by {copy}, other lines by {flush}; segments of {} MiB; medians of {} rounds\n\n{}",
        report.medium,
        report.survives,
        report.segment_bytes >> 20,
        report.rounds,
        Table::of(&columns, &report.rows).render()
    );
    text + &notes(&report.notes)
}
