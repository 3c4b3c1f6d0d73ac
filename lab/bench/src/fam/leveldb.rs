//! LevelDB with its directory on the emulated device: its program under `forebay-lab run --no-pool
//! --device DIR=PROFILE`.

use super::{Config, Measured, Policy, WORKLOADS};
use crate::{BenchError, data::fresh_seed, peers::Peer, place::on_device, scratch::ScratchDir};
use std::path::{Path, PathBuf};

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
        .args([program, dir.path(), Path::new("fam")])
        .args([config.pairs, pair_bytes, fresh_seed() >> 1].map(|n| n.to_string()));
    let lines = Peer::LevelDb.lines(&mut command, WORKLOADS.len())?;
    let us_per_op = |workload| {
        let mut lines = lines.iter();
        let line = lines.find(|line| line.workload == workload && line.ops > 0)?;
        Some((workload, line.seconds * 1e6 / line.ops as f64))
    };
    let measured: Option<Measured> = WORKLOADS.into_iter().map(us_per_op).collect();
    measured.ok_or_else(|| BenchError::Child("(leveldb) left out a workload".to_owned()))
}
