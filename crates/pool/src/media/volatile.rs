//! File systems that have no disk: their files are gone after a reboot.

use rustix::fs::StatFs;

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58F6;

/// The type of a file system, if it is one that has no disk; most of `/dev` is in such a one.
#[must_use]
pub fn volatile(file_system: &StatFs) -> Option<&'static str> {
    #[allow(clippy::unnecessary_cast, reason = "its type is the architecture's")]
    match file_system.f_type as i64 {
        TMPFS => Some("tmpfs"),
        RAMFS => Some("ramfs"),
        _ => None,
    }
}
