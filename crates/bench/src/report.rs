//! The same figures as tables for people.

use crate::{
    device::Speed,
    emulated, pool_bench, redis, rocksdb, sql,
    wisckey::{Figures, PeerOutcome, Report},
};
use std::fmt::{Display, Write};

/// P1's speed-ups over WiscKey with a sync at each Put, by variant.
pub const PAPER: [(&str, f64); 4] = [
    ("fsync", 1.0),
    ("nosync", 5.89),
    ("single", 5.60),
    ("double", 9.78),
];

/// A table: a head, and rows of as many cells. The first column is left-aligned, all others right-aligned.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this head.
    #[must_use]
    pub fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|&cell| cell.to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// True if there is nothing but the head.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The table as lines.
    #[must_use]
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width - cell.chars().count());
                if column == 0 {
                    line.push_str(cell);
                    line.push_str(&padding);
                } else {
                    line.push_str("  ");
                    line.push_str(&padding);
                    line.push_str(cell);
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A figure with about three significant digits; a dash for none.
#[must_use]
pub fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(v) if !v.is_finite() => "-".to_owned(),
        Some(v) if v.abs() >= 100.0 => grouped(v.round() as i64),
        Some(v) if v.abs() >= 10.0 => format!("{v:.1}"),
        Some(v) => format!("{v:.2}"),
    }
}

/// A whole number with thin groups of three digits.
#[must_use]
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |s| format!("{:.1} %", s * 100.0))
}

/// The device's line.
#[must_use]
pub fn device(speed: &Speed) -> String {
    format!(
        "device {}{}: {} MB/s sequential writes{}, {} µs for a synced 4 KiB write\n",
        speed.name.as_deref().unwrap_or("(none)"),
        speed
            .file_system
            .as_ref()
            .map_or_else(String::new, |f| format!(" ({f})")),
        figure(Some(speed.seq_write_mb_s)),
        if speed.direct {
            ""
        } else {
            " through the page cache (O_DIRECT is refused)"
        },
        figure(Some(speed.fsync_us)),
    )
}

