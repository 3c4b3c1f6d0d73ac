//! Databases as distributions ship them: the profile of a unit's program, the directory of its
//! files, and the settings that keep it from asking for durability.
//!
//! Configuration files are only read as far as that needs. What is not found here, the user says
//! (`--profile`, `--data`).

use super::{
    command::ExecLine,
    config_files::{self, FoundSetting, assigned},
    name::UnitName,
    search::UnitRoot,
    settings::UnitSettings,
};
use std::path::{Path, PathBuf};

/// Units whose program stands in a shell's line, and the profile of it.
const OF_UNITS: [(&str, &str); 3] = [
    ("mariadb", "mariadb"),
    ("mysql", "mariadb"),
    ("mysqld", "mariadb"),
];
/// The directory of MariaDB's files unless it is told otherwise.
const MARIADB_DATA: &str = "/var/lib/mysql";

/// The profile of a unit whose program does not say it.
pub fn profile_of_unit(name: &UnitName) -> Option<&'static str> {
    let known = OF_UNITS.iter().find(|(unit, _)| *unit == name.prefix());
    known.map(|(_, profile)| *profile)
}

/// A unit's program, and the system that it is of.
pub struct UnitProgram<'a> {
    pub name: &'a UnitName,
    pub exec: &'a ExecLine,
    pub settings: &'a UnitSettings,
    pub root: &'a UnitRoot,
}

impl UnitProgram<'_> {
    /// The directory of its files, if it can be told.
    ///
    /// # Errors
    /// Files that may say it cannot be understood: in words.
    pub fn data(&self, profile: &str) -> Result<Option<PathBuf>, String> {
        let found = match profile {
            "redis" | "valkey" => self.redis("dir")?,
            "postgres" => self.option("-D"),
            "etcd" => match self.option("--data-dir") {
                None => self.variable("ETCD_DATA_DIR")?,
                told => told,
            },
            "mariadb" => self.mariadb_data()?,
            _ => None,
        };
        Ok(found.map(PathBuf::from).filter(|path| path.is_absolute()))
    }

    /// The settings that keep the server from asking for durability now, in words.
    pub fn advice(&self, profile: &str) -> Vec<String> {
        let mut advice = Vec::new();
        if ["redis", "valkey"].contains(&profile) {
            let says = |option: &str| self.redis(option).map(Option::unwrap_or_default);
            match says("appendonly").and_then(|only| Ok((only, says("appendfsync")?))) {
                Ok((only, sync)) if only == "yes" && sync == "always" => {}
                Ok(_) => advice.push(
                    "THE SERVER DOES NOT ASK FOR DURABILITY, so nothing becomes faster or safer: set appendonly yes and appendfsync always in its configuration (of a server with data: CONFIG SET appendonly yes first)".to_owned(),
                ),
                Err(why) => advice.push(format!(
                    "WHETHER THE SERVER ASKS FOR DURABILITY IS NOT KNOWN: {why}. It needs appendonly yes and appendfsync always"
                )),
            }
        }
        if profile == "mariadb" {
            advice.push("With a binary log, set sync_binlog=1: it is not the default".to_owned());
        }
        advice
    }

    fn option(&self, option: &str) -> Option<String> {
        self.name.expand(&value_in(&self.exec.arguments(), option)?)
    }

    /// A setting of Redis, in the unit's line or in the configuration file, its first argument.
    fn redis(&self, key: &str) -> FoundSetting {
        let told = self.option(&format!("--{key}"));
        let words = self.exec.arguments();
        let file = words.first().filter(|word| !word.starts_with('-'));
        let file = file.and_then(|file| self.name.expand(file));
        match (told, file) {
            (None, Some(file)) => config_files::redis(self.root, Path::new(&file), key),
            (told, _) => Ok(told),
        }
    }

    /// A variable that the unit sets, or one of its files of variables.
    fn variable(&self, name: &str) -> FoundSetting {
        for file in self.settings.list("EnvironmentFile").into_iter().rev() {
            let Some(file) = self.name.expand(file.trim_start_matches('-')) else {
                continue;
            };
            let text = config_files::text_of(self.root, Path::new(&file))?;
            if let Some(value) = text.and_then(|text| assigned(&text, name)) {
                return Ok(self.name.expand(&value));
            }
        }
        let mut set = self.settings.words("Environment").into_iter().rev();
        let found = set.find_map(|word| assigned(word.trim_matches(['"', '\'']), name));
        Ok(found.and_then(|value| self.name.expand(&value)))
    }

    fn mariadb_data(&self) -> FoundSetting {
        let told = self.mariadb_option("--datadir")?;
        // Each instance has its own, by ways that differ.
        if told.is_some() || self.name.template().is_some() {
            return Ok(told);
        }
        let file = |option: &str| {
            let told = self.mariadb_option(option);
            told.map(|it| it.map(PathBuf::from))
        };
        let (only, extra) = (file("--defaults-file")?, file("--defaults-extra-file")?);
        let set = config_files::mariadb(self.root, only.as_deref(), extra.as_deref(), "datadir")?;
        Ok(Some(set.unwrap_or_else(|| MARIADB_DATA.to_owned())))
    }

    /// An option of the server, in the unit's line, also in what a shell is given there, or in the
    /// variable that Debian's line passes on.
    fn mariadb_option(&self, option: &str) -> FoundSetting {
        let line = self.exec.arguments().join(" ");
        let variable = self.variable("MYSQLD_OPTS")?.unwrap_or_default();
        let words = line.split_whitespace().chain(variable.split_whitespace());
        // What a shell is given may begin and end with the word.
        let words = words.map(|word| word.trim_matches(['"', '\'', ';']).to_owned());
        let value = value_in(&words.collect::<Vec<_>>(), option);
        Ok(value.and_then(|value| self.name.expand(value.trim_matches(['"', '\'', ';']))))
    }
}

