//! `forebay learn`: the files that a program syncs, their cost, and their use for `forebay run`. It
//! needs no pool, and absorbs nothing.

mod advice;
mod name_pattern;
mod price;
mod report;

use crate::{failure::Failure, output::Output, run, standard_error};
use clap::Args;
use forebay_files::policy::{self, AbsorbPolicy, PolicyConfig, PolicyRequest};
use forebay_trace::{ProgramEnd, Trace, TraceError};
use report::LearnReport;
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    time::Duration,
};

/// Show the files that a program syncs, the cost, and the files that forebay run would absorb
#[derive(Args)]
#[command(
    long_about = "Runs a program plainly, without a pool, and says at the end which files it synced: how often, how long each sync took, how the \
                  files are written, and which of them forebay run would absorb. With --pid it looks at a program that runs already, and lets it go on. \
                  Its calls that write and sync are slower meanwhile (ptrace); nothing else of it is changed, but that it cannot gain rights (setuid) or trace. Linked statically or \
                  not, in whatever language: it need not fit forebay run.\n\n\
                  The report goes to standard error, as time's does, since standard output is the program's; with --pid to standard output.",
    after_long_help = "Examples:\n  \
        forebay learn -- redis-server --appendonly yes --appendfsync always\n  \
        forebay learn --write app.toml -- python3 app.py\n  \
        forebay run --pool /mnt/pmem/forebay.pool --config app.toml -- python3 app.py\n  \
        forebay learn --beside /mnt/nvme -- redis-server --appendonly yes --appendfsync always\n  \
        forebay learn --pid 4711 --seconds 30\n\n\
        A file may be a log if it is written from one end to the other, and synced eight times. A copy to a pool in memory is measured on this machine at the end, and with \
        --beside a commit to a pool on a disk; forebay doctor knows more of both.\n\n\
        Exit status: the program's, as of forebay run; 1 if it could not be looked at; 2 if the command line is wrong."
)]
pub struct Learn {
    /// Look at this process and its descendants, until it ends, --seconds, or an interrupt
    #[arg(long, value_name = "PID", conflicts_with = "command", value_parser = clap::value_parser!(u32).range(1..=i32::MAX as i64))]
    pid: Option<u32>,
    /// Seconds to look
    #[arg(long, value_name = "N", requires = "pid", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Write a profile of the logs, for forebay run --config
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Put the report into this file instead
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A directory in which a pool could lie: measure its commits. A megabyte is
    /// written there, and removed; may be given several times
    #[arg(long, value_name = "DIR")]
    beside: Vec<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
    /// The program and its arguments, best after --
    #[arg(
        required_unless_present = "pid",
        trailing_var_arg = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

impl Learn {
    pub fn run(self) -> Result<(), Failure> {
        let name = self.name()?;
        let policy = absorbed_today(&name)?;
        // Before the program runs: afterwards it would have run for nothing.
        let files = self.new_files()?;
        let trace = self.look(&name).inspect_err(|_| files.remove())?;
        let mut report = LearnReport::of(&name, &trace, &policy);
        report.measure_pools(&self.beside);
        let said = self.say(&report, files.report);
        let written = match files.profile {
            Some((path, file)) => write_profile(&report, &path, file),
            None => Ok(()),
        };
        said.and(written)?;
        match trace.end {
            ProgramEnd::Runs | ProgramEnd::Exited(0) => Ok(()),
            ProgramEnd::Exited(status) => Err(Failure::Passed(status)),
            ProgramEnd::Killed(signal) => Err(Failure::Passed(128 + signal)),
        }
    }

    /// The program's name.
    fn name(&self) -> Result<String, Failure> {
        match (self.pid, self.command.first()) {
            (Some(pid), _) => Ok(name_of_process(pid)),
            (None, Some(program)) => {
                let name = Path::new(program).file_name().unwrap_or(program);
                Ok(name.to_string_lossy().into_owned())
            }
            (None, None) => Err(Failure::Usage("no program is named".to_owned())),
        }
    }

