//! The environment's settings of this run's flash cache, read once.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};
use uuid::Uuid;

/// Names the flash file to the processes of a run.
pub const ENV_FLASH: &str = "FOREBAY_FLASH";
/// The path at which the process that has the cache writes its status.
pub const ENV_FLASH_STATUS: &str = "FOREBAY_FLASH_STATUS";
/// Names the run itself, by a UUID: the cache's status names its run.
pub const ENV_FLASH_RUN: &str = "FOREBAY_FLASH_RUN";
/// The program that was run, by its whole path: it may have the cache, whatever it is called.
pub const ENV_FLASH_PROGRAM: &str = "FOREBAY_FLASH_PROGRAM";

/// A server's settings.
pub(crate) struct SessionEnvironment {
    pub(crate) flash: PathBuf,
    pub(crate) status: Option<PathBuf>,
    pub(crate) run: Uuid,
}

/// A program of the run that is no server: the cache is not its.
pub(crate) struct ForeignProgram {
    pub(crate) program: PathBuf,
    pub(crate) flash: PathBuf,
}

/// This process, if the run has a flash cache.
enum RunRole {
    Server(SessionEnvironment),
    Foreign(ForeignProgram),
}

static ROLE: OnceLock<RunRole> = OnceLock::new();

/// File names of servers begin so.
const SERVERS: [&[u8]; 2] = [b"mariadbd", b"mysqld"];

/// True if the program at this path is a server by its name, or the one that was `run`. One that
/// cannot be told is.
fn is_server(program: &Path, run: Option<&OsStr>) -> bool {
    let name = program.file_name().unwrap_or_default().as_bytes();
    run.is_none_or(|run| run == program) || SERVERS.iter().any(|server| name.starts_with(server))
}

/// Reads the environment. Called once, before the program runs: some overwrite it with their title.
pub fn start() {
    let Some(flash) = std::env::var_os(ENV_FLASH).filter(|path| !path.is_empty()) else {
        return;
    };
    let run = std::env::var_os(ENV_FLASH_PROGRAM);
    if let Ok(program) = std::fs::read_link("/proc/self/exe")
        && !is_server(&program, run.as_deref())
    {
        let flash = flash.into();
        let _ = ROLE.set(RunRole::Foreign(ForeignProgram { program, flash }));
        return;
    }
    let run = std::env::var(ENV_FLASH_RUN).ok();
    let run = run.and_then(|run| run.parse().ok());
    let _ = ROLE.set(RunRole::Server(SessionEnvironment {
        flash: flash.into(),
        status: std::env::var_os(ENV_FLASH_STATUS).map(PathBuf::from),
        run: run.unwrap_or_default(),
    }));
}

/// The settings of a server of the run; none in another program.
pub(crate) fn of_server() -> Option<&'static SessionEnvironment> {
    match ROLE.get() {
        Some(RunRole::Server(told)) => Some(told),
        _ => None,
    }
}

/// This process's note as a foreign program, if it is no server.
pub(crate) fn foreign() -> Option<&'static ForeignProgram> {
    match ROLE.get() {
        Some(RunRole::Foreign(program)) => Some(program),
        _ => None,
    }
}

/// True if this run has a flash cache.
#[inline]
#[must_use]
pub fn is_configured() -> bool {
    ROLE.get().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_their_names_or_by_being_what_was_run() {
        let run = Some(OsStr::new("/opt/db/own-server"));
        let is = |program: &str| is_server(Path::new(program), run);
        for server in [
            "/usr/sbin/mariadbd",
            "/usr/sbin/mysqld",
            "/opt/mariadbd-debug",
            "/opt/db/own-server",
        ] {
            assert!(is(server), "{server}");
        }
        for other in [
            "/usr/bin/rsync",
            "/usr/bin/mariadb-backup",
            "/usr/bin/mysql",
            "/bin/own-server",
        ] {
            assert!(!is(other), "{other}");
        }
        assert!(is_server(Path::new("/usr/bin/rsync"), None));
    }
}
