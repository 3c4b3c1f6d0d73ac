//! What runs in the guest, at which moments the power is cut, and what must be seen then.

use crate::{client::Dialect, ledger::Shape};

/// A thing that runs in the guest.
#[derive(Debug)]
pub struct Workload {
    /// Its name here, and the guest's action.
    pub name: &'static str,
    pub dialect: Dialect,
    pub shape: Shape,
    /// What must be seen.
    pub expected: Expected,
    /// What is broken in Forebay on purpose, if anything: a name that `forebay_pool::broken!` knows.
    pub broken: Option<&'static str>,
    /// Hard moments. A workload with some is cut at one of them in every second cycle.
    pub moments: &'static [Moment],
    /// It has no use for random cuts.
    pub only_aimed: bool,
    /// The guest needs the programs of a database server, and a data directory of it.
    pub beside: Option<Beside>,
}

/// A database server that runs in the guest beside the lab's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beside {
    MariaDb,
    Postgres,
}

/// What must be seen of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing is ever lost.
    NoLoss,
    /// In some cycle something is: otherwise the lab is blind.
    Loss,
}

/// A moment that a failpoint announces on the guest's console.
#[derive(Debug, PartialEq, Eq)]
pub struct Moment {
    /// In words.
    pub name: &'static str,
    /// The failpoint: a name that `forebay_pool::failpoint!` has.
    pub failpoint: &'static str,
    /// It is one of these times that the failpoint is passed, the first and the last.
    pub times: (u64, u64),
    pub then: Then,
}

/// What happens between the announcement and the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The thread that announced it stands still, the others go on for some tenths of a second at most.
    Cut,
    /// The same, until nothing is acknowledged any more.
    Stall,
    /// The thread goes on, for some tenths of a second at most.
    GoOn,
    /// The machine is booted again with the same failpoint, and cut there once more: the recovery is cut twice in a row.
    Twice,
}

impl Moment {
    const fn new(
        name: &'static str,
        failpoint: &'static str,
        times: (u64, u64),
        then: Then,
    ) -> Self {
        Self {
            name,
            failpoint,
            times,
            then,
        }
    }
}

const TORN: Moment = Moment::new("an append, torn", "pool:append-torn", (1, 400), Then::Cut);
const RELEASE: Moment = Moment::new(
    "segment released, lane entry not written",
    "pool:release-entry",
    (1, 12),
    Then::Cut,
);
const RELEASED: Moment = Moment::new(
    "lane entry written, slot not free",
    "pool:release-free",
    (1, 12),
    Then::Cut,
);
const RESERVED: Moment = Moment::new(
    "an append, its place reserved and not claimed",
    "shared:reserved",
    (1, 400),
    Then::Cut,
);
const WRITTEN: Moment = Moment::new(
    "an append, written and not published",
    "shared:written",
    (1, 400),
    Then::Cut,
);
const TURN: Moment = Moment::new(
    "a segment left, its rest not void",
    "shared:turned",
    (1, 12),
    Then::Cut,
);
const TURNED: Moment = Moment::new(
    "a segment left, the next one not published",
    "shared:turn-half",
    (1, 12),
    Then::Cut,
);
const SEAL: Moment = Moment::new(
    "segment sealed, next one not open",
    "pool:sealed",
    (1, 12),
    Then::Cut,
);
const DRAIN: Moment = Moment::new(
    "drain, before the sync",
    "files:drain-sync",
    (1, 12),
    Then::Cut,
);
const DRAINED: Moment = Moment::new(
    "drain, synced and not said",
    "files:drain-synced",
    (1, 12),
    Then::Cut,
);
const FULL: Moment = Moment::new("pool full", "files:drain-sync", (1, 12), Then::Stall);
const REGISTER: Moment = Moment::new(
    "registration, before the syncs",
    "files:register",
    (2, 4),
    Then::Cut,
);
const REGISTERED: Moment = Moment::new(
    "registration, synced and not said",
    "files:registered",
    (2, 4),
    Then::GoOn,
);
const REPLAY: Moment = Moment::new(
    "recovery, between two writes",
    "files:replay",
    (1, 12),
    Then::Twice,
);
const REPLAYED: Moment = Moment::new(
    "recovery, files synced and lane not given back",
    "files:replayed",
    (1, 1),
    Then::Twice,
);
const RENAME: Moment = Moment::new(
    "rename, logged and not done",
    "files:rename",
    (1, 3),
    Then::Cut,
);
const RENAMED: Moment = Moment::new("rename, done", "files:renamed", (1, 3), Then::Cut);
const UNLINK: Moment = Moment::new(
    "unlink, logged and not done",
    "files:unlink",
    (1, 3),
    Then::Cut,
);

