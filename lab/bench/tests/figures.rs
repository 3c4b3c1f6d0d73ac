//! Parts of figures: clocks, latencies, rows of rounds, and tables of rows.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_bench::{
    clock::{ClockId, cpu_seconds, lap_ns, reading_ns},
    histogram::Latencies,
    report::{Row, table},
};
use serde_json::json;
use std::time::Instant;

#[test]
fn processor_time_passes_while_the_process_computes() {
    let start = cpu_seconds(ClockId::ProcessCPUTime);
    let mut last = Instant::now();
    let mut sum = 0;
    while sum < 20_000_000 {
        sum += lap_ns(&mut last);
    }
    assert!(cpu_seconds(ClockId::ProcessCPUTime) > start);
}

#[test]
fn a_reading_of_the_clock_costs_something_but_not_much() {
    assert!((0.1..100_000.0).contains(&reading_ns()));
}

#[test]
fn percentiles_are_those_of_all_threads_together() {
    let (mut one, mut two) = (Latencies::default(), Latencies::default());
    for ns in 1..=500u64 {
        one.record(ns * 1000);
        two.record((ns + 500) * 1000);
    }
    one.merge(&two);
    let p = one.percentiles();
    let near = |got: Option<f64>, wanted: f64| (got.unwrap() / wanted - 1.0).abs() < 0.002;
    assert!(
        near(p.p50_us, 500.0) && near(p.p99_us, 990.0) && near(p.p999_us, 999.0),
        "{p:?}"
    );
    assert!(near(p.max_us, 1000.0));
}

#[test]
fn every_latency_is_in_one_step() {
    let mut latencies = Latencies::default();
    for us in [1, 9, 15, 90, 3_000_000] {
        latencies.record(us * 1000);
    }
    let steps = latencies.steps();
    let step = |at: usize| (steps[at]["up_to_us"].as_u64(), steps[at]["ops"].as_u64());
    assert_eq!(
        [step(0), step(1)],
        [(Some(10), Some(2)), (Some(20), Some(1))]
    );
    let all: u64 = steps.iter().filter_map(|step| step["ops"].as_u64()).sum();
    assert_eq!(all, 5);
}

#[test]
fn without_latencies_there_are_no_percentiles() {
    assert!(Latencies::default().percentiles().p50_us.is_none());
}

#[test]
fn a_row_is_its_median_round_with_the_span_of_all() {
    let rounds = [3.0, 1.0, 2.0].map(|rate| Row::of(json!({"rate": rate, "who": "us"})));
    let row = Row::median_round(rounds.to_vec(), "rate").unwrap();
    assert_eq!((row.number("rate"), row.text("who")), (Some(2.0), "us"));
    assert_eq!(row.number("rate_span.max"), Some(3.0));
    assert_eq!(row.in_rounds("rate"), [3.0, 1.0, 2.0]);
    assert!(Row::median_round(Vec::new(), "rate").is_none());
}

#[test]
fn a_table_shows_the_fields_that_its_columns_name() {
    let rows = [
        Row::of(json!({"who": "us", "ops_per_s": 12.34, "scans": 12345, "scan_core_share": 0.5})),
        Row::of(json!({"who": "them"})),
    ];
    let text = table("scans", &rows).render();
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(words[1], ["us", "12.3", "12,345", "50.0", "%", "-", "-"]);
    assert_eq!(words[2], ["them", "-", "-", "-", "-", "-"]);
}
