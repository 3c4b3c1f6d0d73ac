//! Who takes part, and the turns they take.

use super::{
    config::Config,
    peer,
    rows::{Figures, PeerRow, Report, Row},
};
use crate::{BenchError, contest::Mode, peers::Peer, rounds};
use forebay_store::Variant;
use std::{fmt, path::Path};

/// Somebody who takes turns in a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contestant {
    Ours(Variant),
    Peer(Peer, Mode),
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(variant) => variant.fmt(f),
            Self::Peer(peer, mode) => write!(f, "{peer} {mode}"),
        }
    }
}

/// Everybody who takes part in the Puts.
pub(super) fn contestants(config: &Config) -> Vec<Contestant> {
    let ours = config.variants.iter().copied().map(Contestant::Ours);
    let peers = config.peers.iter().copied();
    let peers = peers.filter(|peer| peer::check(*peer, config).is_ok());
    let in_modes = |peer| {
        let modes = peer::modes(peer).iter().copied();
        modes.map(move |mode| Contestant::Peer(peer, mode))
    };
    ours.chain(peers.flat_map(in_modes)).collect()
}

/// The contestants of workloads that do not compare variants: our main one, and the peer at its fastest.
pub(super) fn finalists(config: &Config) -> Vec<Contestant> {
    let ours = Contestant::Ours(config.main_variant());
    let peer = Contestant::Peer(Peer::RocksDb, peer::DISABLE_WAL);
    let has_peer = contestants(config).contains(&peer);
    std::iter::once(ours)
        .chain(has_peer.then_some(peer))
        .collect()
}

/// A configuration that is run.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub config: &'a Config,
    pub scratch: &'a Path,
    /// Is told what is being done, and what it gave.
    pub note: &'a dyn Fn(&str),
}

impl Run<'_> {
    /// Measures all contestants in turn, round after round, and adds a row for each to the report.
    pub fn take_turns(
        self,
        report: &mut Report,
        contestants: &[Contestant],
        what: &str,
        mut turn: impl FnMut(Contestant) -> Result<Figures, BenchError>,
    ) -> Result<(), BenchError> {
        let rounds = rounds::take_turns(contestants, self.config.rounds, |contestant| {
            (self.note)(&format!("{what}, {contestant}"));
            let figures = turn(*contestant)?;
            (self.note)(&format!("{what}, {contestant}: {figures}"));
            let run = self.config.run.clone();
            Ok::<_, BenchError>(Figures { run, ..figures })
        })?;
        for (contestant, rounds) in contestants.iter().zip(rounds) {
            report.add(*contestant, rounds);
        }
        Ok(())
    }

    /// Measures our main variant alone, for workloads that show a promise and compare nobody.
    pub fn alone(
        self,
        report: &mut Report,
        what: &str,
        measure: impl Fn() -> Result<Figures, BenchError>,
    ) -> Result<(), BenchError> {
        let ours = Contestant::Ours(self.config.main_variant());
        self.take_turns(report, &[ours], what, |_| measure())
    }
}

impl Report {
    /// Adds the row that a contestant's rounds make.
    fn add(&mut self, contestant: Contestant, rounds: Vec<Figures>) {
        let Some(figures) = Figures::of_rounds(rounds) else {
            return;
        };
        match contestant {
            Contestant::Ours(variant) => self.rows.push(Row {
                variant: variant.to_string(),
                figures,
            }),
            Contestant::Peer(peer, mode) => self.peers.push(PeerRow {
                name: peer.name(),
                mode: Some(mode.to_string()),
                figures: Some(Box::new(figures)),
                error: None,
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
        let run = Run {
            config: &config,
            scratch: Path::new(""),
            note: &|_| (),
        };
        run.take_turns(&mut report, &all, "put", |contestant| {
            order.push(contestant);
            Ok(Figures {
                workload: "put",
                ops: 1,
                ops_per_s: (1 + (order.len() - 1) / all.len()) as f64,
                ..Figures::default()
            })
        })
        .unwrap();
        order.truncate(2 * all.len());
        let backwards = order.split_off(all.len());
        assert!(order == all && backwards.iter().rev().eq(&all));
        let variants: Vec<_> = report.rows.iter().map(|r| r.variant.as_str()).collect();
        assert_eq!(variants, ["fsync", "nosync", "single", "double"]);
        assert_eq!(report.rows[0].figures.ops_per_s, 2.0);
        assert_eq!(report.rows[0].figures.ops_per_s_span.unwrap().max, 3.0);
    }
}
