//! Settings in the databases' own configuration files, and in the files that these include.
//!
//! As the servers do, the last value counts. A file that cannot be read, or that names itself, says
//! nothing more. What is not found so, the user says (`--data`).

use super::search::UnitRoot;
use forebay_files::policy;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files that include each other are followed so deep.
const DEPTH_MAX: u32 = 10;
/// Option files that MariaDB's programs read, in this order.
const OPTION_FILES: [&str; 2] = ["/etc/my.cnf", "/etc/mysql/my.cnf"];
/// Their groups that a server reads; also with a version behind a hyphen, as in `mysqld-10.11`.
const SERVER_GROUPS: [&str; 6] = [
    "mysqld",
    "server",
    "mariadb",
    "mariadbd",
    "client-server",
    "galera",
];

/// A setting of Redis's or Valkey's configuration, with the files that it includes.
pub fn redis(root: &UnitRoot, file: &Path, key: &str) -> Option<String> {
    redis_value(root, file, key, 0)
}

fn redis_value(root: &UnitRoot, file: &Path, key: &str, depth: u32) -> Option<String> {
    let text = read(root, file, depth)?;
    let mut found = None;
    for line in text.lines() {
        let Some((name, value)) = line.trim().split_once(char::is_whitespace) else {
            continue;
        };
        if name.eq_ignore_ascii_case(key) {
            found = Some(unquoted(value));
        } else if name.eq_ignore_ascii_case("include") {
            let files = matching(root, Path::new(&unquoted(value)));
            let mut said = files
                .iter()
                .filter_map(|it| redis_value(root, it, key, depth + 1));
            found = said.next_back().or(found);
        }
    }
    found
}

/// An option of a MariaDB server, of the option files of a system (`only`: of this one instead, and
/// of `extra` besides), with the files that they include.
pub fn mariadb(
    root: &UnitRoot,
    only: Option<&Path>,
    extra: Option<&Path>,
    key: &str,
) -> Option<String> {
    let usual = OPTION_FILES.map(Path::new);
    let files = only.map_or(usual.to_vec(), |only| vec![only]);
    let files = files.into_iter().chain(extra);
    let mut said = files.filter_map(|file| option_value(root, file, key, 0));
    said.next_back()
}

fn option_value(root: &UnitRoot, file: &Path, key: &str, depth: u32) -> Option<String> {
    let text = read(root, file, depth)?;
    let mut found = None;
    let mut is_server = false;
    for line in text.lines().map(str::trim) {
        if let Some(included) = line.strip_prefix("!includedir") {
            let pattern = Path::new(included.trim()).join("*.cnf");
            let files = matching(root, &pattern);
            let mut said = files
                .iter()
                .filter_map(|it| option_value(root, it, key, depth + 1));
            found = said.next_back().or(found);
        } else if let Some(included) = line.strip_prefix("!include") {
            found = option_value(root, Path::new(included.trim()), key, depth + 1).or(found);
        } else if let Some(group) = line.strip_prefix('[') {
            is_server = is_server_group(group.split(']').next().unwrap_or_default());
        } else if is_server && let Some((name, value)) = line.split_once('=') {
            let name = name.trim().replace('_', "-");
            if name.strip_prefix("loose-").unwrap_or(&name) == key {
                found = Some(unquoted(value));
            }
        }
    }
    found
}

fn is_server_group(group: &str) -> bool {
    let group = group.trim();
    let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
    SERVER_GROUPS.iter().any(|name| {
        let rest = group.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-').is_some_and(is_version))
    })
}

/// A setting of PostgreSQL's configuration, with the files that it includes.
pub fn postgres(root: &UnitRoot, file: &Path, key: &str) -> Option<String> {
    postgres_value(root, file, key, 0)
}

fn postgres_value(root: &UnitRoot, file: &Path, key: &str, depth: u32) -> Option<String> {
    let text = read(root, file, depth)?;
    let beside = file.parent().unwrap_or(Path::new("/"));
    let mut found = None;
    for line in text.lines().map(str::trim) {
        // The equals sign may be left out.
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
        let name = line.split(|c| !is_name(c)).next().unwrap_or_default();
        let rest = line[name.len()..].trim_start();
        let value = unquoted(rest.strip_prefix('=').unwrap_or(rest));
        let named = beside.join(&value);
        let files = match &*name.to_ascii_lowercase() {
            "include" | "include_if_exists" => vec![named],
            "include_dir" => matching(root, &named.join("*.conf")),
            name if name == key => {
                found = Some(value);
                continue;
            }
            _ => continue,
        };
        let mut said = files
            .iter()
            .filter_map(|it| postgres_value(root, it, key, depth + 1));
        found = said.next_back().or(found);
    }
    found
}

