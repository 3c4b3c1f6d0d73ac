//! A unit as far as it has to be understood: its one command, its settings, its owner, and the
//! drop-in's lines besides the answers to its sandbox.

use super::{
    command::{ExecLine, runs_forebay},
    drop_in::UnitDropIn,
    name::UnitName,
    postgres::{self, DebianCluster},
    search::{FoundUnit, UnitRoot},
    settings::UnitSettings,
};
use crate::{failure::Failure, users::SystemUser};

/// Seconds in which a run ends, its files synced.
const STOP_SECONDS: u64 = 300;
/// Options that keep servers in the foreground.
const FOREGROUND: [&str; 7] = [
    "--foreground",
    "--nofork",
    "--no-fork",
    "--nodaemon",
    "--no-daemon",
    "--no-daemonize",
    "-DFOREGROUND",
];

/// A unit, as far as it is understood.
pub struct UnderstoodUnit {
    pub exec: ExecLine,
    pub settings: UnitSettings,
    pub cluster: Option<DebianCluster>,
}

impl UnderstoodUnit {
    /// Understands it.
    ///
    /// # Errors
    /// It cannot be wrapped: in a sentence.
    pub fn of(unit: &FoundUnit, root: &UnitRoot) -> Result<Self, Failure> {
        UnitDropIn::check_others(unit)?;
        let settings = unit.settings_without(UnitDropIn::is_one);
        let exec = ExecLine::of(unit, &settings)?;
        if runs_forebay(&exec.words) {
            return Err(Failure::Failed(format!(
                "{}: its ExecStart starts it under forebay run already. Take that out of the line first (docs/removal.md, \"Switch off a unit\")",
                unit.name.stem()
            )));
        }
        let cluster = match exec.program_name() == postgres::CALLS {
            true => Some(DebianCluster::of(&unit.name, root)?),
            false => None,
        };
        if cluster.is_none() {
            check_foreground(unit, &settings, &exec)?;
        }
        let exec = cluster
            .as_ref()
            .map_or(exec, |cluster| cluster.exec.clone());
        Ok(Self {
            exec,
            settings,
            cluster,
        })
    }

    /// The user whom the server runs as.
    pub fn owner(&self, name: &UnitName, root: &UnitRoot) -> Result<SystemUser, Failure> {
        let passwd = root.at("/etc/passwd");
        if let Some(cluster) = &self.cluster {
            let uid = cluster.owner;
            return match root.is_this() {
                true => Ok(SystemUser::numbered(uid)),
                false => Ok(SystemUser::listed(
                    &passwd,
                    |it| it.uid == uid,
                    &uid.to_string(),
                )?),
            };
        }
        let user = self.settings.value("User").unwrap_or("root");
        let user = name.expand(user).ok_or_else(|| {
            Failure::Failed(format!(
                "{}: the user of User={user} is not known",
                name.stem()
            ))
        })?;
        let is_it = |it: &SystemUser| it.name == user || it.uid.to_string() == user;
        Ok(match root.is_this() {
            true => SystemUser::named(&user)?,
            false => SystemUser::listed(&passwd, is_it, &user)?,
        })
    }

    /// Lines of `[Service]` that are no answer to a sandbox.
    pub fn lines(&self, owner: &SystemUser) -> Vec<String> {
        let mut lines = Vec::new();
        let mut say = |texts: &[&str]| lines.extend(texts.iter().map(|it| (*it).to_owned()));
        if let Some(cluster) = &self.cluster {
            say(&[&format!("User={}", owner.name)]);
            say(&cluster.lines.iter().map(|it| &**it).collect::<Vec<_>>());
        } else if self.is_forking() {
            say(&[
                "# The program is told to stay in the foreground.",
                "Type=exec",
            ]);
        }
        say(&[
            "# forebay run ends with 128+N where the program was ended by signal N.",
            "SuccessExitStatus=129 130 141 143",
        ]);
        let restart = self.settings.value("Restart").unwrap_or_default();
        if ["on-abnormal", "on-abort"].contains(&restart) {
            say(&["RestartForceExitStatus=131 132 133 134 135 136 137 139 159"]);
        }
        if self.spares() {
            say(&[
                "# Processes that are left when forebay has ended would run on without it.",
                "SendSIGKILL=yes",
            ]);
        }
        if self
            .stops_within()
            .is_none_or(|seconds| seconds < STOP_SECONDS)
        {
            say(&[
                "# The files are synced before the end.",
                &format!("TimeoutStopSec={STOP_SECONDS}"),
            ]);
        }
        lines
    }

