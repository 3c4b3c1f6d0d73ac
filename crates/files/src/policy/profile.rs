//! Profiles: what is known about databases.

use std::ffi::OsStr;

/// A profile: what is known about a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Names of the programs that it is for.
    pub programs: Vec<String>,
    /// Patterns of the files that are absorbed.
    pub absorb: Vec<String>,
    /// Of those the ones that its programs give their size before they write to them. Nothing is to
    /// be synced there but the log's own blocks: on the pool's own disk a commit is the same write,
    /// and the drain a second one.
    pub preallocated: Vec<String>,
    /// Its programs get no `io_uring` and no Linux AIO: making one fails with `ENOSYS`, as on a
    /// kernel without, and they read and write by calls that can be seen.
    pub refuse_io_uring: bool,
    /// The directory, below its programs' working directory, that a [guard](crate::guard) is laid
    /// in.
    pub guard: Option<String>,
}

impl Profile {
    /// True if it is for a program of this name.
    pub(super) fn is_for(&self, program: &OsStr) -> bool {
        self.programs.iter().any(|p| OsStr::new(p) == program)
    }
}

/// Name, programs, patterns.
pub(super) const BUILT_IN: [(&str, &[&str], &[&str]); 8] = [
    // The second is the name of a new append-only file until the first rewrite after CONFIG SET
    // appendonly yes.
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
    // InnoDB's redo log, and the one that is to replace it when its size is changed; the binary and
    // relay logs, whose names the user chooses and whose last part is always a number of six
    // digits, seven after a million; Aria's log; MyRocks's. `aria_log_control` is rewritten at each
    // of Aria's checkpoints, beside its log, and `tc.log` is mapped.
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
    // The segments of its log, and what the next one is called until it is one. The database beside
    // them (`member/snap/db`) is no log.
    ("etcd", &["etcd"], &["*.wal", ETCD_NEXT_SEGMENT]),
];

/// What etcd makes in advance.
const ETCD_NEXT_SEGMENT: &str = "wal/[0-9]*.tmp";

/// A segment of PostgreSQL's write-ahead log: its timeline and place in 24 hexadecimal digits.
/// Neither what a segment is called while it is filled with zeros (`xlogtemp.4711`), nor what an
/// archive or a receiver names after one (`.partial`, `.backup`, `.history`,
/// `archive_status/…ready`), nor a copy in an archive's directory. `pg_wal` may be a link to
/// another place: the server opens its segments by this name.
pub(super) const WAL_SEGMENT: &str = concat!(
    "pg_wal/",
    "[0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F]",
    "[0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F]",
    "[0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F]",
);

/// Profiles whose programs use `io_uring` where they can, and do without where they cannot.
const REFUSING_IO_URING: [&str; 1] = ["mariadb"];

/// Of a profile's patterns those of files that are given their size first: InnoDB's redo log,
/// PostgreSQL's segments, which it fills with zeros or uses again, and etcd's.
const PREALLOCATED: [(&str, &[&str]); 3] = [
    ("mariadb", &["ib_logfile0", "ib_logfile101"]),
    ("postgres", &[WAL_SEGMENT]),
    ("etcd", &["*.wal", ETCD_NEXT_SEGMENT]),
];

/// Profiles whose programs stumble over a [guard](crate::guard), and the directory that they find
/// it in.
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
