//! P2: MariaDB with a small buffer pool, without and with a flash cache before its page files
//! (FaCE).
//!
//! [`run`] is TPC-C, as in the paper; [`loads`] is what a cache must not make slower; [`guest`] is
//! TPC-C beside Linux's own cache; [`restart`] is what it does after a kill. Each row has a server
//! of its own on a copy of one data directory, which works until the queue on flash has turned
//! twice, and is measured then. Where something that others use, too, is the bound, the rows take
//! turns from then on. The database of each row is checked in the end, by a server without emulated
//! devices.

mod case;
mod cost;
pub(super) mod guest;
pub(super) mod loads;
pub(super) mod restart;
mod stage;
mod steady;

use super::{lab::Lab, outcome::Measured};
use crate::{
    BenchError,
    device::{self, Effort},
    mariadb::server,
    scratch::{ScratchDir, memory_dir},
};
use case::{Case, DIRTY, ON_ARRAY, PERCENT, SSD};
use steady::{Row, Steady, Tpcc};

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
    let pace = lab.size.pick(
        ([1, 1, 1, 2], 1),
        ([5, 10, 45, 10], 3),
        ([20, 120, 1200, 40], 3),
    );
    // Of some 100 MB each.
    let warehouses = lab.size.pick(1, 4, 20);
    let tpcc = Tpcc::load(lab, scratch.path(), warehouses, pace)?;
    let mut measured = Measured::default();
    let device = device::measure(lab.dir, Effort::QUICK)?;
    measured.devices.push(device);
    let other = |&percent| Case {
        percent,
        ..Case::named(DIRTY, ON_ARRAY)
    };
    let others = lab.size.pick(&[][..], &OTHER_PERCENTS, &OTHER_PERCENTS);
    let others = others.iter().map(|percent| vec![other(percent)]);
    let mut curve = Vec::new();
    for cases in Case::groups(lab.size).into_iter().chain(others) {
        for (case, steady) in in_turns(&tpcc, &cases)? {
            measured.note(format!("{case}: {}", steady.told));
            if case.percent == PERCENT {
                add(case, &steady, &mut measured);
            }
            if case.is_the_papers(DIRTY) {
                curve.push((case.percent, steady));
            }
        }
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

/// Rows whose servers stand at the same time.
fn in_turns(tpcc: &Tpcc<'_>, cases: &[Case]) -> Result<Vec<(Case, Steady)>, BenchError> {
    let start = |&case: &Case| tpcc.stage.start(case);
    let standing = cases.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let rows: Vec<&dyn Row> = standing.iter().map(|row| row as _).collect();
    let rounds = cases.first().and_then(|case| case.ground.rounds);
    let steady = tpcc.measure_in_turns(&rows, rounds)?;
    standing.into_iter().try_for_each(|row| tpcc.end(row))?;
    Ok(cases.iter().copied().zip(steady).collect())
}

/// One row of the table: its rate, and its latency.
fn add(case: Case, steady: &Steady, measured: &mut Measured) {
    let (ground, series) = (case.ground, &case.variant.name);
    let p99_ms = &steady.new_order_p99_ms;
    measured.add(&ground.panel, &ground.flash, series, X, &steady.tpmc);
    measured.add("p99", &ground.flash, series, &ground.short, p99_ms);
}
