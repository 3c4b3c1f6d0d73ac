//! Who takes part, and the turns they take.

use super::{config::Config, peer};
use crate::{
    BenchError,
    contest::Mode,
    peers::Peer,
    report::{Report, Row, figure},
    rounds,
};
use forebay_store::Variant;
use serde_json::json;
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
        mut turn: impl FnMut(Contestant) -> Result<Row, BenchError>,
    ) -> Result<(), BenchError> {
        let rounds = rounds::take_turns(contestants, self.config.rounds, |contestant| {
            (self.note)(&format!("{what}, {contestant}"));
            let row = turn(*contestant)?;
            let [ops, seconds, rate] =
                ["ops", "seconds", "ops_per_s"].map(|name| figure(row.number(name)));
            let done = format!("{ops} ops in {seconds} s, {rate} ops/s");
            (self.note)(&format!("{what}, {contestant}: {done}"));
            Ok::<_, BenchError>(row)
        })?;
        for (contestant, rounds) in contestants.iter().zip(rounds) {
            let row = Row::median_round(rounds, "ops_per_s").unwrap_or_default();
            match contestant {
                Contestant::Ours(variant) => {
                    let name = json!({"variant": variant.to_string()});
                    report.rows.push(row.with(name));
                }
                Contestant::Peer(peer, mode) => {
                    let name = json!({"name": peer.name(), "mode": mode.name});
                    report.peers.push(row.with(name));
                }
            }
        }
        Ok(())
    }

    /// Measures our main variant alone, for workloads that show a promise and compare nobody.
    pub fn alone(
        self,
        report: &mut Report,
        what: &str,
        measure: impl Fn() -> Result<Row, BenchError>,
    ) -> Result<(), BenchError> {
        let ours = Contestant::Ours(self.config.main_variant());
        self.take_turns(report, &[ours], what, |_| measure())
    }
}
