//! Where a server stands: its directory, and its command line in a mode.

use super::server::{Launch, Server};
use crate::{
    BenchError,
    contest::{Around, Behind, Syncs, around::Setting},
    scratch::{PoolSource, ScratchDir, disk_bytes, memory_dir, sync_file_system},
};
use std::path::{Path, PathBuf};

/// When the append-only file is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrites {
    /// When somebody asks for it only.
    Asked,
    /// By the server's default rule: when the file has doubled, from 64 MiB on.
    Automatic,
}

/// A directory, what stands around the server, and the server that is started there. All gone when this is dropped.
pub struct Stage {
    launch: Launch,
    around: Around,
    _dir: ScratchDir,
    memory: Option<ScratchDir>,
}

impl Stage {
    /// Makes directory and pool; the directory is inside `scratch` and on the emulated `device`, except where the mode has it in memory.
    ///
    /// # Errors
    /// I/O errors and those of the pool.
    pub fn new(
        setting: &Setting<'_>,
        device: Option<&str>,
        program: &Path,
        rewrites: Rewrites,
        scratch: &Path,
    ) -> Result<Self, BenchError> {
        let mode = setting.contender.mode;
        let dir = ScratchDir::new_in(scratch)?;
        let memory = match mode.syncs {
            Syncs::Memory => Some(ScratchDir::new_in(&nvm_dir(&setting.pools.source))?),
            _ => None,
        };
        let data = memory.as_ref().unwrap_or(&dir).path().join("data");
        let on_device = device.filter(|_| memory.is_none());
        let devices: Vec<_> = on_device.map(|it| (&*data, it)).into_iter().collect();
        let around = setting.around(&devices, [], dir.path().join("run"))?;
        let mut options = mode.settings.to_vec();
        options.extend(["--save", "", "--loglevel", "warning"]);
        if rewrites == Rewrites::Asked {
            options.extend(["--auto-aof-rewrite-percentage", "0"]);
        }
        Ok(Self {
            launch: Launch {
                program: program.to_owned(),
                wrapper: around.wrapper.clone(),
                dir: data,
                environment: around.environment.clone(),
                options: options.into_iter().map(str::to_owned).collect(),
            },
            around,
            _dir: dir,
            memory,
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
        match self.memory {
            Some(_) => Some(disk_bytes(&self.launch.dir)),
            None => self.around.nvm_bytes(),
        }
    }

    /// What `forebay status` says of the server, if it runs under `forebay run`.
    #[must_use]
    pub fn behind(&self) -> Option<Behind> {
        self.around.behind()
    }
}

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
