//! `forebay bench rocksdb`.

use super::turns::{self, Around, Database, Options, Sample};
use crate::{failure::Failure, size};
use clap::Args;
use forebay_measure::{
    processes::{find_program, output},
    server::{command_line, said_by},
};
use std::path::PathBuf;

/// Measure RocksDB with a write-ahead log that is synced at each Put: plain, and under forebay run
#[derive(Args)]
#[command(
    long_about = "Runs db_bench's fillrandom (Debian: rocksdb-tools) with a write-ahead log that is synced at each Put: plain, under forebay \
                  run, and, where libeatmydata is installed, with syncs that do nothing. They take turns, round after round, each on fresh \
                  files; figures are medians of the rounds.",
    after_long_help = "Examples:\n  \
        forebay bench rocksdb --dir /var/lib\n  \
        forebay bench rocksdb --pool-disk /fast --threads 8 --json"
)]
pub struct Rocksdb {
    /// Writing threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "512")]
    value_size: u64,
    #[command(flatten)]
    options: Options,
}

impl Rocksdb {
    pub fn run(self) -> Result<(), Failure> {
        let missing = "db_bench is not installed: apt-get install rocksdb-tools";
        let puts = Puts {
            program: find_program("db_bench").ok_or_else(|| Failure::Usage(missing.to_owned()))?,
            threads: self.threads,
            value_bytes: self.value_size,
            seconds: if self.options.quick { 1 } else { 5 },
        };
        turns::run(puts, &self.options)?.print(self.options.json)
    }
}

/// Synced Puts of random keys, for some seconds.
struct Puts {
    program: PathBuf,
    threads: u32,
    value_bytes: u64,
    seconds: u32,
}

impl Database for Puts {
    const NAME: &'static str = "rocksdb";
    const COUNTED: &'static str = "Puts";
    const PLAIN: &'static str = "survives a power cut, if the disk keeps what it says it has";

    fn load(&self) -> String {
        format!(
            "db_bench fillrandom, {}, values of {} bytes, each Put synced",
            turns::number(self.threads as usize, "thread"),
            self.value_bytes
        )
    }

    fn measure(&self, around: &Around) -> Result<Sample, Failure> {
        let mut command = command_line([], &around.wrapper, &self.program);
        command
            .arg(format!("--db={}", around.dir().join("db").display()))
            .args(["--benchmarks=fillrandom", "--sync=1", "--key_size=16"])
            .args(["--num=10000000", "--histogram=1", "--compression_type=none"])
            .arg(format!("--value_size={}", self.value_bytes))
            .arg(format!("--threads={}", self.threads))
            .arg(format!("--duration={}", self.seconds))
            .envs(around.environment.iter().cloned())
            .current_dir(around.dir());
        let said = said_by("db_bench", output(&mut command)?)?;
        parse(&said).ok_or_else(|| {
            Failure::Failed(format!(
                "db_bench said what cannot be read: {}",
                said.trim()
            ))
        })
    }
}

/// `fillrandom : 8.211 micros/op 121758 ops/sec …`, and with `--histogram` a line of percentiles.
fn parse(said: &str) -> Option<Sample> {
    let result = said.lines().rfind(|line| line.contains("ops/sec"))?;
    let words: Vec<&str> = result.split_whitespace().collect();
    let before = |unit: &str| -> Option<f64> {
        let at = words.iter().position(|word| *word == unit)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    let percentiles = said.lines().find(|line| line.starts_with("Percentiles: "));
    let mut p99 = percentiles.iter().flat_map(|line| line.split_whitespace());
    let p99_us = p99
        .find(|word| *word == "P99:")
        .and_then(|_| p99.next()?.parse().ok());
    Some(Sample {
        ops_per_s: before("ops/sec").filter(|rate| *rate > 0.0)?,
        mean_us: before("micros/op"),
        p99_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_db_bench_is_read() {
        let said = "DB path: [/tmp/x]\n\
            ... finished 100 ops      fillrandom   :       8.211 micros/op 121758 ops/sec 0.164 seconds 20000 operations;  476.5 MB/s\n\
            Microseconds per write:\n\
            Percentiles: P50: 7.45 P75: 8.89 P99: 24.19 P99.9: 50.29 P99.99: 380.00\n";
        let sample = parse(said).unwrap();
        assert_eq!(sample.ops_per_s, 121_758.0);
        assert_eq!((sample.mean_us, sample.p99_us), (Some(8.211), Some(24.19)));
        assert_eq!(parse("db_bench: unknown flag\n"), None);
    }
}
