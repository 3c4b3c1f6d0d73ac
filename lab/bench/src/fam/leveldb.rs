//! LevelDB with its directory on the emulated device: its program under `forebay-lab run --no-pool --device DIR=PROFILE`.

use super::{Config, Measured, Policy, Workload};
use crate::{
    BenchError, data::fresh_seed, peers::leveldb, place::lab_program, processes::Process,
    scratch::ScratchDir,
};
use serde::Deserialize;
use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// How long LevelDB may take to start, and for everything; more is no measurement.
const START_MAX: Duration = Duration::from_secs(10);
const TIME_MAX: Duration = Duration::from_secs(60);
const TIME_MAX_PER_PAIR: Duration = Duration::from_millis(20);

/// What LevelDB is run with.
pub(super) struct Runner<'a> {
    config: &'a Config,
    scratch: &'a Path,
    program: PathBuf,
}

/// A line that the program prints.
#[derive(Deserialize)]
struct Line {
    workload: String,
    ops: u64,
    seconds: f64,
}

impl<'a> Runner<'a> {
    /// [`BenchError::Config`] if LevelDB cannot be run on an emulated device here, and why.
    pub(super) fn new(config: &'a Config, scratch: &'a Path) -> Result<Self, BenchError> {
        leveldb::check().map_err(BenchError::Config)?;
        Ok(Self {
            config,
            scratch,
            program: leveldb::build(scratch)?,
        })
    }

    fn pairs(&self) -> u32 {
        u32::try_from(self.config.pairs).unwrap_or(u32::MAX)
    }

    /// All workloads once, each in a fresh database.
    pub(super) fn measure(&self, policy: Policy, pair_bytes: u64) -> Result<Measured, BenchError> {
        let dir = ScratchDir::new_in(self.scratch)?;
        let mut device = dir.path().as_os_str().to_owned();
        device.push(format!("={}", policy.profile()));
        let mut process = Process::spawn(
            Command::new(lab_program(&self.config.forebay))
                .args(["run", "--no-pool", "--device"])
                .arg(device)
                .arg("--")
                .arg(&self.program)
                .arg(dir.path())
                .arg("fam")
                .args([self.config.pairs, pair_bytes, fresh_seed() >> 1].map(|n| n.to_string()))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit()),
        )?;
        let reader = process.child().stdout.take().map(|mut output| {
            thread::spawn(move || {
                let mut printed = String::new();
                output.read_to_string(&mut printed).map(|_| printed)
            })
        });
        // Killed when this returns, also if forebay is killed before it.
        let _database = process.first_child(START_MAX);
        let status = process.wait(TIME_MAX + TIME_MAX_PER_PAIR * self.pairs())?;
        let printed = reader.map(thread::JoinHandle::join);
        let Some(Ok(Ok(printed))) = printed else {
            return Err(BenchError::Child(format!(
                "{} printed what cannot be read",
                self.program.display()
            )));
        };
        if !status.success() {
            return Err(BenchError::Child(format!(
                "{} ended with {status}",
                self.program.display()
            )));
        }
        let measured: Measured = printed.lines().filter_map(figure).collect();
        if measured.len() != Workload::ALL.len() {
            return Err(BenchError::Child(format!(
                "{} printed {printed:?} instead of a line for each workload",
                self.program.display()
            )));
        }
        Ok(measured)
    }
}

fn figure(line: &str) -> Option<(Workload, f64)> {
    let line: Line = serde_json::from_str(line).ok()?;
    let workload = Workload::named(&line.workload)?;
    (line.ops > 0).then(|| (workload, line.seconds * 1e6 / line.ops as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_program_is_read_and_anything_else_is_not() {
        let line = r#"{"workload":"random_get","ops":10000,"seconds":0.020000000}"#;
        assert_eq!(figure(line), Some((Workload::RandomGet, 2.0)));
        for line in ["", "{}", r#"{"workload":"other","ops":1,"seconds":1}"#] {
            assert_eq!(figure(line), None);
        }
    }

    /// A `forebay` beside which a `forebay-lab` runs the program, on no device at all.
    fn stand_in(dir: &Path) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let forebay = dir.join("forebay");
        let path = lab_program(&forebay);
        std::fs::write(&path, "#!/bin/sh\nshift 5\n\"$@\"\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        forebay
    }

    #[test]
    fn leveldb_gets_a_figure_for_each_workload_where_devices_are_emulated() {
        if let Err(missing) = leveldb::check() {
            assert!(std::env::var_os("CI").is_none(), "{missing}");
            println!("skipped: leveldb is {missing}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            dir: dir.path().to_owned(),
            policies: vec![Policy::Uc],
            sizes: vec![100],
            pairs: 50,
            rounds: 1,
            forebay: stand_in(dir.path()),
        };
        let runner = Runner::new(&config, dir.path()).unwrap();
        let mut measured = runner.measure(Policy::Uc, 100).unwrap();
        measured.sort_by_key(|(workload, _)| *workload);
        assert_eq!(measured.len(), Workload::ALL.len());
        for ((workload, us), expected) in measured.into_iter().zip(Workload::ALL) {
            assert_eq!(workload, expected);
            assert!(us > 0.0, "{workload:?}");
        }
    }
}
