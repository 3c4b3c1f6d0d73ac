//! The client: the files tier inside the database's process, called by libforebay.so before,
//! instead of, or after functions of the C library. It has no threads and calls nothing of the
//! database.
//!
//! All functions may be called by any thread. A descriptor that is not absorbed costs one load
//! ([`absorbs`]); everything else is asked only about those that are.
//!
//! What the client knows:
//!
//! * `config`: what the environment says; `membership`: how this process stands to the run;
//!   `call_depth`: whether a signal handler interrupted a call;
//! * `fd_table`: descriptors; `process`: files and locks; `lookup`: whom a name leads to;
//!   `file_mappings`: mappings of absorbed files that a program may write from;
//! * `session`: the lane and the supervisor; `file_size_limit`: who may have none;
//! * `private_fds`, `private_memory`: the client's own descriptors and memory, kept from the
//!   program; `fork_local`: what a forked child has anew.
//!
//! What becomes of each call:
//!
//! * `write` (with `tail_rewrites` and `last_write_cache`), `sync` (with `sync_kind`), `open`,
//!   `descriptors`, `names` (with `renamed_files`), `times`, `retire`;
//! * `direct_io`: what a descriptor with `O_DIRECT` is refused; `order`: what else a sync has to
//!   make durable; `contents`: what is written before a name counts; `commit`: a sync that is the
//!   kernel's;
//! * `bypass`: what is about to be changed past the lane, by `questions` to the supervisor;
//! * `orphan`, `takeover`: the lane without a supervisor;
//! * `in_signal_handler`: calls of a handler that interrupted another.
//!
//! docs/files-protocol.md says why it is so.

mod address;
mod bypass;
mod call_depth;
mod commit;
mod config;
mod contents;
mod descriptors;
mod direct_io;
mod fd_table;
mod file_mappings;
mod file_size_limit;
mod fork_local;
mod in_signal_handler;
mod last_write_cache;
mod lookup;
mod membership;
mod names;
mod open;
mod order;
mod orphan;
mod private_fds;
mod private_memory;
mod process;
mod questions;
mod received_fds;
mod renamed_files;
mod retire;
mod session;
mod size;
mod sync;
mod sync_kind;
mod tail_rewrites;
mod takeover;
mod times;
mod write;

pub use crate::sys::Frame;
pub use bypass::{any_absorbed, cloning, executing_past, is_table_in_reach, opened};
pub use call_depth::{ClientCall, is_inside};
pub use commit::{commit, commits, is_to_be_committed};
pub use contents::before_closing;
pub use descriptors::{
    changed_flags, changing_flags, closing, duplicating, given, hidden_flags, hides_syncs,
    is_in_pool, replacing, sharing, stream_closing, stream_opened, unsharing,
};
pub use direct_io::{before_read, is_direct};
pub use fd_table::DESCRIPTORS;
pub use file_mappings::{has_mapped, mapped, stays_mapped, unmapping};
pub use forebay_pool::note_standard_error;
pub use membership::{before_joining, may_join};
pub use names::{exchange, link, rename, unlink};
pub use open::{is_wanted, may_open_log, open};
pub use order::{changed_on, counts_changes};
pub use private_fds::{make_way_from, making_way, may_be_own, own_within};
pub use private_memory::{around_own_memory, is_own_memory};
pub use received_fds::{opened_by_handle, taken_from_process};
pub use retire::{changing_identity, exiting, forked, forking_above, give_up, retire, retire_path};
pub use session::{is_absorbing, on_pool};
pub use size::{extending, truncate, truncate_path};
pub use sync::sync;
pub use sync_kind::{SyncKind, SyncOutcome};
pub use times::{touching, touching_path};
pub use write::{at_position, write};

