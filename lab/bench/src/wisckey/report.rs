//! The rows of `forebay-lab wisckey`, the ratios that they give, and tables of both.

use super::config::Config;
use crate::{
    BenchError,
    device::{self, Speed},
    histogram::Percentiles,
    report::{Report, Row, device, latency, notes, table as rows_table},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Fields that two rows have in common if a ratio of them means anything.
const CELL: [&str; 5] = ["workload", "run", "value_bytes", "threads", "data_bytes"];

impl Config {
    /// The row of so many operations of `workload`, which took so long and moved so many bytes of
    /// keys and values.
    pub(super) fn row(
        &self,
        workload: &str,
        (ops, seconds): (u64, f64),
        percentiles: Percentiles,
        bytes: u64,
    ) -> Row {
        let row = Row::of(json!({
            "workload": workload,
            "value_bytes": self.value_bytes,
            "threads": self.threads,
            "ops": ops,
            "seconds": seconds,
            "ops_per_s": ops as f64 / seconds,
            "mb_per_s": bytes as f64 / 1e6 / seconds,
            "fsync_cpu_share": null,
            "write_amplification": null,
        }));
        let run = (!self.run.is_empty()).then(|| json!({"run": self.run}));
        row.with(latency(percentiles)).with(run.into())
    }
}

/// A report of no rows yet.
pub(super) fn begin(config: &Config, device: &Speed) -> Result<Report, BenchError> {
    let mut pool = config.pool.to_string();
    if let Some(profile) = config.profile {
        pool = format!("{pool}, slowed to {} ({})", profile.name, profile.source);
    }
    let settings = json!({
        "buffer_bytes": config.buffer_bytes,
        "preload_bytes": config.preload_bytes,
        "cache_bytes": config.cache_bytes,
        "rounds": config.rounds,
        "pool": pool,
        // A part of every latency.
        "clock_reading_ns": crate::clock::reading_ns(),
    });
    let mut report = Report::new("wisckey", json!({"settings": settings}));
    let notes = [
        "write_amplification counts what the whole machine wrote to the device meanwhile",
        "a peer's compactions that are pending when it ends are not counted; they would cost it",
    ];
    report.notes.extend(notes.map(str::to_owned));
    report.notes.extend(config.pool.note());
    report.notes.extend(device::note(device));
    Ok(report)
}

/// Adds the device, and the ratios that the rows give.
pub(super) fn finish(report: &mut Report, device: &Speed) {
    let mut ratios = Map::new();
    for ours in &report.rows {
        let rate = |row: &Row| row.number("ops_per_s").unwrap_or(0.0);
        if ours.text("workload") == "put" {
            let over = ours.number("mb_per_s").unwrap_or(0.0) / device.seq_write_mb_s;
            ratios.insert(ratio(ours, "device"), json!(over));
        }
        let others = report.rows.iter().chain(&report.peers);
        for other in others.filter(|other| who(other) != who(ours) && ours.agrees(other, &CELL)) {
            let over = rate(ours) / rate(other);
            ratios.insert(ratio(ours, &who(other).replace(' ', "_")), json!(over));
        }
    }
    report
        .about
        .add(json!({"device": device, "ratios": ratios}));
}

/// The name of a ratio: `put_double_4096_over_fsync`. The same workload in another run, on a data
/// set of another size, or with more threads is another ratio.
fn ratio(ours: &Row, over: &str) -> String {
    let whole = |name| ours.get(name).and_then(Value::as_u64);
    let bytes = whole("value_bytes").unwrap_or(0).to_string();
    let mut words = ["run", "workload", "variant"]
        .map(|name| ours.text(name).to_owned())
        .to_vec();
    words.push(bytes);
    words.extend(whole("data_bytes").map(|bytes| format!("of_{}mb", bytes / 1_000_000)));
    let threads = whole("threads").filter(|threads| *threads > 1);
    words.extend(threads.map(|threads| format!("by_{threads}_threads")));
    words.push(format!("over_{over}"));
    words.retain(|word| !word.is_empty());
    words.join("_")
}

/// Whose row it is: a variant, or a peer in its mode.
#[must_use]
pub fn who(row: &Row) -> String {
    match row.text("variant") {
        "" => format!("{} {}", row.text("name"), row.text("mode")),
        variant => variant.to_owned(),
    }
}

/// The rows with figures, ours and then the peers'; of a peer that did not run, `error` says why.
pub fn measured(report: &Report) -> impl Iterator<Item = &Row> {
    let rows = report.rows.iter().chain(&report.peers);
    rows.filter(|row| row.get("error").is_none())
}

/// The report for people.
#[must_use]
pub fn table(report: &Report) -> String {
    let rows: Vec<Row> = measured(report).map(|row| shown(row, report)).collect();
    let of = |workloads: &'static [&str]| {
        let rows = rows.iter();
        rows.filter(move |row| workloads.contains(&row.text("workload")))
    };
    let others = rows.iter().filter(|row| row.text("workload") != "put");
    let steps: Vec<Row> = of(&["stalls"]).flat_map(steps).collect();
    let waits: Vec<Row> = rows.iter().flat_map(waits).collect();
    let device = report.about.get("device").map(Speed::deserialize);
    let device = device.and_then(Result::ok);
    let mut text = device.as_ref().map(self::device).unwrap_or_default();
    let _ = writeln!(text, "pool: {}\n", report.about.text("settings.pool"));
    for table in [
        rows_table("puts", of(&["put"])),
        rows_table("others", others),
        rows_table("stalls", &steps),
        rows_table("deletes", of(&["queue", "delete_all"])),
        rows_table("scans", of(&["scans"])),
        rows_table("waits", &waits),
    ] {
        text += &table.paragraph();
    }
    for missing in report.peers.iter().filter(|row| row.get("error").is_some()) {
        let _ = writeln!(text, "{}: {}", missing.text("name"), missing.text("error"));
    }
    text + &notes(&report.notes)
}

