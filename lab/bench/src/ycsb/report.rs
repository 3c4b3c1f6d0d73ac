//! The rows of `forebay-lab ycsb`, and the tables of them.

use super::{
    OperationKind, YcsbConfig, YcsbContestant,
    driver::{DriverOrder, KEY_BYTES, WorkloadOutcome},
};
use crate::{
    BenchError,
    device::{self, Speed},
    report::{Report, Row, device as device_line, latency, notes, table as rows_table},
    wisckey::{measured, who},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Fields that two rows have in common if a ratio of them means anything.
const CELL: [&str; 2] = ["workload", "threads"];

/// What a process is told, as its argument.
pub(super) fn as_text(order: &DriverOrder) -> Result<String, BenchError> {
    serde_json::to_string(order).map_err(|e| BenchError::Child(format!("gets no order: {e}")))
}

/// A report of no rows yet.
pub(super) fn begin(config: &YcsbConfig, device: &Speed) -> Report {
    let distribution = config.distribution.map(|one| one.to_string());
    let settings = json!({
        "records": config.records,
        "key_bytes": KEY_BYTES,
        "value_bytes": config.value_bytes,
        "ops_max": config.limit.ops,
        "seconds_max": config.limit.seconds,
        "distribution": distribution.unwrap_or_else(|| "as the workload".to_owned()),
        "cache_bytes": config.cache_bytes,
        "buffer_bytes": config.buffer_bytes,
        "rounds": config.rounds,
        "pool": config.pool.to_string(),
    });
    let mut report = Report::new("ycsb", json!({"settings": settings}));
    report.notes.extend(config.pool.note());
    report.notes.extend(device::note(device));
    report
}

/// The row of a workload.
pub(super) fn row(
    order: &DriverOrder,
    contestant: YcsbContestant,
    outcome: &WorkloadOutcome,
) -> Row {
    let live_bytes = outcome.records * order.record_bytes();
    let mut row = Row::of(json!({
        "workload": outcome.workload,
        "threads": order.threads,
        "survives": contestant.survives(),
        "ops": outcome.ops,
        "seconds": outcome.seconds,
        "ops_per_s": outcome.ops as f64 / outcome.seconds,
        "records": outcome.records,
        "data_bytes": live_bytes,
        "space_amplification": outcome.occupied_bytes as f64 / live_bytes as f64,
    }));
    for (name, kind) in &outcome.kinds {
        let figures = Row::of(latency(kind.latency)).with(json!({"ops": kind.ops}));
        row.add(json!({ name.as_str(): Value::from(figures) }));
    }
    row
}

/// Adds the rows of a contestant: of each workload the median round.
pub(super) fn add(report: &mut Report, contestant: YcsbContestant, rounds: Vec<Vec<Row>>) {
    let workloads = rounds.first().map_or(0, Vec::len);
    for nth in 0..workloads {
        let of_workload = rounds.iter().map(|rows| rows[nth].clone()).collect();
        let row = Row::median_round(of_workload, "ops_per_s").unwrap_or_default();
        let mode = contestant.mode().name();
        match contestant {
            YcsbContestant::Ours(variant) => {
                let name = json!({"variant": variant.to_string(), "mode": mode});
                report.rows.push(row.with(name));
            }
            YcsbContestant::Peer(peer, _) => {
                let name = json!({"name": peer.name(), "mode": mode});
                report.peers.push(row.with(name));
            }
        }
    }
}

/// Adds the device, and each of our rates over each of a peer's.
pub(super) fn finish(report: &mut Report, device: &Speed) {
    let mut ratios = Map::new();
    for ours in &report.rows {
        let peers = report
            .peers
            .iter()
            .filter(|peer| peer.get("error").is_none());
        for peer in peers.filter(|peer| ours.agrees(peer, &CELL)) {
            let rate = |row: &Row| row.number("ops_per_s").unwrap_or(0.0);
            let name = format!(
                "{}_{}_by_{}_over_{}",
                ours.text("workload"),
                ours.text("variant"),
                ours.shown("threads"),
                who(peer).replace(' ', "_")
            );
            ratios.insert(name, json!(rate(ours) / rate(peer)));
        }
    }
    let about = json!({"device": device, "ratios": ratios});
    report.about.add(about);
}

/// The report for people.
#[must_use]
pub fn table(report: &Report) -> String {
    let device = report.about.get("device").map(Speed::deserialize);
    let device = device.and_then(Result::ok);
    let mut text = device.as_ref().map(device_line).unwrap_or_default();
    let _ = writeln!(text, "pool: {}\n", report.about.text("settings.pool"));
    let mut rows: Vec<Row> = measured(report)
        .map(|row| row.clone().with(json!({"who": who(row)})))
        .collect();
    // Those that are compared stand together.
    let cell = |row: &Row| [row.text("mode"), row.text("workload")].map(str::to_owned);
    rows.sort_by_key(|row| (row.number("threads").map(f64::to_bits), cell(row)));
    let kinds: Vec<Row> = rows.iter().flat_map(kinds).collect();
    for table in [rows_table("ycsb", &rows), rows_table("ycsb_kinds", &kinds)] {
        text += &table.paragraph();
    }
    for missing in report.peers.iter().filter(|row| row.get("error").is_some()) {
        let _ = writeln!(text, "{}: {}", missing.text("name"), missing.text("error"));
    }
    text + &notes(&report.notes)
}

/// A row for each kind of operation.
fn kinds(row: &Row) -> Vec<Row> {
    let of_kind = |kind: OperationKind| {
        let figures = row.get(kind.name())?.clone();
        let kind = json!({"kind": kind.name().replace('_', "-")});
        Some(row.clone().with(figures).with(kind))
    };
    OperationKind::ALL.into_iter().filter_map(of_kind).collect()
}
