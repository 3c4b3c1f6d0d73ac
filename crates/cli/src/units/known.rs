//! What is known of databases as distributions ship them: which profile a unit's program has, where
//! its files are, and what of its settings keeps it from asking for durability.
//!
//! Configuration files are only read as far as that needs. What is not found here, the user says
//! (`--profile`, `--data`).

use super::{
    command::ExecLine,
    config_files::{self, assigned},
    name::UnitName,
    search::UnitRoot,
    settings::UnitSettings,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Units whose program stands in a shell's line, and the profile of it.
const OF_UNITS: [(&str, &str); 3] = [
    ("mariadb", "mariadb"),
    ("mysql", "mariadb"),
    ("mysqld", "mariadb"),
];
/// Where MariaDB has its files unless it is told otherwise.
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
    pub fn data(&self, profile: &str) -> Option<PathBuf> {
        let found = match profile {
            "redis" | "valkey" => self.option("--dir").or_else(|| self.redis("dir")),
            "postgres" => self.option("-D"),
            "etcd" => self
                .option("--data-dir")
                .or_else(|| self.variable("ETCD_DATA_DIR")),
            "mariadb" => self.mariadb_data(),
            _ => None,
        };
        found.map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// What keeps the server from asking for durability as it is set up now, in words.
    pub fn advice(&self, profile: &str) -> Vec<String> {
        let mut advice = Vec::new();
        if ["redis", "valkey"].contains(&profile) {
            let says = |option: &str| {
                let found = self
                    .option(&format!("--{option}"))
                    .or_else(|| self.redis(option));
                found.unwrap_or_default()
            };
            if says("appendonly") != "yes" || says("appendfsync") != "always" {
                advice.push(
                    "THE SERVER DOES NOT ASK FOR DURABILITY, so nothing becomes faster or safer: set appendonly yes and appendfsync always in its configuration (of a server with data: CONFIG SET appendonly yes first)".to_owned(),
                );
            }
        }
        if profile == "mariadb" {
            advice.push("With a binary log, set sync_binlog=1: it is not the default".to_owned());
        }
        advice
    }

    /// The word behind an option, or behind its equals sign.
    fn option(&self, option: &str) -> Option<String> {
        let words = self.exec.arguments();
        let found = words.iter().enumerate().rev().find_map(|(at, word)| {
            match word.strip_prefix(option)?.strip_prefix('=') {
                Some(value) => Some(value.to_owned()),
                None if word == option => words.get(at + 1).cloned(),
                None => None,
            }
        });
        self.name.expand(&found?)
    }

    /// A setting of Redis's configuration file, which is its first argument.
    fn redis(&self, key: &str) -> Option<String> {
        let words = self.exec.arguments();
        let file = words.first().filter(|word| !word.starts_with('-'))?;
        config_files::redis(self.root, Path::new(&self.name.expand(file)?), key)
    }

    /// A variable that the unit sets, or one of its files of variables.
    fn variable(&self, name: &str) -> Option<String> {
        let of_files = self.settings.list("EnvironmentFile").into_iter().rev();
        let of_files = of_files.filter_map(|file| {
            let file = self.name.expand(file.trim_start_matches('-'))?;
            let text = fs::read_to_string(self.root.at(file)).ok()?;
            assigned(&text, name)
        });
        let set = self.settings.words("Environment").into_iter().rev();
        let set = set.filter_map(|word| assigned(word.trim_matches(['"', '\'']), name));
        let found = of_files.chain(set).next()?;
        self.name.expand(&found)
    }

    fn mariadb_data(&self) -> Option<String> {
        let told = self.mariadb_option("--datadir");
        // Each instance has its own, by ways that differ.
        if told.is_some() || self.name.template().is_some() {
            return told;
        }
        let file = |option: &str| self.mariadb_option(option).map(PathBuf::from);
        let [only, extra] = ["--defaults-file", "--defaults-extra-file"].map(file);
        let set = config_files::mariadb(self.root, only.as_deref(), extra.as_deref(), "datadir");
        Some(set.unwrap_or_else(|| MARIADB_DATA.to_owned()))
    }

    /// An option of the server, in the unit's line, also in what a shell is given there, or in the
    /// variable that Debian's line passes on.
    fn mariadb_option(&self, option: &str) -> Option<String> {
        let line = self.exec.arguments().join(" ");
        let variable = self.variable("MYSQLD_OPTS").unwrap_or_default();
        let words = line.split_whitespace().chain(variable.split_whitespace());
        let mut values = words.filter_map(|word| word.strip_prefix(option)?.strip_prefix('='));
        // What a shell is given may end with the word.
        let value = values.next_back()?.trim_matches(['"', '\'', ';']);
        self.name.expand(value)
    }
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
}
