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

use super::{lab::Lab, outcome::Measured, size::Size};
use crate::{
    BenchError,
    device::{self, Effort},
    mariadb::server,
    report,
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
    let other = |&percent| Case {
        percent,
        ..Case::named(DIRTY, ON_ARRAY)
    };
    let others = lab.size.pick(&[][..], &OTHER_PERCENTS, &OTHER_PERCENTS);
    let others = others.iter().map(|percent| vec![other(percent)]);
    let groups = Case::groups(lab.size).into_iter().chain(others).collect();
    let left = lab.parts.left(groups, |cases| name_of(cases));
    if !left.is_empty() {
        measure(lab, left)?;
    }
    let mut measured = lab.parts.measured();
    // The curve's points by flash's size, which were measured in another order.
    let percent = |row: &report::Row| row.text("x").strip_suffix(" %")?.parse::<u64>().ok();
    measured.rows.sort_by_key(percent);
    measured
        .devices
        .push(device::measure(lab.dir, Effort::QUICK)?);
    cost::rows(lab.size, &mut measured)?;
    if let Some(note) = lab.pool.note() {
        measured.note(note);
    }
    Ok(measured)
}

/// Rows that are measured together, in words.
fn name_of(cases: &[Case]) -> String {
    let names: Vec<String> = cases.iter().map(ToString::to_string).collect();
    names.join("; ")
}

/// Measures these, and keeps each group of them.
fn measure(lab: &Lab<'_>, groups: Vec<Vec<Case>>) -> Result<(), BenchError> {
    let memory = memory_dir();
    // What each row gets a copy of: memory has room for one such copy of the papers' size.
    let scratch = ScratchDir::new_in(match lab.size {
        Size::Paper => lab.dir,
        _ => &memory,
    })?;
    let pace = lab.size.pick(
        ([1, 1, 1, 2], 1),
        ([5, 10, 45, 10], 3),
        ([20, 120, 1200, 40], 3),
    );
    // Of some 100 MB each.
    let warehouses = lab.size.pick(1, 4, 100);
    let tpcc = Tpcc::load(lab, scratch.path(), warehouses, pace)?;
    for cases in groups {
        let mut measured = Measured::default();
        for (case, steady) in in_turns(&tpcc, &cases)? {
            measured.note(format!("{case}: {}", steady.told));
            if case.percent == PERCENT {
                add(case, &steady, &mut measured);
            }
            if case.is_the_papers(DIRTY) {
                let x = format!("{} %", case.percent);
                measured.add("sizes", SSD, DIRTY, &x, &steady.tpmc);
                measured.add("found", SSD, DIRTY, &x, &[steady.found_percent]);
            }
        }
        measured.note(tpcc.describe());
        lab.parts.add(name_of(&cases), measured)?;
    }
    Ok(())
}

/// Rows whose servers stand at the same time.
fn in_turns(tpcc: &Tpcc<'_>, cases: &[Case]) -> Result<Vec<(Case, Steady)>, BenchError> {
    let start = |&case: &Case| tpcc.stage.start(case);
    let standing = cases.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let rows: Vec<&dyn Row> = standing.iter().map(|row| row as _).collect();
    let rounds = match cases {
        [first, _, ..] => first.ground.rounds,
        _ => None,
    };
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
