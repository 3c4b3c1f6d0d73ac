//! The load: `pgbench -N`, in each transaction an update and a query of one row, and an insertion.

use super::server::Server;
use crate::{
    MeasureError,
    contest::Sample,
    processes::output,
    rounds::Percentiles,
    scratch::{ScratchDir, memory_dir},
    sql::{Load, running::said_by},
};
use serde::Serialize;
use std::{
    fmt,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

/// The tables' size: 100,000 accounts, some 15 MB, for each of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Size {
    /// pgbench's `--scale`.
    pub scale: u64,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pgbench's tables of scale {}", self.scale)
    }
}

impl Size {
    /// Makes the tables.
    ///
    /// # Errors
    /// [`MeasureError::Config`] without pgbench, [`MeasureError::Child`] if it fails.
    pub fn prepare(self, server: &Server) -> Result<(), MeasureError> {
        let mut command = server.load_program("pgbench", None)?;
        command.args([
            "--initialize",
            "--quiet",
            "--scale",
            &self.scale.to_string(),
        ]);
        said_by("pgbench", output(&mut command)?)?;
        server.sql("CREATE EXTENSION pg_prewarm").map(drop)
    }
}

/// Has `server` read what the load works on into its memory: by its own accesses that would take
/// long where reading does.
///
/// # Errors
/// [`MeasureError::Child`] with what the server said.
pub fn warm_up(server: &Server) -> Result<(), MeasureError> {
    let relations = [
        "pgbench_accounts",
        "pgbench_accounts_pkey",
        "pgbench_history",
    ];
    relations.iter().try_for_each(|relation| {
        let statement = format!("SELECT pg_prewarm('{relation}')");
        server.sql(&statement).map(drop)
    })
}

/// Runs it against `server`.
///
/// # Errors
/// [`MeasureError::Config`] without pgbench, [`MeasureError::Child`] if it fails or its report
/// cannot be read.
pub fn run(load: &Load<Size>, server: &Server) -> Result<Sample, MeasureError> {
    // Not on the disk that is measured.
    let logs = ScratchDir::new_in(&memory_dir())?;
    let threads = match load.processor {
        Some(_) => 1,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let mut command = server.load_program("pgbench", load.processor)?;
    command
        .args(["--skip-some-updates", "--protocol=prepared", "--no-vacuum"])
        .arg(format!("--client={}", load.clients))
        .arg(format!("--jobs={}", (threads as u64).min(load.clients)))
        .arg(format!("--time={}", load.seconds))
        .arg("--log")
        .current_dir(logs.path());
    let said = said_by("pgbench", output(&mut command)?)?;
    let unread = || {
        MeasureError::Child(format!(
            "(pgbench) said what cannot be read: {}",
            said.trim()
        ))
    };
    let mut times_us = latencies(logs.path())?.ok_or_else(unread)?;
    Ok(Sample {
        latency: Percentiles::of(&mut times_us),
        ..parse(&said).ok_or_else(unread)?
    })
}

/// Of pgbench's report the rate, unless transactions failed.
fn parse(report: &str) -> Option<Sample> {
    let number = |name: &str| -> Option<f64> {
        let line = report.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let failed = number("number of failed transactions: ")?;
    Some(Sample {
        ops_per_s: number("tps = ").filter(|rate| failed == 0.0 && *rate > 0.0)?,
        ..Sample::default()
    })
}

/// Of each transaction in the files of `dir`, where each thread wrote one, microseconds; none of
/// none.
fn latencies(dir: &Path) -> Result<Option<Vec<f64>>, MeasureError> {
    let failed = || MeasureError::io("reading", dir);
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed())? {
        let file = entry.and_then(|entry| File::open(entry.path()));
        for line in BufReader::new(file.map_err(failed())?).lines() {
            match microseconds(&line.map_err(failed())?) {
                Some(us) => all.push(us),
                None => return Ok(None),
            }
        }
    }
    Ok((!all.is_empty()).then_some(all))
}

/// A line of the log: client, number of its transaction, microseconds, script, time in seconds and
/// microseconds.
fn microseconds(line: &str) -> Option<f64> {
    line.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "transaction type: <builtin: simple update>\n\
        number of transactions actually processed: 4223\n\
        number of failed transactions: 0 (0.000%)\n\
        tps = 4231.250321 (without initial connection time)\n";

    #[test]
    fn a_report_of_pgbench_is_read_and_one_of_failures_is_none() {
        let sample = parse(REPORT).unwrap();
        assert_eq!(sample.ops_per_s, 4231.250321);
        assert!(parse(&REPORT.replace("ns: 0 ", "ns: 2 ")).is_none());
        assert!(parse("pgbench: error: connection refused\n").is_none());
    }

    #[test]
    fn the_latencies_of_all_threads_logs_are_read() {
        let dir = tempfile::tempdir().unwrap();
        assert!(latencies(dir.path()).unwrap().is_none());
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write(
            "pgbench_log.17",
            "0 1 100 0 1700000000 5\n0 2 200 0 1700000000 9\n",
        );
        write("pgbench_log.17.1", "1 1 300 0 1700000000 7\n");
        let read = latencies(dir.path()).unwrap().unwrap();
        assert_eq!(read.iter().sum::<f64>(), 600.0);
        assert_eq!(read.len(), 3);
        write("pgbench_log.17.2", "1 1 skipped 0 1700000000 7\n");
        assert!(latencies(dir.path()).unwrap().is_none());
    }
}
