//! Modes of a Redis server: its promises about an acknowledged SET.

use crate::contest::{self, Mode, Syncs};

const ALWAYS_SYNCED: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// No append-only file.
pub const OFF: Mode = Mode::new("off", "nothing", &["--appendonly", "no"]);
/// Appended, never synced by the server.
pub const NO: Mode = Mode::new(
    "no",
    "a process crash",
    &["--appendonly", "yes", "--appendfsync", "no"],
);
/// Synced once a second.
pub const EVERYSEC: Mode = Mode::new(
    "everysec",
    "a power cut, but for a second",
    &["--appendonly", "yes", "--appendfsync", "everysec"],
);
/// Synced before it is acknowledged.
pub const ALWAYS: Mode = Mode::new("always", "a power cut", ALWAYS_SYNCED);
/// As `always`, but fsync does nothing (libeatmydata).
pub const EATMYDATA: Mode = contest::EATMYDATA.with(ALWAYS_SYNCED);
/// As `always`, with the server's whole directory in memory that stands for NVM: all pairs are
/// there.
pub const NVM: Mode = Mode::new("nvm", "what the memory does", ALWAYS_SYNCED).by(Syncs::Memory);
/// As `always`, under `forebay run`.
pub const FOREBAY: Mode = contest::FOREBAY.with(ALWAYS_SYNCED);
/// The same, with an agent instead of the library.
pub const NOTIFY: Mode = contest::NOTIFY.with(ALWAYS_SYNCED);

/// All of them.
pub const ALL: [Mode; 8] = [OFF, NO, EVERYSEC, ALWAYS, EATMYDATA, NVM, FOREBAY, NOTIFY];
