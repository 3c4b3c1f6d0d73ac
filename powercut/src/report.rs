//! What the lab says in the end.

use crate::{CONTROLS, client::Verdict};
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write};

/// One cycle.
#[derive(Clone, Debug, Serialize)]
pub struct Cycle {
    /// What ran.
    pub workload: String,
    /// What its random numbers began with.
    pub seed: u64,
    /// Seconds after the boot at which the power was cut.
    pub cut_after: Vec<f64>,
    /// Commands that were acknowledged.
    pub acknowledged: u64,
    /// Keys that were looked for.
    pub keys: u64,
    /// Keys whose acknowledged value was not there.
    pub lost: u64,
    /// Keys with something that was never sent.
    pub wrong: u64,
}

impl Cycle {
    /// A cycle that has not begun.
    pub fn new(workload: &str, seed: u64) -> Self {
        Self {
            workload: workload.to_owned(),
            seed,
            cut_after: Vec::new(),
            acknowledged: 0,
            keys: 0,
            lost: 0,
            wrong: 0,
        }
    }

    /// After a cut.
    pub fn add(&mut self, verdict: &Verdict, acknowledged: u64) {
        self.acknowledged = acknowledged;
        self.keys += verdict.keys;
        self.lost += verdict.lost;
        self.wrong += verdict.wrong;
    }

    /// One line about it.
    pub fn line(&self) -> String {
        format!(
            "{}: seed {}, cut after {}, {} acknowledged, {} lost, {} wrong",
            self.workload,
            self.seed,
            self.cut_after
                .iter()
                .map(|s| format!("{s:.2} s"))
                .collect::<Vec<_>>()
                .join(" and "),
            self.acknowledged,
            self.lost,
            self.wrong
        )
    }
}

/// All cycles.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What the random numbers began with.
    pub seed: u64,
    /// The pool was a device, not a file.
    pub devdax: bool,
    /// The cycles.
    pub cycles: Vec<Cycle>,
}

/// Sums of a workload.
#[derive(Default)]
struct Sums {
    cycles: u64,
    cuts: usize,
    acknowledged: u64,
    lossy: u64,
    lost: u64,
    wrong: u64,
}

impl Report {
    /// An empty one.
    pub fn new(seed: u64, devdax: bool) -> Self {
        Self {
            seed,
            devdax,
            cycles: Vec::new(),
        }
    }

    fn sums(&self) -> BTreeMap<&str, Sums> {
        let mut all: BTreeMap<&str, Sums> = BTreeMap::new();
        for cycle in &self.cycles {
            let sums = all.entry(&cycle.workload).or_default();
            sums.cycles += 1;
            sums.cuts += cycle.cut_after.len();
            sums.acknowledged += cycle.acknowledged;
            sums.lossy += u64::from(cycle.lost + cycle.wrong > 0);
            sums.lost += cycle.lost;
            sums.wrong += cycle.wrong;
        }
        all
    }

    /// True if nothing was lost that must not be, and every control that must lose did.
    pub fn good(&self) -> bool {
        self.sums().iter().all(|(workload, sums)| {
            let must_lose = CONTROLS.contains(workload) && *workload != "redis-always";
            (sums.lossy > 0) == must_lose
        })
    }

    /// The table.
    pub fn markdown(&self) -> String {
        let mut text = String::from("# Power cuts\n\n");
        let pool = if self.devdax {
            "a devdax device"
        } else {
            "a file on ext4 -o dax"
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "A kernel with an NVDIMM and a virtio disk under QEMU (TCG), cut by SIGKILL in the middle of writing, twice a cycle; the client is outside. \
             The pool: {pool}. Seed {}.\n",
            self.seed
        );
        text.push_str("| workload | cycles | cuts | acknowledged | cycles with loss | keys lost | keys wrong | expected |\n|---|---:|---:|---:|---:|---:|---:|---|\n");
        for (workload, sums) in self.sums() {
            let expected = if CONTROLS.contains(&workload) && workload != "redis-always" {
                "loss"
            } else {
                "none"
            };
            let _ = writeln!(
                text,
                "| {workload} | {} | {} | {} | {} | {} | {} | {expected} |",
                sums.cycles, sums.cuts, sums.acknowledged, sums.lossy, sums.lost, sums.wrong
            );
        }
        text
    }
}
