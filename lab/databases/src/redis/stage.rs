//! The stage of a server: its directory, and its command line in a mode.

use super::server::{Launch, Server};
use crate::{
    MeasureError,
    contest::{Around, Behind, Syncs, around::Setting},
    scratch::{PoolSource, ScratchDir, dir_beside, disk_bytes, memory_dir, sync_file_system},
};
use std::path::Path;

/// When the append-only file is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrites {
    /// Only when a client asks for it.
    Asked,
    /// By the server's default rule: when the file has doubled, from 64 MiB on.
    Automatic,
}

/// A directory, what stands around the server, and the server that is started there. All gone when
/// this is dropped.
pub struct Stage {
    launch: Launch,
    around: Around,
    _dir: ScratchDir,
    memory: Option<ScratchDir>,
}

impl Stage {
    /// Makes directory and pool; the directory is inside `scratch` and on the emulated `device`,
    /// except where the mode has it in memory.
    ///
    /// # Errors
    /// I/O errors and those of the pool.
    pub fn new(
        setting: &Setting<'_>,
        device: Option<&str>,
        program: &Path,
        rewrites: Rewrites,
        scratch: &Path,
    ) -> Result<Self, MeasureError> {
        let mode = setting.contender.mode;
        let dir = ScratchDir::new_in(scratch)?;
        let memory = match mode.syncs {
            // On persistent memory, where the pool is a file there, or else in ordinary memory.
            Syncs::Memory => {
                let beside = match &setting.pools.source {
                    PoolSource::OnDisk(_) => None,
                    source => dir_beside(source),
                };
                Some(ScratchDir::new_in(&beside.unwrap_or_else(memory_dir))?)
            }
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
        let mut launch = Launch::of(program.to_owned(), &data);
        launch.stand_in(&around);
        launch.options = options.into_iter().map(str::to_owned).collect();
        Ok(Self {
            launch,
            around,
            _dir: dir,
            memory,
        })
    }

    /// Starts the server.
    pub fn start(&self) -> Result<Server, MeasureError> {
        std::fs::create_dir_all(&self.launch.dir)
            .map_err(MeasureError::io("creating", &self.launch.dir))?;
        // What other rounds left for the device to do is not ours.
        sync_file_system(&self.launch.dir)?;
        Server::start(&self.launch)
    }

    /// How it is started; may be changed before it is.
    pub fn launch_mut(&mut self) -> &mut Launch {
        &mut self.launch
    }

    /// The server's directory.
    pub fn data_dir(&self) -> &Path {
        &self.launch.dir
    }

    /// Bytes of NVM that are the server's, used or not: its lane's segments, or all its files where
    /// they are in memory.
    pub fn nvm_bytes(&self) -> Option<u64> {
        match self.memory {
            Some(_) => Some(disk_bytes(&self.launch.dir)),
            None => self.around.nvm_bytes(),
        }
    }

    /// What `forebay status` says of the server, if it runs under `forebay run`.
    pub fn behind(&self) -> Option<Behind> {
        self.around.behind()
    }
}
