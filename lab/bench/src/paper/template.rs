//! MariaDB's data directory that is loaded once, and of which each row gets a copy.

use crate::{
    BenchError,
    mariadb::server::{self, Launch, Server},
    scratch::{ScratchDir, sync_file_system},
};
use std::{fs, path::PathBuf};

/// A loaded directory.
pub(super) struct Template(PathBuf);

impl Template {
    /// Makes it in `dir` by a server with these options: `prepare` makes the tables.
    pub fn load(
        dir: PathBuf,
        options: Vec<String>,
        prepare: impl FnOnce(&Server) -> Result<(), BenchError>,
    ) -> Result<Self, BenchError> {
        fs::create_dir_all(&dir).map_err(BenchError::io("creating", &dir))?;
        let mut launch = Launch::new(&dir).map_err(BenchError::Config)?;
        server::create(&launch.data())?;
        launch.options = options;
        let server = Server::start(&launch)?;
        prepare(&server)?;
        server.stop()?;
        Ok(Self(dir))
    }

    /// The tables.
    pub fn tables(&self) -> PathBuf {
        self.0.join("data").join(server::DATABASE)
    }

    /// A copy of `parts` in a directory of its own inside of `parent`, which is made if need be, and how a server is started there.
    pub fn copied(
        &self,
        parts: &[&str],
        parent: PathBuf,
    ) -> Result<(ScratchDir, Launch), BenchError> {
        let made = fs::create_dir_all(&parent).and_then(|()| parent.canonicalize());
        let dir = ScratchDir::new_in(&made.map_err(BenchError::io("finding", &parent))?)?;
        let launch = Launch::new(dir.path()).map_err(BenchError::Config)?;
        for part in parts {
            server::copy(&self.0.join(part), &dir.path().join(part))?;
        }
        sync_file_system(dir.path())?;
        Ok((dir, launch))
    }
}
