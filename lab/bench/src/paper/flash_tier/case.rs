//! Cases that rows are of, as P2's file has them.

use crate::paper::{catalogue, size::Size};
use serde::Deserialize;
use std::{fmt, ptr, sync::LazyLock};

/// What the pages go through, and where the redo log is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variant {
    pub name: String,
    /// What a flash cache takes, and what becomes of writes. None: there is none.
    pub flash: Option<[String; 2]>,
    /// Linux's own cache, bcache, stands there.
    #[serde(default)]
    pub bcache: bool,
    #[serde(default)]
    pub doublewrite: bool,
    #[serde(default)]
    pub redo_in_pool: bool,
}

/// The server as it is, with the paper's flash cache, and with those that go around flash that does
/// not pay.
pub(super) const ORIGINAL: &str = "original";
pub(super) const DIRTY: &str = "FaCE dirty";
pub(super) const ADAPTIVE: [&str; 2] = ["FaCE dirty, adaptive", "FaCE all, adaptive"];

/// What the data is on, and what flash is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ground {
    /// The panel of its rates.
    pub panel: String,
    /// What its rows are called in the panel of latencies.
    pub short: String,
    pub data: String,
    /// The place of its rows.
    pub flash: String,
    /// Rounds in which its rows take turns: between rows that follow each other a disk, or
    /// processors, that others use too may change.
    pub rounds: Option<usize>,
    /// Variants at toy size.
    #[serde(default)]
    toy: Vec<String>,
    /// Those at the papers' size.
    #[serde(default)]
    paper: Vec<String>,
}

/// The grounds of the paper's array, and of this disk.
pub(super) const ON_ARRAY: &str = "raid";
pub(super) const ON_THIS_DISK: &str = "here";
/// The SSD that the rows beside the table are measured on.
pub(super) const SSD: &str = "sata-ssd";
/// Flash, in percent of the data.
pub(super) const PERCENT: u64 = 20;

/// What is measured in a virtual machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InGuest {
    /// How many times slower than these its disks are.
    pub slower: f64,
    pub data: String,
    pub flash: String,
    pub variants: Vec<Variant>,
}

#[derive(Deserialize)]
pub(super) struct Table {
    variants: Vec<Variant>,
    grounds: Vec<Ground>,
    pub guest: InGuest,
}

/// As P2's file has it.
pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| catalogue::measured("P2"));

/// What a row is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub variant: &'static Variant,
    pub ground: &'static Ground,
    /// Flash, in percent of the data.
    pub percent: u64,
}

impl Case {
    /// The variant of this name on the first ground of this panel.
    pub fn named(variant: &str, ground: &str) -> Self {
        let mut all = Self::all(Size::Quick).into_iter();
        let is_it = |case: &Self| (&*case.variant.name, &*case.ground.panel) == (variant, ground);
        let found = all.find(is_it);
        found.unwrap_or_else(|| unreachable!("P2 has no {variant} on {ground}"))
    }

    /// What is measured, in this order: rows that take turns together.
    pub fn groups(size: Size) -> Vec<Vec<Self>> {
        // Memory has room for one server of the papers' size.
        let takes_turns = |case: &Self| size != Size::Paper && case.ground.rounds.is_some();
        let is_one = |a: &Self, b: &Self| takes_turns(a) && ptr::eq(a.ground, b.ground);
        let all = Self::all(size);
        all.chunk_by(is_one).map(<[Self]>::to_vec).collect()
    }

    fn all(size: Size) -> Vec<Self> {
        let is_measured = |of: &Self| match size {
            Size::Toy => of.ground.toy.contains(&of.variant.name),
            Size::Quick => true,
            Size::Paper => of.ground.paper.contains(&of.variant.name),
        };
        let of = |ground: &'static Ground| {
            TABLE.variants.iter().map(move |variant| Self {
                variant,
                ground,
                percent: PERCENT,
            })
        };
        let all = TABLE.grounds.iter().flat_map(of);
        all.filter(is_measured).collect()
    }

    /// True if it is the variant of this name where the paper has it: its data on the array, its
    /// flash on the SSD.
    pub fn is_the_papers(&self, variant: &str) -> bool {
        (&*self.ground.panel, &*self.ground.flash) == (ON_ARRAY, SSD)
            && self.variant.name == variant
    }
}

/// As progress and notes have it.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (variant, ground) = (self.variant, self.ground);
        write!(f, "{}, {} ({}", variant.name, ground.short, ground.flash)?;
        match variant.flash {
            Some(_) => write!(f, ", flash of {} %)", self.percent),
            None => f.write_str(")"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::Experiment;

    #[test]
    fn every_row_that_a_claim_compares_is_measured() {
        let variants = |of: &'static [Variant]| of.iter().map(|variant| &*variant.name);
        let grounds = TABLE.grounds.iter().map(|ground| &*ground.panel);
        let in_guest: Vec<&str> = variants(&TABLE.guest.variants).collect();
        let elsewhere: Vec<&str> = variants(&TABLE.variants).collect();
        for (id, panels, series) in [
            ("p2-tpcc", grounds.chain(["p99"]).collect(), elsewhere),
            ("p2-bcache", vec!["guest"], in_guest),
        ] {
            let claims = &Experiment::named(id).unwrap().claims;
            assert!(!claims.is_empty());
            for claim in claims {
                for cell in claim["ours"]["ratio"].as_array().unwrap() {
                    let words: Vec<&str> = cell.as_str().unwrap().split(" | ").collect();
                    assert!(
                        panels.contains(&words[0]) && series.contains(&words[1]),
                        "{cell:?}"
                    );
                }
            }
        }
    }
}
