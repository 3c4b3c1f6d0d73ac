//! What is known of databases as distributions ship them: which profile a unit's program has, where
//! its files are, and what of its settings keeps it from asking for durability.
//!
//! Configuration files are only read as far as that needs. What is not found here, the user says
//! (`--profile`, `--data`).

use super::{command::ExecLine, name::UnitName, search::UnitRoot, settings::UnitSettings};
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
/// Where Debian's MariaDB has its settings: a file, or the files of a directory.
const MARIADB: [&str; 3] = [
    "/etc/mysql/my.cnf",
    "/etc/mysql/conf.d",
    "/etc/mysql/mariadb.conf.d",
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
        let text = fs::read_to_string(self.root.at(self.name.expand(file)?)).ok()?;
        let value = |line: &str| {
            let (name, value) = line.trim().split_once(char::is_whitespace)?;
            (name.eq_ignore_ascii_case(key)).then(|| unquoted(value))
        };
        text.lines().rev().find_map(value)
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
        // Each instance has its own, by ways that differ.
        if self.name.template().is_some() {
            return self.option("--datadir");
        }
        let files = MARIADB
            .iter()
            .flat_map(|place| settings_files(&self.root.at(place)));
        let texts = files.filter_map(|file| fs::read_to_string(file).ok());
        let set: Vec<String> = texts
            .filter_map(|text| assigned(&text, "datadir"))
            .collect();
        let set = self.option("--datadir").or_else(|| set.last().cloned());
        Some(set.unwrap_or_else(|| MARIADB_DATA.to_owned()))
    }
}

fn settings_files(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "cnf");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_one).collect();
    files.sort();
    files
}

/// The last value that `text` gives a name by `NAME = VALUE`, in a line.
pub fn assigned(text: &str, name: &str) -> Option<String> {
    let value = |line: &str| {
        let (key, value) = line.trim().split_once('=')?;
        (key.trim() == name).then(|| unquoted(value))
    };
    text.lines().rev().find_map(value)
}

/// Without quotes, or without a comment behind it.
fn unquoted(value: &str) -> String {
    let value = value.trim();
    let quote = value.chars().next().filter(|c| ['\'', '"'].contains(c));
    let inner = match quote {
        Some(quote) => value[1..].split(quote).next(),
        None => value.split('#').next(),
    };
    inner.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_assignment_counts_without_quotes_and_comments() {
        let text = "#datadir = /no\ndatadir = '/a b' # here\n[x]\n datadir=/c # or here\n";
        assert_eq!(assigned(text, "datadir").as_deref(), Some("/c"));
        assert_eq!(assigned("a = 'x y' # z", "a").as_deref(), Some("x y"));
        assert_eq!(assigned(text, "port"), None);
    }

    #[test]
    fn the_unit_says_what_a_shell_s_line_does_not() {
        let of = |name: &str| profile_of_unit(&UnitName::parse(name).unwrap());
        assert_eq!(of("mariadb@two"), Some("mariadb"));
        assert_eq!(of("nginx"), None);
    }
}
