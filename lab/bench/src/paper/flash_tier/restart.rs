//! What a server does after a kill: how long until it serves again, and until it is as fast as it was.
//!
//! A restart goes through the redo log that is younger than the checkpoint. InnoDB's adaptive flushing leaves a tenth of the log at most: without it there is half of
//! the log. A buffer pool has to be filled before a rate can be told, by as many reads as it has pages. At full size there are the paper's warehouses, which with the
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

/// How a server ends, and what there is to recover then.
struct Way {
    /// As adaptive flushing has left it, or with half of the redo log.
    panel: &'static str,
    series: &'static str,
    end: End,
}

const fn way(panel: &'static str, series: &'static str, end: End) -> Way {
    Way { panel, series, end }
}

const AS_IT_IS: &str = "restart";
const HALF: &str = "recovery";

/// What a server takes that has nothing to recover, no cache can save.
const WITHOUT_CACHE: [Way; 3] = [
    way(AS_IT_IS, ORIGINAL, End::Killed),
    way(AS_IT_IS, "original, shut down in order", End::ShutDown),
    way(HALF, ORIGINAL, End::Killed),
];
const WITH_CACHE: [Way; 3] = [
    way(AS_IT_IS, "FaCE dirty, warm", End::Killed),
    way(HALF, "FaCE dirty, warm", End::Killed),
    way(HALF, "FaCE dirty, cold", End::KilledAndEmptied),
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
        for way in &ways {
            if way.panel == HALF {
                fill_redo(&tpcc, &standing)?;
            }
            standing = followed(&tpcc, standing, way, wanted, &mut measured)?;
        }
        tpcc.end(standing)?;
    }
    measured.note(tpcc.describe());
    Ok(measured)
}

/// Bytes of redo log since the last checkpoint: what a recovery goes through.
const TO_RECOVER: &str = "checkpoint_age";

/// Has a server work, and write no page before it has to, until half its redo log is to be recovered or for as long as it may.
fn fill_redo(tpcc: &Tpcc<'_>, standing: &Standing) -> Result<(), BenchError> {
    let [slice_s, most_s] = tpcc.stage.lab.size.pick([1, 1], [5, 60], [20, 600]);
    let begun = Instant::now();
    let write_late = "SET GLOBAL innodb_adaptive_flushing = OFF";
    standing.server().sql(write_late, "")?;
    loop {
        tpcc.work(standing, slice_s)?;
        let is_there = standing.innodb(TO_RECOVER)? >= tpcc.stage.log_bytes() / 2;
        if is_there || begun.elapsed().as_secs() >= most_s {
            return Ok(());
        }
    }
}

/// Ends the server, starts it again, and has it work.
fn followed(
    tpcc: &Tpcc<'_>,
    standing: Standing,
    &Way { panel, series, end }: &Way,
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
    if panel == HALF {
        for (at, rates) in (1..).zip(rates.chunks(point_s)) {
            let x = format!("{} s", at * point_s);
            measured.add("warming", SSD, series, &x, &[mean(rates)]);
        }
    }
    measured.add(panel, SSD, series, "serves", &[serves_s]);
    let mut told = format!(
        "{series}, ended with {to_recover_mib} MiB of redo log since its checkpoint: serves after {serves_s:.1} s"
    );
    for (x, rate) in wanted {
        let Some(second) = reached(&rates, REACHED * rate) else {
            let why = format!("not within {all_s} s: the run is over then");
            measured.missing(panel, SSD, series, x, &why);
            told += &format!("; {x} {why}");
            continue;
        };
        let seconds = serves_s + second as f64;
        measured.add(panel, SSD, series, x, &[seconds]);
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
