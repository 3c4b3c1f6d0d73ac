//! The directory in which running supervisors leave their sockets and status.

use crate::failure::Failure;
use forebay_files::supervisor::{RunScope, run_dir_remedy};
use std::{
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::PathBuf,
};

/// The environment variable that names it.
const NAMED: &str = "FOREBAY_RUN_DIR";

/// The runs that a look is about: those of the run directory, if the user named one, and all of the
/// user's otherwise.
pub fn whose() -> RunScope {
    match std::env::var_os(NAMED) {
        Some(_) => RunScope::Directory,
        None => RunScope::User,
    }
}

/// The same, or with `--all` the runs of all users.
///
/// # Errors
/// This is not root.
pub fn whose_runs(all: bool) -> Result<RunScope, Failure> {
    if !all {
        return Ok(whose());
    }
    match rustix::process::geteuid().is_root() {
        true => Ok(RunScope::All),
        false => Err(Failure::Usage(
            "--all is for root: the runs of another user answer only that user and root".to_owned(),
        )),
    }
}

/// One place for all of root's, one for each other user's.
fn place() -> PathBuf {
    let uid = rustix::process::getuid();
    if let Some(dir) = std::env::var_os(NAMED) {
        PathBuf::from(dir)
    } else if uid.is_root() {
        PathBuf::from("/run/forebay")
    } else if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR") {
        PathBuf::from(dir).join("forebay")
    } else {
        std::env::temp_dir().join(format!("forebay-{}", uid.as_raw()))
    }
}

/// The run directory, to be looked into: it may not be there.
pub fn existing_run_dir() -> Result<PathBuf, Failure> {
    let dir = place();
    match std::fs::metadata(&dir) {
        Err(_) => Ok(dir),
        Ok(_) => checked(dir),
    }
}

/// The run directory, which is made if it is not there.
pub fn run_dir() -> Result<PathBuf, Failure> {
    let dir = place();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .map_err(|e| {
            let remedy = run_dir_remedy(&e);
            Failure::Failed(format!("creating {}: {e}{remedy}", dir.display()))
        })?;
    checked(dir)
}

/// The directory, if it is this user's.
fn checked(dir: PathBuf) -> Result<PathBuf, Failure> {
    let uid = rustix::process::getuid();
    let meta = std::fs::metadata(&dir).map_err(Failure::io("looking at", dir.display()))?;
    if meta.uid() != uid.as_raw() {
        return Err(Failure::Failed(format!(
            "{0} belongs to user {1}. To look at that user's runs: runuser -u USER -- env FOREBAY_RUN_DIR={0} forebay status. For runs of your own name another \
             directory with the environment variable FOREBAY_RUN_DIR",
            dir.display(),
            meta.uid()
        )));
    }
    Ok(dir)
}
