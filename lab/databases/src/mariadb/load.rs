//! The loads that sysbench has by itself, on tables of rows of 190 bytes: `oltp_write_only` (in
//! each transaction two updates, a deletion and an insertion), `oltp_read_only` (fourteen queries).

use super::server::{Address, DATABASE, Server, program, run_sysbench};
use crate::{
    MeasureError,
    contest::Sample,
    rounds::Percentiles,
    sql::{Load, running::on_processor},
    table::grouped,
};
use serde::Serialize;
use std::{fmt, process::Command};

/// Tables, and rows of each.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Size {
    /// Tables.
    pub tables: u64,
    /// Rows of a table.
    #[serde(rename = "rows_of_a_table")]
    pub rows: u64,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = grouped(self.rows as i64);
        write!(f, "{} tables of {rows} rows", self.tables)
    }
}

impl Size {
    /// Makes the tables.
    ///
    /// # Errors
    /// [`MeasureError::Config`] without sysbench, [`MeasureError::Child`] if it fails.
    pub fn prepare(self, server: &Server) -> Result<(), MeasureError> {
        server.sql(&format!("CREATE DATABASE {DATABASE}"), "")?;
        let mut command = self.command(WRITE_ONLY, server, None)?;
        run_sysbench(command.arg("prepare")).map(drop)
    }

    /// The tables' names.
    pub fn names(self) -> impl Iterator<Item = String> {
        (1..=self.tables).map(|number| format!("sbtest{number}"))
    }

    fn command(
        self,
        script: &str,
        server: &Server,
        processor: Option<usize>,
    ) -> Result<Command, MeasureError> {
        let sysbench = program("sysbench").map_err(MeasureError::Config)?;
        let mut command = on_processor(processor, &sysbench);
        command
            .args(Address::from(server).sysbench(script.as_ref()))
            .arg(format!("--tables={}", self.tables))
            .arg(format!("--table-size={}", self.rows));
        Ok(command)
    }
}

/// sysbench's transactions that only write.
pub const WRITE_ONLY: &str = "oltp_write_only";
/// Those that only read.
pub const READ_ONLY: &str = "oltp_read_only";

/// Runs sysbench's `script` against `server`.
///
/// # Errors
/// [`MeasureError::Config`] without sysbench, [`MeasureError::Child`] if it fails or its report
/// cannot be read.
pub fn run(script: &str, load: &Load<Size>, server: &Server) -> Result<Sample, MeasureError> {
    let mut command = load.size.command(script, server, load.processor)?;
    command
        .arg(format!("--threads={}", load.clients))
        .arg(format!("--time={}", load.seconds))
        .args(["--histogram=on", "run"]);
    let said = run_sysbench(&mut command)?;
    parse(&said).ok_or_else(|| {
        MeasureError::Child(format!(
            "(sysbench) said what cannot be read: {}",
            said.trim()
        ))
    })
}

/// sysbench's report: its histogram has one line for each latency in milliseconds that occurred,
/// `0.501 |****  5231`.
fn parse(report: &str) -> Option<Sample> {
    let after = |name: &str| {
        let mut lines = report.lines();
        lines.find_map(|line| line.trim().strip_prefix(name))
    };
    let (_, rate) = after("transactions:")?.split_once('(')?;
    let rate: f64 = rate.split_whitespace().next()?.parse().ok()?;
    let bars: Vec<(f64, u64)> = report
        .lines()
        .filter_map(|line| {
            let (latency_ms, bar) = line.split_once('|')?;
            let count = bar.split_whitespace().next_back()?;
            Some((latency_ms.trim().parse().ok()?, count.parse().ok()?))
        })
        .collect();
    let all: u64 = bars.iter().map(|(_, count)| count).sum();
    let at = |percent: u64| {
        let mut seen = 0;
        bars.iter()
            .find(|(_, count)| {
                seen += count;
                seen * 100 >= all * percent
            })
            .map(|(latency_ms, _)| latency_ms * 1e3)
    };
    Some(Sample {
        ops_per_s: Some(rate).filter(|rate| *rate > 0.0)?,
        latency: Percentiles {
            p50_us: Some(at(50)?),
            p99_us: Some(at(99)?),
            ..Percentiles::default()
        },
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_sysbench_is_read() {
        let report = "Latency histogram (values are in milliseconds)\n\
                      \x20      value  ------------- distribution ------------- count\n\
                      \x20      0.125 |**                                       30\n\
                      \x20      0.250 |**************************************** 60\n\
                      \x20      1.500 |*****                                    9\n\
                      \x20      9.000 |                                         1\n\
                      SQL statistics:\n    transactions:                        100    (1742.73 per sec.)\n\
                      Latency (ms):\n         min:                                    0.31\n         \
                      avg:                                    0.57\n";
        let measured = parse(report).unwrap();
        let latency = measured.latency;
        assert_eq!(measured.ops_per_s, 1742.73);
        assert_eq!(
            (latency.p50_us, latency.p99_us),
            (Some(250.0), Some(1500.0))
        );
        assert!(parse(&report.replace("(1742.73", "(0.00")).is_none());
        assert!(parse("FATAL: `thread_run' function failed\n").is_none());
    }
}
