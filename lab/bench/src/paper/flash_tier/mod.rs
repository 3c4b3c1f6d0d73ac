//! P2: MariaDB with a small buffer pool, without and with a flash cache before its page files (FaCE).
//!
//! [`run`] is TPC-C, as in the paper; [`loads`] is what a cache must not make slower. Each row has a server of its own on a copy of one data
//! directory, which works until the queue on flash has turned twice, and is measured then: rows cannot take turns, since a queue that stands still
//! does not get into its steady state. A killed server is started again, cold and warm. The database of each row is checked in the end, by a server
//! without emulated devices.

mod case;
mod cost;
mod killed;
pub(super) mod loads;
mod stage;
mod steady;

use super::{lab::Lab, outcome::Measured};
use crate::{
    BenchError,
    device::{self, Effort},
    mariadb::server,
    scratch::{ScratchDir, memory_dir},
};
use case::{Case, DIRTY, ON_ARRAY, ORIGINAL, SSD};
use steady::{Steady, Tpcc};

/// What the rates are at.
const X: &str = "16 clients";
/// Flash in percent of the data, beside the table's.
const OTHER_PERCENTS: [u64; 3] = [5, 10, 40];

/// The paper's tables, and what it leaves to others.
pub(super) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    if let Some(why) = server::lacking() {
        return Err(BenchError::Missing(why));
    }
    let scratch = ScratchDir::new_in(&memory_dir())?;
    let tpcc = Tpcc::load(lab, scratch.path())?;
    let mut measured = Measured::default();
    let device = device::measure(lab.dir, Effort::QUICK)?;
    measured.devices.push(device);
    let mut curve = Vec::new();
    for case in Case::all(lab.size) {
        let steady = row(&tpcc, case, &mut measured)?;
        if case.is_the_papers(DIRTY) {
            curve.push((case.percent, steady));
        }
    }
    for &percent in lab.size.pick(&[][..], &OTHER_PERCENTS, &OTHER_PERCENTS) {
        let standing = tpcc.stage.start(Case {
            percent,
            ..Case::named(DIRTY, ON_ARRAY)
        })?;
        let steady = tpcc.measure(&standing)?;
        tpcc.end(standing)?;
        curve.push((percent, steady));
    }
    curve.sort_by_key(|(percent, _)| *percent);
    for (percent, steady) in &curve {
        let x = format!("{percent} %");
        measured.add("sizes", SSD, DIRTY, &x, &steady.tpmc);
        measured.add("found", SSD, DIRTY, &x, &[steady.found_percent]);
    }
    cost::rows(lab.size, &mut measured)?;
    measured.note(tpcc.describe());
    if let Some(note) = lab.pool.note() {
        measured.note(note);
    }
    Ok(measured)
}

/// One row of the table: its rate, its latency, and what it does after a kill.
fn row(tpcc: &Tpcc<'_>, case: Case, measured: &mut Measured) -> Result<Steady, BenchError> {
    let mut standing = tpcc.stage.start(case)?;
    let steady = tpcc.measure(&standing)?;
    let (ground, series) = (case.ground, &case.variant.name);
    let p99_ms = &steady.new_order_p99_ms;
    measured.add(&ground.panel, &ground.flash, series, X, &steady.tpmc);
    measured.add("p99", &ground.flash, series, &ground.short, p99_ms);
    measured.note(format!("{case}: {}", steady.told));
    if case.is_the_papers(ORIGINAL) || case.is_the_papers(DIRTY) {
        standing = killed::rows(tpcc, standing, &steady, measured)?;
    }
    tpcc.end(standing)?;
    Ok(steady)
}
