//! MariaDB's data directory that is loaded once, and servers that each work on a copy of it.

use crate::{
    BenchError,
    contest::Around,
    mariadb::server::{self, Launch, Server},
    scratch::{ScratchDir, sync_file_system},
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// The end of the names of RocksDB's tables, which are written once, and only ever removed.
const WRITTEN_ONCE: &str = "sst";

/// Copies a data directory that no server has open. What is never written again the copy has in
/// common with it: memory has no room for seven graphs of the papers' size.
fn copy(from: &Path, to: &Path) -> Result<(), BenchError> {
    fs::create_dir_all(to).map_err(BenchError::io("creating", to))?;
    let entries = fs::read_dir(from).map_err(BenchError::io("listing", from))?;
    for entry in entries {
        let entry = entry.map_err(BenchError::io("listing", from))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let is_written_once = from.extension().is_some_and(|end| end == WRITTEN_ONCE);
        let done = match (from.is_dir(), is_written_once) {
            (true, _) => {
                copy(&from, &to)?;
                continue;
            }
            (_, true) => fs::hard_link(&from, &to),
            (..) => fs::copy(&from, &to).map(drop),
        };
        done.map_err(BenchError::io("copying", &from))?;
    }
    Ok(())
}

/// A loaded directory.
pub(super) struct Template(PathBuf);

/// A server on a copy, and what it lies on.
pub(super) struct Standing {
    pub server: Server,
    _around: Around,
    pub dir: ScratchDir,
}

impl Standing {
    /// Ends the server by `end`, which gets its directory as well, and starts it again. How long
    /// the start took, seconds.
    pub fn restarted(
        self,
        end: impl FnOnce(Server, &Path) -> Result<(), BenchError>,
    ) -> Result<(Self, f64), BenchError> {
        let launch = self.server.launch().clone();
        end(self.server, self.dir.path())?;
        let begun = Instant::now();
        let server = Server::start(&launch)?;
        Ok((Self { server, ..self }, begun.elapsed().as_secs_f64()))
    }
}

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

    /// Where it lies.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// The tables.
    pub fn tables(&self) -> PathBuf {
        self.0.join("data").join(server::DATABASE)
    }

    /// Starts a server on a copy of `parts`, in a directory of its own inside of `parent`, which is
    /// made if need be. `with` says what stands around it there, and its options.
    pub fn start(
        &self,
        parts: &[&str],
        parent: &Path,
        with: impl FnOnce(&Path) -> Result<(Around, Vec<String>), BenchError>,
    ) -> Result<Standing, BenchError> {
        let made = fs::create_dir_all(parent).and_then(|()| parent.canonicalize());
        let dir = ScratchDir::new_in(&made.map_err(BenchError::io("finding", parent))?)?;
        let mut launch = Launch::new(dir.path()).map_err(BenchError::Config)?;
        for part in parts {
            copy(&self.0.join(part), &dir.path().join(part))?;
        }
        sync_file_system(dir.path())?;
        let (around, options) = with(dir.path())?;
        launch.stand_in(&around);
        launch.options = options;
        Ok(Standing {
            server: Server::start(&launch)?,
            _around: around,
            dir,
        })
    }
}
