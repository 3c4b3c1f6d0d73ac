//! Nothing acknowledged is lost, whatever dies: the database, the supervisor, both, the machine,
//! the recovery.
#![allow(clippy::unwrap_used, reason = "tests")]

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod deaths;
mod failed_syncs;
mod full;
mod random;
mod settling;

use std::time::Duration;

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
/// Longer than the slack in which a change counts as the database's.
const LATER: Duration = Duration::from_millis(300);
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";
