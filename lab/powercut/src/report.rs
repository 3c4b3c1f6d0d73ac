//! The lab's report in the end.

mod rows;

use crate::{
    cycle::{self, Cycle},
    flash::Counts,
    machine::MachineKind,
    results::ResultLine,
    workload::{CONTROLS, Expected, WORKLOADS, Workload},
};
use rows::{ReportRow, Section};
use serde::Serialize;
use std::collections::BTreeMap;

/// All cycles.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The command that gives it again, as far as timing lets it.
    pub command: String,
    /// What its random numbers began with: several, if it is several runs'.
    pub seeds: Vec<u64>,
    /// The revision of the programs' sources, with `+` and a hash if they had changes
    /// besides.
    pub commit: String,
    /// What ran the machines: `kvm` or `tcg`, or `namespace`.
    pub accelerator: String,
    /// What they were.
    pub machine: MachineKind,
    /// Seconds that it took.
    pub seconds: u64,
    /// The cycles.
    pub cycles: Vec<Cycle>,
    /// Workloads with another outcome than expected, and why.
    pub unexpected: Vec<String>,
}

/// Sums over cycles.
#[derive(Default)]
struct Sums {
    cycles: u64,
    devdax: u64,
    on_disk: u64,
    cuts: u64,
    reached: u64,
    acknowledged: u64,
    in_flight: u64,
    dropped: u64,
    lossy: u64,
    unmounted: u64,
    lost: u64,
    wrong: u64,
    torn: u64,
    unusable: u64,
}

impl Sums {
    fn of<'a>(cycles: impl Iterator<Item = &'a Cycle>) -> Self {
        let mut sums = Self::default();
        for cycle in cycles {
            sums.cycles += 1;
            sums.devdax += u64::from(cycle.pool == crate::lab::PoolOn::Devdax);
            sums.on_disk += u64::from(cycle.pool.is_disk());
            sums.cuts += cycle.cut_after.len() as u64;
            sums.reached += u64::from(cycle.reached);
            sums.acknowledged += cycle.acknowledged;
            sums.in_flight += cycle.verdict.in_flight;
            sums.dropped += cycle.dropped;
            sums.lossy += u64::from(!cycle.good() && !cycle.is_unmounted());
            sums.unmounted += u64::from(cycle.is_unmounted());
            sums.lost += cycle.verdict.lost;
            sums.wrong += cycle.verdict.wrong;
            sums.torn += u64::from(cycle.verdict.torn);
            sums.unusable += u64::from(cycle.unusable.is_some());
        }
        sums
    }
}

impl Report {
    /// Of these lines of a results file, which are of the same sources.
    pub fn of_lines(lines: &[ResultLine]) -> Option<Self> {
        let first = lines.first()?;
        let mut seeds: Vec<u64> = lines.iter().map(|line| line.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        let mut commands: Vec<&str> = lines.iter().map(|line| &*line.command).collect();
        commands.sort_unstable();
        commands.dedup();
        let seconds: f64 = lines.iter().map(|line| line.cycle.seconds).sum();
        let run = Self {
            command: commands.join("; "),
            seeds,
            commit: first.commit.clone(),
            accelerator: first.accelerator.clone(),
            machine: first.cycle.machine,
            seconds: seconds as u64,
            cycles: Vec::new(),
            unexpected: Vec::new(),
        };
        let cycles = lines.iter().map(|line| line.cycle.clone());
        Some(Self::new(run, cycles.collect()))
    }

    /// Of these cycles of `run`, which has none.
    pub fn new(run: Self, mut cycles: Vec<Cycle>) -> Self {
        cycles.sort_by_key(|cycle| (place(&cycle.workload), cycle.seed, cycle.number));
        let mut report = Self { cycles, ..run };
        for workload in report.workloads() {
            let sums = report.sums(workload);
            let name = report.name_of(workload);
            match workload.expected {
                Expected::NoLoss if sums.lossy > 0 => {
                    report.unexpected.push(format!("{name}: loss in {} of {} cycles", sums.lossy, sums.cycles));
                }
                Expected::NoLoss if sums.unmounted > 0 => {
                    report.unexpected.push(format!("{name}: not mounted after {} of {} cycles", sums.unmounted, sums.cycles));
                }
                Expected::Loss if !report.shows_loss(workload) => report.unexpected.push(format!(
                    "{name}: none of {} cycles shows loss, though there must be some: the lab is blind here ({} unusable)",
                    sums.cycles, sums.unusable
                )),
                _ => {}
            }
        }
        report
    }

    fn workloads(&self) -> Vec<&'static Workload> {
        let all = WORKLOADS.iter().chain(&CONTROLS);
        all.filter(|workload| {
            self.cycles
                .iter()
                .any(|cycle| cycle.workload == workload.name)
        })
        .collect()
    }

