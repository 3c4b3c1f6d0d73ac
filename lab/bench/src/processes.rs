//! Processes of a measurement ([`forebay_measure::processes`]), and what the kernel says of one.

pub use forebay_measure::{processes::*, server::said_by};

use std::fs;

/// A size in the kernel's status of a process, as `RssAnon`, in bytes.
pub(crate) fn status_bytes(process: &str, name: &str) -> Option<u64> {
    kib(&format!("/proc/{process}/status"), name).map(|kib| kib * 1024)
}

/// A size of `name: N kB` in a file of the kernel's.
pub(crate) fn kib(path: &str, name: &str) -> Option<u64> {
    let size = field(path, name, ':')?;
    size.strip_suffix("kB")?.trim().parse().ok()
}

/// The value of the first line that begins with `name`.
pub(crate) fn field(path: &str, name: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let (_, value) = line.split_once(separator)?;
    Some(value.trim().trim_matches('"').to_owned())
}