use crate::{
    ENV_ABSORB, ENV_ENTER, ENV_GUARD, ENV_IO_URING, ENV_SOCKET, ENV_TABLE, ENV_TOKEN,
    IO_URING_REFUSED, guard_name::is_one, sys,
};
use address::SupervisorAddress;
use call_depth::{DEPTH, OUTERMOST};
use config::{CONFIG, ClientConfig};
use std::{
    ffi::{CStr, CString, OsStr, c_int},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

/// Reads the supervisor's address and the profile's patterns from the environment. Called once, by
/// the library's constructor; before it, and without a supervisor, nothing is absorbed.
pub fn start() {
    let read = || {
        let socket = std::env::var_os(ENV_SOCKET)?.into_vec();
        let token = std::env::var(ENV_TOKEN).ok()?.parse().ok()?;
        let patterns = std::env::var_os(ENV_ABSORB)?;
        let patterns = patterns
            .as_bytes()
            .split(|byte| *byte == b'\n')
            .filter(|pattern| !pattern.is_empty())
            .filter_map(|pattern| CString::new(pattern).ok())
            .collect();
        let mut config = ClientConfig {
            address: SupervisorAddress { socket, token },
            patterns,
            refuse_io_uring: std::env::var_os(ENV_IO_URING)
                .is_some_and(|is| is == IO_URING_REFUSED),
            guard: std::env::var_os(ENV_GUARD).and_then(|name| CString::new(name.into_vec()).ok()),
            enter: std::env::var_os(ENV_ENTER).and_then(|path| CString::new(path.into_vec()).ok()),
            table: None,
            order: None,
            asking: None,
            table_path: PathBuf::new(),
            heard_wait: bypass::heard_wait(),
        };
        let table = std::env::var_os(ENV_TABLE)?;
        config.table_path = PathBuf::from(table);
        (config.table, config.order) = bypass::find_table(&config, &config.table_path);
        let table = config.table.as_ref();
        config.asking = table.and_then(|table| table.to_ask(&config.table_path));
        Some(config)
    };
    sys::begin_process();
    sys::begin_frames();
    if let Some(config) = read() {
        // Now: the first who needs it may be a signal handler, which must not allocate.
        process::begin();
        let config = CONFIG.get_or_init(|| config);
        if let Some(table) = &config.table {
            private_memory::keep(private_memory::MemoryUse::Table, table.memory());
        }
        if let Some(order) = &config.order {
            private_memory::keep(private_memory::MemoryUse::Order, order.memory());
        }
        if let Some(asking) = &config.asking {
            private_memory::keep(private_memory::MemoryUse::Asking, asking.memory());
        }
        membership::begin();
        bypass::note_inherited(config);
        // The first one reads the environment, which some programs overwrite with their title.
        forebay_pool::failpoint!("files:loaded");
    }
}

/// True if writes to `fd` go to the pool as well, or if its flags are not those that the database
/// believes in: then the functions below must be called instead of, or around, the C library's.
#[inline]
#[must_use]
pub fn absorbs(fd: c_int) -> bool {
    fd_table::entry(fd).is_some()
}

/// True if writes to `fd` go to the pool as well, or will: a call that moves its position must be
/// done by [`at_position`]. Of any other descriptor that [`absorbs`] only the flags are known, and
/// its number may be a pipe in another thread, which a read waits for.
#[inline]
#[must_use]
pub fn is_followed(fd: c_int) -> bool {
    fd_table::entry(fd).is_some_and(fd_table::FdEntry::is_followed)
}

/// True if making an `io_uring`, or a context of Linux AIO, is to fail with `ENOSYS`: the profile
/// knows that the database does without then.
#[must_use]
pub fn refuses_io_uring() -> bool {
    CONFIG.get().is_some_and(|config| config.refuse_io_uring)
}

/// The command that has an agent serve a program which the library does not fit, if there is one.
#[must_use]
pub fn enter_command() -> Option<&'static CStr> {
    CONFIG.get()?.enter.as_deref()
}

/// True if directories are to be read without the names of [guards](crate::guard).
#[must_use]
pub fn hides_names() -> bool {
    CONFIG.get().is_some_and(|config| config.guard.is_some())
}

/// True if this is one of them. Neither allocates nor locks.
#[must_use]
pub fn hides(name: &CStr) -> bool {
    let guards = CONFIG.get().and_then(|config| config.guard.as_deref());
    let name = name.to_bytes();
    guards
        .is_some_and(|leads| name.starts_with(leads.to_bytes()) && is_one(OsStr::from_bytes(name)))
}

/// True between `vfork` and `exec`: the memory is the parent's, the descriptors are not.
#[must_use]
pub fn in_vforked_child() -> bool {
    sys::in_vforked_child()
}

/// True if `fd` is one of the client's own (its connection, the pool), which the database knows
/// nothing of. Closing it is refused with `EBADF`, and it makes way ([`making_way`]) for what the
/// database puts there.
#[must_use]
pub fn is_own(fd: c_int) -> bool {
    private_fds::is_own(fd)
}

/// Begins a call of the client, which has `frame` on the stack until it returns, deeper than those
/// that it is inside. A caller that may be in a signal handler which has interrupted the client
/// must call it.
#[inline]
pub fn enter(frame: &Frame) -> ClientCall<'_> {
    if DEPTH.get() > 0 && sys::is_gone(OUTERMOST.get(), frame) && retire::jumped() {
        DEPTH.set(0);
    }
    call_depth::begin(frame)
}

/// True in a forked child in which [`forked`] was not called: no handler saw the system call that
/// made it. Costs two loads.
#[inline]
#[must_use]
pub fn is_new_process() -> bool {
    sys::is_new_process()
}
