//! `--device`: directories on emulated devices.

use forebay_bench::report::{Column, Table, grouped};
use forebay_cli::{failure::Failure, size};
use forebay_device::{Counts, Devices, Placed};
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
    fn count(number: u64) -> String {
        grouped(i64::try_from(number).unwrap_or(i64::MAX))
    }
    let columns: [Column<(&Placed, Counts)>; 9] = [
        ("directory", |(placed, _)| placed.dir.display().to_string()),
        ("device", |(placed, _)| placed.profile.name.clone()),
        ("reads", |(_, counts)| count(counts.reads)),
        ("read", |(_, counts)| size::show(counts.read_bytes)),
        ("reads from memory", |(_, counts)| {
            count(counts.cached_reads)
        }),
        ("writes", |(_, counts)| count(counts.writes)),
        ("written", |(_, counts)| size::show(counts.write_bytes)),
        ("syncs", |(_, counts)| count(counts.syncs)),
        ("flushes", |(_, counts)| count(counts.flushes)),
    ];
    Table::of(&columns, devices.placed().iter().zip(devices.counts())).render()
}
