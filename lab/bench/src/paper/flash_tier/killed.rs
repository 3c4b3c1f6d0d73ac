//! After SIGKILL: how long until the server serves again, and until it is as fast as it was, with a cold cache and with the warm one.

use super::{Measured, Row, SSD, Variant, stage::Standing, steady::Steady, tpcc::Tpcc};
use crate::{BenchError, rounds::median};
use std::time::Instant;

/// The share of the steady rate that counts as reached.
const REACHED: f64 = 0.9;

/// Kills the server and follows it, and again with an empty cache.
pub(super) fn rows(
    tpcc: &Tpcc<'_>,
    standing: &mut Standing,
    steady: &Steady,
    measured: &mut Measured,
) -> Result<(), BenchError> {
    if standing.case.variant == Variant::Original {
        return followed(tpcc, standing, "original", steady, measured);
    }
    followed(tpcc, standing, "FaCE dirty, warm", steady, measured)?;
    tpcc.stage.kill(standing)?;
    tpcc.stage.empty(standing)?;
    followed(tpcc, standing, "FaCE dirty, cold", steady, measured)
}

/// Kills the server if it runs, starts it, and has it work in slices.
fn followed(
    tpcc: &Tpcc<'_>,
    standing: &mut Standing,
    series: &str,
    steady: &Steady,
    measured: &mut Measured,
) -> Result<(), BenchError> {
    let [slice, slices] = tpcc.stage.lab.size.pick([1, 1], [3, 12], [10, 60]);
    tpcc.stage.kill(standing)?;
    let begun = Instant::now();
    tpcc.stage.restart(standing)?;
    let serves_s = begun.elapsed().as_secs_f64();
    let mut reached_s = None;
    for at in 1..=slices {
        let tpmc = tpcc.work(standing, slice)?.tpmc.unwrap_or(0.0);
        let x = format!("{} s", at * slice);
        measured
            .rows
            .push(Row::of("warming", SSD, series, &x, &[tpmc]));
        if reached_s.is_none() && tpmc >= REACHED * median(&steady.tpmc) {
            reached_s = Some(serves_s + (at * slice) as f64);
        }
    }
    let row = |x, figure| Row::of("restart", SSD, series, x, &[figure]);
    measured.rows.push(row("serves", serves_s));
    let x = "90 % of its steady rate";
    measured.rows.push(match reached_s {
        Some(seconds) => row(x, seconds),
        None => {
            let why = format!("not within {} s: the run is over then", slices * slice);
            Row::missing("restart", SSD, series, x, &why)
        }
    });
    tpcc.stage.lab.note(&format!(
        "{series}: serves {serves_s:.1} s after SIGKILL; {} of its steady rate after {}",
        REACHED,
        reached_s.map_or("more than was measured".to_owned(), |s| format!("{s:.0} s"))
    ));
    Ok(())
}