/// A row with what the table says of it beside the report.
fn shown(row: &Row, report: &Report) -> Row {
    let who = match row.text("run") {
        "" => who(row),
        run => format!("{run}: {}", who(row)),
    };
    let over = |name: &str, other: Option<f64>| Some(row.number(name)? / other?);
    let is_fsync = |other: &&Row| other.text("variant") == "fsync" && other.agrees(row, &CELL);
    let fsync = report.rows.iter().find(is_fsync);
    let row = row.clone().with(json!({
        "who": who,
        "of_device_share": over("mb_per_s", report.about.number("device.seq_write_mb_s")),
        "data_mb": row.number("data_bytes").map(|bytes| bytes / 1e6),
        "over_fsync": over("ops_per_s", fsync.and_then(|row| row.number("ops_per_s"))),
    }));
    match row.text("workload") {
        // A restart has no operations.
        "reopen" => row.with(json!({"ops_per_s": null, "mb_per_s": null})),
        _ => row,
    }
}

/// The steps of a row's histogram.
fn steps(row: &Row) -> Vec<Row> {
    let steps = row.get("histogram").and_then(Value::as_array);
    let of_row = |step: &Value| Row::of(step.clone()).with(json!({"who": row.text("who")}));
    steps.into_iter().flatten().map(of_row).collect()
}

/// What writers waited for, where they did.
fn waits(row: &Row) -> Vec<Row> {
    let waits = row.get("waits").and_then(Value::as_object);
    let mut waited: Vec<Row> = waits
        .into_iter()
        .flatten()
        .map(|(name, wait)| row.clone().with(wait.clone()).with(json!({"for": name})))
        .filter(|row| row.number("times") > Some(0.0))
        .collect();
    for row in &mut waited {
        let longest_us = row.number("longest_seconds").map(|seconds| seconds * 1e6);
        row.add(json!({"longest_us": longest_us}));
    }
    if let ("stalls", Some(floor)) = (row.text("workload"), row.number("floor.max_us")) {
        let alone =
            json!({"for": "processor (busy threads)", "longest_us": floor, "seconds": null});
        waited.push(row.clone().with(alone));
    }
    waited
}
