//! Every experiment, with the papers' figures as the papers state them ([`PAPERS`]).
//!
//! P2 (flash as an extended cache of MySQL) has no experiment yet.

use super::{
    Experiment,
    claims::{
        Cell, Claim,
        Form::{Percent, Times},
        Given,
        Ours::{Ratio, Value},
        Wanted::{Less, More},
    },
};

mod p1;
mod p3;
mod p4;
mod p5;

/// A paper.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// `P1` to `P5`.
    pub id: &'static str,
    /// What it is about, and who wrote it.
    pub title: &'static str,
}

/// The papers.
pub const PAPERS: [Paper; 5] = [
    Paper {
        id: "P1",
        title: "WiscKey with a buffer in NVDIMM-N (Song, Lee, Lee; KIPS 2022)",
    },
    Paper {
        id: "P2",
        title: "FaCE in MySQL: flash as an extended cache (Kang, Lee, Moon; VLDB 2012, and its port to MySQL)",
    },
    Paper {
        id: "P3",
        title: "The overhead of RocksDB's write-ahead log (Sung, Lee, Park)",
    },
    Paper {
        id: "P4",
        title: "PB-Redis: a persistent log buffer (Kim, Choi, Sung, Lee, Park; KIISE 2018)",
    },
    Paper {
        id: "P5",
        title: "LevelDB on a Gen-Z memory device (Kang et al.; 2020)",
    },
];

const fn cell(panel: &'static str, series: &'static str, x: &'static str) -> Cell {
    Cell { panel, series, x }
}

/// A claim of the usual kind; what differs is changed with the functions below.
const fn times(
    what: &'static str,
    paper: f64,
    over: Cell,
    under: Cell,
    because: &'static str,
) -> Claim {
    Claim {
        what,
        paper: Given::at(paper),
        form: Times,
        ours: Ratio(over, under),
        wanted: More,
        above: because,
        below: because,
        headline: false,
        peers: &[],
    }
}

const fn share(what: &'static str, paper: f64, of: Cell, because: &'static str) -> Claim {
    Claim {
        what,
        paper: Given::at(paper),
        form: Percent,
        ours: Value(of),
        wanted: Less,
        above: because,
        below: because,
        headline: false,
        peers: &[],
    }
}

impl Claim {
    const fn less(mut self) -> Self {
        self.wanted = Less;
        self
    }

    /// Another reason where ours is below the paper's.
    const fn if_below(mut self, because: &'static str) -> Self {
        self.below = because;
        self
    }

    const fn between(mut self, low: f64, high: f64) -> Self {
        self.paper = Given { low, high };
        self
    }

    const fn headline(mut self, peers: &'static [(&'static str, &'static str)]) -> Self {
        self.headline = true;
        self.peers = peers;
        self
    }
}

/// All of them, in the order in which they are run and shown.
pub const ALL: &[Experiment] = &[
    p1::FIG5,
    p1::PEERS,
    p1::FIG6,
    p1::FIG7,
    p1::FIG8,
    p3::SETUP_TABLE,
    p3::LINKBENCH,
    p3::TPCC,
    p4::FIG6,
    p4::FIG7,
    p4::FIG8,
    p4::FIG9,
    p4::FIG10,
    p4::REWRITE,
    p5::DEVICE,
    p5::FAM,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::claims::Ours::{Below, Spread};
    use std::collections::BTreeSet;

    #[test]
    fn every_experiment_has_an_id_of_its_own_and_a_paper() {
        let ids: BTreeSet<_> = ALL.iter().map(|experiment| experiment.id).collect();
        assert_eq!(ids.len(), ALL.len());
        for experiment in ALL {
            assert!(
                PAPERS.iter().any(|paper| paper.id == experiment.paper),
                "{}",
                experiment.id
            );
            assert!(
                experiment.id.starts_with(&experiment.paper.to_lowercase()),
                "{}",
                experiment.id
            );
            assert!(
                experiment.claims.iter().any(|claim| claim.headline),
                "{}",
                experiment.id
            );
        }
    }

    #[test]
    fn claims_are_about_panels_that_their_experiment_has() {
        for experiment in ALL {
            for claim in experiment.claims {
                let panels = match claim.ours {
                    Ratio(over, under) | Below(over, under) => vec![over.panel, under.panel],
                    Value(cell) => vec![cell.panel],
                    Spread(panel, ..) => vec![panel],
                };
                for panel in panels {
                    assert!(
                        experiment.panels.iter().any(|mine| mine.id == panel),
                        "{}: {panel}",
                        experiment.id
                    );
                }
            }
        }
    }
}
