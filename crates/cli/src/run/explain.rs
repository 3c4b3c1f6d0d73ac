//! The run's sentences: the files that it absorbs, and the work of its recovery.

use crate::{output::fields, size};
use forebay_files::{
    policy::{AbsorbPolicy, patterns_in_short},
    replay::{FileReport, LaneOutcome, LaneReport},
    supervisor::{FileStatus, OutsideWatch, PlainFile, RunLaneStatus, SupervisorStatus},
};
use forebay_probe::table::{Table, figure, grouped};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The end of a run: each file, its outcome, and the absorbed writes.
pub fn summary(policy: &AbsorbPolicy, status: &SupervisorStatus) -> String {
    let mut text = format!(
        "forebay: profile {}: files that match {} are absorbed; all others are left as they are\n",
        policy.profile,
        patterns_in_short(&policy.patterns)
    );
    text.push_str(&format!("forebay: {}\n", outside(status.outside_writer)));
    text.push_str(&body(status));
    text
}

/// The end of a run all of whose writes came to their files, in one line; none if there were none.
/// What was written to a file that became plain may be unsynced: nobody but the program synced it.
pub fn clean_end(status: &SupervisorStatus) -> Option<String> {
    const PLAIN: &str =
        "became plain; later writes there are durable only by the program's own syncs";
    let plain: BTreeSet<&Path> = (status.plain.iter())
        .map(|file| file.path.as_path())
        .collect();
    let written = status.files.iter().filter(|file| file.writes > 0);
    let (became, stayed): (Vec<_>, Vec<_>) =
        written.partition(|file| file.retired || plain.contains(file.path.as_path()));
    let paths = |files: Vec<&FileStatus>| -> usize {
        let paths: BTreeSet<_> = files.iter().map(|file| file.path.as_path()).collect();
        paths.len()
    };
    let of_files = |n: usize| if n == 1 { "file" } else { "files" };
    // A program that has damaged the memory of the run may have left any count there.
    let counts = status.files.iter().map(|file| file.syncs);
    let syncs = counts.fold(0, u64::saturating_add);
    let what = match (paths(stayed), paths(became)) {
        (0, 0) => return None,
        (0, became) => format!(": {became} absorbed {} {PLAIN}", of_files(became)),
        (stayed, became) => {
            let of = of_files(stayed);
            let also = match became {
                0 => String::new(),
                _ => format!("; {became} {PLAIN}"),
            };
            format!(
                ", and every synced write to {stayed} absorbed {of} is on the disk: the pool holds nothing of it{also}"
            )
        }
    };
    let saved = grouped(syncs as i64);
    Some(format!(
        "the program has ended{what}. {saved} syncs were saved"
    ))
}

/// The treatment of processes outside, in one line.
pub fn outside(outside: OutsideWatch) -> String {
    format!(
        "a process outside of this run that opens an absorbed file for writing {}",
        outside.in_words()
    )
}

/// Files and syncs.
fn body(status: &SupervisorStatus) -> String {
    let programs: BTreeSet<String> = status
        .processes
        .iter()
        .map(|process| process.program.clone())
        .collect();
    let mut text: String = (status.degraded.iter())
        .map(|why| format!("DEGRADED: {why}\n"))
        .collect();
    if status.files.iter().any(|file| file.writes > 0) {
        let programs: Vec<String> = programs.into_iter().collect();
        text.push_str(&format!(
            "absorbed what was written by {}\n",
            programs.join(", ")
        ));
    }
    text.push_str(&files(status));
    text.push_str(&plain(&status.plain));
    text.push_str(&status.lane.as_ref().map(syncs).unwrap_or_default());
    text
}

/// A run that is going on.
pub fn running(status: &SupervisorStatus) -> String {
    let lane = status.lane.clone().unwrap_or_default();
    let (lag, waiting) = (lane.drain_lag_bytes, lane.segments_waiting);
    let living = status.processes.iter().filter(|process| !process.ended);
    let mut text = format!(
        "{} (forebay {}), running {}\n",
        status.program,
        status.pid,
        duration(status.uptime_seconds)
    );
    text.push_str(&fields(&[
        (
            "pool",
            format!("{}, which {}", status.pool.display(), status.survives),
        ),
        ("absorbs", patterns_in_short(&status.patterns)),
        ("calls seen by", status.seen_by()),
        (
            "who else writes",
            format!("{} (a process outside)", status.outside_writer.in_words()),
        ),
        (
            "lane",
            format!(
                "{} of the pool, for {} processes",
                size::show(lane.bytes),
                living.count()
            ),
        ),
        (
            "the disk is behind",
            format!("{} in {waiting} segments", size::show(lag)),
        ),
    ]));
    text.push_str(&body(status));
    text
}

/// A file's absorbed writes in all processes together.
#[derive(Default)]
struct FileSum {
    is_plain: bool,
    writes: u64,
    bytes: u64,
    syncs: u64,
    error: Option<String>,
}