/// The report of `forebay bench wisckey`.
#[must_use]
pub fn wisckey(report: &Report) -> String {
    let mut text = device(&report.device);
    let _ = writeln!(text, "pool: {}\n", report.settings.pool);
    text.push_str(&puts(report));
    text.push_str(&others(report));
    text.push_str(&stalls(report));
    text.push_str(&deleted(report));
    text.push_str(&scanned(report));
    text.push_str(&waits(report));
    for peer in &report.peers {
        if let PeerOutcome::Missing { error } = &peer.outcome {
            let _ = writeln!(text, "{}: {error}", peer.name);
        }
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// Our rows and the peers': who, and the figures.
fn all_rows(report: &Report) -> impl Iterator<Item = (String, &Figures)> {
    report
        .everybody()
        .map(|(name, figures)| match figures.run.as_str() {
            "" => (name, figures),
            run => (format!("{run}: {name}"), figures),
        })
}

fn puts(report: &Report) -> String {
    let mut table = Table::new(&[
        "put",
        "bytes",
        "threads",
        "ops",
        "ops/s",
        "MB/s",
        "of device",
        "x fsync",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
        "floor p99.9 µs",
        "CPU in fsync",
        "write amp.",
        "min-max ops/s",
    ]);
    for (name, f) in all_rows(report).filter(|(_, f)| f.workload == "put") {
        let fsync = report
            .rows
            .iter()
            .find(|row| row.variant == "fsync" && row.figures.is_comparable(f))
            .map(|row| f.ops_per_s / row.figures.ops_per_s);
        table.row(vec![
            name,
            grouped(f.value_bytes as i64),
            f.threads.to_string(),
            grouped(f.ops as i64),
            figure(Some(f.ops_per_s)),
            figure(Some(f.mb_per_s)),
            percent(Some(f.mb_per_s / report.device.seq_write_mb_s)),
            figure(fsync),
            figure(f.latency.p50_us),
            figure(f.latency.p99_us),
            figure(f.latency.p999_us),
            figure(f.latency.max_us),
            figure(f.floor.and_then(|floor| floor.p999_us)),
            percent(f.fsync_cpu_share),
            figure(f.write_amplification),
            min_max(f.ops_per_s_span),
        ]);
    }
    if table.is_empty() {
        String::new()
    } else {
        table.render() + "\n"
    }
}

fn others(report: &Report) -> String {
    let mut table = Table::new(&[
        "workload",
        "who",
        "bytes",
        "data MB",
        "ops/s",
        "MB/s",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
        "write amp.",
        "space amp. max",
        "final",
        "reopen s",
    ]);
    for (name, f) in all_rows(report).filter(|(_, f)| f.workload != "put") {
        let rate = |value| {
            if f.reopening.is_some() {
                "-".to_owned()
            } else {
                figure(Some(value))
            }
        };
        table.row(vec![
            f.workload.to_owned(),
            name,
            grouped(f.value_bytes as i64),
            figure(f.data_bytes.map(|bytes| bytes as f64 / 1e6)),
            rate(f.ops_per_s),
            rate(f.mb_per_s),
            figure(f.latency.p50_us),
            figure(f.latency.p99_us),
            figure(f.latency.p999_us),
            figure(f.latency.max_us),
            figure(f.write_amplification),
            figure(f.space.map(|s| s.space_amplification_max)),
            figure(f.space.map(|s| s.space_amplification_final)),
            figure(f.reopening.map(|r| r.first_get_seconds)),
        ]);
    }
    if table.is_empty() {
        String::new()
    } else {
        table.render() + "\n"
    }
}

fn stalls(report: &Report) -> String {
    let mut table = Table::new(&["stalls", "up to µs", "puts"]);
    for (name, f) in all_rows(report) {
        for step in &f.histogram {
            let bound = step
                .up_to_us
                .map_or_else(|| "more".to_owned(), |us| grouped(us as i64));
            table.row(vec![name.clone(), bound, grouped(step.ops as i64)]);
        }
    }
    if table.is_empty() {
        String::new()
    } else {
        table.render() + "\n"
    }
}

/// What writers waited for, where they did.
fn waits(report: &Report) -> String {
    let mut table = Table::new(&[
        "waited for",
        "workload",
        "who",
        "bytes",
        "threads",
        "times",
        "seconds",
        "longest µs",
    ]);
    for (name, f) in all_rows(report) {
        let mut row = |of: &str, times: String, seconds, longest_us| {
            table.row(vec![
                of.to_owned(),
                f.workload.to_owned(),
                name.clone(),
                grouped(f.value_bytes as i64),
                f.threads.to_string(),
                times,
                figure(seconds),
                figure(longest_us),
            ]);
        };
        for (of, wait) in f.waits.iter().flat_map(|waits| waits.named()) {
            if wait.times > 0 {
                let longest_us = Some(wait.longest_seconds * 1e6);
                row(
                    of,
                    grouped(wait.times as i64),
                    Some(wait.seconds),
                    longest_us,
                );
            }
        }
        if let (Some(floor), true) = (f.floor, f.workload == "stalls") {
            row(
                "processor (busy threads)",
                "-".to_owned(),
                None,
                floor.max_us,
            );
        }
    }
    if table.is_empty() {
        String::new()
    } else {
        table.render() + "\n"
    }
}

fn scanned(report: &Report) -> String {
    let mut table = Table::new(&[
        "puts",
        "puts/s",
        "scans beside",
        "of a core",
        "mean µs",
        "longest µs",
    ]);
    for (name, f) in all_rows(report) {
        if let Some(scanned) = &f.scanned {
            table.row(vec![
                name,
                figure(Some(f.ops_per_s)),
                grouped(scanned.scans as i64),
                percent(scanned.scan_core_share),
                figure(scanned.scan_mean_us),
                figure(scanned.scan_max_us),
            ]);
        }
    }
    if table.is_empty() {
        String::new()
    } else {
        table.render() + "\n"
    }
}

fn deleted(report: &Report) -> String {
    let mut table = Table::new(&[
        "deletes",
        "who",
        "ops",
        "first pops µs",
        "slowest pops µs",
        "empty scan µs",
        "settled µs",
        "index entries",
    ]);
    for (name, f) in all_rows(report) {
        if let Some(deleted) = &f.deleted {
            table.row(vec![
                f.workload.to_owned(),
                name,
                grouped(f.ops as i64),
                figure(deleted.first_pops_us),
                figure(deleted.slowest_pops_us),
                figure(deleted.empty_scan_us),
                figure(deleted.empty_scan_settled_us),
                figure(deleted.index_entries.map(|entries| entries as f64)),
            ]);
        }
    }
    if table.is_empty() {
        String::new()
    } else {
        table.render() + "\n"
    }
}

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

/// The report of `forebay bench pool`.
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

/// The report of `forebay bench redis`.
#[must_use]
pub fn redis(report: &redis::Report) -> String {
    let mut text = device(&report.device);
    let settings = &report.settings;
    let _ = writeln!(
        text,
        "pool: {}, {} buffers of {} MiB; medians of {} rounds; {} processors\n",
        settings.pool,
        settings.buffers,
        settings.buffer_bytes >> 20,
        settings.rounds,
        settings.processors
    );
    let mut table = Table::new(&[
        "server",
        "bytes",
        "clients",
        "mode",
        "SETs/s",
        "p50 µs",
        "p99 µs",
        "max µs",
        "forebay is x",
        "pool MiB",
        "waits",
        "min-max SETs/s",
        "a SET survives",
    ]);
    for row in &report.rows {
        let ours = report
            .rows
            .iter()
            .find(|other| other.mode == redis::Mode::Forebay && other.is_comparable(row))
            .filter(|_| row.mode != redis::Mode::Forebay);
        table.row(vec![
            match row.during_rewrite {
                true => format!("{} rewriting", row.server),
                false => row.server.to_string(),
            },
            grouped(row.value_bytes as i64),
            row.clients.to_string(),
            row.name(),
            figure(Some(row.ops_per_s)),
            figure(Some(row.p50_us)),
            figure(Some(row.p99_us)),
            figure(Some(row.max_us)),
            figure(ours.map(|ours| ours.ops_per_s / row.ops_per_s)),
            figure(
                row.nvm_bytes_peak
                    .map(|bytes| bytes as f64 / f64::from(1 << 20)),
            ),
            row.behind
                .map_or_else(|| "-".to_owned(), |behind| behind.waits.to_string()),
            min_max(row.ops_per_s_span),
            row.mode.survives().to_owned(),
        ]);
    }
    text.push_str(&table.render());
    for missing in &report.missing {
        let _ = writeln!(text, "{}: {}", missing.name, missing.error);
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The report of a benchmark of an SQL server: `forebay bench mariadb`, `forebay bench postgres`.
#[must_use]
pub fn sql<S: Copy + Display>(report: &sql::Report<S>) -> String {
    let mut text = device(&report.device);
    let settings = &report.settings;
    if let Some(profile) = &report.emulated {
        let _ = writeln!(text, "the data directory is on an emulated {profile}");
    }
    let _ = writeln!(
        text,
        "pool: {}, {} buffers of {} MiB; {}; medians of {} rounds of {} s; {} processors\n",
        settings.pool,
        settings.buffers,
        settings.buffer_bytes >> 20,
        settings.size,
        settings.rounds,
        settings.seconds,
        settings.processors
    );
    let mut table = Table::new(&[
        "clients",
        "mode",
        "transactions/s",
        "p50 µs",
        "p99 µs",
        "forebay is x",
        "min-max transactions/s",
        "a transaction survives",
    ]);
    for row in &report.rows {
        let ours = report.ours_beside(row);
        table.row(vec![
            row.clients.to_string(),
            row.mode.to_string(),
            figure(Some(row.ops_per_s)),
            figure(Some(row.p50_us)),
            figure(Some(row.p99_us)),
            figure(ours.map(|ours| ours.ops_per_s / row.ops_per_s)),
            min_max(row.ops_per_s_span),
            row.mode.survives().to_owned(),
        ]);
    }
    text.push_str(&table.render());
    for missing in &report.missing {
        let _ = writeln!(text, "{missing}");
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The report of `forebay bench rocksdb`.
#[must_use]
pub fn rocksdb(report: &rocksdb::Report) -> String {
    let mut text = device(&report.device);
    let _ = writeln!(
        text,
        "fillrandom of db_bench; medians of {} rounds\n",
        report.rounds
    );
    let mut table = Table::new(&[
        "mode",
        "bytes",
        "threads",
        "log on",
        "Puts/s",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
        "forebay is x",
        "pool MiB",
        "min-max Puts/s",
        "a Put survives",
    ]);
    for row in &report.rows {
        let ratio = report.ratios.get(&row.ratio_name());
        table.row(vec![
            row.mode.to_string(),
            grouped(row.value_bytes as i64),
            row.threads.to_string(),
            row.wal_device.clone().unwrap_or_else(|| "this disk".into()),
            figure(Some(row.ops_per_s)),
            figure(row.latency.p50_us),
            figure(row.latency.p99_us),
            figure(row.latency.p999_us),
            figure(row.latency.max_us),
            figure(ratio.copied()),
            figure(
                row.nvm_bytes_peak
                    .map(|bytes| bytes as f64 / f64::from(1 << 20)),
            ),
            min_max(row.ops_per_s_span),
            row.mode.survives().to_owned(),
        ]);
    }
    text.push_str(&table.render());
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn min_max(span: Option<crate::rounds::Span>) -> String {
    span.map_or_else(String::new, |s| {
        format!("{}-{}", figure(Some(s.min)), figure(Some(s.max)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["who", "µs"]);
        table.row(vec!["double".to_owned(), "12,345".to_owned()]);
        table.row(vec!["fsync".to_owned(), "1".to_owned()]);
        assert_eq!(
            table.render(),
            "who         µs\ndouble  12,345\nfsync        1\n"
        );
    }

    #[test]
    fn figures_have_three_digits_or_more() {
        for (value, text) in [
            (0.123, "0.12"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(figure(Some(value)), text);
        }
        assert_eq!(figure(None), "-");
        assert_eq!(grouped(-1000), "-1,000");
    }
}
