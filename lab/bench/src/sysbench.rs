//! LinkBench and TPC-C (`lab/sysbench/` of the sources): sysbench scripts, which this program carries with it.

use crate::{
    BenchError,
    mariadb::server::{DATABASE, Server, program, run_sysbench},
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Scripts of `lab/sysbench/`, each with its path there.
macro_rules! files {
    ($($path:literal),*) => { [$(($path, include_str!(concat!("../../sysbench/", $path)))),*] };
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
        /// Each transaction is at a warehouse of its own, as in tpcc-mysql; otherwise a connection has one for all.
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
    /// What else is said of the whole: of TPC-C's kinds, whether each has its share and is done in time.
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
    ) -> Result<Self, BenchError> {
        for (name, text) in FILES {
            let path = dir.join(name);
            let made = path.parent().map_or(Ok(()), fs::create_dir_all);
            made.and_then(|()| fs::write(&path, text))
                .map_err(BenchError::io("unpacking", &path))?;
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
    /// [`BenchError::Config`] without sysbench, [`BenchError::Child`] with what it said if it fails.
    pub fn prepare(&self, server: &Server) -> Result<(), BenchError> {
        server.sql(&format!("CREATE DATABASE {DATABASE}"), "")?;
        let mut command = self.command(server, 2)?;
        run_sysbench(command.arg("prepare")).map(drop)
    }

    /// Runs the workload's mix with so many connections for so many seconds.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare); a report that cannot be read.
    pub fn run(&self, server: &Server, clients: u64, seconds: u64) -> Result<Measured, BenchError> {
        let report = self.dir.join("report.json");
        let mut command = self.command(server, clients)?;
        command
            .arg(format!("--time={seconds}"))
            .arg(format!("--json_file={}", report.display()))
            .arg("run");
        run_sysbench(&mut command)?;
        let read = fs::read(&report).map_err(BenchError::io("reading", &report))?;
        serde_json::from_slice(&read)
            .map_err(|e| BenchError::Child(format!("(sysbench) reported what cannot be read: {e}")))
    }

    /// Checks that the database does not contradict itself.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare); [`BenchError::Child`] with the contradiction.
    pub fn check(&self, server: &Server) -> Result<(), BenchError> {
        let mut command = self.command(server, 1)?;
        run_sysbench(command.arg("check")).map(drop)
    }

    /// Drops the tables.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn clean_up(&self, server: &Server) -> Result<(), BenchError> {
        let mut command = self.command(server, 1)?;
        run_sysbench(command.arg("cleanup")).map(drop)
    }

    fn command(&self, server: &Server, threads: u64) -> Result<Command, BenchError> {
        let (script, size) = match self.workload {
            Workload::LinkBench { ids } => ("linkbench/linkbench.lua", format!("--ids={ids}")),
            Workload::Tpcc { warehouses, .. } => {
                ("tpcc/tpcc.lua", format!("--warehouses={warehouses}"))
            }
        };
        let mut command = Command::new(program("sysbench").map_err(BenchError::Config)?);
        command
            .args(server.sysbench(self.dir.join(script).as_os_str()))
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
