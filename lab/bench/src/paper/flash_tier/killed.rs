//! After SIGKILL: how long until the server serves again, and until it is as fast as it was, with a cold cache and with the warm one.

use super::{
    case::{ORIGINAL, SSD},
    stage::Standing,
    steady::{Steady, Tpcc},
};
use crate::{BenchError, paper::outcome::Measured, rounds::median};

/// The share of the steady rate that counts as reached.
const REACHED: f64 = 0.9;

/// Kills the server and follows it, and again with an empty cache.
pub(super) fn rows(
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
