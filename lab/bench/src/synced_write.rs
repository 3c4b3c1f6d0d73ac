//! `forebay-lab synced-write`: one write and its `fdatasync`, by each front end.
//!
//! A C program of one thread (`programs/synced_write.c`) appends some bytes to a log and syncs
//! them, again and again. It runs plain, in memory, with the library before it, and linked
//! statically below an agent. They take turns, each on a fresh file. Its other operations read a
//! file, and send to a socket, that are no logs: what is never trapped costs nothing, they show.

use crate::{
    BenchError,
    contest::{self, Cell, Contender, Contest, Mode, Report, Sample, Setup, Syncs},
    peers::{Line, read},
    processes::{output, said_by},
    scratch::{ScratchDir, memory_dir, sync_file_system},
};
use forebay_measure::server::command_line;
use serde_json::{Map, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Under `forebay run`, with the library in the program.
const PRELOAD: Mode = contest::FOREBAY.called("preload");
/// Who serves the syncs.
pub const MODES: [Mode; 4] = [
    contest::PLAIN,
    forebay_databases::closed_loop::TMPFS,
    PRELOAD,
    contest::NOTIFY,
];

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where, in which modes, with which pools.
    pub setup: Setup,
    /// What the program does again and again.
    pub operations: Vec<Operation>,
    /// Bytes of a write.
    pub sizes: Vec<u64>,
    /// Seconds of a round that count.
    pub seconds: u64,
}

/// What the program does again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Appends to a log, and syncs it.
    Write,
    /// Reads a file that is no log.
    Read,
    /// Sends to itself, and receives.
    Ping,
}

impl Operation {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Write, Self::Read, Self::Ping];

    /// As the program and the report call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Ping => "ping",
        }
    }
}

/// The program, linked in both ways.
struct Programs {
    dynamic: PathBuf,
    linked_statically: PathBuf,
}

impl Programs {
    fn build(dir: &Path) -> Result<Self, BenchError> {
        let source = dir.join("synced_write.c");
        let code = include_str!("../programs/synced_write.c");
        fs::write(&source, code).map_err(BenchError::io("writing", &source))?;
        let build = |name: &str, option: &str| {
            let program = dir.join(name);
            let mut cc = Command::new("cc");
            cc.args(["-O2", option, "-o"]).args([&program, &source]);
            said_by("cc", output(&mut cc)?)?;
            Ok::<_, BenchError>(program)
        };
        Ok(Self {
            dynamic: build("dynamic", "-no-pie")?,
            linked_statically: build("static", "-static")?,
        })
    }
}

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; [`BenchError::Config`] for what measures nothing.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, BenchError> {
    let setup = &config.setup;
    setup.check(&[&config.sizes, &[config.seconds]])?;
    if setup.device.is_some() {
        let why = "a device is emulated by a library, which a static program does not load";
        return Err(BenchError::Config(format!("--device: {why}")));
    }
    let mut contest = Contest::begin("synced_write", "operations", setup, note)?;
    let programs = Programs::build(contest.scratch())?;
    contest.report.tell(
        json!({"seconds": config.seconds}),
        "an operation is a write(2) and an fdatasync(2), a pread(2), or a send(2) and a recv(2); and a reading of the clock",
    );
    let each_size = |&operation| config.sizes.iter().map(move |&bytes| (operation, bytes));
    for (operation, bytes) in config.operations.iter().flat_map(each_size) {
        let name = operation.name();
        let cell = Cell::new(
            format!("{name}_{bytes}"),
            json!({"operation": name, "bytes": bytes}),
        );
        let arguments = [
            bytes.to_string(),
            config.seconds.to_string(),
            name.to_owned(),
        ];
        let measure = |scratch: &Path, contender: &Contender| {
            measure(config, &programs, &arguments, scratch, contender)
        };
        contest.cell(&cell, |_| true, measure)?;
    }
    Ok(contest.end())
}

fn measure(
    config: &Config,
    programs: &Programs,
    arguments: &[String],
    scratch: &Path,
    contender: &Contender,
) -> Result<Sample, BenchError> {
    let mode = contender.mode;
    let dir = ScratchDir::new_in(scratch)?;
    let memory = match mode.syncs {
        Syncs::Memory => Some(ScratchDir::new_in(&memory_dir())?),
        _ => None,
    };
    let data = memory.as_ref().unwrap_or(&dir).path();
    let options = contender.is_ours().then(|| ("--absorb", "*.log".into()));
    let setting = config.setup.setting(contender, None);
    let around = setting.around(&[], options, dir.path().join("run"))?;
    let program = match mode == PRELOAD {
        true => &programs.dynamic,
        false => &programs.linked_statically,
    };
    // What other turns left for the device to do is not this one's.
    sync_file_system(dir.path())?;
    let mut command = command_line([], &around.wrapper, program);
    command
        .arg(data.join("synced.log"))
        .args(arguments)
        .envs(around.environment.iter().cloned())
        .current_dir(data);
    let done = output(&mut command)?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if said.contains("runs plainly") {
        return Err(BenchError::Child(format!(
            "(synced_write) is not served: {said}"
        )));
    }
    let printed = said_by("synced_write", done)?;
    let line: Option<Line> = read(&printed).next();
    let unread = || BenchError::Child(format!("(synced_write) printed {printed:?}"));
    let line = line.ok_or_else(unread)?;
    let mut more = Map::new();
    more.insert("ops".to_owned(), json!(line.ops));
    Ok(Sample {
        ops_per_s: line.ops as f64 / line.seconds,
        latency: line.latency,
        more,
    })
}
