//! The laboratory that a measurement runs in.

use super::{parts::FinishedParts, size::Size};
use crate::{
    BenchError,
    contest::{Contender, Mode, Pools, around::Setting},
    place::{HERE, lab_program, profile},
    redis::{
        load,
        server::Kind,
        stage::{Rewrites, Stage},
    },
    scratch::PoolSource,
};
use std::path::{Path, PathBuf};

/// The server that P4's experiments use.
pub(crate) const SERVER: Kind = Kind::Redis;

/// What a measurement runs on.
pub(crate) struct Lab<'a> {
    /// A directory for scratch directories.
    pub dir: &'a Path,
    /// Where pools come from.
    pub pool: &'a PoolSource,
    /// The `forebay` program.
    pub forebay: &'a Path,
    /// How much.
    pub size: Size,
    /// What is done of it.
    pub parts: &'a FinishedParts,
    /// Who is told of progress.
    pub note: &'a dyn Fn(&str),
}

impl Lab<'_> {
    pub fn note(&self, what: &str) {
        (self.note)(what);
    }

    /// Rounds of each figure.
    pub fn rounds(&self) -> usize {
        self.size.pick(1, 3, 3)
    }

    /// Rounds of what takes long: one on an emulated device, where the model says the same in every
    /// round.
    pub fn rounds_on(&self, place: &str) -> usize {
        if place == HERE { self.rounds() } else { 1 }
    }

    /// The program of P4's server.
    pub fn server(&self) -> Result<PathBuf, BenchError> {
        load::program().map_err(BenchError::Missing)?;
        SERVER.program().map_err(BenchError::Missing)
    }

    /// Pools of the usual size.
    pub fn pools(&self) -> Pools {
        Pools::of(self.pool.clone())
    }

    /// The laboratory's program.
    pub fn program(&self) -> PathBuf {
        lab_program(self.forebay)
    }

    /// What stands around a contender's program: what `with` does in that setting.
    pub fn in_setting<T>(
        &self,
        contender: Contender,
        pools: &Pools,
        with: impl FnOnce(Setting<'_>) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        with(Setting {
            forebay: self.forebay,
            emulator: Some(&self.program()),
            contender: &contender,
            pools,
            user: None,
        })
    }

    /// Where P4's server stands in `mode`.
    pub fn stage(
        &self,
        mode: Mode,
        place: &str,
        rewrites: Rewrites,
        pools: &Pools,
    ) -> Result<Stage, BenchError> {
        let program = self.server()?;
        self.in_setting(mode.into(), pools, |setting| {
            Stage::new(&setting, profile(place), &program, rewrites, self.dir)
        })
    }
}