const REDIS: &[Moment] = &[
    DRAIN,
    RELEASE,
    REPLAY,
    Moment::new(
        "AOF rewrite, its new file being registered",
        "files:register",
        (2, 4),
        Then::Cut,
    ),
    FULL,
    TORN,
    Moment::new(
        "AOF rewrite, a file being renamed into place",
        "files:rename-other",
        (1, 6),
        Then::Cut,
    ),
    REPLAYED,
    DRAINED,
    RELEASED,
    Moment::new(
        "AOF rewrite, the old file being unlinked",
        "files:unlink",
        (1, 2),
        Then::Cut,
    ),
    REGISTERED,
    TURN,
    RESERVED,
    TURNED,
    WRITTEN,
];

const ROCKSDB: &[Moment] = &[
    Moment::new(
        "memtable switch, the new log being registered",
        "files:register",
        (2, 4),
        Then::Cut,
    ),
    REPLAY,
    Moment::new(
        "memtable switch, the new log registered",
        "files:registered",
        (2, 4),
        Then::GoOn,
    ),
    RENAME,
    DRAIN,
    FULL,
    RENAMED,
    RELEASE,
    REPLAYED,
    TORN,
];

/// With a write-ahead log only one file is ever registered, when the database is opened.
const SQLITE: &[Moment] = &[
    DRAIN,
    REPLAY,
    FULL,
    TORN,
    RELEASE,
    Moment::new(
        "registration, before the syncs",
        "files:register",
        (1, 1),
        Then::Cut,
    ),
    REPLAYED,
    RELEASED,
    TURN,
    RESERVED,
    TURNED,
    WRITTEN,
];

const SQLITE_JOURNAL: &[Moment] = &[
    UNLINK, REGISTER, REPLAYED, REGISTERED, DRAIN, TORN, FULL, REPLAY, RELEASE,
];

/// Redo log, binary log and Aria's are registered when the server starts.
const MARIADB: &[Moment] = &[
    DRAIN,
    REPLAY,
    TURN,
    RESERVED,
    TURNED,
    WRITTEN,
    TORN,
    DRAINED,
    Moment::new(
        "registration of a log, before the syncs",
        "files:register",
        (1, 4),
        Then::Cut,
    ),
    RELEASE,
    REPLAYED,
    FULL,
    Moment::new(
        "registration of a log, synced and not said",
        "files:registered",
        (1, 4),
        Then::GoOn,
    ),
    RELEASED,
];

/// A segment of the log is registered when the server goes on to it, every second or so; old ones get the names of new ones.
const POSTGRES: &[Moment] = &[
    DRAIN,
    REPLAY,
    Moment::new(
        "a segment of the log being registered",
        "files:register",
        (1, 4),
        Then::Cut,
    ),
    RENAME,
    TORN,
    FULL,
    TURN,
    RESERVED,
    TURNED,
    WRITTEN,
    Moment::new(
        "a segment of the log registered, and not said",
        "files:registered",
        (1, 4),
        Then::GoOn,
    ),
    RENAMED,
    REPLAYED,
    DRAINED,
    RELEASE,
    RELEASED,
];

