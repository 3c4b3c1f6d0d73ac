//! P2: MariaDB with a small buffer pool, without and with a flash cache before its page files (FaCE).
//!
//! [`run`] is TPC-C, as in the paper; [`loads`] is what a cache must not make slower. Each row has a server of its own on a copy of one data directory, which works until the queue on flash has turned twice, and is measured then:
//! rows cannot take turns, since a queue that stands still does not get into its steady state. A killed server is started again, cold and warm.
//! The database of each row is checked in the end, by a server without emulated devices.

mod cost;
mod killed;
pub(super) mod loads;
mod stage;
mod steady;
mod tpcc;

use super::{Lab, Measured, Row, Size};
use crate::{
    BenchError,
    device::{self, Effort},
    mariadb::server,
    place::Place,
    scratch::{ScratchDir, memory_dir},
};
use stage::Case;
use steady::Steady;
use tpcc::Tpcc;

pub(super) use tpcc::warehouses;

/// What the pages go through, and where the redo log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// The server as it is, with its doublewrite buffer.
    Original,
    /// Without: a torn page would be lost.
    NoDoublewrite,
    /// A flash cache of pages that are written.
    Dirty,
    /// And of those that are read.
    All,
    /// Of those that are written, and the redo log in a pool.
    DirtyAndRedo,
}

const VARIANTS: [Variant; 5] = [
    Variant::Original,
    Variant::NoDoublewrite,
    Variant::Dirty,
    Variant::All,
    Variant::DirtyAndRedo,
];

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::NoDoublewrite => "original without doublewrite",
            Self::Dirty => "FaCE dirty",
            Self::All => "FaCE all",
            Self::DirtyAndRedo => "FaCE dirty, redo in the pool",
        }
    }

    fn has_flash(self) -> bool {
        !matches!(self, Self::Original | Self::NoDoublewrite)
    }
}

/// What the data is on, and what flash is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    /// Both on one emulated SSD.
    One(&'static str),
    /// The data on an emulated array of disks, flash on this emulated SSD.
    Apart(&'static str),
    /// Both on this machine's disk.
    Here,
}

/// The paper's array.
const ARRAY: &str = "hdd-15k-raid0x8";
/// The SSD that the rows beside the table are measured on.
const SSD: &str = "sata-ssd";
/// The same when it is full and has been written to for long.
const STEADY_SSD: &str = "sata-ssd-steady";

impl Ground {
    /// The panel of its rates, and what its rows are called in the panel of latencies.
    fn panel(self) -> (&'static str, &'static str) {
        match self {
            Self::One(_) => ("ssd", "all on the SSD"),
            Self::Apart(_) => ("raid", "data on the array"),
            Self::Here => ("here", "all on this disk"),
        }
    }

    fn place(self) -> &'static str {
        match self {
            Self::One(profile) | Self::Apart(profile) => profile,
            Self::Here => Place::Here.name(),
        }
    }
}

/// The paper's connections.
const CLIENTS: u64 = 16;
/// What the rates are at.
const X: &str = "16 clients";
/// Flash, in percent of the data.
const PERCENT: u64 = 20;
/// The others of the curve.
const OTHER_PERCENTS: [u64; 3] = [5, 10, 40];

/// What is measured, in this order.
fn rows(size: Size) -> Vec<(Ground, Vec<Variant>)> {
    let all = VARIANTS.to_vec();
    match size {
        // Each variant and each ground once, and what is killed.
        Size::Toy => vec![
            (
                Ground::Apart(SSD),
                vec![Variant::Original, Variant::Dirty, Variant::DirtyAndRedo],
            ),
            (Ground::One(SSD), vec![Variant::All]),
            (Ground::Here, vec![Variant::NoDoublewrite]),
        ],
        Size::Quick | Size::Paper => vec![
            (Ground::Apart(SSD), all.clone()),
            (Ground::Apart(STEADY_SSD), all.clone()),
            (Ground::One(SSD), all.clone()),
            (Ground::One(STEADY_SSD), all.clone()),
            (Ground::Here, all),
        ],
    }
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
    let mut curve = Vec::new();
    for (ground, variants) in rows(lab.size) {
        for variant in variants {
            let case = Case {
                variant,
                ground,
                percent: PERCENT,
            };
            let steady = row(&tpcc, case, &mut measured)?;
            if case.ground == Ground::Apart(SSD) && variant == Variant::Dirty {
                curve.push((case, steady));
            }
        }
    }
    for &percent in lab.size.pick(&[][..], &OTHER_PERCENTS, &OTHER_PERCENTS) {
        let case = Case {
            variant: Variant::Dirty,
            ground: Ground::Apart(SSD),
            percent,
        };
        let server = tpcc.stage.start(case)?;
        let steady = tpcc.measure(&server)?;
        tpcc.end(server)?;
        curve.push((case, steady));
    }
    curve.sort_by_key(|(case, _)| case.percent);
    for (case, steady) in &curve {
        of_size(*case, steady, &mut measured);
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
    let mut server = tpcc.stage.start(case)?;
    let steady = tpcc.measure(&server)?;
    let (panel, short) = case.ground.panel();
    let (place, name) = (case.ground.place(), case.variant.name());
    measured.rows.extend([
        Row::of(panel, place, name, X, &steady.tpmc),
        Row::of("p99", place, name, short, &steady.new_order_p99_ms),
    ]);
    measured.note(format!("{name}, {short} ({place}): {steady}"));
    let is_followed = matches!(case.variant, Variant::Original | Variant::Dirty);
    if case.ground == Ground::Apart(SSD) && is_followed {
        killed::rows(tpcc, &mut server, &steady, measured)?;
    }
    tpcc.end(server)?;
    Ok(steady)
}

/// A point of the curve over flash's size.
fn of_size(case: Case, steady: &Steady, measured: &mut Measured) {
    let x = format!("{} %", case.percent);
    let (place, name) = (case.ground.place(), case.variant.name());
    let figures = [
        ("sizes", steady.tpmc.as_slice()),
        ("found", &[steady.found_percent]),
    ];
    let rows = figures.map(|(panel, figures)| Row::of(panel, place, name, &x, figures));
    measured.rows.extend(rows);
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
                let is_it = |(ground, variants): &(Ground, Vec<Variant>)| {
                    let names = variants.iter().any(|variant| variant.name() == cell.series);
                    ground.panel().0 == cell.panel && names
                };
                assert!(measured.iter().any(is_it) && cell.x == X, "{}", claim.what);
            }
        }
    }

    #[test]
    fn toy_size_has_each_variant_and_each_ground() {
        let toy = rows(Size::Toy);
        for variant in VARIANTS {
            assert!(toy.iter().any(|(_, variants)| variants.contains(&variant)));
        }
        for panel in ["raid", "ssd", "here"] {
            assert!(toy.iter().any(|(ground, _)| ground.panel().0 == panel));
        }
    }
}
