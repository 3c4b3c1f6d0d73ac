//! What a Redis server promises about an acknowledged SET.

use crate::contest::{self, Mode, Syncs};

const ALWAYS_SYNCED: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// No append-only file.
pub const OFF: Mode = Mode {
    name: "off",
    survives: "nothing",
    settings: &["--appendonly", "no"],
    syncs: Syncs::Disk,
};
/// Appended, never synced by the server.
pub const NO: Mode = Mode {
    name: "no",
    survives: "a process crash",
    settings: &["--appendonly", "yes", "--appendfsync", "no"],
    syncs: Syncs::Disk,
};
/// Synced once a second.
pub const EVERYSEC: Mode = Mode {
    name: "everysec",
    survives: "a power cut, but for a second",
    settings: &["--appendonly", "yes", "--appendfsync", "everysec"],
    syncs: Syncs::Disk,
};
/// Synced before it is acknowledged.
pub const ALWAYS: Mode = Mode {
    name: "always",
    survives: "a power cut",
    settings: ALWAYS_SYNCED,
    syncs: Syncs::Disk,
};
/// As `always`, but fsync does nothing (libeatmydata).
pub const EATMYDATA: Mode = contest::EATMYDATA.with(ALWAYS_SYNCED);
/// As `always`, with the server's whole directory in memory that stands for NVM: all pairs are there.
pub const NVM: Mode = Mode {
    name: "nvm",
    survives: "what the memory does",
    settings: ALWAYS_SYNCED,
    syncs: Syncs::Memory,
};
/// As `always`, under `forebay run`.
pub const FOREBAY: Mode = contest::FOREBAY.with(ALWAYS_SYNCED);

/// All of them.
pub const ALL: [Mode; 7] = [OFF, NO, EVERYSEC, ALWAYS, EATMYDATA, NVM, FOREBAY];
