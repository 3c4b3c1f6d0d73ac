//! The files tier: an unmodified database's writes to its log files go to the pool as well, so that
//! its fsync costs a copy.
//!
//! An absorbed write goes to the kernel as always, *and* into a lane of the pool; only its
//! durability is taken over. The [`client`] does that inside the database's process (through
//! libforebay.so); it owns the lane. The [`supervisor`], which started the database, syncs the
//! files of a sealed segment, so that the client can release it. After a crash [`replay`] brings
//! the files up to date. docs/files-protocol.md has the messages, records and rules,
//! docs/durability.md the promises.

mod absorbed;
pub mod activation;
pub mod agent_request;
pub mod boot;
pub mod client;
pub mod directories;
mod error;
pub mod guard;
mod guard_name;
pub mod identity;
mod image;
pub mod ioctls;
mod lane_label;
mod lane_place;
mod log;
pub mod marks;
mod order;
mod pending_records;
pub mod policy;
mod processes;
pub mod program;
pub mod record;
pub mod replay;
mod run_files;
mod shared;
mod shared_text;
mod snapshot;
pub mod supervisor;
mod sys;
#[cfg(test)]
mod test_mount;
mod void_marks;
mod wire;

pub use error::FilesError;
pub use shared::{DURATION_BOUNDS, DurationHistogram, PAGE_BYTES_MIN};
pub use sys::{hear_of_children, ignore_signals};
pub use wire::VERSION as WIRE_VERSION;

/// Files that a run absorbs at a time, at most. More stay plain.
pub const FILES_MAX: usize = 100 << 10;

/// Environment of the database: the supervisor's address, an abstract Unix socket.
pub const ENV_SOCKET: &str = "FOREBAY_SOCKET";
/// Environment of the database: the secret that its [`client`] names itself with.
pub const ENV_TOKEN: &str = "FOREBAY_TOKEN";
/// Environment of the database: where the table of the files that its run absorbs is.
pub const ENV_TABLE: &str = "FOREBAY_TABLE";
/// Environment of the database: `fnmatch` patterns of the files to absorb, one a line.
pub const ENV_ABSORB: &str = "FOREBAY_ABSORB";

/// Environment of the database: [`IO_URING_REFUSED`] if making an `io_uring` is to fail with
/// `ENOSYS`. May be absent.
pub const ENV_IO_URING: &str = "FOREBAY_IO_URING";
/// See [`ENV_IO_URING`].
pub const IO_URING_REFUSED: &str = "refuse";
/// Environment of the database: the first part of the names of the [`guard`]s that it does not see.
/// May be absent.
pub const ENV_GUARD: &str = "FOREBAY_GUARD";

/// Environment of the database: the command that has an agent serve a program which the
/// [`client`]'s library does not fit. May be absent.
pub const ENV_ENTER: &str = "FOREBAY_ENTER";
/// The first word of that command.
pub const ENTER_COMMAND: &std::ffi::CStr = c"notify-enter";
/// Environment of that command: the program's `LD_PRELOAD`.
pub const ENV_PRELOAD: &str = "FOREBAY_LD_PRELOAD";
/// A `prctl` by which the library asks whether it begins below an agent. The kernel knows none
/// (`EINVAL`). An agent that has done nothing yet answers 0, and does nothing from then on; one
/// that serves answers 1, and the library is to do nothing.
pub const AGENT_QUESTION: std::ffi::c_int = 0x464f_5245;

/// Writes a path for a reader: parts that are no text stand as U+FFFD. JSON has no other way, and a
/// name of a file must not silence a report.
///
/// # Errors
/// The serialiser's.
pub fn readable<S: serde::Serializer>(path: &std::path::Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// The same of one that may not be known.
///
/// # Errors
/// Those of `to`.
pub fn readable_if<S: serde::Serializer>(
    path: &Option<std::path::PathBuf>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => readable(path, to),
        None => to.serialize_none(),
    }
}
