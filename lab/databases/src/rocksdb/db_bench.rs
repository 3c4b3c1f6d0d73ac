//! Running `db_bench` and reading what it prints.

use crate::{
    MeasureError,
    contest::{Around, Mode},
    data::fresh_seed,
    processes::{Process, find_program},
    rounds::Percentiles,
};
use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Instant,
};

/// Logged and synced.
pub const SYNC: Mode = Mode::new("sync", "a power cut", &["--sync=1", "--disable_wal=0"]);
/// Logged.
pub const NO_SYNC: Mode = Mode::new(
    "no_sync",
    "a process crash",
    &["--sync=0", "--disable_wal=0"],
);
/// No log at all.
pub const NO_WAL: Mode = Mode::new("no_wal", "nothing", &["--sync=0", "--disable_wal=1"]);

/// The program.
///
/// # Errors
/// In words, that it is not installed, and the remedy.
pub fn program() -> Result<PathBuf, String> {
    find_program("db_bench")
        .ok_or_else(|| "not installed: apt-get install rocksdb-tools".to_owned())
}

/// The options of a run: what all of them have, and numbers by their names.
pub fn options(db: &Path, benchmarks: &str, numbers: &[(&str, u64)]) -> Vec<String> {
    let mut options = vec![
        format!("--db={}", db.display()),
        format!("--benchmarks={benchmarks}"),
        format!("--seed={}", fresh_seed() >> 1),
        "--compression_type=none".to_owned(),
    ];
    let numbers = numbers
        .iter()
        .map(|(name, number)| format!("--{name}={number}"));
    options.extend(numbers);
    options
}

/// What one benchmark of a run printed. Of a benchmark that ran twice, the later.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Printed {
    /// Operations.
    pub ops: u64,
    /// Wall time.
    pub seconds: f64,
    /// Latencies, if `--histogram` was given.
    pub percentiles: Vec<(String, f64)>,
    /// Wall time from then until the memtable was flushed, if `flush` followed.
    pub flush_seconds: f64,
}

impl Printed {
    /// The latencies.
    #[must_use]
    pub fn latency(&self) -> Percentiles {
        let at = |name: &str| {
            self.percentiles
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, us)| *us)
        };
        Percentiles {
            p50_us: at("P50"),
            p99_us: at("P99"),
            p999_us: at("P99.9"),
            max_us: at("Max"),
        }
    }
}

/// Runs it with these options and returns what the benchmark `name` printed.
///
/// `stdbuf` makes it print line by line, so that the time between two lines can be taken.
///
/// # Errors
/// [`MeasureError::Config`] if it is not installed, [`MeasureError::Child`] if it fails.
pub fn run(around: &Around, options: &[String], name: &str) -> Result<Printed, MeasureError> {
    let program = program().map_err(MeasureError::Config)?;
    let failed = || MeasureError::io("running", &program);
    let mut process = Process::spawn(
        Command::new("stdbuf")
            .arg("-oL")
            .args(&around.wrapper)
            .arg(&program)
            .args(options)
            .envs(around.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    )?;
    let said = process.child().stderr.take().map(|mut errors| {
        thread::spawn(move || {
            let mut said = String::new();
            drop(errors.read_to_string(&mut said));
            said
        })
    });
    let mut reader = Reader::new(name);
    let mut last_line = String::new();
    if let Some(output) = process.child().stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.map_err(failed())?;
            reader.line(&line, Instant::now());
            if !line.trim().is_empty() {
                last_line = line;
            }
        }
    }
    let status = process.child().wait().map_err(failed())?;
    let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
    match reader.printed {
        Some(printed) if status.success() => Ok(printed),
        _ => Err(MeasureError::Child(format!(
            "{} ended with {status} and said: {last_line} {}",
            program.display(),
            said.trim()
        ))),
    }
}

/// Reads db_bench's output line by line.
struct Reader {
    name: String,
    printed: Option<Printed>,
    at: Instant,
}

impl Reader {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            printed: None,
            at: Instant::now(),
        }
    }

    fn line(&mut self, line: &str, now: Instant) {
        if let Some(printed) = parse_result(line, &self.name) {
            self.printed = Some(printed);
            self.at = now;
            return;
        }
        let Some(printed) = &mut self.printed else {
            return;
        };
        if line.starts_with("Percentiles: ") || line.starts_with("Min: ") {
            printed.percentiles.extend(parse_pairs(line));
        } else if line.trim() == "flush memtable" {
            printed.flush_seconds = now.duration_since(self.at).as_secs_f64();
        }
    }
}

/// `fillrandom   :  8.211 micros/op 121758 ops/sec 0.164 seconds 20000 operations;  476.5 MB/s`
fn parse_result(line: &str, name: &str) -> Option<Printed> {
    // Progress messages may stand before it on the same line.
    let at = line.find(&format!("{name} "))?;
    let (label, figures) = line[at..].split_once(" : ")?;
    if label.trim() != name {
        return None;
    }
    let words: Vec<&str> = figures.split_whitespace().collect();
    let before = |unit: &str| {
        let at = words.iter().position(|w| w.trim_end_matches(';') == unit)?;
        words.get(at.checked_sub(1)?)
    };
    Some(Printed {
        ops: before("operations")?.parse().ok()?,
        seconds: before("seconds")?.parse().ok()?,
        ..Printed::default()
    })
}

/// `Percentiles: P50: 7.45 P75: 8.89 P99: 24.19`, `Min: 4  Median: 7.4485  Max: 5137`
fn parse_pairs(line: &str) -> Vec<(String, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    words
        .windows(2)
        .filter_map(|pair| Some((pair[0].strip_suffix(':')?.to_owned(), pair[1].parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const OUTPUT: &str = "DB path: [/tmp/x]
... finished 100 ops      fillrandom   :       8.211 micros/op 121758 ops/sec 0.164 seconds 20000 operations;  476.5 MB/s
Microseconds per write:
Count: 20000 Average: 8.2074  StdDev: 37.15
Min: 4  Median: 7.4485  Max: 5137
Percentiles: P50: 7.45 P75: 8.89 P99: 24.19 P99.9: 50.29 P99.99: 380.00
flush memtable";

    #[test]
    fn the_figures_of_a_run_are_read() {
        let mut reader = Reader::new("fillrandom");
        let start = Instant::now();
        for (line, ms) in OUTPUT.lines().zip((0..).step_by(10)) {
            reader.line(line, start + Duration::from_millis(ms));
        }
        let printed = reader.printed.unwrap();
        assert_eq!((printed.ops, printed.seconds), (20_000, 0.164));
        let latency = printed.latency();
        assert_eq!(latency.p50_us, Some(7.45));
        assert_eq!(latency.p999_us, Some(50.29));
        assert_eq!(latency.max_us, Some(5137.0));
        assert!((printed.flush_seconds - 0.05).abs() < 1e-9);
    }

    #[test]
    fn another_benchmarks_figures_are_not_taken_for_ours() {
        let line = "readrandom   :  18.177 micros/op 54862 ops/sec 0.036 seconds 2000 operations; 214.7 MB/s (2000 of 2000 found)";
        assert_eq!(parse_result(line, "fillrandom"), None);
        assert_eq!(parse_result(line, "readrandom").unwrap().ops, 2000);
    }
}
