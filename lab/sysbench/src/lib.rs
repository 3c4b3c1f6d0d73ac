//! LinkBench and TPC-C as scripts for sysbench, which this program carries with it.

use forebay_databases::mariadb::server::{Address, DATABASE, Server, program, run_sysbench};
use forebay_measure::MeasureError;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The scripts, each with its path beside this crate.
macro_rules! files {
    ($($path:literal),*) => { [$(($path, include_str!(concat!("../", $path)))),*] };
}

const FILES: [(&str, &str); 8] = files![
    "lib/workload.lua",
    "linkbench/graph.lua",
    "linkbench/linkbench.lua",
    "tpcc/checks.lua",
    "tpcc/load.lua",
    "tpcc/random.lua",
    "tpcc/tpcc.lua",
    "tpcc/transactions.lua"
];

/// MyRocks, as a storage engine.
pub const MYROCKS: &str = "rocksdb";

/// What sysbench says if not all of its connections are there within 30 s; then it has done
/// nothing. One through a port that an emulator forwards may stay silent, once in some hundred.
const NOT_CONNECTED: &str = "Worker threads failed to initialize";
/// How often it is started then, at most.
const STARTS_MAX: u32 = 3;

/// A workload and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// LinkBench with so many nodes.
    LinkBench {
        /// Nodes.
        ids: u64,
    },
    /// TPC-C with so many warehouses.
    Tpcc {
        /// Warehouses of some 100 MB.
        warehouses: u64,
        /// Each transaction is at a warehouse of its own, as in tpcc-mysql; otherwise a connection
        /// has one for all.
        roam: bool,
    },
}

/// The scripts, unpacked in a directory, for a workload on tables of one storage engine.
#[derive(Clone, Debug)]
pub struct Scripts {
    dir: PathBuf,
    engine: &'static str,
    /// What they run.
    pub workload: Workload,
}

/// What a run reports.
#[derive(Clone, Debug, Deserialize)]
pub struct Measured {
    /// Requests (of TPC-C: transactions) a second, all kinds together.
    pub operations_per_s: f64,
    /// Of TPC-C: New-Orders a minute.
    #[serde(rename = "tpmC")]
    pub tpmc: Option<f64>,
    /// By kind.
    pub operations: Vec<Operation>,
    /// What else is said of the whole: of TPC-C's kinds, whether each has its share and is done in
    /// time.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Measured {
    /// The kind with this name.
    #[must_use]
    pub fn operation(&self, name: &str) -> Option<&Operation> {
        self.operations.iter().find(|of| of.operation == name)
    }

    /// What is said not to be as the workload wants it, in its words.
    #[must_use]
    pub fn failed(&self) -> Vec<String> {
        let failed = |(name, value): (&String, &Value)| {
            (*value == Value::Bool(false)).then(|| name.replace('_', " "))
        };
        self.more.iter().filter_map(failed).collect()
    }
}

/// One kind of request.
#[derive(Clone, Debug, Deserialize)]
pub struct Operation {
    /// Its name.
    pub operation: String,
    /// How many there were.
    pub count: u64,
    /// 99 of 100 took at most so many microseconds.
    pub p99_us: f64,
    /// How many ended in each second of the run.
    pub by_second: Vec<u64>,
}

