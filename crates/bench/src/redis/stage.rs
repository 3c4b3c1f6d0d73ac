//! Where a server stands: its directory, its pool, and what its command line has for a [`Mode`].

use super::{
    Behind, Mode,
    server::{Launch, Server},
};
use crate::{
    BenchError,
    place::{device_argument, forebay_run},
    processes::{eat_syncs, find_eatmydata},
    scratch::{PoolSource, ScratchDir, ScratchPool, disk_bytes, memory_dir, sync_file_system},
};
use forebay_pool::{SEGMENTS_MAX, media::Profile};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// When the append-only file is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrites {
    /// When somebody asks for it only.
    Asked,
    /// By the server's default rule: when the file has doubled, from 64 MiB on.
    Automatic,
}

/// How a server is to be run.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The server's program.
    pub program: &'a Path,
    /// This program.
    pub forebay: &'a Path,
    /// What it promises.
    pub mode: Mode,
    /// Where the pool comes from.
    pub pool: &'a PoolSource,
    /// Segments of the server's lane.
    pub buffers: u16,
    /// Bytes of a segment of an emulated pool.
    pub buffer_bytes: u64,
    /// Bytes of an emulated pool; none: twice the lane's segments.
    pub pool_bytes: Option<u64>,
    /// Make the pool as slow as this device.
    pub slowed: Option<Profile>,
    /// The emulated device that the server's directory is on.
    pub device: Option<&'a str>,
    /// When the append-only file is rewritten.
    pub rewrites: Rewrites,
}

impl Setting<'_> {
    fn make_pool(&self) -> Result<ScratchPool, BenchError> {
        let lane = u64::from(self.buffers) * self.buffer_bytes;
        let bytes = self.pool_bytes.unwrap_or(2 * lane);
        // So large that one lane may take all of it.
        let segment = self.buffer_bytes.max(bytes / u64::from(SEGMENTS_MAX));
        ScratchPool::new(self.pool, bytes / segment, segment, None)
    }
}

/// A directory, a pool if the mode has one, and the server that is started there. All gone when this is dropped.
pub struct Stage {
    launch: Launch,
    pool: Option<ScratchPool>,
    forebay: PathBuf,
    run_dir: PathBuf,
    mode: Mode,
    _dir: ScratchDir,
    _memory: Option<ScratchDir>,
}

impl Stage {
    /// Makes directory and pool; the directory is inside `scratch`, except where the mode has it in memory.
    ///
    /// # Errors
    /// I/O errors and those of the pool.
    pub fn new(setting: &Setting<'_>, scratch: &Path) -> Result<Self, BenchError> {
        let dir = ScratchDir::new_in(scratch)?;
        let memory = match setting.mode {
            Mode::Nvm => Some(ScratchDir::new_in(&nvm_dir(setting.pool))?),
            _ => None,
        };
        let pool = match setting.mode {
            Mode::Forebay => Some(setting.make_pool()?),
            _ => None,
        };
        let run_dir = dir.path().join("run");
        let data = memory.as_ref().unwrap_or(&dir).path().join("data");
        let mut options: Vec<String> = setting
            .mode
            .options()
            .iter()
            .map(|&word| word.to_owned())
            .collect();
        options.extend(["--save", "", "--loglevel", "warning"].map(str::to_owned));
        if setting.rewrites == Rewrites::Asked {
            options.extend(["--auto-aof-rewrite-percentage", "0"].map(str::to_owned));
        }
        let mut wrapper = wrapper(setting, &data, pool.as_ref());
        let mut environment = vec![(RUN_DIR.into(), run_dir.clone().into())];
        if setting.mode == Mode::Eatmydata
            && let Some(library) = find_eatmydata()
        {
            eat_syncs(&library, &mut wrapper, &mut environment);
        }
        Ok(Self {
            launch: Launch {
                program: setting.program.to_owned(),
                wrapper,
                dir: data,
                environment,
                options,
            },
            pool,
            forebay: setting.forebay.to_owned(),
            run_dir,
            mode: setting.mode,
            _dir: dir,
            _memory: memory,
        })
    }

    /// Starts the server.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub fn start(&self) -> Result<Server, BenchError> {
        std::fs::create_dir_all(&self.launch.dir)
            .map_err(BenchError::io("creating", &self.launch.dir))?;
        // What other rounds left for the device to do is not ours.
        sync_file_system(&self.launch.dir)?;
        Server::start(&self.launch)
    }

    /// How it is started; may be changed before it is.
    pub fn launch_mut(&mut self) -> &mut Launch {
        &mut self.launch
    }

    /// The server's directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.launch.dir
    }

    /// Bytes of NVM that are the server's, used or not: its lane's segments, or all its files where they are in memory.
    #[must_use]
    pub fn nvm_bytes(&self) -> Option<u64> {
        if self.mode == Mode::Nvm {
            return Some(disk_bytes(&self.launch.dir));
        }
        let pool = self.pool.as_ref()?.pool();
        let segments: u64 = pool
            .lanes()
            .iter()
            .map(|lane| u64::from(lane.segments))
            .sum();
        Some(segments * pool.geometry().segment_bytes)
    }

    /// What `forebay status` says of the server, if it runs under `forebay run`.
    #[must_use]
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

/// Where `forebay run` leaves a note of itself.
const RUN_DIR: &str = "FOREBAY_RUN_DIR";

/// Memory that files can be in: beside the pool, where that is a file on persistent memory, or else ordinary memory.
fn nvm_dir(pool: &PoolSource) -> PathBuf {
    match pool {
        PoolSource::At(path) if path.is_file() => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        },
        _ => memory_dir(),
    }
}

fn wrapper(setting: &Setting<'_>, data: &Path, pool: Option<&ScratchPool>) -> Vec<OsString> {
    let device = setting.device.filter(|_| setting.mode != Mode::Nvm);
    if pool.is_none() && device.is_none() {
        return Vec::new();
    }
    let options = device
        .map(|profile| ("--device", device_argument(data, profile)))
        .into_iter()
        .chain(
            setting
                .slowed
                .map(|profile| ("--media-profile", profile.name.into())),
        );
    let pool = pool.map(|pool| (pool.path(), setting.buffers));
    forebay_run(setting.forebay, pool, options)
}
