//! The outcome of a cycle: a cut, and the comparison after it.

use crate::{flash::Counts, lab::PoolOn, ledger::Verdict, machine::MachineKind};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What becomes of a chain's cycles.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cycle {
    /// What ran.
    pub workload: Cow<'static, str>,
    /// What it ran in.
    pub machine: MachineKind,
    /// What its chain's random numbers began with.
    pub seed: u64,
    /// Its place in the chain, from 0.
    pub number: u64,
    /// Where the pool was.
    pub pool: PoolOn,
    /// When it was to be cut.
    pub moment: Cow<'static, str>,
    /// True if the power was cut there. False for a moment that did not come: then it was cut some
    /// time later.
    pub reached: bool,
    /// Seconds after the boot at which the power was cut; several if the recovery was cut as well.
    pub cut_after: Vec<f64>,
    /// Seconds from the end of the cycle before, or the chain's begin, to its end.
    pub seconds: f64,
    /// Transactions that were acknowledged between the comparison before and the cut.
    pub acknowledged: u64,
    /// Sectors that the disk had not been told to flush, and those of them that were lost.
    pub unflushed: u64,
    /// See `unflushed`.
    pub dropped: u64,
    /// What was found.
    pub verdict: Verdict,
    /// Why the server could not be asked after the cut, if so.
    pub unusable: Option<String>,
    /// What the flash cache did before the cut, if there is one and it was asked.
    pub flash: Option<Counts>,
}

impl Cycle {
    /// True if nothing was lost.
    pub fn good(&self) -> bool {
        self.verdict.good() && self.unusable.is_none()
    }

    /// True if the kernel did not mount what the cut had left of the data's file system, so that
    /// nothing of the workload was asked.
    pub fn is_unmounted(&self) -> bool {
        const SAID: &str = "mounting /dev/vda on /data failed";
        self.unusable.as_ref().is_some_and(|why| why.contains(SAID))
    }

    /// What it is called in a report, which has both kinds of machines.
    pub fn name(&self) -> String {
        name(&self.workload, self.machine)
    }

    /// One line about it.
    pub fn line(&self) -> String {
        let cuts: Vec<String> = self.cut_after.iter().map(|s| format!("{s:.1}")).collect();
        let mut line = format!(
            "{} {:016x}.{} on {}: cut after {} s ({}{}); {} acknowledged, {} of {} in flight kept, {} of {} unflushed sectors dropped: ",
            self.name(),
            self.seed,
            self.number,
            self.pool.name(),
            cuts.join(" and "),
            self.moment,
            if self.reached { "" } else { ": did not come" },
            self.acknowledged,
            self.verdict.kept,
            self.verdict.in_flight,
            self.dropped,
            self.unflushed,
        );
        if let Some(flash) = &self.flash {
            line += &format!(
                "{} pages to flash, {} home in {} batches, {} second chances: ",
                flash.enqueued, flash.home_pages, flash.home_batches, flash.second_chances
            );
        }
        line.push_str(&match &self.unusable {
            Some(why) => format!("UNUSABLE: {why}"),
            None if self.verdict.good() => "nothing lost".into(),
            None if self.verdict.torn => "A TRANSACTION IN HALVES".into(),
            None => format!(
                "{} keys LOST, {} WRONG, of {}",
                self.verdict.lost, self.verdict.wrong, self.verdict.keys
            ),
        });
        line
    }
}

/// Behind the name of a workload in namespaces.
const IN_NAMESPACES: &str = "/namespace";

/// A workload by its name and its machines.
pub fn name(workload: &str, machine: MachineKind) -> String {
    match machine {
        MachineKind::Emulated => workload.to_owned(),
        MachineKind::Namespace => format!("{workload}{IN_NAMESPACES}"),
    }
}

/// What such a name says.
pub fn parts(name: &str) -> (&str, MachineKind) {
    match name.strip_suffix(IN_NAMESPACES) {
        Some(workload) => (workload, MachineKind::Namespace),
        None => (name, MachineKind::Emulated),
    }
}
