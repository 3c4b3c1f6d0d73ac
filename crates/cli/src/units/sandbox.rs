//! A unit's sandbox (systemd.exec(5)), and the rights that a drop-in gives back to forebay: as few
//! as will do. A right that would open the sandbox is refused, with the reason.
//!
//! Each answer is a line of `[Service]`; the rules stand in the order of [`answer`].

use super::settings::UnitSettings;
use crate::{failure::Failure, metrics::MetricsAddress};
use std::{net::SocketAddr, path::Path};

/// The paths and calls that have to be reached from within the unit.
pub struct SandboxNeeds<'a> {
    /// The unit, for messages.
    pub unit: &'a str,
    /// The pool's file or device.
    pub pool: &'a Path,
    /// The pool is a device.
    pub is_device: bool,
    /// `forebay`, and `libforebay.so`.
    pub programs: [&'a Path; 2],
    /// The address at which the run serves figures, if it does.
    pub metrics: Option<MetricsAddress>,
}

/// The drop-in's lines, and notes for the user.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SandboxAnswer {
    /// Lines of `[Service]`, with comments.
    pub lines: Vec<String>,
    /// Sentences.
    pub notes: Vec<String>,
}

/// Signals that `forebay run` passes on, of those that a unit may stop its program with.
const PASSED: [&str; 9] = [
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCONT",
    "SIGWINCH",
];
/// Directories that belong to users.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];
/// Directories of temporary files.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
/// Directories in which `ProtectSystem=` lets nothing be written.
const ALWAYS_READ_ONLY: [&str; 3] = ["/usr", "/boot", "/etc"];

/// Looks at the settings, one after the other.
///
/// # Errors
/// [`Failure::Failed`]: a setting that speaks against it.
pub fn answer(settings: &UnitSettings, needs: &SandboxNeeds<'_>) -> Result<SandboxAnswer, Failure> {
    refuse(settings, needs).map_err(|why| Failure::Failed(format!("{}: {why}", needs.unit)))?;
    let mut answer = SandboxAnswer::default();
    paths(settings, needs, &mut answer);
    calls(settings, &mut answer);
    if let Some(address) = needs.metrics {
        figures(settings, address.socket(), &mut answer);
    }
    processes(settings, &mut answer);
    limits(settings, &mut answer);
    Ok(answer)
}

fn is_in(path: &Path, places: &[&str]) -> bool {
    places.iter().any(|place| path.starts_with(place))
}

/// Values of a setting that is off, or not there.
fn is_set(settings: &UnitSettings, key: &str) -> bool {
    let off = ["", "no", "false", "off", "0", "n", "f"];
    settings
        .value(key)
        .is_some_and(|it| !off.contains(&&*it.to_ascii_lowercase()))
}

fn refuse(settings: &UnitSettings, needs: &SandboxNeeds<'_>) -> Result<(), String> {
    for key in ["RootDirectory", "RootImage", "RootDirectoryStartOnly"] {
        if is_set(settings, key) {
            return Err(format!(
                "it has {key}=, where neither forebay nor the pool is. Start the server there by hand under forebay run"
            ));
        }
    }
    if settings.is_on("DynamicUser") {
        return Err("it has DynamicUser=yes, so that no pool can belong to its user. Give it a user of its own (User=) in a drop-in".to_owned());
    }
    let calls = settings.words("SystemCallFilter");
    if let Some(killing) = calls.iter().find(|it| it.ends_with(":kill")) {
        return Err(format!(
            "its SystemCallFilter= has {killing}, which would kill forebay where it tries that call. Leave :kill away in a drop-in"
        ));
    }
    if let Some(signal) = settings.value("KillSignal") {
        let named = format!("SIG{}", signal.trim_start_matches("SIG"));
        if !PASSED.contains(&&*named) {
            return Err(format!(
                "it is stopped by KillSignal={signal}, which forebay run does not pass on"
            ));
        }
    }
    if needs.metrics.is_some() && settings.is_on("PrivateNetwork") {
        return Err("it has PrivateNetwork=yes, where nobody reaches its figures. Leave --metrics away, and let forebay status --all --textfile write them".to_owned());
    }
    for path in needs.programs.into_iter().chain([needs.pool]) {
        refuse_place(settings, path)?;
    }
    let pool = needs.pool.display();
    if needs.is_device
        && (settings.is_on("PrivateDevices")
            || is_set(settings, "DevicePolicy")
            || is_set(settings, "DeviceAllow"))
    {
        return Err(format!(
            "it may not use the device {pool} (PrivateDevices=, DevicePolicy=, DeviceAllow=). Take a pool that is a file (--pool PATH)"
        ));
    }
    if is_set(settings, "ProtectSystem") && is_in(needs.pool, &ALWAYS_READ_ONLY) {
        return Err(format!(
            "it has ProtectSystem=, and the pool {pool} lies where that lets nothing be written. Choose another place"
        ));
    }
    Ok(())
}

