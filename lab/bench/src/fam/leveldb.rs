//! LevelDB with its directory on the emulated device: its program under `forebay-lab run --no-pool --device DIR=PROFILE`.

use super::{Config, Measured, Policy, WORKLOADS};
use crate::{
    BenchError,
    data::fresh_seed,
    peers::Peer,
    place::on_device,
    processes::{output, said_by},
    scratch::ScratchDir,
};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A line that the program prints.
#[derive(Deserialize)]
struct Line {
    workload: String,
    ops: u64,
    seconds: f64,
}

/// The program, built in `scratch`; [`BenchError::Config`] if LevelDB is not installed.
pub(super) fn program(scratch: &Path) -> Result<PathBuf, BenchError> {
    Peer::LevelDb.check().map_err(BenchError::Config)?;
    Peer::LevelDb.program(scratch)
}

/// All workloads once, each in a fresh database.
pub(super) fn measure(
    config: &Config,
    scratch: &Path,
    program: &Path,
    (policy, pair_bytes): (Policy, u64),
) -> Result<Measured, BenchError> {
    let dir = ScratchDir::new_in(scratch)?;
    let mut command = on_device(&config.forebay, dir.path(), policy.profile());
    command
        .arg(program)
        .arg(dir.path())
        .arg("fam")
        .args([config.pairs, pair_bytes, fresh_seed() >> 1].map(|n| n.to_string()));
    let printed = said_by("leveldb", output(&mut command)?)?;
    let measured: Measured = printed.lines().filter_map(figure).collect();
    match measured.len() == WORKLOADS.len() {
        true => Ok(measured),
        false => Err(BenchError::Child(format!(
            "(leveldb) printed {printed:?} instead of a line for each workload"
        ))),
    }
}

fn figure(line: &str) -> Option<(&'static str, f64)> {
    let line: Line = serde_json::from_str(line).ok()?;
    let workload = WORKLOADS.into_iter().find(|name| *name == line.workload)?;
    (line.ops > 0).then(|| (workload, line.seconds * 1e6 / line.ops as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_program_is_read_and_anything_else_is_not() {
        let line = r#"{"workload":"random_get","ops":10000,"seconds":0.020000000}"#;
        assert_eq!(figure(line), Some(("random_get", 2.0)));
        for line in ["", "{}", r#"{"workload":"other","ops":1,"seconds":1}"#] {
            assert_eq!(figure(line), None);
        }
    }
}