/// As [`SQLITE`], with several processes that write to the file in turn.
const SQLITE_PROCESSES: &[Moment] = &[
    DRAIN,
    REPLAY,
    FULL,
    TORN,
    Moment::new(
        "registration, before the syncs",
        "files:register",
        (1, 3),
        Then::Cut,
    ),
    RELEASE,
    REPLAYED,
    TURN,
    RESERVED,
    TURNED,
    WRITTEN,
    RELEASED,
];

const LOGS: &[Moment] = &[
    RENAME, REGISTER, REPLAY, RENAMED, UNLINK, REGISTERED, DRAIN, FULL, REPLAYED, TORN, DRAINED,
];

const STORE: &[Moment] = &[
    Moment::new(
        "drain, before the sync",
        "store:drain-sync",
        (1, 12),
        Then::Cut,
    ),
    Moment::new(
        "garbage collection, live records copied",
        "store:gc-copied",
        (1, 3),
        Then::Cut,
    ),
    Moment::new(
        "index ingestion, tables written, manifest not",
        "store:ingest-commit",
        (1, 3),
        Then::Cut,
    ),
    RELEASE,
    Moment::new(
        "recovery, during the log's replay",
        "store:replay",
        (1, 200),
        Then::Twice,
    ),
    Moment::new(
        "garbage collection, file out of the manifest",
        "store:gc-retired",
        (1, 3),
        Then::Cut,
    ),
    Moment::new("pool full", "store:drain-sync", (1, 12), Then::Stall),
    TORN,
    Moment::new(
        "index ingestion, done, log not shortened",
        "store:ingested",
        (1, 3),
        Then::Cut,
    ),
    Moment::new(
        "drain, synced and segment not released",
        "store:drain-synced",
        (1, 12),
        Then::Cut,
    ),
    Moment::new(
        "a new value-log file, named and not written",
        "store:new-file",
        (1, 3),
        Then::Cut,
    ),
    RELEASED,
    Moment::new(
        "recovery, replayed and not noted",
        "store:replayed",
        (1, 1),
        Then::Twice,
    ),
    SEAL,
];

const RELEASE_EARLY: &[Moment] = &[Moment::new(
    "drain, released before the sync",
    "files:drain-sync",
    (1, 12),
    Then::Stall,
)];
const UNREGISTERED: &[Moment] = &[Moment::new(
    "registered without a sync",
    "files:registered",
    (2, 4),
    Then::GoOn,
)];
const TORN_ONLY: &[Moment] = &[TORN];

const SMALL: Shape = Shape {
    keys: 2000,
    batch_max: 8,
    long_every: 400,
    long: 30_000,
    short: 300,
};
/// Values that are longer than half a segment among them.
const LARGE: Shape = Shape {
    keys: 600,
    batch_max: 8,
    long_every: 150,
    long: 160_000,
    short: 3000,
};

/// Some hundred transactions fill the pool's segments: a server in an emulated machine is slow. Keys are read one by one.
const FEW: Shape = Shape {
    keys: 400,
    batch_max: 8,
    long_every: 60,
    long: 30_000,
    short: 3000,
};

const PLAIN: Workload = Workload {
    name: "",
    dialect: Dialect::Batch,
    shape: SMALL,
    expected: Expected::NoLoss,
    broken: None,
    moments: &[],
    only_aimed: false,
    beside: None,
};

/// What `--workload` can name.
pub const WORKLOADS: [Workload; 10] = [
    Workload {
        name: "store",
        shape: LARGE,
        moments: STORE,
        ..PLAIN
    },
    Workload {
        name: "redis",
        dialect: Dialect::Redis,
        moments: REDIS,
        ..PLAIN
    },
    Workload {
        name: "valkey",
        dialect: Dialect::Redis,
        moments: REDIS,
        ..PLAIN
    },
    Workload {
        name: "rocksdb",
        moments: ROCKSDB,
        ..PLAIN
    },
    Workload {
        name: "sqlite",
        moments: SQLITE,
        ..PLAIN
    },
    Workload {
        name: "sqlite-journal",
        moments: SQLITE_JOURNAL,
        ..PLAIN
    },
    Workload {
        name: "logs",
        moments: LOGS,
        ..PLAIN
    },
    Workload {
        name: "mariadb",
        shape: FEW,
        moments: MARIADB,
        beside: Some(Beside::MariaDb),
        ..PLAIN
    },
    Workload {
        name: "postgres",
        shape: FEW,
        moments: POSTGRES,
        beside: Some(Beside::Postgres),
        ..PLAIN
    },
    Workload {
        name: "sqlite-processes",
        moments: SQLITE_PROCESSES,
        ..PLAIN
    },
];