/// Refuses a place that the unit does not see.
fn refuse_place(settings: &UnitSettings, path: &Path) -> Result<(), String> {
    let shown = path.display();
    if is_set(settings, "ProtectHome") && is_in(path, &HOMES) {
        return Err(format!(
            "it has ProtectHome=, and {shown} lies in a home directory. Choose another place"
        ));
    }
    if settings.is_on("PrivateTmp") && is_in(path, &TEMPORARY) {
        return Err(format!(
            "it has PrivateTmp=, and {shown} lies among temporary files. Choose another place"
        ));
    }
    for key in ["InaccessiblePaths", "TemporaryFileSystem"] {
        let hidden = |word: &str| {
            Path::new(
                word.trim_start_matches(['-', '+'])
                    .split(':')
                    .next()
                    .unwrap_or_default(),
            )
            .to_owned()
        };
        if settings
            .words(key)
            .iter()
            .any(|word| path.starts_with(hidden(word)))
        {
            return Err(format!("its {key}= hides {shown}. Choose another place"));
        }
    }
    Ok(())
}

/// Files that must be reached.
fn paths(settings: &UnitSettings, needs: &SandboxNeeds<'_>, answer: &mut SandboxAnswer) {
    let read_only = ["ReadOnlyPaths", "ReadOnlyDirectories"].map(|key| settings.words(key));
    let mut read_only = read_only.iter().flatten();
    let is_read_only = settings.value("ProtectSystem") == Some("strict")
        || read_only.any(|word| needs.pool.starts_with(word.trim_start_matches(['-', '+'])));
    if !needs.is_device && is_read_only {
        let directory = needs.pool.parent().unwrap_or(Path::new("/"));
        let line = format!("ReadWritePaths={}", directory.display());
        answer.lines.push(line);
    }
    if !settings.list("NoExecPaths").is_empty() {
        let [forebay, library] = needs.programs;
        // The library's own directory, if it has one: a file would be a mount of its own, which an
        // upgrade of the package takes away under the run, and the library's name with it.
        let own = library.parent().filter(|it| it.ends_with("forebay"));
        let library = own.unwrap_or(library).display();
        let line = format!("ExecPaths={} {library}", forebay.display());
        answer.lines.push(line);
    }
    if settings.is_on("RemoveIPC") {
        let why = "# Runs of this user tell each other in /dev/shm which files they absorb.";
        answer
            .lines
            .extend([why, "RemoveIPC=no"].map(str::to_owned));
    }
}

/// System calls.
fn calls(settings: &UnitSettings, answer: &mut SandboxAnswer) {
    // Only an error's name keeps a filter from killing: kill is a value, too.
    let is_error = |value: &str| {
        value
            .strip_prefix('E')
            .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_alphanumeric()))
    };
    let is_told = settings
        .value("SystemCallErrorNumber")
        .is_some_and(is_error);
    if !settings.list("SystemCallFilter").is_empty() && !is_told {
        answer.lines.push(
            "# Forebay does without the calls that the filter refuses, if it gets an error and is not killed."
                .to_owned(),
        );
        answer.lines.push("SystemCallErrorNumber=EPERM".to_owned());
    }
    let why = "# The program speaks with its supervisor.";
    allow_family(settings, "AF_UNIX", why, answer);
}

