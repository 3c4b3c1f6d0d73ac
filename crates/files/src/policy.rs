//! Which files are absorbed: profiles by program, a configuration file over them, and patterns.
//!
//! A pattern is one of fnmatch(3) (`*`, `?`, `[a-z]`, `\`), where `*` and `?` do not match a slash. It is compared with as
//! many of a path's last names as it has itself: `*.aof` with the file's name wherever it lies, `pg_wal/*` with
//! whatever lies in a directory `pg_wal`. A pattern that begins with a slash is compared with the whole path. [`matches`] decides.
//!
//! Precedence: a profile is chosen by name, or else by the program's name, from those built in and those of the
//! configuration file, which may also change what is built in. `absorb` at the top of the file replaces the profile's
//! patterns; patterns of the command line are added.

mod config;
mod pattern;

pub use config::Config;
pub use pattern::matches;

use std::{ffi::OsStr, fmt, path::PathBuf};

/// A profile: what is known about a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Names of the programs that it is for.
    pub programs: Vec<String>,
    /// Patterns of the files that are absorbed.
    pub absorb: Vec<String>,
    /// Of those the ones that its programs give their size before they write to them. Nothing is to be synced there but the log's own blocks: on the pool's
    /// own disk a commit is the same write, and the drain a second one.
    pub preallocated: Vec<String>,
    /// Its programs get no `io_uring` and no Linux AIO: making one fails with `ENOSYS`, as on a kernel without, and they read and write by calls that
    /// can be seen.
    pub refuse_io_uring: bool,
    /// The directory, below its programs' working directory, that a [guard](crate::guard) is laid in.
    pub guard: Option<String>,
}

/// The profile of patterns that the user gives without naming any.
pub const GENERIC: &str = "generic";

/// Name, programs, patterns.
const BUILT_IN: [(&str, &[&str], &[&str]); 7] = [
    // The second is the name of a new append-only file until the first rewrite after CONFIG SET appendonly yes.
    (
        "redis",
        &["redis-server", "redis-sentinel", "keydb-server"],
        &["*.aof", "temp-*.aof.incr"],
    ),
    ("valkey", &["valkey-server"], &["*.aof", "temp-*.aof.incr"]),
    (
        "rocksdb",
        &["db_bench", "ldb", "db_stress"],
        &["[0-9]*.log"],
    ),
    (
        "leveldb",
        &["leveldb_bench", "leveldbutil"],
        &["[0-9]*.log"],
    ),
    ("sqlite", &["sqlite3"], &["*-wal", "*-journal"]),
    // InnoDB's redo log, and the one that is to replace it when its size is changed; the binary and relay logs, whose names the user chooses and
    // whose last part is always a number of six digits, seven after a million; Aria's log; MyRocks's. `aria_log_control` is rewritten at each of
    // Aria's checkpoints, beside its log, and `tc.log` is mapped.
    (
        "mariadb",
        &["mariadbd", "mysqld", "mariadbd-safe", "mysqld_safe"],
        &[
            "ib_logfile0",
            "ib_logfile101",
            "*.[0-9][0-9][0-9][0-9][0-9][0-9]",
            "*.[0-9][0-9][0-9][0-9][0-9][0-9][0-9]",
            "aria_log.[0-9]*",
            "aria_log_control",
            "#rocksdb/[0-9]*.log",
        ],
    ),
    (
        "postgres",
        &["postgres", "postmaster", "pg_ctl"],
        &[WAL_SEGMENT],
    ),
];

/// A segment of PostgreSQL's write-ahead log: its timeline and place in 24 hexadecimal digits. Neither what a segment is called while it is filled with
/// zeros (`xlogtemp.4711`), nor what an archive or a receiver names after one (`.partial`, `.backup`, `.history`, `archive_status/…ready`), nor a copy in an
/// archive's directory. `pg_wal` may be a link to another place: the server opens its segments by this name.
const WAL_SEGMENT: &str = concat!(
    "pg_wal/",
    "[0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F]",
    "[0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F]",
    "[0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F]",
);

/// Profiles whose programs use `io_uring` where they can, and do without where they cannot.
const REFUSING_IO_URING: [&str; 1] = ["mariadb"];

/// Of a profile's patterns those of files that are given their size first: InnoDB's redo log, PostgreSQL's segments, which it fills with zeros or uses
/// again.
const PREALLOCATED: [(&str, &[&str]); 2] = [
    ("mariadb", &["ib_logfile0", "ib_logfile101"]),
    ("postgres", &[WAL_SEGMENT]),
];

/// Profiles whose programs stumble over a [guard](crate::guard), and the directory that they find it in.
const GUARDED: [(&str, &str); 1] = [("postgres", "pg_replslot")];

/// The profiles that are built in.
#[must_use]
pub fn built_in() -> Vec<Profile> {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let profile = |(name, programs, absorb): &(&str, &[&str], &[&str])| Profile {
        name: (*name).to_owned(),
        programs: owned(programs),
        absorb: owned(absorb),
        preallocated: (PREALLOCATED.iter())
            .find(|(of, _)| of == name)
            .map_or_else(Vec::new, |(_, patterns)| owned(patterns)),
        refuse_io_uring: REFUSING_IO_URING.contains(name),
        guard: (GUARDED.iter())
            .find(|(of, _)| of == name)
            .map(|(_, directory)| (*directory).to_owned()),
    };
    BUILT_IN.iter().map(profile).collect()
}

