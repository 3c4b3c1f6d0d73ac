//! Processes of a measurement ([`forebay_measure::processes`]), and how libeatmydata is loaded before those that an emulated device would charge.

pub use forebay_measure::{processes::*, server::said_by};
use std::{ffi::OsString, fs, path::Path};

/// Has libeatmydata loaded before anything else: libforebay_lab.so would charge the emulated device's syncs.
pub(crate) fn eat_syncs(
    library: &Path,
    wrapper: &mut Vec<OsString>,
    environment: &mut Vec<(OsString, OsString)>,
) {
    if wrapper.is_empty() {
        environment.push(("LD_PRELOAD".into(), preload(library)));
    } else {
        let first = r#"LD_PRELOAD="$0${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@""#;
        wrapper.extend(["sh", "-c", first].map(OsString::from));
        wrapper.push(library.into());
    }
}

/// A size in the kernel's status of a process, as `RssAnon:`, in bytes.
pub(crate) fn status_bytes(process: &str, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
