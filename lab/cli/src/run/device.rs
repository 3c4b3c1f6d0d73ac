//! `--device`: directories on emulated devices.

use forebay_bench::report::{Table, grouped};
use forebay_cli::{failure::Failure, size};
use forebay_device::{Devices, Placed};
use std::sync::Arc;

/// For the command line: what is wrong with the value, and what to do.
pub fn parse(text: &str) -> Result<Placed, String> {
    Placed::parse(text).map_err(|error| error.to_string())
}

/// The devices of a run, if there are any, and what they are said on standard error.
pub fn make(placed: &[Placed]) -> Result<Option<Arc<Devices>>, Failure> {
    if placed.is_empty() {
        return Ok(None);
    }
    let devices =
        Devices::create(placed.to_vec()).map_err(|error| Failure::Usage(error.to_string()))?;
    for placed in devices.placed() {
        eprintln!(
            "forebay: {} is on an emulated {}",
            placed.dir.display(),
            placed.profile.name
        );
    }
    Ok(Some(Arc::new(devices)))
}

/// What each device was asked for.
pub fn summary(devices: &Devices) -> String {
    let count = |number: u64| grouped(i64::try_from(number).unwrap_or(i64::MAX));
    let mut table = Table::new(&[
        "directory",
        "device",
        "reads",
        "read",
        "reads from memory",
        "writes",
        "written",
        "syncs",
        "flushes",
    ]);
    for (placed, counts) in devices.placed().iter().zip(devices.counts()) {
        table.row(vec![
            placed.dir.display().to_string(),
            placed.profile.name.clone(),
            count(counts.reads),
            size::show(counts.read_bytes),
            count(counts.cached_reads),
            count(counts.writes),
            size::show(counts.write_bytes),
            count(counts.syncs),
            count(counts.flushes),
        ]);
    }
    table.render()
}