impl FileSum {
    fn add(&mut self, file: &FileStatus) {
        self.is_plain |= file.retired;
        self.writes = self.writes.saturating_add(file.writes);
        self.bytes = self.bytes.saturating_add(file.bytes);
        self.syncs = self.syncs.saturating_add(file.syncs);
        self.error = file.error.clone().or(self.error.take());
    }

    fn state(self) -> String {
        match (self.error, self.is_plain, self.writes) {
            (Some(error), ..) => format!("CANNOT BE SYNCED: {error}"),
            (None, true, 0) => "plain".to_owned(),
            (None, true, _) => "absorbed, then plain".to_owned(),
            (None, false, 0) => "not written to".to_owned(),
            (None, false, _) => "absorbed".to_owned(),
        }
    }
}

/// A path on one line, whatever is in it.
fn shown(path: &Path) -> String {
    let path = path.display().to_string();
    path.chars()
        .flat_map(|c| match c.is_control() {
            true => c.escape_default().collect::<Vec<_>>(),
            false => vec![c],
        })
        .collect()
}

/// Files that get a line of their own.
const FILES_SHOWN: usize = 30;

fn files(status: &SupervisorStatus) -> String {
    let mut sums: BTreeMap<String, FileSum> = BTreeMap::new();
    for file in &status.files {
        sums.entry(shown(&file.path)).or_default().add(file);
    }
    if sums.is_empty() && !(status.plain.is_empty() && status.degraded.is_empty()) {
        return "no file was absorbed\n".to_owned();
    }
    if sums.is_empty() {
        return "no file was absorbed: none that matches was opened for writing\n".to_owned();
    }
    let count = |number: u64| grouped(i64::try_from(number).unwrap_or(i64::MAX));
    // Those with errors first, then those that absorbed most.
    let mut sums: Vec<(String, FileSum)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| (sum.error.is_none(), std::cmp::Reverse(sum.bytes)));
    let rest = sums.split_off(sums.len().min(FILES_SHOWN));
    let mut table = Table::new(&[
        "file",
        "writes",
        "bytes",
        "syncs that cost nothing",
        "state",
    ]);
    for (path, sum) in sums {
        table.row(vec![
            path,
            count(sum.writes),
            size::show(sum.bytes),
            count(sum.syncs),
            sum.state(),
        ]);
    }
    if !rest.is_empty() {
        let sum =
            |figure: fn(&FileSum) -> u64| rest.iter().map(|(_, sum)| figure(sum)).sum::<u64>();
        table.row(vec![
            format!("and {} more", rest.len()),
            count(sum(|sum| sum.writes)),
            size::show(sum(|sum| sum.bytes)),
            count(sum(|sum| sum.syncs)),
            String::new(),
        ]);
    }
    table.render()
}

/// At the end of a run in which no file was absorbed: why.
pub fn without_effect(status: &SupervisorStatus) -> String {
    match status.degraded.first() {
        Some(why) => why.replacen("nothing is absorbed", "nothing was absorbed", 1),
        None => "nothing was absorbed: no file that matches was opened for writing".to_owned(),
    }
}

/// Files that match and stay plain, with the reason.
fn plain(files: &[PlainFile]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["stays plain", "in", "because"]);
    for file in files.iter().take(FILES_SHOWN) {
        table.row(vec![
            shown(&file.path),
            format!("{} {}", file.program, file.pid),
            file.reason.clone(),
        ]);
    }
    let rest = files.len().saturating_sub(FILES_SHOWN);
    let more = format!("and {rest} more that stay plain\n");
    table.render() + if rest > 0 { &more } else { "" }
}

/// The syncs behind.
fn syncs(lane: &RunLaneStatus) -> String {
    let (real, seconds, waits) = (lane.real_syncs, lane.real_sync_seconds, lane.waits);
    let mut text = String::new();
    if real > 0 {
        text = format!(
            "{real} real syncs behind, {} s in all\n",
            figure(Some(seconds))
        );
    }
    if lane.order_syncs > 0 {
        text.push_str(&format!(
            "{} of the database's syncs were real ones: a file's name, size or attributes had changed before them\n",
            lane.order_syncs
        ));
    }
    if waits > 0 {
        text.push_str(&format!(
            "{waits} times the database waited because the pool was full; more or larger segments may help (--segments)\n"
        ));
    }
    if let Some(why) = &lane.left {
        text.push_str(&format!("LEFT IN THE POOL: {why}\n"));
    }
    text
}

fn duration(seconds: f64) -> String {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    match seconds {
        s if s < MINUTE => format!("{s:.0} s"),
        s if s < HOUR => format!("{:.0} min", s / MINUTE),
        s if s < 2.0 * DAY => format!("{:.1} h", s / HOUR),
        s => format!("{:.1} days", s / DAY),
    }
}

/// True if everything that is absorbed can be brought to its files, and the run serves its purpose.
pub fn is_well(status: &SupervisorStatus) -> bool {
    let is_left = status.lane.as_ref().is_some_and(|lane| lane.left.is_some());
    !is_left && status.degraded.is_empty() && status.files.iter().all(|file| file.error.is_none())
}