/// The last word behind an option, or behind its equals sign.
fn value_in(words: &[String], option: &str) -> Option<String> {
    let mut after: Option<&String> = None;
    for word in words.iter().rev() {
        if word == option {
            return after.cloned();
        }
        let value = word
            .strip_prefix(option)
            .and_then(|it| it.strip_prefix('='));
        if let Some(value) = value {
            return Some(value.to_owned());
        }
        after = Some(word);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_says_what_a_shell_s_line_does_not() {
        let of = |name: &str| profile_of_unit(&UnitName::parse(name).unwrap());
        assert_eq!(of("mariadb@two"), Some("mariadb"));
        assert_eq!(of("nginx"), None);
    }

    #[test]
    fn mariadb_s_directory_is_told_with_a_space_too() {
        let dir = tempfile::tempdir().unwrap();
        let root = UnitRoot::of(Some(dir.path())).unwrap();
        for (line, expected) in [
            ("/usr/sbin/mariadbd --datadir /a", "/a"),
            (
                "/usr/sbin/mariadbd --datadir=/a --datadir /b --port 1",
                "/b",
            ),
            ("/bin/sh -c \"exec mariadbd --datadir '/c'\"", "/c"),
            ("/bin/sh -c \"exec mariadbd --datadir=/d; true\"", "/d"),
            ("/usr/sbin/mariadbd", MARIADB_DATA),
        ] {
            let program = UnitProgram {
                name: &UnitName::parse("mariadb").unwrap(),
                exec: &ExecLine {
                    prefixes: String::new(),
                    starter: String::new(),
                    program: "/usr/sbin/mariadbd".to_owned(),
                    words: line.to_owned(),
                },
                settings: &UnitSettings::default(),
                root: &root,
            };
            let found = program.data("mariadb").unwrap();
            assert_eq!(found.as_deref(), Some(Path::new(expected)), "{line}");
        }
    }
}
