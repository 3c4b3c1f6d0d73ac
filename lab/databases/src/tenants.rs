//! A server with a SQLite database for each of its tenants, by the thousand: opened and closed for
//! each request, or all kept open.
//!
//! The load is a program in Python (`tenants.py`), whose SQLite is the C library's as everywhere. A
//! request is one INSERT, which is a transaction, into the database of a tenant that is drawn at
//! random, the same ones in all modes. The databases are made before, without Forebay.

use crate::{
    MeasureError,
    contest::{self, Cell, Contender, Contest, Mode, Report, Sample, Setup, of_pool},
    processes::{find_program, output},
    rounds::Percentiles,
    scratch::{ScratchDir, sync_file_system},
};
use forebay_measure::server::command_line;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Deserialize;
use serde_json::json;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// What SQLite promises about a transaction that is done.
pub const MODES: [Mode; 4] = [
    contest::PLAIN,
    contest::EATMYDATA,
    contest::FOREBAY,
    contest::NOTIFY,
];

/// What a request does with its tenant's database.
pub const USES: [&str; 2] = ["opened", "kept"];

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where, in which modes, with which pools.
    pub setup: Setup,
    /// Numbers of databases, one after the other.
    pub tenants: Vec<u64>,
    /// Of [`USES`]: whether a database is opened and closed for each request, or kept open.
    pub uses: Vec<String>,
    /// How SQLite keeps a transaction whole, one after the other: its `journal_mode`.
    pub journals: Vec<String>,
    /// Which files are absorbed, by their patterns.
    pub absorb: Vec<String>,
    /// Bytes of a row.
    pub value_bytes: u64,
    /// Seconds of a round.
    pub seconds: u64,
}

/// What a round's databases are.
struct Load<'a> {
    config: &'a Config,
    python: PathBuf,
    tenants: u64,
    kind: &'a str,
    journal: &'a str,
}

/// What the load program says.
#[derive(Deserialize)]
struct Said {
    seconds: f64,
    times_us: Vec<f64>,
}

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; a missing libeatmydata is reported, and is no error.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, MeasureError> {
    config
        .setup
        .check(&[&config.tenants, &[config.value_bytes, config.seconds]])?;
    if config.uses.iter().any(|kind| kind == USES[1]) {
        allow_descriptors(config.tenants.iter().max().copied().unwrap_or_default())?;
    }
    let python = find_program("python3").ok_or_else(|| {
        MeasureError::Config("python3 is not installed: apt-get install python3".to_owned())
    })?;
    let mut contest = Contest::begin("tenants", "INSERTs", &config.setup, note)?;
    contest.report.tell(
        json!({"absorb": config.absorb, "value_bytes": config.value_bytes}),
        "a request that is opened includes the open and the close of its database, by the only \
         connection: SQLite makes and removes the log with it, unless journal_mode is persist or truncate",
    );
    for journal in &config.journals {
        for kind in &config.uses {
            for &tenants in &config.tenants {
                let columns = json!({"use": kind, "journal_mode": journal, "tenants": tenants});
                let cell = Cell::new(format!("{kind}_{journal}_{tenants}"), columns);
                let load = Load {
                    config,
                    python: python.clone(),
                    tenants,
                    kind,
                    journal,
                };
                contest.cell(
                    &cell,
                    |_| true,
                    |scratch, contender| load.measure(scratch, contender),
                )?;
            }
        }
    }
    Ok(contest.end())
}

/// So many open databases have three files each, and each file some descriptors in the supervisor.
fn allow_descriptors(tenants: u64) -> Result<(), MeasureError> {
    let wanted = 10 * tenants + 1000;
    let limit = getrlimit(Resource::Nofile);
    let is_enough = limit.maximum.is_none_or(|most| most >= wanted);
    let limit = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum.map(|most| most.max(wanted)),
    };
    match setrlimit(Resource::Nofile, limit) {
        Err(_) if !is_enough => Err(MeasureError::Config(format!(
            "{tenants} databases that are kept open take {wanted} descriptors: allow them (ulimit -Hn), or name fewer (--tenants)"
        ))),
        _ => Ok(()),
    }
}

impl Load<'_> {
    fn measure(&self, scratch: &Path, contender: &Contender) -> Result<Sample, MeasureError> {
        let setup = &self.config.setup;
        let dir = ScratchDir::new_in(scratch)?;
        let program = dir.path().join("tenants.py");
        std::fs::write(&program, include_str!("tenants.py"))
            .map_err(MeasureError::io("making", &program))?;
        let data = dir.path().join("data");
        std::fs::create_dir(&data).map_err(MeasureError::io("making", &data))?;
        let mut prepare = Command::new(&self.python);
        output(self.arguments(&mut prepare, &program, "prepare", &data))?;
        let device = setup.device.as_deref().map(|device| (&*data, device));
        let devices: Vec<_> = device.into_iter().collect();
        let absorb = self.config.absorb.iter().filter(|_| contender.is_ours());
        let absorb = absorb.map(|pattern| ("--absorb", OsString::from(pattern)));
        let setting = setup.setting(contender, None);
        let around = setting.around(&devices, absorb, scratch.join("run"))?;
        sync_file_system(dir.path())?;
        let mut command = command_line([], &around.wrapper, &self.python);
        self.arguments(&mut command, &program, self.kind, &data);
        command
            .envs(around.environment.iter().cloned())
            .current_dir(&data);
        let said = output(&mut command)?.stdout;
        let mut said: Said = serde_json::from_slice(&said).map_err(|e| {
            let said = String::from_utf8_lossy(&said);
            MeasureError::Child(format!(
                "(tenants.py) says {said:?}, which is no figure: {e}"
            ))
        })?;
        let mut more = of_pool(around.lane_bytes(setup.pools.lane_segments), None);
        more.insert("ops".to_owned(), json!(said.times_us.len()));
        Ok(Sample {
            ops_per_s: said.times_us.len() as f64 / said.seconds,
            latency: Percentiles::of(&mut said.times_us),
            more,
        })
    }

    fn arguments<'a>(
        &self,
        command: &'a mut Command,
        program: &Path,
        what: &str,
        data: &Path,
    ) -> &'a mut Command {
        let numbers = [self.config.value_bytes, self.config.seconds];
        command
            .arg(program)
            .arg(what)
            .arg(data)
            .args([&self.tenants.to_string(), self.journal])
            .args(numbers.map(|number| number.to_string()))
    }
}
