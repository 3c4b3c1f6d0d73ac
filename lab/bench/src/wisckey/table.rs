//! The report of `forebay-lab wisckey` for people.

use super::rows::{Figures, Report, Row};
use crate::report::{Column, Table, device, figure, grouped, min_max, notes, percent};
use serde_json::Value;
use std::fmt::Write;

/// A row of ours or of a peer.
struct Line<'a> {
    name: String,
    figures: &'a Figures,
    report: &'a Report,
}

impl Line<'_> {
    fn of_device(&self) -> f64 {
        self.figures.mb_per_s / self.report.device.seq_write_mb_s
    }

    /// How much faster than our variant that syncs each Put.
    fn over_fsync(&self) -> Option<f64> {
        let mut rows = self.report.rows.iter();
        let is_it = |row: &&Row| row.variant == "fsync" && row.figures.is_comparable(self.figures);
        let fsync = rows.find(is_it)?;
        Some(self.figures.ops_per_s / fsync.figures.ops_per_s)
    }

    /// A rate; none of a restart, which has no operations.
    fn rate(&self, rate: f64) -> String {
        figure((self.figures.workload != "reopen").then_some(rate))
    }

    /// What else the workload has.
    fn more(&self, name: &str) -> String {
        figure(self.figures.number(name))
    }
}

/// The report of `forebay-lab wisckey`.
#[must_use]
pub fn table(report: &Report) -> String {
    let lines = || {
        report.all_rows().map(|(name, figures)| Line {
            name: match figures.run.as_str() {
                "" => name,
                run => format!("{run}: {name}"),
            },
            figures,
            report,
        })
    };
    let is_deleted = |line: &Line<'_>| matches!(line.figures.workload, "queue" | "delete_all");
    let is_put = |line: &Line<'_>| line.figures.workload == "put";
    let mut text = device(&report.device);
    let _ = writeln!(
        text,
        "pool: {}\n",
        report.settings["pool"].as_str().unwrap_or("-")
    );
    for table in [
        Table::of(&puts(), lines().filter(is_put)),
        Table::of(&others(), lines().filter(|line| !is_put(line))),
        Table::of(&stalls(), lines().flat_map(steps)),
        Table::of(&deleted(), lines().filter(is_deleted)),
        Table::of(
            &scanned(),
            lines().filter(|line| line.figures.workload == "scans"),
        ),
        waits(lines()),
    ] {
        text += &table.paragraph();
    }
    for (peer, error) in report.missing_peers() {
        let _ = writeln!(text, "{peer}: {error}");
    }
    text + &notes(&report.notes)
}

fn puts<'a>() -> [Column<Line<'a>>; 16] {
    [
        ("put", |line| line.name.clone()),
        ("bytes", |line| grouped(line.figures.value_bytes as i64)),
        ("threads", |line| line.figures.threads.to_string()),
        ("ops", |line| grouped(line.figures.ops as i64)),
        ("ops/s", |line| figure(Some(line.figures.ops_per_s))),
        ("MB/s", |line| figure(Some(line.figures.mb_per_s))),
        ("of device", |line| percent(Some(line.of_device()))),
        ("x fsync", |line| figure(line.over_fsync())),
        ("p50 µs", |line| figure(line.figures.latency.p50_us)),
        ("p99 µs", |line| figure(line.figures.latency.p99_us)),
        ("p99.9 µs", |line| figure(line.figures.latency.p999_us)),
        ("max µs", |line| figure(line.figures.latency.max_us)),
        ("floor p99.9 µs", |line| {
            figure(line.figures.floor.and_then(|floor| floor.p999_us))
        }),
        ("CPU in fsync", |line| percent(line.figures.fsync_cpu_share)),
        ("write amp.", |line| {
            figure(line.figures.write_amplification)
        }),
        ("min-max ops/s", |line| min_max(line.figures.ops_per_s_span)),
    ]
}

fn others<'a>() -> [Column<Line<'a>>; 14] {
    [
        ("workload", |line| line.figures.workload.to_owned()),
        ("who", |line| line.name.clone()),
        ("bytes", |line| grouped(line.figures.value_bytes as i64)),
        ("data MB", |line| {
            figure(line.figures.data_bytes.map(|bytes| bytes as f64 / 1e6))
        }),
        ("ops/s", |line| line.rate(line.figures.ops_per_s)),
        ("MB/s", |line| line.rate(line.figures.mb_per_s)),
        ("p50 µs", |line| figure(line.figures.latency.p50_us)),
        ("p99 µs", |line| figure(line.figures.latency.p99_us)),
        ("p99.9 µs", |line| figure(line.figures.latency.p999_us)),
        ("max µs", |line| figure(line.figures.latency.max_us)),
        ("write amp.", |line| {
            figure(line.figures.write_amplification)
        }),
        ("space amp. max", |line| {
            line.more("space_amplification_max")
        }),
        ("final", |line| line.more("space_amplification_final")),
        ("reopen s", |line| line.more("first_get_seconds")),
    ]
}

fn stalls<'a>() -> [Column<(&'a Value, String)>; 3] {
    [
        ("stalls", |(_, name)| name.clone()),
        ("up to µs", |(step, _)| {
            let up_to = step["up_to_us"].as_i64();
            up_to.map_or_else(|| "more".to_owned(), grouped)
        }),
        ("puts", |(step, _)| {
            grouped(step["ops"].as_i64().unwrap_or(0))
        }),
    ]
}

fn steps(line: Line<'_>) -> impl Iterator<Item = (&Value, String)> {
    let steps = line.figures.more.get("histogram").and_then(Value::as_array);
    let steps = steps.into_iter().flatten();
    steps.map(move |step| (step, line.name.clone()))
}

fn deleted<'a>() -> [Column<Line<'a>>; 8] {
    [
        ("deletes", |line| line.figures.workload.to_owned()),
        ("who", |line| line.name.clone()),
        ("ops", |line| grouped(line.figures.ops as i64)),
        ("first pops µs", |line| line.more("first_pops_us")),
        ("slowest pops µs", |line| line.more("slowest_pops_us")),
        ("empty scan µs", |line| line.more("empty_scan_us")),
        ("settled µs", |line| line.more("empty_scan_settled_us")),
        ("index entries", |line| line.more("index_entries")),
    ]
}

fn scanned<'a>() -> [Column<Line<'a>>; 6] {
    [
        ("puts", |line| line.name.clone()),
        ("puts/s", |line| figure(Some(line.figures.ops_per_s))),
        ("scans beside", |line| {
            grouped(line.figures.number("scans").unwrap_or(0.0) as i64)
        }),
        ("of a core", |line| {
            percent(line.figures.number("scan_core_share"))
        }),
        ("mean µs", |line| line.more("scan_mean_us")),
        ("longest µs", |line| line.more("scan_max_us")),
    ]
}

/// What writers waited for, where they did.
fn waits<'a>(lines: impl Iterator<Item = Line<'a>>) -> Table {
    let head = [
        "waited for",
        "workload",
        "who",
        "bytes",
        "threads",
        "times",
        "seconds",
        "longest µs",
    ];
    let mut table = Table::new(&head);
    for line in lines {
        let f = line.figures;
        let mut row = |of: &str, times: String, seconds, longest_us| {
            table.row(vec![
                of.to_owned(),
                f.workload.to_owned(),
                line.name.clone(),
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
    table
}
