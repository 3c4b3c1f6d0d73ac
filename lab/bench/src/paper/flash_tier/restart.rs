//! A server's restart after a kill: the time until it serves again, and until it is as fast as it
//! was.
//!
//! A restart goes through the redo log that is younger than the checkpoint. InnoDB writes pages
//! early, so that is now more and now less: hence several kills. A buffer pool has to be filled
//! before a rate can be told, by as many reads as it has pages. At full size there are the paper's
//! warehouses, which with the flash cache are nearly all that memory has room for: what each row
//! gets a copy of is on the disk.

use super::{
    case::{Case, DIRTY, ON_ARRAY, ORIGINAL, SSD},
    stage::{End, Standing},
    steady::Tpcc,
};
use crate::{
    BenchError,
    mariadb::server,
    paper::{lab::Lab, outcome::Measured, size::Size},
    rounds::median,
    scratch::{ScratchDir, memory_dir},
};

/// The share of a rate that counts as reached, by the mean of so many seconds from then on: one
/// alone has it by chance.
const REACHED: f64 = 0.9;
const WINDOW_S: usize = 10;

/// Steady rates that a row is to reach: what they are called, and New-Orders a minute.
type Wanted = [(&'static str, f64); 2];

/// What a row is called after its server ended so. What one takes that has nothing to recover, no
/// cache can save.
const WITHOUT_CACHE: [(&str, End); 2] = [
    (ORIGINAL, End::Killed),
    ("original, shut down in order", End::ShutDown),
];
const WITH_CACHE: [(&str, End); 2] = [
    ("FaCE dirty, warm", End::Killed),
    ("FaCE dirty, cold", End::KilledAndEmptied),
];

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
    let mut originals = None;
    for (variant, ways) in [(ORIGINAL, WITHOUT_CACHE), (DIRTY, WITH_CACHE)] {
        let case = Case::named(variant, ON_ARRAY);
        let mut standing = tpcc.stage.start(case)?;
        let steady = tpcc.measure(&standing)?;
        measured.note(format!("{case}: {}", steady.told));
        let own = median(&steady.tpmc);
        let wanted = [
            ("90 % of its steady rate", own),
            (
                "90 % of the original's steady rate",
                *originals.get_or_insert(own),
            ),
        ];
        for way in ways {
            standing = followed(&tpcc, standing, way, wanted, &mut measured)?;
        }
        tpcc.end(standing)?;
    }
    measured.note(tpcc.describe());
    Ok(measured)
}

/// Ends the server, starts it again, and has it work: some times, since there is now more and now
/// less redo log to recover.
fn followed(
    tpcc: &Tpcc<'_>,
    mut standing: Standing,
    (series, end): (&str, End),
    wanted: Wanted,
    measured: &mut Measured,
) -> Result<Standing, BenchError> {
    let lab = tpcc.stage.lab;
    let (point_s, all_s, rounds) = lab.size.pick((1, 2, 1), (3, 36, 1), (5, 60, 3));
    let mut by_round = Vec::new();
    for _ in 0..rounds {
        let to_recover = standing.innodb("checkpoint_age")?;
        let serves_s;
        (standing, serves_s) = tpcc.stage.restarted(standing, end)?;
        let done = tpcc.work(&standing, all_s)?;
        let ended = done.operation("new_order").map(|of| &of.by_second[..]);
        let rates = ended.unwrap_or_default().iter().map(|&n| n as f64 * 60.0);
        let rates: Vec<f64> = rates.collect();
        for (at, rates) in (1..).zip(rates.chunks(point_s)) {
            let x = format!("{} s", at * point_s);
            measured.add("warming", SSD, series, &x, &[mean(rates)]);
        }
        measured.add("restart", SSD, series, "serves", &[serves_s]);
        by_round.push((serves_s, rates));
        let to_recover_mib = to_recover as f64 / f64::from(1 << 20);
        let told = format!(
            "{series}: {to_recover_mib:.1} MiB of redo log since the last checkpoint when it ended; serves after {serves_s:.1} s"
        );
        lab.note(&told);
        measured.note(told);
    }
    for (x, rate) in wanted {
        let seconds = by_round.iter().map(|(serves_s, rates)| {
            reached(rates, REACHED * rate).map(|second| serves_s + second as f64)
        });
        // Of some rounds alone it would be too good.
        match seconds.collect::<Option<Vec<_>>>() {
            Some(seconds) => measured.add("restart", SSD, series, x, &seconds),
            None => {
                let why = format!("not within {all_s} s: the run is over then");
                measured.missing("restart", SSD, series, x, &why);
            }
        }
    }
    Ok(standing)
}

/// The end of the first second from which on the rate is so high.
fn reached(rates: &[f64], wanted: f64) -> Option<usize> {
    let mut windows = rates.windows(WINDOW_S.min(rates.len()).max(1));
    windows
        .position(|rates| mean(rates) >= wanted)
        .map(|at| at + 1)
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_reached_by_seconds_that_have_it_on_the_average() {
        let slow_then = |fast: &[f64]| [&[10.0, 95.0, 20.0][..], fast].concat();
        let fast = [80.0, 100.0].repeat(5);
        assert_eq!(reached(&slow_then(&fast), 90.0), Some(4));
        assert_eq!(reached(&slow_then(&fast[..9]), 90.0), None);
        assert_eq!(reached(&[95.0], 90.0), Some(1));
        assert_eq!(reached(&[], 90.0), None);
    }
}
