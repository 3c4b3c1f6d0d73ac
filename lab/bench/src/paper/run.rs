//! Running experiments one after the other: progress, an estimate, and going on after an
//! interruption.

use super::{
    catalogue::{self, Experiment},
    fabric, flash_tier,
    lab::Lab,
    loss,
    machine::Machine,
    mixes,
    outcome::{FORMAT, Measured, Outcome},
    parts::FinishedParts,
    policies, puts,
    size::Size,
    write_ahead,
};
use crate::{
    BenchError, device,
    scratch::{PoolSource, memory_dir},
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Gives the rows of all experiments of a measurement.
type Measure = fn(&Lab<'_>) -> Result<Measured, BenchError>;

/// How figures are measured, by the names that the catalogue has for it.
const MEASUREMENTS: [(&str, Measure); 18] = [
    ("puts", puts::variants),
    ("peers", puts::peers),
    ("buffers", puts::buffers),
    ("policies", policies::sizes),
    ("rewrite", policies::during_rewrite),
    ("latency", policies::slower_memories),
    ("loss", loss::run),
    ("memory", mixes::memory),
    ("mixes", mixes::run),
    ("flash_tier", flash_tier::run),
    ("flash_loads", flash_tier::loads::run),
    ("flash_in_guest", flash_tier::guest::run),
    ("flash_restart", flash_tier::restart::run),
    ("link_bench", write_ahead::link_bench),
    ("tpcc", write_ahead::tpcc),
    ("random_writes", fabric::random_writes),
    ("device", fabric::device),
    ("fam", fabric::fam),
];

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Ids; none means all.
    pub experiments: Vec<String>,
    /// How much of each.
    pub size: Size,
    /// Where the results go.
    pub out: PathBuf,
    /// Leave out what is in `out` already, of the same size.
    pub resume: bool,
    /// Where databases and stores are made, in scratch directories that are removed again.
    pub dir: PathBuf,
    /// Where pools come from.
    pub pool: PoolSource,
    /// How to start this program.
    pub forebay: PathBuf,
}

impl Plan {
    /// The experiments that are asked for, in the catalogue's order.
    ///
    /// # Errors
    /// [`BenchError::Config`] for an id that there is not.
    pub fn chosen(&self) -> Result<Vec<&'static Experiment>, BenchError> {
        let all = &*catalogue::ALL;
        let is_unknown = |id: &&String| Experiment::named(id).is_none();
        if let Some(id) = self.experiments.iter().find(is_unknown) {
            let ids: Vec<&str> = all.iter().map(|it| it.id.as_str()).collect();
            return Err(BenchError::Config(format!(
                "there is no experiment {id}; there are {} (forebay-lab paper --list says what they are)",
                ids.join(", ")
            )));
        }
        let is_asked =
            |it: &&Experiment| self.experiments.is_empty() || self.experiments.contains(&it.id);
        Ok(all.iter().filter(is_asked).collect())
    }

    /// True if its result is there already, and to be kept.
    fn has(&self, experiment: &Experiment) -> Result<bool, BenchError> {
        let there = Outcome::load(&self.out, &experiment.id);
        Ok(self.resume && there?.is_some_and(|outcome| outcome.size == self.size))
    }
}

