//! Questions and orders to systemd, by `systemctl`.

use super::name::UnitName;
use crate::{
    failure::Failure,
    standard_error::{complain, say},
};
use std::{
    io::{self, BufRead, IsTerminal},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// True if systemd has started this system (sd_booted(3)).
pub fn is_running() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// A unit's properties, as systemd shows them.
pub struct ShownUnit {
    /// Its own name.
    pub id: String,
    /// `loaded`, `masked`, `not-found`, …
    pub load_state: String,
    /// Its file, and its drop-ins in the order in which they are read.
    pub files: Vec<PathBuf>,
    /// Its files were changed since.
    pub is_stale: bool,
}

impl ShownUnit {
    /// Asks.
    ///
    /// # Errors
    /// `systemctl` cannot be run, or fails.
    pub fn of(name: &UnitName) -> Result<Self, Failure> {
        let properties = "--property=Id,LoadState,FragmentPath,DropInPaths,NeedDaemonReload";
        let output = Command::new("systemctl")
            .args(["show", properties, "--", name.full()])
            .stdin(Stdio::null())
            .output()
            .map_err(Failure::io("running", "systemctl"))?;
        if !output.status.success() {
            return Err(Failure::Failed(format!(
                "systemctl show {}: {}",
                name.full(),
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        Ok(Self::read(&String::from_utf8_lossy(&output.stdout)))
    }

    fn read(shown: &str) -> Self {
        let value = |key: &str| {
            let mut lines = shown.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            value.unwrap_or_default()
        };
        let fragment = Some(value("FragmentPath")).filter(|path| !path.is_empty());
        let drop_ins = value("DropInPaths").split_whitespace();
        Self {
            id: value("Id").to_owned(),
            load_state: value("LoadState").to_owned(),
            is_stale: value("NeedDaemonReload") == "yes",
            files: fragment
                .into_iter()
                .chain(drop_ins)
                .map(PathBuf::from)
                .collect(),
        }
    }
}

/// Tells it something; its words go to standard error.
///
/// # Errors
/// It says that it failed.
pub fn tell(words: &[&str]) -> Result<(), Failure> {
    let status = Command::new("systemctl")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(Failure::io("running", "systemctl"))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Failed(format!(
            "systemctl {} failed",
            words.join(" ")
        ))),
    }
}

/// True if a unit runs, or is about to.
pub fn is_active(name: &UnitName) -> bool {
    let mut ask = Command::new("systemctl");
    ask.args([
        "show",
        "--property=ActiveState",
        "--value",
        "--",
        name.full(),
    ]);
    let output = ask.stdin(Stdio::null()).output();
    let state = output.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
    // Where that cannot be told, it may.
    !state.is_ok_and(|state| state == "inactive" || state == "failed")
}

/// A process that is left in a unit's control group, if there is one: a unit that may not kill its
/// program (`SendSIGKILL=no`) counts as ended while that runs.
pub fn process_of(name: &UnitName) -> Option<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut processes = entries.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    processes.find(|process| {
        let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup"));
        groups.is_ok_and(|it| it.lines().any(|line| is_group_of(line, name)))
    })
}

/// True if a line of `/proc/PID/cgroup` names the group of a unit of this system, or one in it.
fn is_group_of(line: &str, name: &UnitName) -> bool {
    let path = line.splitn(3, ':').nth(2).unwrap_or_default();
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    // A user's own units, and those in a container, lie in a service or scope.
    parts.find(|part| !part.ends_with(".slice")) == Some(name.full())
}

/// Asks the user, on a terminal; elsewhere the answer is no.
pub fn asks(question: &str) -> bool {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    say(format_args!("{question} [y/N] "));
    let mut answer = String::new();
    if io::stdin().lock().read_line(&mut answer).is_err() {
        return false;
    }
    let is_yes = ["y", "yes"].contains(&&*answer.trim().to_ascii_lowercase());
    if !is_yes {
        complain!("not done");
    }
    is_yes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_s_processes_are_known_by_their_group() {
        let name = UnitName::parse("db@1").unwrap();
        for (line, is_its) in [
            ("0::/system.slice/system-db.slice/db@1.service", true),
            ("0::/system.slice/db@1.service/inner", true),
            ("1:name=systemd:/system.slice/db@1.service", true),
            ("0::/system.slice/db@12.service", false),
            ("0::/user.slice/user@1.service/db@1.service", false),
            ("0::/", false),
        ] {
            assert_eq!(is_group_of(line, &name), is_its, "{line}");
        }
    }

    #[test]
    fn what_systemd_shows_of_a_unit_is_read() {
        let shown = ShownUnit::read(
            "Id=redis-server.service\nLoadState=loaded\nFragmentPath=/lib/systemd/system/redis-server.service\nDropInPaths=/etc/a.conf /etc/b.conf\n",
        );
        assert_eq!(
            (&*shown.id, &*shown.load_state),
            ("redis-server.service", "loaded")
        );
        assert_eq!(shown.files.len(), 3);
        assert_eq!(
            ShownUnit::read("LoadState=not-found\nFragmentPath=\n")
                .files
                .len(),
            0
        );
    }
}
