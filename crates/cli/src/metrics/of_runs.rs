//! Figures of runs, as their supervisors say them. A run is its program and its process id: several
//! runs of a program are one `sum by (program)`.

use super::{
    MetricsSnapshot,
    families::{FamilyTable, ReadFamily, families},
};
use forebay_files::supervisor::{
    FoundRuns, PatternSum, RunFrontEnd, RunLaneStatus, SupervisorStatus,
};

/// Of all that a search found, of this user or of all.
const MACHINE: FamilyTable<FoundRuns> = families! {
    &[], |it: &FoundRuns|
    Gauge "runs", Things, "Runs whose supervisor answers" => it.statuses.len();
    Gauge "silent_runs", Things, "Runs whose supervisor does not answer: it is stopped, or of another version"
        => it.silent.len();
    Gauge "orphaned_runs", Things, "Runs that lost their supervisor: each sync of theirs is a real one"
        => it.orphaned.len();
    Gauge "waiting_pools", Things, "Pools with records of a run that was cut off, to be recovered"
        => it.waiting.len();
};

/// The runs that there are.
const INFO: FamilyTable<()> = families! {
    &["program", "pid", "pool", "persistence", "front_end"], |_run: &()|
    Info "run", Things, "The run's pool, the losses that it survives, and the front end that sees the program's calls"
        => 1_u64;
};

/// Of each run.
const RUN: FamilyTable<SupervisorStatus> = families! {
    &["program", "pid"], |run: &SupervisorStatus|
    Gauge "uptime", Seconds, "Time since the run began" => run.uptime_seconds;
    Gauge "degraded", Things, "1 if the run absorbs nothing though it should, or not any more"
        => !run.degraded.is_empty();
    Gauge "processes", Things, "Processes of the program that absorb"
        => run.processes.iter().filter(|it| !it.ended).count();
    Gauge "plain_files", Things, "Files that a pattern names and that stay plain in a process"
        => run.plain.len();
};

/// Of each run that has a lane: a process of it has opened a log.
const LANE: FamilyTable<RunLaneStatus> = families! {
    RUN.labels, |lane: &RunLaneStatus|
    Counter "order_syncs", Things, "Syncs of the program that were real ones, to keep the order with other files"
        => lane.order_syncs;
    Counter "real_syncs", Things, "Syncs of files that the supervisor made" => lane.real_syncs;
    Counter "real_sync", Seconds, "Time that these took" => lane.real_sync_seconds;
    Counter "waits", Things, "Times that a process waited because the disk was behind" => lane.waits;
    Gauge "lane", Bytes, "The pool's bytes that the run has" => lane.bytes;
    Gauge "lag", Bytes, "Bytes that are acknowledged and not yet on the disk" => lane.drain_lag_bytes;
    Gauge "lag", Seconds, "Age of the oldest of that" => lane.lag_seconds;
    Histogram "commit", Seconds, "Commits to a pool on a disk; of the writes to a pool in memory one in 64"
        => lane.durations.commit.clone();
    Histogram "drain", Seconds, "Full segments, to be synced and released behind the program"
        => lane.durations.drain.clone();
    Histogram "wait", Seconds, "Processes that waited because the disk was behind, when they went on"
        => lane.durations.wait.clone();
    Histogram "retire", Seconds, "Files, to be made plain" => lane.durations.retire.clone();
};

/// Of each pattern of such a run.
const PATTERN: FamilyTable<PatternSum> = families! {
    &["program", "pid", "pattern"], |sum: &PatternSum|
    Gauge "absorbed_files", Things, "Files that are absorbed now" => sum.files;
    Gauge "failing_files", Things, "Files that cannot be synced at present: their syncs fail"
        => sum.failing_files;
    Counter "absorbed_writes", Things, "Writes that went to the pool" => sum.writes;
    Counter "absorbed", Bytes, "Bytes of these writes" => sum.bytes;
    Counter "absorbed_syncs", Things, "Syncs that the program asked for; real ones of these are order_syncs"
        => sum.syncs;
};

/// Families of a search's findings, if there was one.
pub(super) fn of_machine(all: &MetricsSnapshot) -> Vec<ReadFamily> {
    let found = all.found.iter().map(|found| (Vec::new(), found));
    MACHINE.read(&found.collect::<Vec<_>>())
}

/// Of the runs.
pub(super) fn of_runs(all: &MetricsSnapshot) -> Vec<ReadFamily> {
    let runs: Vec<&SupervisorStatus> = all.all_runs().collect();
    let labels = |run: &SupervisorStatus| vec![run.program.clone(), run.pid.to_string()];
    let infos = runs.iter().map(|run| (info(run, labels(run)), &()));
    let each = runs.iter().map(|run| (labels(run), *run));
    let lanes = (runs.iter()).filter_map(|run| Some((labels(run), run.lane.as_ref()?)));
    let lanes: Vec<(Vec<String>, &RunLaneStatus)> = lanes.collect();
    let patterns = lanes.iter().flat_map(|(labels, lane)| {
        let of_pattern = |sum: &'_ PatternSum| [labels.clone(), vec![sum.pattern.clone()]].concat();
        lane.absorbed.iter().map(move |sum| (of_pattern(sum), sum))
    });
    let patterns: Vec<(Vec<String>, &PatternSum)> = patterns.collect();
    let mut families = INFO.read(&infos.collect::<Vec<_>>());
    families.extend(RUN.read(&each.collect::<Vec<_>>()));
    families.extend(LANE.read(&lanes));
    families.extend(PATTERN.read(&patterns));
    families
}

fn info(run: &SupervisorStatus, mut labels: Vec<String>) -> Vec<String> {
    let front_end = match run.front_end {
        RunFrontEnd::Library => "library",
        RunFrontEnd::Agent => "agent",
        RunFrontEnd::Nobody => "nobody",
    };
    labels.extend([
        run.pool.to_string_lossy().into_owned(),
        run.persistence.clone(),
        front_end.to_owned(),
    ]);
    labels
}

/// For the documentation's test.
#[cfg(test)]
pub(super) fn told() -> Vec<[String; 4]> {
    let mut all = MACHINE.told();
    all.extend(INFO.told());
    all.extend(RUN.told());
    all.extend(LANE.told());
    all.extend(PATTERN.told());
    all
}
