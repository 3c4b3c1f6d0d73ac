//! P2: MariaDB with a small buffer pool, without and with a flash cache before its page files (FaCE).
//!
//! [`run`] is TPC-C, as in the paper; [`loads`] is what a cache must not make slower; [`guest`] is TPC-C beside Linux's own cache. Each row has a server of its own on a copy of one data
//! directory, which works until the queue on flash has turned twice, and is measured then: rows cannot take turns while their servers run, since a queue
//! that stands still does not get into its steady state. A killed server is started again, cold and warm. The database of each row is checked in the end, by a server
//! without emulated devices.

mod case;
mod cost;
pub(super) mod guest;
pub(super) mod loads;
mod stage;
mod steady;

use super::{lab::Lab, outcome::Measured};
use crate::{
    BenchError,
    device::{self, Effort},
    mariadb::server,
    rounds::median,
    scratch::{ScratchDir, memory_dir},
};
use case::{Case, DIRTY, ON_ARRAY, ORIGINAL, SSD};
use stage::Standing;
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
    let pace = lab.size.pick(
        ([1, 1, 1, 2], 1),
        ([5, 10, 45, 10], 3),
        ([20, 120, 1200, 40], 3),
    );
    let tpcc = Tpcc::load(lab, scratch.path(), pace)?;
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
        standing = killed(tpcc, standing, &steady, measured)?;
    }
    tpcc.end(standing)?;
    Ok(steady)
}

/// The share of the steady rate that counts as reached.
const REACHED: f64 = 0.9;

/// Kills the server and follows it, and again with an empty cache: how long until it serves again, and until it is as fast as it was.
fn killed(
    tpcc: &Tpcc<'_>,
    standing: Standing,
    steady: &Steady,
    measured: &mut Measured,
) -> Result<Standing, BenchError> {
    if standing.case.variant.flash.is_none() {
        return followed(tpcc, standing, (ORIGINAL, false), steady, measured);
    }
    let warm = ("FaCE dirty, warm", false);
    let standing = followed(tpcc, standing, warm, steady, measured)?;
    let cold = ("FaCE dirty, cold", true);
    followed(tpcc, standing, cold, steady, measured)
}

/// Kills the server, starts it, and has it work in slices.
fn followed(
    tpcc: &Tpcc<'_>,
    standing: Standing,
    (series, is_emptied): (&str, bool),
    steady: &Steady,
    measured: &mut Measured,
) -> Result<Standing, BenchError> {
    let lab = tpcc.stage.lab;
    let [slice, slices] = lab.size.pick([1, 1], [3, 12], [10, 60]);
    let (standing, serves_s) = tpcc.stage.restarted(standing, is_emptied)?;
    let mut reached_s = None;
    for at in 1..=slices {
        let tpmc = tpcc.work(&standing, slice)?.tpmc.unwrap_or(0.0);
        let x = format!("{} s", at * slice);
        measured.add("warming", SSD, series, &x, &[tpmc]);
        if reached_s.is_none() && tpmc >= REACHED * median(&steady.tpmc) {
            reached_s = Some(serves_s + (at * slice) as f64);
        }
    }
    measured.add("restart", SSD, series, "serves", &[serves_s]);
    let x = "90 % of its steady rate";
    let not_within = format!("not within {} s: the run is over then", slices * slice);
    match reached_s {
        Some(seconds) => measured.add("restart", SSD, series, x, &[seconds]),
        None => measured.missing("restart", SSD, series, x, &not_within),
    }
    let reached = reached_s.map_or(not_within, |seconds| format!("after {seconds:.0} s"));
    lab.note(&format!(
        "{series}: serves {serves_s:.1} s after SIGKILL; {x} {reached}"
    ));
    Ok(standing)
}
