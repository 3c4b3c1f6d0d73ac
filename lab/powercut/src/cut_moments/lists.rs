//! Moments that each workload's cuts are aimed at.

use super::{
    DRAIN, DRAINED, FULL, Moment, REGISTER, REGISTERED, RELEASE, RELEASED, RENAME, RENAMED, REPLAY,
    REPLAYED, RESERVED, SEAL, TORN, TURN, TURNED, Then, UNLINK, WRITTEN,
    takeover::{ALL_DEAD, BOTH_DEAD},
};

/// Of every workload whose pool is on a disk.
///
/// Promise (lab): A pool on a second disk, whole or a file on ext4, whose cache loses unflushed
/// sectors, keeps the same promises for every workload.
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

/// Of every workload whose pool is in other machines' memory.
///
/// Promise (lab): A virtual machine whose pool is in the memory of NBD servers outside of it keeps
/// what it acknowledged through power cuts.
pub const LEGS: &[Moment] = &[
    Moment::new(
        "commit, posted and not written to the legs",
        "legs:posted",
        (1, 80),
        Then::Cut,
    ),
    Moment::new(
        "commit, on the way to the legs",
        "legs:write-begun",
        (1, 200),
        Then::Cut,
    ),
    Moment::new(
        "commit, on the legs and not said",
        "shared:commit-written",
        (1, 80),
        Then::Cut,
    ),
    Moment::new(
        "takeover, its generation not written",
        "legs:change",
        (1, 2),
        Then::Cut,
    ),
    Moment::new(
        "takeover, its generation on the first leg",
        "legs:change-written",
        (1, 2),
        Then::Cut,
    ),
];

/// Promise (lab): A command that Redis or Valkey acknowledged with `appendfsync always` is there
/// after a power cut, and a transaction is there whole or not at all.
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

/// Promise (lab): A write batch that RocksDB acknowledged with `sync` is there after a power cut,
/// over memtable switches and logs that are renamed and removed.
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
///
/// Promise (lab): A transaction that SQLite acknowledged, in either journal mode, is there after a
/// power cut, and the database passes its integrity check.
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

/// Promise: as `SQLITE`.
pub const SQLITE_JOURNAL: &[Moment] = &[
    UNLINK, REGISTER, REPLAYED, REGISTERED, DRAIN, TORN, FULL, REPLAY, RELEASE,
];

/// Redo log, binary log and Aria's are registered when the server starts.
///
/// Promise (lab): A transaction that MariaDB acknowledged is there after a power cut, its binary
/// log has exactly InnoDB's transactions, and `CHECK TABLE … EXTENDED` finds nothing.
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

/// A segment of the log is registered when the server goes on to it, every second or so; old ones
/// get the names of new ones.
///
/// Promise (lab): A transaction that PostgreSQL acknowledged is there after a power cut, and
/// `amcheck` finds nothing.
pub const POSTGRES: &[Moment] = &[
    ALL_DEAD[0],
    ALL_DEAD[1],
    ALL_DEAD[2],
    ALL_DEAD[3],
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

/// Its log's first segment is made in a directory of another name, and registered when etcd starts.
/// An agent does what etcd writes.
///
/// Promise (lab): A transaction that etcd acknowledged is there after a power cut, whole or not at
/// all.
pub const ETCD: &[Moment] = &[
    DRAIN, REPLAY, TORN, FULL, RELEASE, REPLAYED, REGISTER, DRAINED, REGISTERED, RELEASED,
];

/// Blocks of a stream are made, shortened, renamed over each other, and unlinked, one by one and
/// all at once. An agent does what NATS writes.
///
/// Promise (lab): A message that JetStream acknowledged with `sync_interval: always` is there after
/// a power cut, over blocks that are made, compacted, purged and removed.
pub const NATS: &[Moment] = &[
    DRAIN, UNLINK, REPLAY, TORN, RENAME, FULL, REGISTER, RELEASE, REPLAYED, RENAMED, DRAINED,
    REGISTERED, RELEASED,
];

/// As [`SQLITE`], with several processes that write to the file in turn.
///
/// Promise (lab): A transaction that one of several processes on a SQLite database acknowledged is
/// there after a power cut.
pub const SQLITE_PROCESSES: &[Moment] = &[
    BOTH_DEAD[0],
    BOTH_DEAD[1],
    BOTH_DEAD[2],
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

/// Promise (lab): A program that relies on ext4 making a new file's name durable with the file's
/// sync may go on doing so.
pub const LOGS: &[Moment] = &[
    RENAME, REGISTER, REPLAY, RENAMED, UNLINK, REGISTERED, DRAIN, FULL, REPLAYED, TORN, DRAINED,
];

/// Promise (lab): A checkpoint that the store had made is there after a power cut, opens, and has
/// what the store had at that moment.
const CHECKPOINTS: [Moment; 3] = [
    Moment::new(
        "checkpoint, all copied and no manifest",
        "store:copied",
        (1, 2),
        Then::Cut,
    ),
    Moment::new(
        "checkpoint, its manifest about to be written",
        "store:copy-manifest",
        (1, 2),
        Then::Cut,
    ),
    Moment::new(
        "checkpoint, a store that still has the mark",
        "store:copy-named",
        (1, 2),
        Then::Cut,
    ),
];

/// Promise (lab): A put, delete, update, deleted range, batch or transaction that the store
/// acknowledged is there after a power cut, whole; nothing deleted comes back, and `verify` finds
/// nothing.
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
    CHECKPOINTS[0],
    CHECKPOINTS[1],
    CHECKPOINTS[2],
];

/// Cut soon: a server that goes on makes copies of its own durable, by snapshots and rewrites.
pub const RELEASE_EARLY: &[Moment] = &[Moment::new(
    "drain, released before the sync",
    "files:drain-sync",
    (1, 12),
    Then::Cut,
)];
/// Promise (lab): A file is absorbed only after a real sync: the lab sees the loss of one that was
/// not synced.
pub const UNREGISTERED: &[Moment] = &[Moment::new(
    "registered without a sync",
    "files:registered",
    (2, 4),
    Then::GoOn,
)];
pub const TORN_ONLY: &[Moment] = &[TORN];
