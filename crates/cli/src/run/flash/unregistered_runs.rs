//! Flash caches of runs whose note is gone: a logout takes `$XDG_RUNTIME_DIR` away, and such a run
//! may have no supervisor that could be asked. What cannot be lost with a directory is the
//! environment of its processes, which the kernel shows to their user and to root.

use forebay_files::supervisor::RunScope;
use forebay_innodb::{ENV_FLASH, ENV_FLASH_RUN};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// A run with a flash cache, as a process of it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnnotedRun {
    /// `forebay run`, or a process of a program that has lost it.
    pub(super) pid: u32,
    /// It is `forebay run`.
    pub(super) is_forebay: bool,
    pub(super) flash: PathBuf,
}

/// Runs with a flash cache of which there is a process, by the run.
pub(super) fn find(whose: RunScope) -> BTreeMap<Uuid, UnnotedRun> {
    let user = rustix::process::geteuid().as_raw();
    let is_wanted = |uid| whose == RunScope::All || uid == user;
    let mut runs: BTreeMap<Uuid, UnnotedRun> = BTreeMap::new();
    let Ok(processes) = fs::read_dir("/proc") else {
        return runs;
    };
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if !process.metadata().is_ok_and(|it| is_wanted(it.uid())) {
            continue;
        }
        // Another user's cannot be read, and one that has ended has none.
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        let Some((run, flash)) = named(&environment) else {
            continue;
        };
        let forebay = parent(pid).filter(|parent| is_forebay(*parent));
        let found = UnnotedRun {
            pid: forebay.unwrap_or(pid),
            is_forebay: forebay.is_some(),
            flash,
        };
        let known = runs.entry(run).or_insert_with(|| found.clone());
        if found.is_forebay {
            *known = found;
        }
    }
    runs
}

/// Run and flash file that an environment names.
fn named(environment: &[u8]) -> Option<(Uuid, PathBuf)> {
    let value = |name: &str| {
        let mut all = environment.split(|byte| *byte == 0);
        all.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    };
    let run = std::str::from_utf8(value(ENV_FLASH_RUN)?).ok()?;
    let flash = PathBuf::from(OsStr::from_bytes(value(ENV_FLASH)?));
    Some((run.parse().ok()?, flash))
}

/// The process that started this one.
fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// By the program that it executes: a process gives itself any name, and a script has its own.
fn is_forebay(pid: u32) -> bool {
    let executable = fs::read_link(format!("/proc/{pid}/exe"));
    executable.is_ok_and(|path| is_forebays(&path))
}

/// One that was replaced by an update meanwhile is said to be deleted.
fn is_forebays(executable: &Path) -> bool {
    let name = executable.file_name().unwrap_or_default().as_bytes();
    name.strip_suffix(b" (deleted)").unwrap_or(name) == b"forebay"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn run_is_found_by_its_process_without_a_note() {
        let run = Uuid::new_v4();
        let mut server = Command::new("sleep")
            .arg("60")
            .env(ENV_FLASH_RUN, run.to_string())
            .env(ENV_FLASH, "/fast/cache")
            .spawn()
            .unwrap();
        let found = find(RunScope::User);
        server.kill().unwrap();
        server.wait().unwrap();
        let expected = UnnotedRun {
            pid: server.id(),
            is_forebay: false,
            flash: "/fast/cache".into(),
        };
        assert_eq!(found.get(&run), Some(&expected));
        assert_eq!(find(RunScope::User).get(&run), None);
    }

    #[test]
    fn forebay_is_known_by_its_executable() {
        for path in ["/usr/bin/forebay", "/opt/f/forebay (deleted)"] {
            assert!(is_forebays(Path::new(path)), "{path}");
        }
        for path in ["/usr/bin/bash", "/usr/bin/forebay-x", "/forebay/sh", ""] {
            assert!(!is_forebays(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn environment_without_a_run_names_none() {
        let run = Uuid::new_v4();
        let both = format!("A=b\0FOREBAY_FLASH_RUN={run}\0FOREBAY_FLASH=/f\0");
        assert_eq!(named(both.as_bytes()), Some((run, "/f".into())));
        for other in [
            "",
            "FOREBAY_FLASH=/f\0",
            "FOREBAY_FLASH_RUN=x\0FOREBAY_FLASH=/f\0",
        ] {
            assert_eq!(named(other.as_bytes()), None, "{other}");
        }
    }
}