    /// Notes for the user on it.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_forking() {
            notes.push("The unit counts as started as soon as forebay runs, not when the server is ready (it is Type=exec instead of forking): units that are ordered after it may come too early".to_owned());
        }
        if self.spares() {
            notes.push("The unit has SendSIGKILL=no, under which a server that does not end in time runs on without forebay: SendSIGKILL=yes is set. Give it a TimeoutStopSec= in which it ends".to_owned());
        }
        notes
    }

    fn is_forking(&self) -> bool {
        self.settings.value("Type") == Some("forking") && self.cluster.is_none()
    }

    /// True if the unit may not kill its program.
    fn spares(&self) -> bool {
        self.settings.value("SendSIGKILL").is_some() && !self.settings.is_on("SendSIGKILL")
    }

    /// Seconds that the unit gives its program to end; none if that is not said, or not understood.
    fn stops_within(&self) -> Option<u64> {
        let set = ["TimeoutStopSec", "TimeoutSec"].map(|key| self.settings.value(key));
        // Which of the two comes last is not looked for.
        let known: Option<Vec<u64>> = set.into_iter().flatten().map(seconds).collect();
        known?.into_iter().min()
    }
}

/// Refuses a program that goes into the background by itself: forebay may have ended by the time
/// at which it opens its log, and systemd would end it.
fn check_foreground(
    unit: &FoundUnit,
    settings: &UnitSettings,
    exec: &ExecLine,
) -> Result<(), Failure> {
    let words = exec.arguments();
    let is_said = words.windows(2).any(|it| it == ["--daemonize", "no"])
        || words.iter().any(|word| FOREGROUND.contains(&&**word));
    if settings.value("Type") != Some("forking") || is_said {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{0}: it is a unit of Type=forking, whose program goes into the background, and forebay run may take that for its end. Have it stay in the foreground: in a drop-in (systemctl edit {0}), Type=exec or notify, and the command's option for that ({1})",
        unit.name.stem(),
        FOREGROUND.join(", ")
    )))
}

/// A span of time in seconds (systemd.time(7)), rounded down; none if it has another form.
fn seconds(text: &str) -> Option<u64> {
    if text == "infinity" || text == "0" {
        return Some(u64::MAX);
    }
    let mut total = 0_u64;
    let mut left = text.trim();
    while !left.is_empty() {
        let end = left
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(left.len());
        let number: u64 = left[..end].parse().ok()?;
        left = left[end..].trim_start();
        let end = left
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(left.len());
        let unit = match &left[..end] {
            "" | "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        left = left[end..].trim_start();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::search::UnitFile;
    use std::path::{Path, PathBuf};

    #[track_caller]
    fn understood(text: &str) -> Result<UnderstoodUnit, Failure> {
        let unit = FoundUnit {
            name: UnitName::parse("db").unwrap(),
            files: vec![UnitFile {
                path: PathBuf::from("/lib/db.service"),
                text: format!("[Service]\nExecStart=/bin/db --foreground\n{text}\n"),
            }],
        };
        UnderstoodUnit::of(&unit, &UnitRoot::of(Some(Path::new("/"))).unwrap())
    }

    #[test]
    fn a_crash_restarts_as_it_did_before() {
        let root = SystemUser::numbered(0);
        for (text, expected) in [
            ("Restart=on-abnormal", true),
            ("Restart=on-abort", true),
            ("Restart=always", false),
            ("", false),
        ] {
            let lines = understood(text).unwrap().lines(&root);
            let has = |what: &str| lines.iter().any(|it| it.starts_with(what));
            assert_eq!(has("RestartForceExitStatus=131 132 "), expected, "{text}");
            assert!(has("SuccessExitStatus=129 130 141 143"));
        }
    }

    #[test]
    fn a_server_has_time_to_end_and_is_not_left_behind() {
        let root = SystemUser::numbered(0);
        for (text, is_set) in [
            ("", true),
            ("TimeoutStopSec=90", true),
            ("TimeoutStopSec=1min 30s", true),
            ("TimeoutSec=5min", false),
            ("TimeoutSec=10min\nTimeoutStopSec=5", true),
            ("TimeoutStopSec=infinity", false),
            ("TimeoutStopSec=0", false),
            ("TimeoutStopSec=a while", true),
        ] {
            let lines = understood(text).unwrap().lines(&root);
            let found = lines.iter().any(|it| it == "TimeoutStopSec=300");
            assert_eq!(found, is_set, "{text}");
        }
        let lines = understood("SendSIGKILL=no").unwrap().lines(&root);
        assert!(lines.iter().any(|it| it == "SendSIGKILL=yes"));
    }

    #[test]
    fn a_program_that_goes_into_the_background_is_refused() {
        understood("Type=forking").unwrap();
        for line in ["/bin/db", "/bin/db --daemonize yes"] {
            let text = format!("Type=forking\nExecStart=\nExecStart={line}");
            let Err(Failure::Failed(message)) = understood(&text) else {
                panic!("{line} is taken");
            };
            assert!(message.contains("Type=forking"), "{message}");
        }
        understood("Type=forking\nExecStart=\nExecStart=/bin/db --daemonize no").unwrap();
        let nested = understood("ExecStart=\nExecStart=/usr/bin/forebay run -- /bin/db");
        assert!(matches!(nested, Err(Failure::Failed(_))));
    }
}