/// Sockets of this family are allowed, whether the unit lists those that are or those that are not.
fn allow_family(settings: &UnitSettings, family: &str, why: &str, answer: &mut SandboxAnswer) {
    const KEY: &str = "RestrictAddressFamilies";
    let families = settings.words(KEY);
    let is_denied = match families.first() {
        None => false,
        Some(first) if first.starts_with('~') => families
            .iter()
            .any(|it| it.trim_start_matches('~') == family),
        Some(_) => !families.contains(&family),
    };
    if is_denied {
        let line = format!("{KEY}={family}");
        answer.lines.extend([why.to_owned(), line]);
    }
}

/// The address at which the run serves figures.
fn figures(settings: &UnitSettings, address: SocketAddr, answer: &mut SandboxAnswer) {
    let family = if address.is_ipv4() {
        "AF_INET"
    } else {
        "AF_INET6"
    };
    let why = "# Its figures are served there (--metrics).";
    allow_family(settings, family, why, answer);
    if !settings.list("SocketBindDeny").is_empty() {
        let line = format!("SocketBindAllow=tcp:{}", address.port());
        answer.lines.extend([why.to_owned(), line]);
    }
    if !settings.list("IPAddressDeny").is_empty() {
        answer.notes.push(format!(
            "IPAddressDeny= and IPAddressAllow= decide who reaches the figures at {address}: a scraper on this machine needs localhost among the allowed"
        ));
    }
}

/// The processes that are seen.
fn processes(settings: &UnitSettings, answer: &mut SandboxAnswer) {
    if settings.value("ProcSubset") == Some("pid") {
        answer
            .lines
            .push("# Forebay reads /proc/sys and the like.".to_owned());
        answer.lines.push("ProcSubset=all".to_owned());
    }
    if settings.value("NotifyAccess") != Some("all") {
        answer
            .lines
            .push("# The server says that it is ready, not its supervisor.".to_owned());
        answer.lines.push("NotifyAccess=all".to_owned());
    }
    if settings.value("PIDFile").is_some() {
        answer
            .lines
            .push("# The main process is the supervisor, which the file does not name.".to_owned());
        answer.lines.push("PIDFile=".to_owned());
    }
}

