//! The papers' files are consistent.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_bench::paper::{Experiment, catalogue::ALL};
use std::collections::BTreeSet;

#[test]
fn every_experiment_has_its_own_id_setup_and_headline() {
    let ids: BTreeSet<_> = ALL.iter().map(|experiment| &experiment.id).collect();
    assert_eq!((ids.len(), ALL.len()), (20, 20));
    for paper in ["P1", "P2", "P3", "P4", "P5"] {
        let is_its = |experiment: &Experiment| experiment.paper == paper;
        assert!(ALL.iter().any(is_its), "{paper} has no experiment");
    }
    for experiment in ALL.iter() {
        let id = &experiment.id;
        assert!(id.starts_with(&experiment.paper.to_lowercase()), "{id}");
        assert!(!experiment.setup.is_empty(), "{id}");
        let claims = &experiment.claims;
        let is_told =
            claims.is_empty() || claims.iter().any(|claim| claim.contains_key("headline"));
        assert!(is_told, "{id}");
    }
}

#[test]
fn no_experiment_needs_less_at_the_papers_size() {
    for experiment in ALL.iter() {
        for needs in [experiment.disk_mib, experiment.memory_mib] {
            assert!(needs.is_sorted() && needs[0] <= 1088, "{}", experiment.id);
        }
    }
}