/// What is absorbed in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The profile's name, or [`GENERIC`].
    pub profile: String,
    /// Patterns, each once, for [`matches`].
    pub patterns: Vec<String>,
    /// Patterns of files that have their size before they are written: they stay plain where they lie on the disk of the pool.
    pub preallocated: Vec<String>,
    /// Making an `io_uring` fails with `ENOSYS`.
    pub refuse_io_uring: bool,
    /// Where a [guard](crate::guard) is laid, if one is.
    pub guard: Option<String>,
}

/// Patterns for people: of equal sets of characters that follow each other, how many there are.
#[must_use]
pub fn patterns_in_short(patterns: &[String]) -> String {
    let shown: Vec<String> = patterns.iter().map(|p| in_short(p)).collect();
    shown.join(" ")
}

fn in_short(pattern: &str) -> String {
    let mut shown = String::new();
    let mut left = pattern;
    while let Some(open) = left.find('[') {
        let (before, rest) = left.split_at(open);
        let set = rest.find(']').map_or(rest, |close| &rest[..=close]);
        let times = (rest.len() - rest.trim_start_matches(set).len()) / set.len();
        shown.push_str(before);
        shown.push_str(set);
        if times > 1 {
            shown.push_str(&format!("×{times}"));
        }
        left = &rest[times * set.len()..];
    }
    shown + left
}

/// What the user asks for, and about which program.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The program's names, the likeliest first: as it was called, and as the file is called that this leads to.
    pub programs: &'a [&'a OsStr],
    /// The profile that the user names.
    pub profile: Option<&'a str>,
    /// The configuration.
    pub config: &'a Config,
    /// Patterns that the user adds.
    pub absorb: &'a [String],
}

/// Chooses what is absorbed.
///
/// # Errors
/// [`PolicyError::UnknownProfile`]; without patterns to absorb [`PolicyError::UnknownProgram`]; [`PolicyError::Pattern`].
pub fn choose(request: Request<'_>) -> Result<Policy, PolicyError> {
    let profiles = request.config.profiles();
    let known = || profiles.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
    let profile = match request.profile {
        Some(GENERIC) => None,
        Some(name) => match profiles.iter().find(|p| p.name == name) {
            Some(profile) => Some(profile),
            None => {
                return Err(PolicyError::UnknownProfile {
                    name: name.to_owned(),
                    known: known(),
                });
            }
        },
        None => request
            .programs
            .iter()
            .find_map(|program| profiles.iter().find(|p| p.is_for(program))),
    };
    let own = match (request.config.absorb(), profile) {
        (Some(patterns), _) => patterns,
        (None, Some(profile)) => profile.absorb.as_slice(),
        (None, None) => &[],
    };
    let mut patterns: Vec<String> = Vec::new();
    for pattern in own.iter().chain(request.absorb) {
        pattern::check(pattern).map_err(|what| PolicyError::Pattern {
            pattern: pattern.clone(),
            what,
        })?;
        if !patterns.contains(pattern) {
            patterns.push(pattern.clone());
        }
    }
    if patterns.is_empty() {
        let program = request.programs.first();
        return Err(PolicyError::UnknownProgram {
            program: program.map_or_else(String::new, |p| p.to_string_lossy().into_owned()),
            known: known(),
        });
    }
    Ok(Policy {
        refuse_io_uring: profile.is_some_and(|profile| profile.refuse_io_uring),
        guard: profile.and_then(|profile| profile.guard.clone()),
        profile: profile.map_or_else(|| GENERIC.to_owned(), |p| p.name.clone()),
        preallocated: profile.map_or_else(Vec::new, |profile| profile.preallocated.clone()),
        patterns,
    })
}

impl Profile {
    fn is_for(&self, program: &OsStr) -> bool {
        self.programs.iter().any(|p| OsStr::new(p) == program)
    }
}

/// Why nothing can be chosen.
#[derive(Debug)]
#[non_exhaustive]
pub enum PolicyError {
    /// No profile of that name.
    UnknownProfile {
        /// The name.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// No profile is for that program, and there are no patterns.
    UnknownProgram {
        /// Its name.
        program: String,
        /// The profiles there are.
        known: Vec<String>,
    },
    /// A pattern that is none.
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The configuration file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The configuration file says something that cannot be.
    Config {
        /// The file.
        path: PathBuf,
        /// The line, from 1; 0 if it is not known.
        line: usize,
        /// What is wrong there.
        what: String,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownProfile { name, known } => write!(
                f,
                "there is no profile {name:?}; there are {}, and those of a file given with --config",
                known.join(", ")
            ),
            Self::UnknownProgram { program, known } => write!(
                f,
                "no profile is for the program {program:?}, so which files are its logs is not known. Name a profile with \
                 --profile ({}), or say which files to absorb: --absorb '*.log'",
                known.join(", ")
            ),
            Self::Pattern { pattern, what } => write!(f, "the pattern {pattern:?} {what}"),
            Self::Unreadable { path, source } => {
                write!(f, "reading the configuration {}: {source}", path.display())
            }
            Self::Config {
                path,
                line: 0,
                what,
            } => write!(f, "{}: {what}", path.display()),
            Self::Config { path, line, what } => {
                write!(f, "{}, line {line}: {what}", path.display())
            }
        }
    }
}

impl std::error::Error for PolicyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