/// Memory and other limits.
fn limits(settings: &UnitSettings, answer: &mut SandboxAnswer) {
    for key in ["MemoryMax", "MemoryHigh", "MemoryLimit"] {
        if let Some(limit) = settings.value(key).filter(|it| *it != "infinity") {
            answer.notes.push(format!("{key}={limit} counts the supervisor's memory as well, and of a pool on a disk its bytes: make room for them"));
        }
    }
    for key in ["LimitAS", "LimitFSIZE"] {
        if let Some(limit) = settings.value(key).filter(|it| *it != "infinity") {
            answer.notes.push(format!(
                "{key}={limit} needs room for the pool's size, or files stay plain"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(pool: &str) -> SandboxNeeds<'_> {
        SandboxNeeds {
            unit: "db",
            pool: Path::new(pool),
            is_device: pool.starts_with("/dev"),
            programs: [
                Path::new("/usr/bin/forebay"),
                Path::new("/usr/lib/forebay/libforebay.so"),
            ],
            metrics: None,
        }
    }

    fn settings(text: &str) -> UnitSettings {
        let mut settings = UnitSettings::default();
        settings.add(Path::new("db.service"), &format!("[Service]\n{text}\n"));
        settings
    }

    #[track_caller]
    fn lines(text: &str) -> Vec<String> {
        let answer = answer(&settings(text), &needs("/var/lib/forebay/db.pool")).unwrap();
        answer
            .lines
            .into_iter()
            .filter(|it| !it.starts_with('#'))
            .collect()
    }

    #[test]
    fn a_sandbox_is_opened_as_far_as_is_needed() {
        let ready = "NotifyAccess=all";
        for (text, expected) in [
            ("", vec![ready]),
            ("NotifyAccess=all", vec![]),
            (
                "ProtectSystem=strict",
                vec!["ReadWritePaths=/var/lib/forebay", ready],
            ),
            (
                "ReadOnlyPaths=-/var",
                vec!["ReadWritePaths=/var/lib/forebay", ready],
            ),
            (
                "NoExecPaths=/",
                vec!["ExecPaths=/usr/bin/forebay /usr/lib/forebay", ready],
            ),
            (
                "SystemCallFilter=@system-service",
                vec!["SystemCallErrorNumber=EPERM", ready],
            ),
            (
                "SystemCallFilter=a\nSystemCallErrorNumber=EACCES",
                vec![ready],
            ),
            (
                "SystemCallFilter=a\nSystemCallErrorNumber=kill",
                vec!["SystemCallErrorNumber=EPERM", ready],
            ),
            (
                "RestrictAddressFamilies=AF_INET",
                vec!["RestrictAddressFamilies=AF_UNIX", ready],
            ),
            ("RestrictAddressFamilies=AF_INET AF_UNIX", vec![ready]),
            (
                "RestrictAddressFamilies=~AF_UNIX",
                vec!["RestrictAddressFamilies=AF_UNIX", ready],
            ),
            (
                "ProcSubset=pid\nPIDFile=/run/x",
                vec!["ProcSubset=all", ready, "PIDFile="],
            ),
            ("RemoveIPC=true", vec!["RemoveIPC=no", ready]),
        ] {
            assert_eq!(lines(text), expected, "{text}");
        }
    }

    #[test]
    fn what_would_open_the_sandbox_wide_is_refused() {
        for (text, pool, word) in [
            ("ProtectHome=yes", "/home/db/pool", "ProtectHome"),
            ("PrivateTmp=true", "/var/tmp/pool", "PrivateTmp"),
            ("PrivateDevices=true", "/dev/dax0.0", "PrivateDevices"),
            ("ProtectSystem=full", "/etc/pool", "ProtectSystem"),
            ("InaccessiblePaths=-/mnt", "/mnt/pool", "InaccessiblePaths"),
            (
                "TemporaryFileSystem=/var:ro",
                "/var/pool",
                "TemporaryFileSystem",
            ),
            ("DynamicUser=yes", "/p", "DynamicUser"),
            ("RootDirectory=/srv", "/p", "RootDirectory"),
            ("KillSignal=SIGKILL", "/p", "KillSignal"),
            ("SystemCallFilter=~a b:kill", "/p", "b:kill"),
        ] {
            let Err(Failure::Failed(message)) = answer(&settings(text), &needs(pool)) else {
                panic!("{text} is taken");
            };
            assert!(
                message.starts_with("db: ") && message.contains(word),
                "{message}"
            );
        }
        answer(&settings("KillSignal=SIGINT"), &needs("/p")).unwrap();
    }

    #[test]
    fn figures_have_their_address_in_the_sandbox() {
        let with_figures = |text: &str, address: &str| {
            let needs = SandboxNeeds {
                metrics: Some(address.parse().unwrap()),
                ..needs("/p")
            };
            answer(&settings(&format!("NotifyAccess=all\n{text}")), &needs)
        };
        for (text, address, expected) in [
            ("", "9469", vec![]),
            (
                "RestrictAddressFamilies=AF_UNIX",
                "9469",
                vec!["RestrictAddressFamilies=AF_INET"],
            ),
            ("RestrictAddressFamilies=AF_UNIX AF_INET", "9469", vec![]),
            (
                "RestrictAddressFamilies=AF_UNIX AF_INET",
                "[::1]:9469",
                vec!["RestrictAddressFamilies=AF_INET6"],
            ),
            (
                "RestrictAddressFamilies=~AF_INET",
                "9469",
                vec!["RestrictAddressFamilies=AF_INET"],
            ),
            (
                "SocketBindDeny=any",
                "9470",
                vec!["SocketBindAllow=tcp:9470"],
            ),
        ] {
            let answer = with_figures(text, address).unwrap();
            let lines = answer.lines.iter().filter(|it| !it.starts_with('#'));
            assert_eq!(lines.collect::<Vec<_>>(), expected, "{text}");
        }
        let notes = with_figures("IPAddressDeny=any", "9469").unwrap().notes;
        assert!(notes[0].contains("IPAddressAllow"), "{notes:?}");
        let Err(Failure::Failed(why)) = with_figures("PrivateNetwork=yes", "9469") else {
            panic!("nobody reaches it");
        };
        assert!(why.contains("PrivateNetwork"), "{why}");
        answer(&settings("PrivateNetwork=yes"), &needs("/p")).unwrap();
    }

    #[test]
    fn limits_are_spoken_of() {
        let found = answer(&settings("MemoryMax=64M\nLimitAS=1G"), &needs("/p")).unwrap();
        assert_eq!(found.notes.len(), 2);
    }
}