    fn sums(&self, workload: &Workload) -> Sums {
        Sums::of(
            self.cycles
                .iter()
                .filter(|cycle| cycle.workload == workload.name),
        )
    }

    /// True if something that a control must lose was missing.
    fn shows_loss(&self, workload: &Workload) -> bool {
        let mut cycles = self.cycles.iter().filter(|it| it.workload == workload.name);
        let refused = |it: &Cycle| it.unusable.is_some() && !it.is_unmounted();
        cycles.any(|cycle| !cycle.verdict.good() || workload.may_refuse && refused(cycle))
    }

    /// True if everything was as expected.
    pub fn good(&self) -> bool {
        self.unexpected.is_empty()
    }

    /// The report in Markdown, with what an earlier one has of other workloads. The sources are at
    /// `commit` now.
    pub fn markdown(&self, earlier: &str, commit: &str) -> String {
        let tested = self.workloads();
        let mut rows = vec![self.run_row()];
        rows.extend(tested.iter().map(|workload| self.workload_row(workload)));
        rows.extend(self.flash_rows());
        rows.extend(self.moment_rows());
        for unexpected in &self.unexpected {
            let about = unexpected.split(':').next().unwrap_or_default();
            rows.push(ReportRow::item(Section::Unexpected, about, unexpected));
        }
        for cycle in self.cycles.iter().filter(|cycle| !cycle.good()) {
            let section = match cycle.is_unmounted() {
                true => Section::Unmounted,
                false => Section::Losses,
            };
            let line = cycle.line();
            let first = line.lines().next().unwrap_or_default();
            rows.push(ReportRow::item(section, &cycle.name(), first));
        }
        let names: Vec<String> = tested.iter().map(|it| self.name_of(it)).collect();
        rows::text(rows, earlier, &names, commit)
    }

    /// What a workload is called here.
    fn name_of(&self, workload: &Workload) -> String {
        cycle::name(workload.name, self.machine)
    }

    /// What says which run a row is of.
    fn name(&self) -> String {
        match self.seeds[..] {
            [seed] => format!("{}-{seed}", self.commit),
            _ => format!("{}-{} runs", self.commit, self.seeds.len()),
        }
    }

    fn run_row(&self) -> ReportRow {
        let (name, minutes) = (self.name(), (self.seconds / 60).to_string());
        let command = format!("`{}`", self.command);
        let cells = [name.clone(), command, self.accelerator.clone(), minutes];
        ReportRow::of_table(Section::Runs, &name, &cells)
    }

    fn workload_row(&self, workload: &Workload) -> ReportRow {
        let s = self.sums(workload);
        let expected = match workload.expected {
            Expected::NoLoss => "no loss",
            Expected::Loss => "loss",
        };
        let mut cells = vec![self.name_of(workload), self.name()];
        let numbers = [s.cycles, s.devdax, s.on_disk, s.cuts, s.acknowledged];
        let found = [s.in_flight, s.dropped, s.lossy, s.lost, s.wrong, s.torn];
        cells.extend(numbers.iter().chain(&found).map(u64::to_string));
        cells.extend([s.unusable.to_string(), expected.to_owned()]);
        let section = match CONTROLS.iter().any(|control| control.name == workload.name) {
            true => Section::Controls,
            false => Section::Forebay,
        };
        ReportRow::of_table(section, &cells[0], &cells)
    }

