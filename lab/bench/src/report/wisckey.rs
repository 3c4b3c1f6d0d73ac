//! The report of `forebay-lab wisckey`.

use super::{Table, device, figure, grouped, min_max, percent};
use crate::wisckey::{Figures, PeerOutcome, Report};
use std::fmt::Write;

/// P1's speed-ups over WiscKey with a sync at each Put, by variant.
pub const PAPER: [(&str, f64); 4] = [
    ("fsync", 1.0),
    ("nosync", 5.89),
    ("single", 5.60),
    ("double", 9.78),
];

/// The report of `forebay-lab wisckey`.
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
        .all_rows()
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