    fn look(&self, name: &str) -> Result<Trace, Failure> {
        let in_background = || {
            standard_error::complain!(
                "forebay: {name} goes on in the background; an interrupt ends it, and the look at it"
            );
        };
        let trace = match (self.pid, self.command.split_first()) {
            (Some(pid), _) => {
                let limit = self.seconds.map(Duration::from_secs);
                forebay_trace::attach(pid, limit)
            }
            (None, Some((program, arguments))) => {
                let ignored = run::ignored_here();
                let defaults: Vec<i32> = ignored.iter().map(|signal| signal as i32).collect();
                forebay_trace::trace(program, arguments, &defaults, &in_background)
            }
            (None, None) => return Err(Failure::Usage("no program is named".to_owned())),
        };
        trace.map_err(failure)
    }

    fn new_files(&self) -> Result<NewFiles, Failure> {
        let mut files = NewFiles {
            profile: new_file(self.write.as_deref())?,
            report: None,
        };
        files.report = new_file(self.output.as_deref()).inspect_err(|_| files.remove())?;
        Ok(files)
    }

    fn say(&self, report: &LearnReport, file: Option<NewFile>) -> Result<(), Failure> {
        let text = match self.json {
            true => {
                serde_json::to_string(report)
                    .map_err(|error| Failure::Failed(format!("the report: {error}")))?
                    + "\n"
            }
            false => report.human(self.pid.is_some()),
        };
        match file {
            Some((path, mut file)) => file
                .write_all(text.as_bytes())
                .map_err(Failure::io("writing", path.display())),
            None if self.pid.is_some() => {
                let mut output = Output::new();
                output.text(&text)?;
                output.finish()
            }
            None => {
                standard_error::say(format_args!("{text}"));
                Ok(())
            }
        }
    }
}

type NewFile = (PathBuf, File);

/// The files that are to be written in the end.
struct NewFiles {
    profile: Option<NewFile>,
    report: Option<NewFile>,
}

impl NewFiles {
    /// Nothing was written to them.
    fn remove(&self) {
        for (path, _) in [&self.profile, &self.report].into_iter().flatten() {
            let _ = fs::remove_file(path);
        }
    }
}

/// A new file at `path`; one that is there is not written over.
fn new_file(path: Option<&Path>) -> Result<Option<NewFile>, Failure> {
    let Some(path) = path else { return Ok(None) };
    match File::create_new(path) {
        Ok(file) => Ok(Some((path.to_owned(), file))),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Failure::Usage(format!(
            "{} exists: name a file that is to be made",
            path.display()
        ))),
        Err(error) => Err(Failure::io("making", path.display())(error)),
    }
}

/// The name of the program that a process executes.
fn name_of_process(pid: u32) -> String {
    let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = path.file_name().unwrap_or(OsStr::new("program"));
    let name = name.to_string_lossy();
    name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned()
}

/// The files that `forebay run` absorbs of a program of this name, without further options.
fn absorbed_today(name: &str) -> Result<AbsorbPolicy, Failure> {
    Ok(policy::choose(PolicyRequest {
        programs: &[OsStr::new(name)],
        profile: None,
        config: &PolicyConfig::default(),
        absorb: &[],
    })?)
}

fn write_profile(report: &LearnReport, path: &Path, mut file: File) -> Result<(), Failure> {
    let Some(text) = report.profile() else {
        let _ = fs::remove_file(path);
        standard_error::complain!(
            "forebay: {} is not written: no file here is a log that would gain",
            path.display()
        );
        return Ok(());
    };
    PolicyConfig::parse(&text, path)?;
    file.write_all(text.as_bytes())
        .map_err(Failure::io("writing", path.display()))
}

fn failure(error: TraceError) -> Failure {
    match &error {
        TraceError::NotRun { source, .. } => {
            let status = if source.kind() == ErrorKind::NotFound {
                127
            } else {
                126
            };
            Failure::NotRun(status, error.to_string())
        }
        _ => Failure::Failed(error.to_string()),
    }
}