    /// What flash caches did, so that it is seen whether their queues turned.
    fn flash_rows(&self) -> impl Iterator<Item = ReportRow> {
        let with = self.workloads().into_iter().filter(|w| w.flash);
        with.map(|workload| {
            let of = |cycle: &&Cycle| cycle.workload == workload.name;
            let counts = self.cycles.iter().filter(of);
            let counts: Vec<Counts> = counts.filter_map(|cycle| cycle.flash).collect();
            let mut sum = Counts::default();
            counts.iter().for_each(|one| sum.add(one));
            let cycles_with =
                |what: fn(&Counts) -> u64| counts.iter().filter(|one| what(one) > 0).count();
            let cells = [
                self.name_of(workload),
                counts.len().to_string(),
                format!("{}, {}", sum.slots, sum.slots_used),
                sum.enqueued.to_string(),
                sum.home_pages.to_string(),
                sum.home_batches.to_string(),
                sum.second_chances.to_string(),
                cycles_with(|one| one.home_batches).to_string(),
                cycles_with(|one| one.second_chances).to_string(),
            ];
            ReportRow::of_table(Section::Flash, &cells[0], &cells)
        })
    }

    /// Per moment: how often it was aimed at under Forebay.
    fn moment_rows(&self) -> impl Iterator<Item = ReportRow> {
        let mut moments: BTreeMap<(&str, &str), Vec<&Cycle>> = BTreeMap::new();
        for cycle in &self.cycles {
            if place(&cycle.workload) < WORKLOADS.len() {
                let of = moments.entry((&*cycle.moment, &*cycle.workload));
                of.or_default().push(cycle);
            }
        }
        moments.into_iter().map(|((moment, workload), cycles)| {
            let s = Sums::of(cycles.into_iter());
            let numbers = [s.cycles, s.reached, s.acknowledged, s.lossy];
            let name = cycle::name(workload, self.machine);
            let mut cells = vec![moment.to_owned(), name.clone()];
            cells.extend(numbers.iter().map(u64::to_string));
            ReportRow::of_table(Section::Moments, &name, &cells)
        })
    }
}

/// A workload's place in the report.
fn place(name: &str) -> usize {
    WORKLOADS
        .iter()
        .chain(&CONTROLS)
        .position(|workload| workload.name == name)
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lab::PoolOn, ledger::Verdict};

    /// The report of one cycle of a workload.
    fn of_one(workload: &'static str, lost: u64, unusable: Option<&str>) -> Report {
        let cycle = Cycle {
            workload: workload.into(),
            machine: MachineKind::Namespace,
            seed: 3,
            number: 0,
            pool: PoolOn::Memory,
            moment: "at a random moment".into(),
            reached: true,
            cut_after: vec![1.0],
            seconds: 1.0,
            acknowledged: 9,
            unflushed: 0,
            dropped: 0,
            verdict: Verdict {
                lost,
                ..Verdict::default()
            },
            unusable: unusable.map(str::to_owned),
            flash: None,
        };
        let run = Report {
            command: "make powercut".to_owned(),
            seeds: vec![1],
            commit: "a".to_owned(),
            accelerator: "namespace".to_owned(),
            machine: MachineKind::Namespace,
            seconds: 1,
            cycles: Vec::new(),
            unexpected: Vec::new(),
        };
        Report::new(run, vec![cycle])
    }

    #[test]
    fn a_machine_that_failed_shows_no_loss_of_most_controls() {
        let failed = Some("nothing happened for 60s");
        let unmounted =
            Some("LAB failed: the disk: mounting /dev/vda on /data failed: Bad message");
        for (workload, lost, unusable, good) in [
            ("redis-eatmydata", 1, None, true),
            ("redis-eatmydata", 0, None, false),
            ("redis-eatmydata", 0, failed, false),
            ("store-released-early", 0, failed, true),
            ("store-released-early", 0, None, false),
            ("redis-always", 0, failed, false),
            ("redis", 0, failed, false),
            // No file system, and nothing that a control could show.
            ("redis", 0, unmounted, false),
            ("redis-eatmydata", 0, unmounted, false),
            ("store-released-early", 0, unmounted, false),
        ] {
            let report = of_one(workload, lost, unusable);
            assert_eq!(report.good(), good, "{workload} {lost} {unusable:?}");
        }
    }
}
