//! The participants, and the turns they take.

use super::config::{Config, Workload};
use crate::{
    BenchError,
    contest::Mode,
    peers::Peer,
    report::{Report, Row, figure},
    rocksdb::db_bench::{NO_SYNC, NO_WAL, SYNC},
    rounds,
};
use forebay_store::Durability;
use serde_json::json;
use std::{fmt, path::Path};

/// A store, in a variant or mode, that takes turns in a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contestant {
    Ours(Durability),
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

/// What a peer promises about an acknowledged Put: what our `fsync`, `single` and `double` do; no
/// more than to survive a process crash; nothing.
const MODES: [Mode; 3] = [
    SYNC,
    Mode {
        name: "nosync",
        ..NO_SYNC
    },
    DISABLE_WAL,
];

/// A peer at its fastest.
pub(super) const DISABLE_WAL: Mode = Mode {
    name: "disable_wal",
    ..NO_WAL
};

/// The modes that a peer is measured in.
pub(super) fn modes(peer: Peer) -> &'static [Mode] {
    match peer {
        Peer::RocksDb => &MODES,
        _ => &MODES[..2],
    }
}

/// Checks that it can take part.
///
/// # Errors
/// In words, why not, and the remedy.
pub(super) fn check(peer: Peer, config: &Config) -> Result<(), String> {
    let is_plain = config.threads == 1 && config.preload_bytes == 0;
    let is_measured = match peer {
        Peer::RocksDb => true,
        Peer::RocksDbBlob if config.workload == Workload::Reads => true,
        _ => is_plain,
    };
    if !is_measured {
        return Err("not measured: with one thread and without --preload only".to_owned());
    }
    peer.check()
}

/// All that take part in the Puts.
pub(super) fn contestants(config: &Config) -> Vec<Contestant> {
    let ours = config.variants.iter().copied().map(Contestant::Ours);
    let mut all: Vec<Contestant> = ours.collect();
    for &peer in config
        .peers
        .iter()
        .filter(|peer| check(**peer, config).is_ok())
    {
        all.extend(modes(peer).iter().map(|&mode| Contestant::Peer(peer, mode)));
    }
    all
}

/// The contestants of workloads that do not compare variants: our main one, and the peer at its
/// fastest.
pub(super) fn finalists(config: &Config) -> Vec<Contestant> {
    let ours = Contestant::Ours(config.main_variant());
    let peer = Contestant::Peer(Peer::RocksDb, DISABLE_WAL);
    let has_peer = contestants(config).contains(&peer);
    std::iter::once(ours)
        .chain(has_peer.then_some(peer))
        .collect()
}

/// The contestants of reads: our main variant, and the peers that are driven by db_bench.
pub(super) fn readers(config: &Config) -> Vec<Contestant> {
    let ours = Contestant::Ours(config.main_variant());
    let peers = [Peer::RocksDb, Peer::RocksDbBlob].into_iter();
    let there = peers.filter(|peer| config.peers.contains(peer) && check(*peer, config).is_ok());
    let peers = there.map(|peer| Contestant::Peer(peer, DISABLE_WAL));
    std::iter::once(ours).chain(peers).collect()
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
            let (rows, name) = match contestant {
                Contestant::Ours(ours) => (&mut report.rows, json!({"variant": ours.to_string()})),
                Contestant::Peer(peer, mode) => {
                    let name = json!({"name": peer.name(), "mode": mode.name});
                    (&mut report.peers, name)
                }
            };
            rows.push(row.with(name));
        }
        Ok(())
    }

    /// Measures our main variant alone, for workloads that show a promise and compare nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_cannot_do_is_said() {
        let config = Config {
            threads: 2,
            ..Config::default()
        };
        for peer in &Peer::ALL[1..] {
            assert!(check(*peer, &config).unwrap_err().contains("one thread"));
        }
        let config = Config {
            workload: Workload::Reads,
            peers: Peer::ALL.to_vec(),
            ..config
        };
        for peer in &Peer::ALL[2..] {
            assert!(check(*peer, &config).unwrap_err().contains("one thread"));
        }
        let readers = readers(&config);
        assert!(matches!(readers[0], Contestant::Ours(_)));
        assert!(readers.len() == 3 || check(Peer::RocksDb, &config).is_err());
    }
}