/// What shows that the lab sees loss where there must be some, and none where there must be none.
pub const CONTROLS: [Workload; 17] = [
    Workload {
        name: "redis-always",
        dialect: Dialect::Redis,
        ..PLAIN
    },
    Workload {
        name: "redis-everysec",
        dialect: Dialect::Redis,
        expected: Expected::Loss,
        ..PLAIN
    },
    Workload {
        name: "redis-no",
        dialect: Dialect::Redis,
        expected: Expected::Loss,
        ..PLAIN
    },
    Workload {
        name: "redis-eatmydata",
        dialect: Dialect::Redis,
        expected: Expected::Loss,
        ..PLAIN
    },
    Workload {
        name: "redis-released-early",
        dialect: Dialect::Redis,
        expected: Expected::Loss,
        broken: Some("release-early"),
        moments: RELEASE_EARLY,
        only_aimed: true,
        ..PLAIN
    },
    Workload {
        name: "store-released-early",
        shape: LARGE,
        expected: Expected::Loss,
        broken: Some("release-early"),
        ..PLAIN
    },
    Workload {
        name: "logs-unregistered",
        expected: Expected::Loss,
        broken: Some("no-registration-sync"),
        moments: UNREGISTERED,
        only_aimed: true,
        ..PLAIN
    },
    Workload {
        name: "redis-no-checksum",
        dialect: Dialect::Redis,
        expected: Expected::Loss,
        broken: Some("no-checksum"),
        moments: TORN_ONLY,
        only_aimed: true,
        ..PLAIN
    },
    Workload {
        name: "store-no-checksum",
        shape: LARGE,
        expected: Expected::Loss,
        broken: Some("no-checksum"),
        moments: TORN_ONLY,
        only_aimed: true,
        ..PLAIN
    },
    Workload {
        name: "logs-plain",
        ..PLAIN
    },
    Workload {
        name: "mariadb-plain",
        shape: FEW,
        beside: Some(Beside::MariaDb),
        ..PLAIN
    },
    Workload {
        name: "mariadb-no-sync",
        shape: FEW,
        expected: Expected::Loss,
        beside: Some(Beside::MariaDb),
        ..PLAIN
    },
    Workload {
        name: "mariadb-eatmydata",
        shape: FEW,
        expected: Expected::Loss,
        beside: Some(Beside::MariaDb),
        ..PLAIN
    },
    Workload {
        name: "postgres-plain",
        shape: FEW,
        beside: Some(Beside::Postgres),
        ..PLAIN
    },
    Workload {
        name: "postgres-no-sync",
        shape: FEW,
        expected: Expected::Loss,
        beside: Some(Beside::Postgres),
        ..PLAIN
    },
    Workload {
        name: "postgres-eatmydata",
        shape: FEW,
        expected: Expected::Loss,
        beside: Some(Beside::Postgres),
        ..PLAIN
    },
    Workload {
        name: "sqlite-processes-eatmydata",
        expected: Expected::Loss,
        ..PLAIN
    },
];

/// The workload of this name, controls included.
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS
        .iter()
        .chain(&CONTROLS)
        .find(|workload| workload.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failpoint_that_a_moment_names_is_in_the_code() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let mut code = String::new();
        let mut directories = vec![crates];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    code.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        for workload in WORKLOADS.iter().chain(&CONTROLS) {
            let names = workload.moments.iter().map(|moment| moment.failpoint);
            for name in names.chain(workload.broken) {
                assert!(code.contains(&format!("(\"{name}\")")), "{name}");
            }
        }
    }
}