impl Scripts {
    /// Unpacks them into `dir`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn unpack(
        dir: &Path,
        engine: &'static str,
        workload: Workload,
    ) -> Result<Self, MeasureError> {
        for (name, text) in FILES {
            let path = dir.join(name);
            let made = path.parent().map_or(Ok(()), fs::create_dir_all);
            made.and_then(|()| fs::write(&path, text))
                .map_err(MeasureError::io("unpacking", &path))?;
        }
        Ok(Self {
            dir: dir.to_owned(),
            engine,
            workload,
        })
    }

    /// Makes the tables and loads them.
    ///
    /// # Errors
    /// [`MeasureError::Config`] without sysbench, [`MeasureError::Child`] with what it said if it
    /// fails.
    pub fn prepare(&self, server: &Server) -> Result<(), MeasureError> {
        server.sql(&format!("CREATE DATABASE {DATABASE}"), "")?;
        let mut command = self.command(&server.into(), 2)?;
        run_sysbench(command.arg("prepare")).map(drop)
    }

    /// Runs the workload's mix with so many connections for so many seconds.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare); a report that cannot be read.
    pub fn run(
        &self,
        at: impl Into<Address>,
        clients: u64,
        seconds: u64,
    ) -> Result<Measured, MeasureError> {
        let report = self.dir.join("report.json");
        let mut command = self.command(&at.into(), clients)?;
        command
            .arg(format!("--time={seconds}"))
            .arg(format!("--json_file={}", report.display()))
            .arg("run");
        let mut left = STARTS_MAX;
        while let Err(error) = run_sysbench(&mut command) {
            left -= 1;
            if left == 0 || !error.to_string().contains(NOT_CONNECTED) {
                return Err(error);
            }
        }
        let read = fs::read(&report).map_err(MeasureError::io("reading", &report))?;
        serde_json::from_slice(&read).map_err(|e| {
            MeasureError::Child(format!("(sysbench) reported what cannot be read: {e}"))
        })
    }

    /// Checks that the database does not contradict itself.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare); [`MeasureError::Child`] with the contradiction.
    pub fn check(&self, at: impl Into<Address>) -> Result<(), MeasureError> {
        let mut command = self.command(&at.into(), 1)?;
        run_sysbench(command.arg("check")).map(drop)
    }

    /// Drops the tables.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn clean_up(&self, at: impl Into<Address>) -> Result<(), MeasureError> {
        let mut command = self.command(&at.into(), 1)?;
        run_sysbench(command.arg("cleanup")).map(drop)
    }

    fn command(&self, at: &Address, threads: u64) -> Result<Command, MeasureError> {
        let (script, size) = match self.workload {
            Workload::LinkBench { ids } => ("linkbench/linkbench.lua", format!("--ids={ids}")),
            Workload::Tpcc { warehouses, .. } => {
                ("tpcc/tpcc.lua", format!("--warehouses={warehouses}"))
            }
        };
        let mut command = Command::new(program("sysbench").map_err(MeasureError::Config)?);
        command
            .args(at.sysbench(self.dir.join(script).as_os_str()))
            .arg(format!("--storage_engine={}", self.engine))
            .arg(format!("--threads={threads}"))
            .arg(size);
        if let Workload::Tpcc { roam: true, .. } = self.workload {
            command.arg("--roam=on");
        }
        if self.engine == MYROCKS && matches!(self.workload, Workload::Tpcc { .. }) {
            // It has no gap locks.
            command.arg("--isolation=READ COMMITTED");
        }
        Ok(command)
    }
}

/// The least shares of TPC-C's other transactions, percent.
const SHARES: [(&str, f64); 4] = [
    ("payment", 43.0),
    ("order_status", 4.0),
    ("delivery", 4.0),
    ("stock_level", 4.0),
];

/// TPC-C's checks that do not hold: of times in any round, of shares in all rounds together, since
/// a short one has few transactions.
#[must_use]
pub fn failed(rounds: &[Measured]) -> Vec<String> {
    let mut failed: Vec<String> = rounds.iter().flat_map(Measured::failed).collect();
    failed.retain(|name| name.ends_with("in time"));
    failed.sort_unstable();
    failed.dedup();
    let operations = || rounds.iter().flat_map(|round| &round.operations);
    let all: u64 = operations().map(|of| of.count).sum();
    for (name, least) in SHARES {
        let mine = operations().filter(|of| of.operation == name);
        let share = 100.0 * mine.map(|of| of.count).sum::<u64>() as f64 / all.max(1) as f64;
        if share < least {
            failed.push(format!("{name} {share:.1} % of {all}, not {least} %"));
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn round(counts: [u64; 5], in_time: bool) -> Measured {
        let names = SHARES.map(|(name, _)| name).into_iter();
        let operations = std::iter::once("new_order").chain(names).zip(counts);
        let operation = |(name, count)| json!({"operation": name, "count": count, "p99_us": 9000, "by_second": []});
        let operations: Vec<_> = operations.map(operation).collect();
        let round = json!({
            "operations_per_s": 1, "tpmC": counts[0], "operations": operations,
            "payment_share_ok": false, "delivery_90_%_in_time": in_time
        });
        serde_json::from_value(round).unwrap()
    }

    #[test]
    fn shares_are_those_of_all_rounds_and_times_those_of_each() {
        let even = round([430, 440, 44, 44, 42], true);
        assert_eq!(failed(std::slice::from_ref(&even)), [""; 0]);
        let uneven = round([600, 300, 44, 44, 12], false);
        let told = failed(&[even, uneven]);
        assert_eq!(told[0], "delivery 90 % in time");
        assert!(told[1].starts_with("payment 37.0 % of 2000"), "{told:?}");
        assert!(told[2].starts_with("stock_level 2.7 %"), "{told:?}");
        assert_eq!(told.len(), 3);
    }
}
