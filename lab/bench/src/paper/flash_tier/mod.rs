//! P2: MariaDB with a small buffer pool, without and with a flash cache before its page files (FaCE).
//!
//! [`run`] is TPC-C, as in the paper; [`loads`] is what a cache must not make slower. Each row has a server of its own on a copy of one data
//! directory, which works until the queue on flash has turned twice, and is measured then: rows cannot take turns, since a queue that stands still
//! does not get into its steady state. A killed server is started again, cold and warm. The database of each row is checked in the end, by a server
//! without emulated devices.

mod cost;
mod killed;
pub(super) mod loads;
mod stage;
mod steady;

use super::{Measured, Size, lab::Lab};
use crate::{
    BenchError,
    device::{self, Effort},
    mariadb::server,
    place::HERE,
    scratch::{ScratchDir, memory_dir},
};
use stage::Case;
use steady::{Steady, Tpcc};

/// What the pages go through, and where the redo log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    name: &'static str,
    /// What a flash cache takes: the pages that are written (`dirty`), or those that are read as well (`all`). None: there is none.
    flash: Option<&'static str>,
    /// The server's own protection from torn pages.
    doublewrite: bool,
    redo_in_pool: bool,
}

/// The server as it is.
const ORIGINAL: Variant = Variant {
    name: "original",
    flash: None,
    doublewrite: true,
    redo_in_pool: false,
};
/// A torn page would be lost.
const NO_DOUBLEWRITE: Variant = Variant {
    name: "original without doublewrite",
    doublewrite: false,
    ..ORIGINAL
};
const DIRTY: Variant = Variant {
    name: "FaCE dirty",
    flash: Some("dirty"),
    ..NO_DOUBLEWRITE
};
const ALL: Variant = Variant {
    name: "FaCE all",
    flash: Some("all"),
    ..DIRTY
};
const DIRTY_AND_REDO: Variant = Variant {
    name: "FaCE dirty, redo in the pool",
    redo_in_pool: true,
    ..DIRTY
};

/// What the data is on, and what flash is: two places, or one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ground {
    /// The panel of its rates.
    panel: &'static str,
    /// What its rows are called in the panel of latencies.
    short: &'static str,
    data: &'static str,
    /// The place of its rows.
    flash: &'static str,
}

/// The SSD that the rows beside the table are measured on.
const SSD: &str = "sata-ssd";
/// The same when it is full and has been written to for long.
const STEADY_SSD: &str = "sata-ssd-steady";

const ON_ARRAY: Ground = Ground {
    panel: "raid",
    short: "data on the array",
    // The paper's.
    data: "hdd-15k-raid0x8",
    flash: SSD,
};
const ON_SSD: Ground = Ground {
    panel: "ssd",
    short: "all on the SSD",
    data: SSD,
    flash: SSD,
};
const ON_THIS_DISK: Ground = Ground {
    panel: "here",
    short: "all on this disk",
    data: HERE,
    flash: HERE,
};

/// What the rates are at.
const X: &str = "16 clients";
/// Flash, in percent of the data.
const PERCENT: u64 = 20;
/// The others of the curve.
const OTHER_PERCENTS: [u64; 3] = [5, 10, 40];

/// What is measured, in this order.
fn rows(size: Size) -> Vec<(Ground, &'static [Variant])> {
    const VARIANTS: &[Variant] = &[ORIGINAL, NO_DOUBLEWRITE, DIRTY, ALL, DIRTY_AND_REDO];
    if size == Size::Toy {
        // Each variant and each ground once, and what is killed.
        return vec![
            (ON_ARRAY, &[ORIGINAL, DIRTY, DIRTY_AND_REDO]),
            (ON_SSD, &[ALL]),
            (ON_THIS_DISK, &[NO_DOUBLEWRITE]),
        ];
    }
    let on_array_steady = Ground {
        flash: STEADY_SSD,
        ..ON_ARRAY
    };
    let on_ssd_steady = Ground {
        data: STEADY_SSD,
        flash: STEADY_SSD,
        ..ON_SSD
    };
    let grounds = [
        ON_ARRAY,
        on_array_steady,
        ON_SSD,
        on_ssd_steady,
        ON_THIS_DISK,
    ];
    grounds.map(|ground| (ground, VARIANTS)).to_vec()
}

/// The paper's tables, and what it leaves to others.
pub(super) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    if let Some(why) = server::lacking() {
        return Err(BenchError::Missing(why));
    }
    let scratch = ScratchDir::new_in(&memory_dir())?;
    let tpcc = Tpcc::load(lab, scratch.path())?;
    let mut measured = Measured::default();
    measured
        .devices
        .push(device::measure(lab.dir, Effort::QUICK)?);
    let case = |variant, ground, percent| Case {
        variant,
        ground,
        percent,
    };
    let mut curve = Vec::new();
    for (ground, variants) in rows(lab.size) {
        for &variant in variants {
            let steady = row(&tpcc, case(variant, ground, PERCENT), &mut measured)?;
            if (ground, variant) == (ON_ARRAY, DIRTY) {
                curve.push((PERCENT, steady));
            }
        }
    }
    for &percent in lab.size.pick(&[][..], &OTHER_PERCENTS, &OTHER_PERCENTS) {
        let standing = tpcc.stage.start(case(DIRTY, ON_ARRAY, percent))?;
        let steady = tpcc.measure(&standing)?;
        tpcc.end(standing)?;
        curve.push((percent, steady));
    }
    curve.sort_by_key(|(percent, _)| *percent);
    for (percent, steady) in &curve {
        let x = format!("{percent} %");
        measured.add("sizes", SSD, DIRTY.name, &x, &steady.tpmc);
        measured.add("found", SSD, DIRTY.name, &x, &[steady.found_percent]);
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
    let Case {
        variant, ground, ..
    } = case;
    let (place, p99_ms) = (ground.flash, &steady.new_order_p99_ms);
    measured.add(ground.panel, place, variant.name, X, &steady.tpmc);
    measured.add("p99", place, variant.name, ground.short, p99_ms);
    measured.note(format!("{case}: {steady}"));
    if ground == ON_ARRAY && [ORIGINAL, DIRTY].contains(&variant) {
        standing = killed::rows(tpcc, standing, &steady, measured)?;
    }
    tpcc.end(standing)?;
    Ok(steady)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::{Experiment, claims::Ours};

    #[test]
    fn every_row_that_a_claim_compares_is_measured() {
        let measured = rows(Size::Quick);
        let claims = &Experiment::named("p2-tpcc").unwrap().claims;
        assert!(!claims.is_empty());
        for claim in claims {
            let Ours::Ratio(over, under) = &claim.ours else {
                panic!("{}: no ratio", claim.what);
            };
            for cell in [over, under] {
                let is_it = |(ground, variants): &(Ground, &[Variant])| {
                    let names = variants.iter().any(|variant| variant.name == cell.series);
                    ground.panel == cell.panel && names
                };
                assert!(measured.iter().any(is_it) && cell.x == X, "{}", claim.what);
            }
        }
    }
}
