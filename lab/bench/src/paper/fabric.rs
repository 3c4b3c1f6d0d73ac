//! P5: the emulated memory behind a fabric by itself, and stores on it.

use super::{Lab, Measured, Row, Size};
use crate::{BenchError, emulated, fam, place::Place, units::bytes_name};

/// Figures 3 and 4: each emulated device beside its profile.
pub(super) fn device(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let config = emulated::Config::usual(lab.forebay, lab.size != Size::Paper);
    let report = emulated::run(&config, &|name| lab.note(name))?;
    let mut measured = Measured::default();
    for row in &report.rows {
        let kind = row.kind;
        let access = if kind.write { "write" } else { "read" };
        let order = match kind.sequential {
            true => "sequential",
            false => "random",
        };
        let x = format!("{access} {}, {order}", bytes_name(kind.bytes as u64));
        let ratio = row.measured_us / row.profile_us;
        for (panel, figure) in [("time", row.measured_us), ("deviation", ratio)] {
            measured.round(panel, Place::Here.name(), &row.profile, &x, figure);
        }
    }
    Ok(measured)
}

/// Latencies by pair size and cache policy.
pub(super) fn fam(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let config = fam::Config::usual(lab.dir, lab.forebay, lab.size != Size::Paper);
    let report = fam::run(&config, &|note| lab.note(note))?;
    let mut measured = Measured::default();
    let here = Place::Here.name();
    for row in &report.rows {
        let series = format!("{} {}", row.store, row.policy);
        let (panel, x) = (row.workload, bytes_name(row.pair_bytes));
        let row = Row::spanned(panel, here, &series, &x, row.us_per_op, row.us_per_op_span);
        measured.rows.push(row);
    }
    for missing in &report.missing {
        for workload in fam::WORKLOADS {
            measured.missing(workload, here, missing.store, "", &missing.error);
        }
    }
    for note in report.notes {
        measured.note(note);
    }
    Ok(measured)
}
