//! Settings in the databases' own configuration files, and in the files that these include.
//!
//! As the servers do, the last value counts. A file that is not there, or that names itself, says
//! nothing more; of one that is there and cannot be read nobody knows what it says, so no default
//! is taken instead. What is not found so, the user says (`--data`).

use super::search::UnitRoot;
use forebay_files::policy;
use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

/// A setting's value in files; in words, the reason that it cannot be told.
pub type FoundSetting = Result<Option<String>, String>;

/// Files that include each other are followed so deep.
const DEPTH_MAX: u32 = 10;
/// Option files that MariaDB's programs read, in this order.
const OPTION_FILES: [&str; 2] = ["/etc/my.cnf", "/etc/mysql/my.cnf"];
/// Their groups that a server reads; with a version behind a hyphen, as in `mysqld-10.11`, those of
/// that version alone.
const SERVER_GROUPS: [&str; 6] = [
    "mysqld",
    "server",
    "mariadb",
    "mariadbd",
    "client-server",
    "galera",
];

/// A setting of Redis's or Valkey's configuration, with the files that it includes.
pub fn redis(root: &UnitRoot, file: &Path, key: &str) -> FoundSetting {
    redis_value(root, file, key, 0)
}

fn redis_value(root: &UnitRoot, file: &Path, key: &str, depth: u32) -> FoundSetting {
    let mut found = None;
    for line in read(root, file, depth)?.unwrap_or_default().lines() {
        let Some((name, value)) = line.trim().split_once(char::is_whitespace) else {
            continue;
        };
        if name.eq_ignore_ascii_case(key) {
            found = Some(unquoted(value));
        } else if name.eq_ignore_ascii_case("include") {
            for it in matching(root, Path::new(&unquoted(value)))? {
                found = redis_value(root, &it, key, depth + 1)?.or(found);
            }
        }
    }
    Ok(found)
}

/// An option of a MariaDB server, of the option files of a system (`only`: of this one instead, and
/// of `extra` besides), with the files that they include.
pub fn mariadb(
    root: &UnitRoot,
    only: Option<&Path>,
    extra: Option<&Path>,
    key: &str,
) -> FoundSetting {
    let usual = OPTION_FILES.map(Path::new);
    let files = only.map_or(usual.to_vec(), |only| vec![only]);
    let mut found = None;
    for file in files.into_iter().chain(extra) {
        found = option_value(root, file, key, 0)?.or(found);
    }
    Ok(found)
}

fn option_value(root: &UnitRoot, file: &Path, key: &str, depth: u32) -> FoundSetting {
    let mut found = None;
    let mut group = "";
    let text = read(root, file, depth)?.unwrap_or_default();
    for line in text.lines().map(str::trim) {
        if let Some(included) = line.strip_prefix("!includedir") {
            for it in matching(root, &Path::new(included.trim()).join("*.cnf"))? {
                found = option_value(root, &it, key, depth + 1)?.or(found);
            }
        } else if let Some(included) = line.strip_prefix("!include") {
            found = option_value(root, Path::new(included.trim()), key, depth + 1)?.or(found);
        } else if let Some(begun) = line.strip_prefix('[') {
            group = begun.split(']').next().unwrap_or_default().trim();
        } else if let Some((name, value)) = line.split_once('=') {
            let name = name.trim().replace('_', "-");
            if name.strip_prefix("loose-").unwrap_or(&name) != key {
                continue;
            }
            if is_of_a_version(group) {
                return Err(format!(
                    "{} sets {key} in [{group}], which servers of one version read",
                    file.display()
                ));
            }
            if SERVER_GROUPS.contains(&group) {
                found = Some(unquoted(value));
            }
        }
    }
    Ok(found)
}

fn is_of_a_version(group: &str) -> bool {
    let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
    SERVER_GROUPS.iter().any(|name| {
        let rest = group.strip_prefix(name);
        rest.is_some_and(|rest| rest.strip_prefix('-').is_some_and(is_version))
    })
}

/// A setting of PostgreSQL's configuration, with the files that it includes.
pub fn postgres(root: &UnitRoot, file: &Path, key: &str) -> FoundSetting {
    postgres_value(root, file, key, 0)
}

fn postgres_value(root: &UnitRoot, file: &Path, key: &str, depth: u32) -> FoundSetting {
    let text = read(root, file, depth)?.unwrap_or_default();
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
            "include_dir" => matching(root, &named.join("*.conf"))?,
            name if name == key => {
                found = Some(value);
                continue;
            }
            _ => continue,
        };
        for it in files {
            found = postgres_value(root, &it, key, depth + 1)?.or(found);
        }
    }
    Ok(found)
}

/// The text of a file, unless it is included too deep; bytes that are no UTF-8 are replaced.
fn read(root: &UnitRoot, file: &Path, depth: u32) -> FoundSetting {
    match depth < DEPTH_MAX && file.is_absolute() {
        true => text_of(root, file),
        false => Ok(None),
    }
}

