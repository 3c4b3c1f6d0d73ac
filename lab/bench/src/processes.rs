//! Processes of a measurement ([`forebay_measure::processes`]), and what the kernel says of one.

pub use forebay_measure::{processes::*, server::said_by};
use std::fs;

/// A size in the kernel's status of a process, as `RssAnon:`, in bytes.
pub(crate) fn status_bytes(process: &str, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
