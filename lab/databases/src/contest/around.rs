//! The surroundings of a database's program: the beginning of its command line, its environment,
//! and its pool.

use super::{Contender, Pools, Setup, Syncs};
use crate::{
    MeasureError,
    processes::{find_eatmydata, preload},
    scratch::ScratchPool,
};
use forebay_measure::{server::forebay_run, user::User};
use serde::Serialize;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// Where `forebay run` leaves a note of itself.
const RUN_DIR: &str = "FOREBAY_RUN_DIR";

/// How a program is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The `forebay` program.
    pub forebay: &'a Path,
    /// What stands in for it where devices or memories are emulated ([`Setup::emulator`]).
    pub emulator: Option<&'a Path>,
    /// The mode, and which pool.
    pub contender: &'a Contender,
    /// The pools.
    pub pools: &'a Pools,
    /// Whom the program, and what stands before it, runs as, if not as ourselves.
    pub user: Option<&'a User>,
}

/// What stands around a program. The pool is gone when this is dropped.
#[derive(Default)]
pub struct Around {
    /// What stands before it on the command line. May be empty.
    pub wrapper: Vec<OsString>,
    /// Environment on top of ours.
    pub environment: Vec<(OsString, OsString)>,
    pool: Option<ScratchPool>,
    in_memory: bool,
    forebay: PathBuf,
    run_dir: PathBuf,
}

/// What the supervisor did while the server served, the warm-up included.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Behind {
    /// Times that the server waited because its lane was full.
    pub waits: u64,
    /// Real syncs.
    pub real_syncs: u64,
    /// Time that they took, seconds.
    pub real_sync_seconds: f64,
}

impl Setup {
    /// How a contender's program is to be run, by `user` if not by ourselves.
    pub fn setting<'a>(&'a self, contender: &'a Contender, user: Option<&'a User>) -> Setting<'a> {
        Setting {
            forebay: &self.forebay,
            emulator: self.emulator.as_deref(),
            contender,
            pools: &self.pools,
            user,
        }
    }
}

impl Setting<'_> {
    /// Makes the pool, and says what stands before the program. `devices`: directories, and the
    /// emulated devices that they are on; `options`: more of `forebay run`, which then stands there
    /// in any case.
    pub fn around(
        &self,
        devices: &[(&Path, &str)],
        options: impl IntoIterator<Item = (&'static str, OsString)>,
        run_dir: PathBuf,
    ) -> Result<Around, MeasureError> {
        let pool = self.pools.make(self.contender, self.user)?;
        let mut environment = vec![(RUN_DIR.into(), run_dir.clone().into())];
        let mut wrapper = Vec::new();
        let is_agents = self.contender.mode.syncs == Syncs::Agent;
        if is_agents && !devices.is_empty() {
            return Err(MeasureError::Config(format!(
                "mode {}: a library emulates the device, and an agent's program loads none",
                self.contender
            )));
        }
        let front_end = is_agents.then(|| ("--front-end", "notify".into()));
        let options: Vec<_> = front_end.into_iter().chain(options).collect();
        if pool.is_some() || !devices.is_empty() || !options.is_empty() {
            let slowed = self.pools.slowed.filter(|_| pool.is_some());
            // What ships, where nothing is emulated.
            let emulator = self
                .emulator
                .filter(|_| !devices.is_empty() || slowed.is_some());
            let devices = devices
                .iter()
                .map(|(dir, profile)| ("--device", device_argument(dir, profile)));
            let slowed = slowed.map(|memory| ("--media-profile", memory.into()));
            wrapper = forebay_run(
                emulator.unwrap_or(self.forebay),
                pool.as_ref()
                    .map(|pool| (pool.path(), self.pools.lane_segments)),
                devices.chain(slowed).chain(options),
            );
        }
        if self.contender.mode.syncs == Syncs::Eaten
            && let Some(library) = find_eatmydata()
        {
            eat_syncs(&library, &mut wrapper, &mut environment);
        }
        Ok(Around {
            wrapper,
            environment,
            in_memory: self.contender.disk.is_none(),
            pool,
            forebay: self.forebay.to_owned(),
            run_dir,
        })
    }
}

/// The value of `--device`: `DIR=PROFILE`.
#[must_use]
pub fn device_argument(dir: &Path, profile: &str) -> OsString {
    let mut value = dir.as_os_str().to_owned();
    value.push("=");
    value.push(profile);
    value
}

/// Has libeatmydata loaded before anything else: an emulator would charge the syncs of its device.
fn eat_syncs(
    library: &Path,
    wrapper: &mut Vec<OsString>,
    environment: &mut Vec<(OsString, OsString)>,
) {
    if wrapper.is_empty() {
        environment.push(("LD_PRELOAD".into(), preload(library)));
    } else {
        let first = r#"LD_PRELOAD="$0${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@""#;
        wrapper.extend(["sh", "-c", first].map(OsString::from));
        wrapper.push(library.into());
    }
}

impl Around {
    /// Bytes of a pool in memory that are the program's, used or not: its lane's segments.
    pub fn nvm_bytes(&self) -> Option<u64> {
        let pool = self.pool.as_ref().filter(|_| self.in_memory)?.pool();
        let lanes = pool.lanes();
        let segments: u64 = lanes.iter().map(|lane| u64::from(lane.segments)).sum();
        Some(segments * pool.geometry().segment_bytes)
    }

    /// The same of a program that has ended, whose lane is given back: what it had at least.
    pub fn lane_bytes(&self, segments: u16) -> Option<u64> {
        let pool = self.pool.as_ref().filter(|_| self.in_memory)?.pool();
        Some(u64::from(segments) * pool.geometry().segment_bytes)
    }

    /// What `forebay status` says of the program, if it runs under `forebay run`.
    pub fn behind(&self) -> Option<Behind> {
        self.pool.as_ref()?;
        let said = Command::new(&self.forebay)
            .args(["status", "--json"])
            .env(RUN_DIR, &self.run_dir)
            .output()
            .ok()?;
        let status: serde_json::Value = serde_json::from_slice(&said.stdout).ok()?;
        let lane = status.get(0)?.get("lane")?;
        Some(Behind {
            waits: lane.get("waits")?.as_u64()?,
            real_syncs: lane.get("real_syncs")?.as_u64()?,
            real_sync_seconds: lane.get("real_sync_seconds")?.as_f64()?,
        })
    }
}
