//! What a server does after a kill: how long until it serves again, and until it is as fast as it was.
//!
//! A buffer pool has to be filled before that can be told, by as many reads as it has pages. At full size there are the paper's warehouses, which with the
//! flash cache are nearly all that memory has room for: what each row gets a copy of is on the disk.

use super::{
    case::{Case, DIRTY, ON_ARRAY, ORIGINAL, SSD},
    stage::Standing,
    steady::{Steady, Tpcc},
};
use crate::{
    BenchError,
    mariadb::server,
    paper::{lab::Lab, outcome::Measured, size::Size},
    rounds::median,
    scratch::{ScratchDir, memory_dir},
};

/// The share of the steady rate that counts as reached, by the mean of so many slices: one alone has it by chance.
const REACHED: f64 = 0.9;
const SLICES: usize = 3;

/// The original, and FaCE with what it had and without.
pub(in crate::paper) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    if let Some(why) = server::lacking() {
        return Err(BenchError::Missing(why));
    }
    let memory = memory_dir();
    let scratch = ScratchDir::new_in(match lab.size {
        Size::Paper => lab.dir,
        _ => &memory,
    })?;
    let pace = lab.size.pick(
        ([1, 1, 1, 2], 1),
        ([5, 10, 45, 10], 3),
        ([20, 120, 900, 20], 3),
    );
    let warehouses = lab.size.pick(1, 4, 100);
    let tpcc = Tpcc::load(lab, scratch.path(), warehouses, pace)?;
    let mut measured = Measured::default();
    for variant in [ORIGINAL, DIRTY] {
        let case = Case::named(variant, ON_ARRAY);
        let mut standing = tpcc.stage.start(case)?;
        let steady = tpcc.measure(&standing)?;
        measured.note(format!("{case}: {}", steady.told));
        let ways: &[_] = match case.variant.flash {
            None => &[(ORIGINAL, false)],
            Some(_) => &[("FaCE dirty, warm", false), ("FaCE dirty, cold", true)],
        };
        for &way in ways {
            standing = followed(&tpcc, standing, way, &steady, &mut measured)?;
        }
        tpcc.end(standing)?;
    }
    measured.note(tpcc.describe());
    Ok(measured)
}

/// Kills the server, starts it, with an empty cache or as it is, and has it work in slices.
fn followed(
    tpcc: &Tpcc<'_>,
    standing: Standing,
    (series, is_emptied): (&str, bool),
    steady: &Steady,
    measured: &mut Measured,
) -> Result<Standing, BenchError> {
    let lab = tpcc.stage.lab;
    let [slice, slices] = lab.size.pick([1, 1], [3, 12], [5, 24]);
    let (standing, serves_s) = tpcc.stage.restarted(standing, is_emptied)?;
    let mut rates = Vec::new();
    for at in 1..=slices {
        let tpmc = tpcc.work(&standing, slice)?.tpmc.unwrap_or(0.0);
        let x = format!("{} s", at * slice);
        measured.add("warming", SSD, series, &x, &[tpmc]);
        rates.push(tpmc);
    }
    measured.add("restart", SSD, series, "serves", &[serves_s]);
    let x = "90 % of its steady rate";
    let reached_s = reached(&rates, REACHED * median(&steady.tpmc))
        .map(|at| serves_s + ((at + 1) as u64 * slice) as f64);
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

/// The first slice from which on the rate is so high.
fn reached(rates: &[f64], wanted: f64) -> Option<usize> {
    let mut windows = rates.windows(SLICES.min(rates.len()).max(1));
    windows.position(|rates| rates.iter().sum::<f64>() / rates.len() as f64 >= wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_reached_by_slices_that_have_it_on_the_average() {
        assert_eq!(
            reached(&[10.0, 95.0, 20.0, 80.0, 100.0, 91.0], 90.0),
            Some(3)
        );
        assert_eq!(reached(&[95.0], 90.0), Some(0));
        assert_eq!(reached(&[95.0, 10.0, 80.0], 90.0), None);
        assert_eq!(reached(&[], 90.0), None);
    }
}