/// About how long steps take, in words.
fn estimate(steps: &[Vec<&Experiment>], size: Size) -> String {
    let seconds = steps.iter().map(|step| {
        let [toy, quick, paper] = step[0].seconds;
        size.pick(toy, quick, paper)
    });
    match seconds.sum::<u32>() {
        seconds if seconds < 100 => format!("{seconds} s"),
        seconds if seconds < 6000 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Runs what `plan` says; returns the files written. `say` is told which experiment begins and how
/// long all will take, `note` of the progress of each. What was finished before an error or an
/// interruption stays.
///
/// # Errors
/// Unknown experiments and want of room before anything starts; then the first thing that goes
/// wrong. A peer that is not installed is a row.
pub fn run(
    plan: &Plan,
    note: &dyn Fn(&str),
    say: &dyn Fn(&str),
) -> Result<Vec<PathBuf>, BenchError> {
    let mut left = Vec::new();
    let chosen = plan.chosen()?;
    for experiment in &chosen {
        left.extend((!plan.has(experiment)?).then_some(*experiment));
    }
    for dir in [&plan.out, &plan.dir] {
        fs::create_dir_all(dir).map_err(BenchError::io("creating", dir))?;
    }
    if left.len() < chosen.len() {
        let (there, out) = (chosen.len() - left.len(), plan.out.display());
        say(&format!("{there} experiments are in {out} already"));
    }
    let needs = check_room(&left, plan.size, &plan.dir)?;
    let steps = steps(left);
    if !steps.is_empty() {
        say(&format!(
            "{} steps at {}, about {}; {needs}",
            steps.len(),
            plan.size,
            estimate(&steps, plan.size)
        ));
    }
    // Before anything of ours runs.
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let busy = busy(&load);
    if let Some(busy) = &busy {
        say(&format!("warning: {busy}"));
    }
    let mut written = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let ids: Vec<&str> = step.iter().map(|it| it.id.as_str()).collect();
        say(&format!(
            "[{}/{}] {}: {}; about {}, {} left in all",
            at + 1,
            steps.len(),
            ids.join(", "),
            step[0].title,
            estimate(&steps[at..=at], plan.size),
            estimate(&steps[at..], plan.size)
        ));
        written.extend(measure(plan, step, note, busy.as_deref())?);
    }
    Ok(written)
}

/// Experiments of one measurement are one step.
fn steps(experiments: Vec<&'static Experiment>) -> Vec<Vec<&'static Experiment>> {
    let mut steps: Vec<Vec<&'static Experiment>> = Vec::new();
    for experiment in experiments {
        let mut same = steps.iter_mut();
        match same.find(|step| step[0].measurement == experiment.measurement) {
            Some(step) => step.push(experiment),
            None => steps.push(vec![experiment]),
        }
    }
    steps
}

/// Measures one step and saves its results.
fn measure(
    plan: &Plan,
    step: &[&'static Experiment],
    note: &dyn Fn(&str),
    busy: Option<&str>,
) -> Result<Vec<PathBuf>, BenchError> {
    let parts = FinishedParts::open(&plan.out, &step[0].id, plan.size, plan.resume)?;
    let lab = Lab {
        parts: &parts,
        dir: &plan.dir,
        pool: &plan.pool,
        forebay: &plan.forebay,
        size: plan.size,
        note,
    };
    let start = Instant::now();
    let started_unix_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let named = |(name, _): &&(&str, Measure)| *name == step[0].measurement;
    let found = MEASUREMENTS.iter().find(named);
    let (_, measure) = found.unwrap_or_else(|| unreachable!("no {}", step[0].measurement));
    let (measured, is_whole) = match measure(&lab) {
        Err(BenchError::Missing(why)) => (Measured::all_missing(step, &why), false),
        measured => (measured?, true),
    };
    let seconds = start.elapsed().as_secs_f64();
    let mut written = Vec::new();
    for experiment in step {
        let (rows, mut notes) = measured.of(experiment);
        notes.extend(busy.map(str::to_owned));
        let outcome = Outcome {
            format: FORMAT,
            experiment: experiment.id.clone(),
            size: plan.size,
            command: command(&experiment.id, plan.size),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::this(),
            device: device::of_rounds(&measured.devices),
            started_unix_s,
            seconds,
            rows,
            notes,
        };
        written.push(outcome.save(&plan.out)?);
    }
    if is_whole {
        parts.end()?;
    }
    Ok(written)
}

/// What to know if the machine has other things to do: `text` is that of /proc/loadavg.
fn busy(text: &str) -> Option<String> {
    const IDLE_MAX: f64 = 0.5;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    (load > IDLE_MAX).then(|| {
        format!("the machine had other things to do: its load average was {load} when the run began, before anything of ours")
    })
}

/// The command that measures an experiment again.
fn command(id: &str, size: Size) -> String {
    let words = [Some("forebay-lab paper"), size.option(), Some(id)];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Checks that there is room for each of `experiments`, one after the other. Gives what they need
/// in words.
fn check_room(experiments: &[&Experiment], size: Size, dir: &Path) -> Result<String, BenchError> {
    let most = |needs: fn(&Experiment) -> [u64; 3]| {
        let mib = experiments.iter().map(|experiment| {
            let [toy, quick, paper] = needs(experiment);
            (size.pick(toy, quick, paper), experiment.id.as_str())
        });
        mib.max().unwrap_or_default()
    };
    let (disk, memory) = (most(|it| it.disk_mib), most(|it| it.memory_mib));
    let on_disk = "give another directory with --dir, or measure less with --quick";
    let in_memory = "make it larger, or measure less with --quick";
    room(dir, disk, on_disk)?;
    room(&memory_dir(), memory, in_memory)?;
    let (disk, memory, dir) = (disk.0, memory.0, dir.display());
    Ok(format!(
        "at most {disk} MiB of disk in {dir}, {memory} MiB of memory"
    ))
}

fn room(dir: &Path, (mib, id): (u64, &str), remedy: &str) -> Result<(), BenchError> {
    let Ok(found) = rustix::fs::statvfs(dir) else {
        return Ok(());
    };
    let free_mib = found.f_bavail.saturating_mul(found.f_frsize) >> 20;
    if free_mib >= mib {
        return Ok(());
    }
    Err(BenchError::Config(format!(
        "{id} needs {mib} MiB in {}, where {free_mib} MiB are free: {remedy}",
        dir.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_is_there() {
        for experiment in catalogue::ALL.iter() {
            let is_its = |(name, _): &(&str, _)| *name == experiment.measurement;
            assert!(MEASUREMENTS.iter().any(is_its), "{}", experiment.id);
        }
    }

    #[test]
    fn a_busy_machine_is_noted_and_an_idle_one_is_not() {
        assert!(
            busy("9.31 4.00 2.00 3/400 1234\n")
                .unwrap()
                .contains("9.31")
        );
        assert_eq!(busy("0.12 4.00 2.00 3/400 1234\n"), None);
        assert_eq!(busy(""), None);
    }

    #[test]
    fn want_of_room_is_said_with_the_need() {
        let dir = tempfile::tempdir().unwrap();
        let refused = room(dir.path(), (u64::MAX, "p1-fig5"), "remedy");
        let error = refused.unwrap_err().to_string();
        assert!(
            error.contains("p1-fig5 needs") && error.contains("MiB are free: remedy"),
            "{error}"
        );
        room(dir.path(), (1, "p1-fig5"), "").unwrap();
    }
}