/// The text of a file, unless it is included too deep or cannot be read.
fn read(root: &UnitRoot, file: &Path, depth: u32) -> Option<String> {
    match depth < DEPTH_MAX && file.is_absolute() {
        true => fs::read_to_string(root.at(file)).ok(),
        false => None,
    }
}

/// The files, as that system has them, whose last name matches a pattern (fnmatch(3)), by name;
/// hidden ones are none of them.
fn matching(root: &UnitRoot, pattern: &Path) -> Vec<PathBuf> {
    let (Some(place), Some(name)) = (pattern.parent(), pattern.file_name()) else {
        return Vec::new();
    };
    let entries = fs::read_dir(root.at(place)).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let is_one = |it: &std::ffi::OsString| {
        let bytes = it.as_encoded_bytes();
        !bytes.starts_with(b".") && policy::matches(name.as_encoded_bytes(), bytes)
    };
    let mut files: Vec<PathBuf> = names.filter(is_one).map(|it| place.join(it)).collect();
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

    /// A system of these files.
    fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, UnitRoot) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = UnitRoot::of(Some(dir.path())).unwrap();
        (dir, root)
    }

    #[test]
    fn the_last_assignment_counts_without_quotes_and_comments() {
        let text = "#datadir = /no\ndatadir = '/a b' # here\n[x]\n datadir=/c # or here\n";
        assert_eq!(assigned(text, "datadir").as_deref(), Some("/c"));
        assert_eq!(assigned("a = 'x y' # z", "a").as_deref(), Some("x y"));
        assert_eq!(assigned(text, "port"), None);
    }

    #[test]
    fn redis_includes_files_where_the_line_stands() {
        let (_dir, root) = system(&[
            (
                "etc/r/a.conf",
                "dir /a\ninclude /etc/r/more/*.conf\nappendonly no\n",
            ),
            ("etc/r/more/1.conf", "DIR \"/one\"\nappendonly yes\n"),
            ("etc/r/more/2.conf", "dir /two\ninclude /etc/r/a.conf\n"),
            ("etc/r/more/2.bak", "dir /no\n"),
            ("etc/r/more/.x.conf", "dir /no\n"),
        ]);
        let of = |key: &str| redis(&root, Path::new("/etc/r/a.conf"), key);
        assert_eq!(of("appendonly").as_deref(), Some("no"));
        // Files that include each other end somewhere.
        assert!(of("dir").is_some());
        let of = |file: &str| redis(&root, Path::new(file), "dir");
        assert_eq!(of("/etc/r/more/1.conf").as_deref(), Some("/one"));
        assert_eq!(of("/etc/r/none.conf"), None);
    }

    #[test]
    fn mariadb_s_server_reads_its_groups_of_all_option_files() {
        let (_dir, root) = system(&[
            (
                "etc/mysql/my.cnf",
                "[client]\ndatadir=/no\n!includedir /etc/mysql/conf.d/\n!include /etc/mysql/last.cnf\n",
            ),
            (
                "etc/mysql/conf.d/a.cnf",
                "[mysqld]\nloose_datadir = /a # here\n",
            ),
            (
                "etc/mysql/conf.d/b.cnf",
                "[mysqldump]\ndatadir=/no\n[mariadb-10.11]\ndata_dir=/no\n",
            ),
            ("etc/mysql/conf.d/c.txt", "[mysqld]\ndatadir=/no\n"),
            (
                "etc/mysql/last.cnf",
                "[mariadb-backup]\ndatadir=/no\n[mariadb-10.11]\ninnodb-x=1\n",
            ),
            ("own.cnf", "[server]\ndatadir=/own\n"),
        ]);
        let of = |only, extra, key| mariadb(&root, only, extra, key);
        assert_eq!(of(None, None, "datadir").as_deref(), Some("/a"));
        assert_eq!(of(None, None, "innodb-x").as_deref(), Some("1"));
        let own = Some(Path::new("/own.cnf"));
        assert_eq!(of(None, own, "datadir").as_deref(), Some("/own"));
        assert_eq!(of(own, None, "innodb-x"), None);
    }

    #[test]
    fn postgres_includes_files_relative_to_its_own() {
        let (_dir, root) = system(&[
            (
                "etc/p/postgresql.conf",
                "#data_directory = '/no'\nData_Directory '/a'\ninclude_dir = 'conf.d'\ninclude_if_exists 'none.conf'\n",
            ),
            (
                "etc/p/conf.d/z.conf",
                "data_directory='/z'#\ninclude '../more.conf'\n",
            ),
            ("etc/p/conf.d/.no.conf", "data_directory='/no'\n"),
            ("etc/p/more.conf", "port = 5433\ndata_directory_x = '/no'\n"),
        ]);
        let of = |key: &str| postgres(&root, Path::new("/etc/p/postgresql.conf"), key);
        assert_eq!(of("data_directory").as_deref(), Some("/z"));
        assert_eq!(of("port").as_deref(), Some("5433"));
    }
}
