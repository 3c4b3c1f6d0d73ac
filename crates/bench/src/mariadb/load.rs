//! The load: sysbench's `oltp_write_only`, in each transaction two updates, a deletion and an insertion.

use super::server::{DATABASE, Server, program, said_by};
use crate::{BenchError, processes::output};
use std::process::Command;

/// Tables, and rows of each.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Tables.
    pub tables: u64,
    /// Rows of a table.
    pub rows: u64,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The data set.
    pub size: Size,
    /// Connections, each with one transaction at a time.
    pub clients: u64,
    /// How long it takes.
    pub seconds: u64,
    /// The processor that sysbench is to run on.
    pub processor: Option<usize>,
}

/// What sysbench says about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Transactions a second.
    pub ops_per_s: f64,
    /// Median latency of a transaction.
    pub p50_us: f64,
    /// 99 of 100 are at most this.
    pub p99_us: f64,
}

impl Size {
    /// Makes the tables.
    ///
    /// # Errors
    /// [`BenchError::Config`] without sysbench, [`BenchError::Child`] if it fails.
    pub fn prepare(self, server: &Server) -> Result<(), BenchError> {
        server.sql(&format!("CREATE DATABASE {DATABASE}"), "")?;
        let mut command = self.command(server, None)?;
        command.arg("prepare");
        said_by("sysbench", output(&mut command)?).map(drop)
    }

    fn command(self, server: &Server, processor: Option<usize>) -> Result<Command, BenchError> {
        let sysbench = program("sysbench").map_err(BenchError::Config)?;
        let mut command = match processor {
            Some(processor) => {
                let mut command = Command::new("taskset");
                command
                    .args(["--cpu-list", &processor.to_string()])
                    .arg(sysbench);
                command
            }
            None => Command::new(sysbench),
        };
        command
            .args(server.sysbench("oltp_write_only".as_ref()))
            .arg(format!("--tables={}", self.tables))
            .arg(format!("--table-size={}", self.rows));
        Ok(command)
    }
}

impl Load {
    /// Runs it against `server`.
    ///
    /// # Errors
    /// [`BenchError::Config`] without sysbench, [`BenchError::Child`] if it fails or its report cannot be read.
    pub fn run(&self, server: &Server) -> Result<Measured, BenchError> {
        let mut command = self.size.command(server, self.processor)?;
        command
            .arg(format!("--threads={}", self.clients))
            .arg(format!("--time={}", self.seconds))
            .args(["--histogram=on", "run"]);
        let said = said_by("sysbench", output(&mut command)?)?;
        parse(&said).ok_or_else(|| {
            BenchError::Child(format!(
                "(sysbench) said what cannot be read: {}",
                said.trim()
            ))
        })
    }
}

/// sysbench's report: its histogram has one line for each latency in milliseconds that occurred, `0.501 |****  5231`.
fn parse(report: &str) -> Option<Measured> {
    let rate = report.lines().find_map(|line| {
        let (_, rest) = line.trim().strip_prefix("transactions:")?.split_once('(')?;
        rest.split_whitespace().next()?.parse().ok()
    })?;
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
    Some(Measured {
        ops_per_s: rate,
        p50_us: at(50)?,
        p99_us: at(99)?,
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
                      SQL statistics:\n    transactions:                        100    (1742.73 per sec.)\n";
        let measured = parse(report).unwrap();
        let expected = Measured {
            ops_per_s: 1742.73,
            p50_us: 250.0,
            p99_us: 1500.0,
        };
        assert_eq!(measured, expected);
        assert_eq!(parse("FATAL: `thread_run' function failed\n"), None);
    }
}