/// True if the lane's records are still in the pool, for the user to decide.
pub fn is_refused(report: &LaneReport) -> bool {
    report.outcome == LaneOutcome::Refused
}

/// Recovery's outcome for each lane that had anything in it, a line each, and one more for each
/// file that was refused, or of which there is more to tell.
pub fn lanes(reports: &[LaneReport]) -> Vec<String> {
    reports.iter().flat_map(lane).collect()
}

fn lane(report: &LaneReport) -> Vec<String> {
    let records: u64 = report.files.iter().map(|file| file.records).sum();
    let bytes: u64 = report.files.iter().map(|file| file.bytes).sum();
    let held = format!(
        "{} in {records} writes to {} files",
        size::show(bytes),
        report.files.len()
    );
    let done = match report.outcome {
        LaneOutcome::Empty => return Vec::new(),
        LaneOutcome::InUse => "in use, left alone".to_owned(),
        LaneOutcome::Synced => synced(report, &held),
        LaneOutcome::Replayed => format!("{held}: written to them and synced"),
        LaneOutcome::Refused => format!("{held}: REFUSED, and kept in the pool"),
        LaneOutcome::Newer => format!(
            "{held}: older than they are, since the program went on without the pool when its disk had failed, and dropped"
        ),
        LaneOutcome::Discarded => format!("{held}: GIVEN UP, as asked for"),
    };
    let head = format!("lane {} of {}: {done}", report.lane, report.owner);
    let refused = report.files.iter().filter_map(|file| {
        let why = file.refused.as_ref().or(file.note.as_ref())?;
        let path = shown(&file.path);
        // Most reasons begin with it.
        Some(match why.starts_with(&*path) {
            true => format!("lane {}: {why}", report.lane),
            false => format!("lane {}: {path}: {why}", report.lane),
        })
    });
    std::iter::once(head).chain(refused).collect()
}

/// The line on synced files: each file that was found was compared with the pool's records of it,
/// and its line says how one differs.
fn synced(report: &LaneReport, held: &str) -> String {
    let count = |is: fn(&FileReport) -> bool| report.files.iter().filter(|file| is(file)).count();
    let (kept, missing, all) = (
        count(|file| file.is_kept),
        count(|file| file.is_missing),
        report.files.len(),
    );
    let found = match kept {
        0 if missing == all => String::new(),
        0 if missing == 0 => ", which hold them: synced".to_owned(),
        0 => "; the files that were found hold them: synced".to_owned(),
        _ => format!("; {kept} of {all} DIFFER, and are newer: synced as they are"),
    };
    let missed = match missing {
        0 => String::new(),
        1 => "; 1 file was not found: its whole file system was synced".to_owned(),
        _ => format!("; {missing} files were not found: their whole file systems were synced"),
    };
    format!("{held}{found}{missed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_differs_is_not_said_to_hold_the_writes() {
        let file = |is_kept: bool, note: &str| FileReport {
            path: "/d/a.aof".into(),
            records: 2,
            bytes: 100,
            is_kept,
            is_missing: !is_kept && !note.is_empty(),
            refused: None,
            note: (!note.is_empty()).then(|| note.to_owned()),
        };
        let said = |files| {
            let (lane, owner, outcome) = (0, "redis 7".to_owned(), LaneOutcome::Synced);
            lanes(&[LaneReport {
                lane,
                owner,
                outcome,
                files,
            }])
        };
        let alike = said(vec![file(false, ""), file(false, "")]);
        assert!(
            alike.len() == 1 && alike[0].ends_with("which hold them: synced"),
            "{alike:?}"
        );
        let differ = said(vec![file(true, "it lacks some"), file(false, "")]);
        assert!(differ[0].contains("1 of 2 DIFFER"), "{differ:?}");
        assert!(differ[1].ends_with("it lacks some"), "{differ:?}");
        let missing = said(vec![file(false, "/d/a.aof is not there any more")]);
        assert!(
            missing[0].ends_with("1 files; 1 file was not found: its whole file system was synced"),
            "{missing:?}"
        );
        assert_eq!(missing[1], "lane 0: /d/a.aof is not there any more");
    }

    #[test]
    fn what_was_refused_is_told_file_by_file() {
        let file = |path: &str, refused: Option<&str>| FileReport {
            path: path.into(),
            records: 2,
            bytes: 1 << 20,
            is_kept: false,
            is_missing: false,
            refused: refused.map(str::to_owned),
            note: None,
        };
        let report = LaneReport {
            lane: 3,
            owner: "redis-server 77".to_owned(),
            outcome: LaneOutcome::Refused,
            files: vec![file("/d/a.aof", None), file("/d/b.aof", Some("it is gone"))],
        };
        assert!(is_refused(&report));
        let lines = lanes(&[report]);
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].contains("redis-server 77")
                && lines[0].contains("2 MiB in 4 writes to 2 files"),
            "{lines:?}"
        );
        assert!(lines[1].contains("/d/b.aof: it is gone"), "{lines:?}");
    }
}
