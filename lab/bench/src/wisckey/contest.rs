//! Who takes part, and the turns they take.

use super::{Config, Figures, Peer, PeerOutcome, Report, Row};
use crate::{
    BenchError,
    peers::{
        other::{self, Other},
        rocksdb,
    },
};
use forebay_store::Variant;
use std::fmt;

/// Somebody who takes turns in a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contestant {
    Ours(Variant),
    RocksDb(rocksdb::Mode),
    Other(Other, other::Mode),
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(variant) => variant.fmt(f),
            Self::RocksDb(mode) => write!(f, "{} {mode}", rocksdb::NAME),
            Self::Other(peer, mode) => write!(f, "{peer} {mode}"),
        }
    }
}

/// Everybody who takes part in the Puts.
pub(super) fn contestants(config: &Config) -> Vec<Contestant> {
    let ours = config.variants.iter().copied().map(Contestant::Ours);
    let peers = rocksdb::Mode::ALL.into_iter().map(Contestant::RocksDb);
    let peers = peers.filter(|_| config.peers && rocksdb::find().is_ok());
    let others = config
        .others
        .iter()
        .filter(|other| other.check(config).is_ok())
        .flat_map(|&other| other::Mode::ALL.map(|mode| Contestant::Other(other, mode)));
    ours.chain(peers).chain(others).collect()
}

/// The contestants of workloads that do not compare variants: our main one, and the peer at its fastest.
pub(super) fn finalists(config: &Config, all: &[Contestant]) -> Vec<Contestant> {
    let ours = Contestant::Ours(config.main_variant());
    let peer = Contestant::RocksDb(rocksdb::Mode::DisableWal);
    std::iter::once(ours)
        .chain(all.contains(&peer).then_some(peer))
        .collect()
}

/// Our main variant alone, for workloads that show a promise and compare nobody.
pub(super) fn ours_alone(config: &Config) -> [Contestant; 1] {
    [Contestant::Ours(config.main_variant())]
}

/// Lets everybody have a turn, round after round, and adds a row for each to the report.
pub(super) fn take_turns(
    config: &Config,
    contestants: &[Contestant],
    report: &mut Report,
    mut turn: impl FnMut(Contestant, usize) -> Result<Figures, BenchError>,
) -> Result<(), BenchError> {
    let mut figures: Vec<Vec<Figures>> = contestants.iter().map(|_| Vec::new()).collect();
    for round in 0..config.rounds {
        for (contestant, figures) in contestants.iter().zip(&mut figures) {
            figures.push(Figures {
                run: config.run.clone(),
                ..turn(*contestant, round)?
            });
        }
    }
    for (contestant, figures) in contestants.iter().zip(figures) {
        report.add(*contestant, figures);
    }
    Ok(())
}

impl Report {
    /// Adds the row that a contestant's rounds make.
    pub(super) fn add(&mut self, contestant: Contestant, rounds: Vec<Figures>) {
        let Some(figures) = Figures::of_rounds(rounds) else {
            return;
        };
        let figures_of = |mode: String, figures| PeerOutcome::Ran {
            mode,
            figures: Box::new(figures),
        };
        match contestant {
            Contestant::Ours(variant) => self.rows.push(Row {
                variant: variant.to_string(),
                figures,
            }),
            Contestant::RocksDb(mode) => self.peers.push(Peer {
                name: rocksdb::NAME,
                outcome: figures_of(mode.to_string(), figures),
            }),
            Contestant::Other(other, mode) => self.peers.push(Peer {
                name: other.name(),
                outcome: figures_of(mode.to_string(), figures),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_interleaved_and_rows_come_in_the_order_of_the_contestants() {
        let config = Config::default();
        let all = contestants(&config);
        let mut report = Report::new(
            &config,
            crate::device::measure(&std::env::temp_dir(), crate::device::Effort::QUICK).unwrap(),
        );
        let mut order = Vec::new();
        take_turns(&config, &all, &mut report, |contestant, round| {
            order.push((contestant, round));
            Ok(Figures {
                workload: "put",
                ops: 1,
                ops_per_s: (round + 1) as f64,
                ..Figures::default()
            })
        })
        .unwrap();
        assert_eq!(order[0].1, 0);
        assert_eq!(order[all.len()], (all[0], 1));
        let variants: Vec<_> = report.rows.iter().map(|r| r.variant.as_str()).collect();
        assert_eq!(variants, ["fsync", "nosync", "single", "double"]);
        assert_eq!(report.rows[0].figures.ops_per_s, 2.0);
        assert_eq!(report.rows[0].figures.ops_per_s_span.unwrap().max, 3.0);
    }
}
