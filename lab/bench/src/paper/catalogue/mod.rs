//! Every experiment, with the papers' figures as the papers state them: a TOML file for each paper, read once.
//!
//! `measurement` names one of `paper::MEASUREMENTS`; `seconds`, `disk_mib` and `memory_mib` are what it takes at toy, quick and the
//! paper's size. A claim's `ours` is one of `ratio = [over, under]`, `below = [lower, upper]`, `value` and `spread = [figure, …]`; a figure is
//! `"panel | series | x"`, without an x at all of them. `above` and `below` name one of the paper's `reasons`; without `below`, `above` says both.
//! An experiment's `notes` name some of the paper's `notes`, which stand behind those that are made while it is measured.
//! A `paper` figure may be a range, `inf` where it is open.

use super::Experiment;
use serde::Deserialize;
use std::{collections::BTreeMap, sync::LazyLock};

/// A paper's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    #[serde(default)]
    setup: String,
    #[serde(default)]
    reasons: BTreeMap<String, String>,
    #[serde(default)]
    notes: BTreeMap<String, String>,
    #[serde(default, rename = "experiment")]
    experiments: Vec<Experiment>,
}

const FILES: [(&str, &str); 5] = [
    ("P1", include_str!("p1.toml")),
    ("P2", include_str!("p2.toml")),
    ("P3", include_str!("p3.toml")),
    ("P4", include_str!("p4.toml")),
    ("P5", include_str!("p5.toml")),
];

/// All experiments, in the order in which they are run and shown.
pub static ALL: LazyLock<Vec<Experiment>> = LazyLock::new(|| {
    let papers = FILES.into_iter();
    papers.flat_map(|(id, text)| read(id, text)).collect()
});

fn read(id: &'static str, text: &str) -> Vec<Experiment> {
    // The files are a part of this program.
    let named = |texts: &BTreeMap<String, String>, name: &str| {
        let text = texts.get(name);
        text.unwrap_or_else(|| unreachable!("{id}: nothing is named {name}"))
            .clone()
    };
    let mut file: File = toml::from_str(text).unwrap_or_else(|e| unreachable!("{id}: {e}"));
    for experiment in &mut file.experiments {
        experiment.paper = id;
        experiment.paper_title.clone_from(&file.title);
        experiment.setup.clone_from(&file.setup);
        for claim in &mut experiment.claims {
            if claim.below.is_empty() {
                claim.below.clone_from(&claim.above);
            }
            for because in [&mut claim.above, &mut claim.below] {
                *because = named(&file.reasons, because);
            }
        }
        for note in &mut experiment.notes {
            *note = named(&file.notes, note);
        }
    }
    file.experiments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::{
        MEASUREMENTS,
        claims::{
            Cell,
            Ours::{Below, Ratio, Spread, Value},
        },
    };
    use std::collections::BTreeSet;

    #[test]
    fn every_experiment_has_an_id_of_its_own_its_papers_setup_and_a_headline() {
        let ids: BTreeSet<_> = ALL.iter().map(|experiment| &experiment.id).collect();
        assert_eq!((ids.len(), ALL.len()), (18, 18));
        for (paper, _) in FILES {
            let is_its = |experiment: &Experiment| experiment.paper == paper;
            assert!(ALL.iter().any(is_its), "{paper} has no experiment");
        }
        for experiment in ALL.iter() {
            let id = &experiment.id;
            assert!(id.starts_with(&experiment.paper.to_lowercase()), "{id}");
            assert!(!experiment.setup.is_empty(), "{id}");
            let claims = &experiment.claims;
            let is_told = claims.is_empty() || claims.iter().any(|claim| claim.headline);
            assert!(is_told, "{id}");
        }
    }

    #[test]
    fn every_measurement_is_there_and_needs_no_less_at_the_papers_size() {
        for experiment in ALL.iter() {
            let is_its = |(name, _): &(&str, _)| *name == experiment.measurement;
            assert!(MEASUREMENTS.iter().any(is_its), "{}", experiment.id);
            for needs in [experiment.disk_mib, experiment.memory_mib] {
                assert!(needs.is_sorted() && needs[0] <= 1088, "{}", experiment.id);
            }
        }
    }

    #[test]
    fn claims_are_about_panels_that_their_experiment_has_and_give_reasons() {
        for experiment in ALL.iter() {
            for claim in &experiment.claims {
                let cells = match &claim.ours {
                    Ratio(over, under) | Below(over, under) => vec![over, under],
                    Value(cell) => vec![cell],
                    Spread(cells) => cells.iter().collect(),
                };
                for Cell { panel, .. } in cells {
                    let is_there = experiment.panels.iter().any(|mine| mine.id == *panel);
                    assert!(is_there, "{}: {panel}", experiment.id);
                }
                for because in [&claim.above, &claim.below] {
                    assert!(because.ends_with('.'), "{}: {because}", experiment.id);
                }
            }
        }
    }
}
