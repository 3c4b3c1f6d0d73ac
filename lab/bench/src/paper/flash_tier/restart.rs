//! What a server does after a kill: how long until it serves again, and until it is as fast as it was.
//!
//! A buffer pool has to be filled before that can be told, by as many reads as it has pages, and a redo log: a restart goes through what is younger
//! than the checkpoint. At full size there are the paper's warehouses, which with the
//! flash cache are nearly all that memory has room for: what each row gets a copy of is on the disk.

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
use std::time::Instant;

/// The share of a rate that counts as reached, by the mean of so many seconds from then on: one alone has it by chance.
const REACHED: f64 = 0.9;
const WINDOW_S: usize = 10;

/// Steady rates that a row is to reach: what they are called, and New-Orders a minute.
type Wanted = [(&'static str, f64); 2];

/// The original, which is also shut down in order, and FaCE with what it had and without.
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
    for variant in [ORIGINAL, DIRTY] {
        let case = Case::named(variant, ON_ARRAY);
        let mut standing = tpcc.stage.start(case)?;
        let turned = turn_redo(&tpcc, &standing)?;
        let steady = tpcc.measure(&standing)?;
        let told = format!("{case}: {turned}; {}", steady.told);
        measured.note(told);
        let own = median(&steady.tpmc);
        let wanted = [
            ("90 % of its steady rate", own),
            (
                "90 % of the original's steady rate",
                *originals.get_or_insert(own),
            ),
        ];
        // What a server takes that has nothing to recover, no cache can save.
        let ways: &[_] = match case.variant.flash {
            None => &[
                (ORIGINAL, End::Killed),
                ("original, shut down in order", End::ShutDown),
            ],
            Some(_) => &[
                ("FaCE dirty, warm", End::Killed),
                ("FaCE dirty, cold", End::KilledAndEmptied),
            ],
        };
        for &way in ways {
            standing = followed(&tpcc, standing, way, wanted, &mut measured)?;
        }
        tpcc.end(standing)?;
    }
    measured.note(tpcc.describe());
    Ok(measured)
}

/// Where its redo log ends, in bytes since its database was made.
const END: &str = "lsn_current";
/// Bytes of redo log since its last checkpoint: what a recovery goes through.
const TO_RECOVER: &str = "checkpoint_age";

/// Has a server work until it has written its redo log once over, or for as long as it may, and says how far it came.
fn turn_redo(tpcc: &Tpcc<'_>, standing: &Standing) -> Result<String, BenchError> {
    let [slice_s, most_s] = tpcc.stage.lab.size.pick([1, 1], [5, 45], [20, 1200]);
    let (begun, from) = (Instant::now(), standing.innodb(END)?);
    let turns = loop {
        tpcc.work(standing, slice_s)?;
        let written = standing.innodb(END)?.saturating_sub(from);
        let turns = written as f64 / tpcc.stage.log_bytes() as f64;
        if turns >= 1.0 || begun.elapsed().as_secs() >= most_s {
            break turns;
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let told = format!("in {seconds:.0} s it wrote its redo log {turns:.1} times over");
    tpcc.stage.lab.note(&format!("{}: {told}", standing.case));
    Ok(told)
}

/// Ends the server, starts it again, and has it work.
fn followed(
    tpcc: &Tpcc<'_>,
    standing: Standing,
    (series, end): (&str, End),
    wanted: Wanted,
    measured: &mut Measured,
) -> Result<Standing, BenchError> {
    let lab = tpcc.stage.lab;
    let (point_s, all_s) = lab.size.pick((1, 2), (3, 36), (5, 120));
    let to_recover_mib = standing.innodb(TO_RECOVER)? >> 20;
    let (standing, serves_s) = tpcc.stage.restarted(standing, end)?;
    let done = tpcc.work(&standing, all_s)?;
    let ended = done.operation("new_order").map(|of| &of.by_second[..]);
    let rates: Vec<f64> = ended
        .unwrap_or_default()
        .iter()
        .map(|&n| n as f64 * 60.0)
        .collect();
    for (at, rates) in (1..).zip(rates.chunks(point_s)) {
        let x = format!("{} s", at * point_s);
        measured.add("warming", SSD, series, &x, &[mean(rates)]);
    }
    measured.add("restart", SSD, series, "serves", &[serves_s]);
    let mut told = format!(
        "{series}: ended with {to_recover_mib} MiB of redo log since its checkpoint; serves after {serves_s:.1} s"
    );
    for (x, rate) in wanted {
        let Some(second) = reached(&rates, REACHED * rate) else {
            let why = format!("not within {all_s} s: the run is over then");
            measured.missing("restart", SSD, series, x, &why);
            told += &format!("; {x} {why}");
            continue;
        };
        let seconds = serves_s + second as f64;
        measured.add("restart", SSD, series, x, &[seconds]);
        told += &format!("; {x} after {seconds:.1} s");
    }
    lab.note(&told);
    measured.note(told);
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