/// The text of a file of a system, if it is there.
pub fn text_of(root: &UnitRoot, file: &Path) -> FoundSetting {
    let bytes = if_there(file, fs::read(root.followed(file)))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn if_there<T>(path: &Path, found: io::Result<T>) -> Result<Option<T>, String> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if [NotFound, NotADirectory].contains(&error.kind()) => Ok(None),
        Err(error) => Err(format!("{} cannot be read ({error})", path.display())),
    }
}

/// The files, as that system has them, whose last name matches a pattern (fnmatch(3)), by name;
/// hidden ones are none of them.
fn matching(root: &UnitRoot, pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let (Some(place), Some(name)) = (pattern.parent(), pattern.file_name()) else {
        return Ok(Vec::new());
    };
    let read = fs::read_dir(root.followed(place))
        .and_then(|it| it.map(|entry| entry.map(|it| it.file_name())).collect());
    let names: Vec<OsString> = if_there(place, read)?.unwrap_or_default();
    let is_one = |it: &OsString| {
        let bytes = it.as_encoded_bytes();
        !bytes.starts_with(b".") && policy::matches(name.as_encoded_bytes(), bytes)
    };
    let names = names.into_iter().filter(is_one);
    let mut files: Vec<PathBuf> = names.map(|it| place.join(it)).collect();
    files.sort();
    Ok(files)
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
        let of = |key: &str| redis(&root, Path::new("/etc/r/a.conf"), key).unwrap();
        assert_eq!(of("appendonly").as_deref(), Some("no"));
        // Files that include each other end somewhere.
        assert!(of("dir").is_some());
        let of = |file: &str| redis(&root, Path::new(file), "dir").unwrap();
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
                "[mariadb-backup]\ndatadir=/no\n[mariadbd]\ninnodb-x=1\n[mariadb-10.6]\nport=1\n",
            ),
            ("own.cnf", "[server]\ndatadir=/own\n"),
        ]);
        let of = |only, extra, key| mariadb(&root, only, extra, key).unwrap();
        assert_eq!(of(None, None, "datadir").as_deref(), Some("/a"));
        assert_eq!(of(None, None, "innodb-x").as_deref(), Some("1"));
        let own = Some(Path::new("/own.cnf"));
        assert_eq!(of(None, own, "datadir").as_deref(), Some("/own"));
        assert_eq!(of(own, None, "innodb-x"), None);
        // Which version the server is of is not known.
        let why = mariadb(&root, None, None, "port").unwrap_err();
        assert!(why.contains("[mariadb-10.6]"), "{why}");
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
        let of = |key: &str| postgres(&root, Path::new("/etc/p/postgresql.conf"), key).unwrap();
        assert_eq!(of("data_directory").as_deref(), Some("/z"));
        assert_eq!(of("port").as_deref(), Some("5433"));
    }

    #[test]
    fn links_of_another_system_are_followed_in_it() {
        use std::os::unix::fs::symlink;
        let (dir, root) = system(&[
            (
                "etc/mysql/mariadb.cnf",
                "[mysqld]\ndatadir=/a\n!includedir /etc/mysql/conf.d/\n",
            ),
            ("usr/share/m/conf.d/x.cnf", "[mysqld]\nport=1\n"),
        ]);
        let etc = dir.path().join("etc/mysql");
        fs::create_dir(dir.path().join("etc/alternatives")).unwrap();
        symlink("/etc/alternatives/my.cnf", etc.join("my.cnf")).unwrap();
        symlink(
            "../mysql/mariadb.cnf",
            dir.path().join("etc/alternatives/my.cnf"),
        )
        .unwrap();
        symlink("/usr/share/m/conf.d", etc.join("conf.d")).unwrap();
        let of = |key: &str| mariadb(&root, None, None, key).unwrap();
        assert_eq!(of("datadir").as_deref(), Some("/a"));
        assert_eq!(of("port").as_deref(), Some("1"));
    }

    #[test]
    fn what_cannot_be_read_has_no_default() {
        let (dir, root) = system(&[("etc/r/a.conf", "include /etc/r/more/*.conf\n")]);
        let of = || redis(&root, Path::new("/etc/r/a.conf"), "dir");
        assert_eq!(of(), Ok(None));
        // Root reads everything but a directory.
        let more = dir.path().join("etc/r/more");
        fs::create_dir_all(more.join("1.conf")).unwrap();
        let why = of().unwrap_err();
        assert!(why.contains("/etc/r/more/1.conf cannot be read"), "{why}");
        fs::remove_dir(more.join("1.conf")).unwrap();
        fs::write(more.join("1.conf"), b"# \xe9t\xe9\ndir /a\n").unwrap();
        assert_eq!(of().unwrap().as_deref(), Some("/a"));
    }
}
