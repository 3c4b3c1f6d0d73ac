//! Moments at which the power is cut: passages in Forebay's code that announce themselves.

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
    /// The same, and what is cut is `forebay flush`.
    TwiceFlushing,
    /// As `Cut`, in a boot in which `forebay flush` comes before the server.
    CutAfterFlush,
}

impl Moment {
    pub const fn new(
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

pub const TORN: Moment = Moment::new("an append, torn", "pool:append-torn", (1, 400), Then::Cut);
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

/// Of every workload whose pool is on a disk.
pub const COMMIT: &[Moment] = &[
    Moment::new(
        "commit, led and nothing done",
        "shared:commit-led",
        (1, 80),
        Then::Cut,
    ),
    Moment::new(
        "commit, half written",
        "disk:write-half",
        (1, 80),
        Then::Cut,
    ),
    Moment::new(
        "commit, its last page void and not written",
        "shared:commit-filled",
        (1, 80),
        Then::Cut,
    ),
    Moment::new(
        "commit, written and not said",
        "shared:commit-written",
        (1, 80),
        Then::Cut,
    ),
    Moment::new(
        "commit, its leader stopped",
        "shared:commit-written",
        (1, 80),
        Then::Stall,
    ),
];

pub const REDIS: &[Moment] = &[
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

pub const ROCKSDB: &[Moment] = &[
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
pub const SQLITE: &[Moment] = &[
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

pub const SQLITE_JOURNAL: &[Moment] = &[
    UNLINK, REGISTER, REPLAYED, REGISTERED, DRAIN, TORN, FULL, REPLAY, RELEASE,
];

/// Redo log, binary log and Aria's are registered when the server starts.
pub const MARIADB: &[Moment] = &[
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
pub const POSTGRES: &[Moment] = &[
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
pub const SQLITE_PROCESSES: &[Moment] = &[
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

pub const LOGS: &[Moment] = &[
    RENAME, REGISTER, REPLAY, RENAMED, UNLINK, REGISTERED, DRAIN, FULL, REPLAYED, TORN, DRAINED,
];

pub const STORE: &[Moment] = &[
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

pub const RELEASE_EARLY: &[Moment] = &[Moment::new(
    "drain, released before the sync",
    "files:drain-sync",
    (1, 12),
    Then::Stall,
)];
pub const UNREGISTERED: &[Moment] = &[Moment::new(
    "registered without a sync",
    "files:registered",
    (2, 4),
    Then::GoOn,
)];
pub const TORN_ONLY: &[Moment] = &[TORN];
