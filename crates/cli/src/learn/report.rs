//! The findings on a program: for people, as JSON, and as a profile.

use super::{
    advice::{LearnedUse, manner},
    name_pattern::pattern_of,
    price::{self, PoolPrice},
};
use crate::output::printable;
use forebay_files::policy::{AbsorbPolicy, matches};
use forebay_probe::table::{Table, figure, grouped};
use forebay_trace::{
    Trace,
    files::{CallTimes, TracedFile},
};
use serde::Serialize;
use std::{collections::BTreeMap, os::unix::ffi::OsStrExt, path::PathBuf};

/// The findings on a program.
#[derive(Serialize)]
pub struct LearnReport {
    program: String,
    /// The profile that `forebay run` would choose by the program's name.
    profile: String,
    seconds: f64,
    /// Syncs of files, directories, mappings and whole file systems.
    syncs: u64,
    /// All syncs' times added up: several threads may wait at once.
    sync_seconds: f64,
    /// Of these, what copies to a pool could take the place of.
    gaining_syncs: u64,
    gaining_seconds: f64,
    /// The price of these with pools on this machine.
    pools: Vec<PoolPrice>,
    files: Vec<LearnedFiles>,
    whole_file_system_syncs: u64,
    mapped_syncs: u64,
    /// Rings and contexts of asynchronous writes, which are not seen.
    unseen_rings: u64,
    /// Calls on files of which there are too many.
    unnoted_calls: u64,
    /// Threads and processes that could not be looked at.
    unseen_tasks: u64,
}

/// Files whose names match one pattern, and of which the same becomes.
#[derive(Serialize)]
struct LearnedFiles {
    pattern: String,
    /// One of them.
    example: String,
    files: usize,
    syncs: u64,
    p50_us: u64,
    p99_us: u64,
    seconds: f64,
    writes: u64,
    bytes: u64,
    written: &'static str,
    under_forebay_run: LearnedUse,
}

impl LearnReport {
    /// Of a program of this name, for which `forebay run` has this policy.
    pub fn of(program: &str, trace: &Trace, policy: &AbsorbPolicy) -> Self {
        let mut groups: BTreeMap<(String, LearnedUse), Vec<&TracedFile>> = BTreeMap::new();
        for file in trace.files.iter().filter(|file| file.syncs.count() > 0) {
            let learned = LearnedUse::of(file, policy);
            let group = groups.entry((pattern_of(&file.path), learned));
            group.or_default().push(file);
        }
        let pages = pages_of(trace, policy);
        let names_pages =
            |pattern: &str| pages.iter().any(|path| matches(pattern.as_bytes(), path));
        let mut files: Vec<LearnedFiles> = (groups.into_iter())
            .map(|((pattern, learned), files)| {
                let is_ambiguous = learned == LearnedUse::Log && names_pages(&pattern);
                let learned = if is_ambiguous {
                    LearnedUse::Ambiguous
                } else {
                    learned
                };
                LearnedFiles::of(pattern, learned, &files)
            })
            .collect();
        files.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let others = [&trace.whole_syncs, &trace.mapped_syncs];
        let other_seconds: f64 = others.iter().map(|times| seconds(times)).sum();
        let other_syncs: u64 = others.iter().map(|times| times.count()).sum();
        let gaining = || files.iter().filter(|files| files.under_forebay_run.gains());
        Self {
            program: program.to_owned(),
            profile: policy.profile.clone(),
            seconds: trace.took.as_secs_f64(),
            syncs: files.iter().map(|files| files.syncs).sum::<u64>() + other_syncs,
            sync_seconds: files.iter().map(|files| files.seconds).sum::<f64>() + other_seconds,
            gaining_syncs: gaining().map(|files| files.syncs).sum(),
            gaining_seconds: gaining()
                .map(|files| files.seconds)
                .fold(0.0, |sum, more| sum + more),
            pools: Vec::new(),
            whole_file_system_syncs: trace.whole_syncs.count(),
            mapped_syncs: trace.mapped_syncs.count(),
            unseen_rings: trace.rings,
            unnoted_calls: trace.unnoted_calls,
            unseen_tasks: trace.unseen_tasks,
            files,
        }
    }

    /// Measures pools on this machine for the syncs that they could replace: in memory, and in the
    /// directories of `beside`.
    pub fn measure_pools(&mut self, beside: &[PathBuf]) {
        let gaining = self.files.iter();
        let gaining = gaining.filter(|files| files.under_forebay_run.gains());
        let bytes: u64 = gaining.map(|files| files.bytes).sum();
        if let Some(each) = bytes.checked_div(self.gaining_syncs) {
            self.pools = price::measure(self.gaining_syncs, each, beside);
        }
    }

    /// For people. `is_running`: it was not started here.
    pub fn human(&self, is_running: bool) -> String {
        let verb = if is_running {
            "was looked at for"
        } else {
            "ran for"
        };
        let mut text = format!(
            "{} {verb} {} s; its {} syncs took {} s{}\n\n",
            self.program,
            figure(Some(self.seconds)),
            grouped(self.syncs as i64),
            figure(Some(self.sync_seconds)),
            self.share(self.sync_seconds),
        );
        let columns: [forebay_probe::table::Column<&LearnedFiles>; 8] = [
            ("file", |row| row.pattern.clone()),
            ("files", |row| grouped(row.files as i64)),
            ("syncs", |row| grouped(row.syncs as i64)),
            ("p50 µs", |row| grouped(row.p50_us as i64)),
            ("p99 µs", |row| grouped(row.p99_us as i64)),
            ("total s", |row| figure(Some(row.seconds))),
            ("written", |row| row.written.to_owned()),
            ("under forebay run", |row| {
                row.under_forebay_run.in_short().to_owned()
            }),
        ];
        text += &Table::of(&columns, &self.files).paragraph();
        for line in self.remarks() {
            text += &line;
            text.push('\n');
        }
        printable(&text)
    }

    fn share(&self, of: f64) -> String {
        match self.seconds > 0.0 {
            true => format!(" ({:.0} %)", of / self.seconds * 100.0),
            false => String::new(),
        }
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        match self.gaining_syncs {
            0 => remarks.push("No file here would gain from forebay run.".to_owned()),
            syncs => remarks.push(format!(
                "A copy to a pool could take the place of {} syncs: {} s{}.",
                grouped(syncs as i64),
                figure(Some(self.gaining_seconds)),
                self.share(self.gaining_seconds),
            )),
        }
        let prices = self.pools.iter();
        remarks.extend(prices.map(|price| price.sentence(self.gaining_seconds)));
        let of_use = |wanted| {
            self.files
                .iter()
                .filter(move |files| files.under_forebay_run == wanted)
        };
        if of_use(LearnedUse::Absorbed).next().is_some() {
            let program = &self.program;
            remarks.push(format!(
                "Try it (profile {}): forebay run --emulated 64MiB -- {program} …",
                self.profile
            ));
        }
        let logs: Vec<String> = of_use(LearnedUse::Log)
            .map(|files| format!("--absorb {}", quoted(&files.pattern)))
            .collect();
        if !logs.is_empty() {
            let program = &self.program;
            let logs = logs.join(" ");
            remarks.push(format!(
                "Try it: forebay run --emulated 64MiB {logs} -- {program} …"
            ));
        }
        if self.unseen_rings > 0 {
            remarks.push(format!(
                "It writes asynchronously (io_uring or Linux AIO, {} times set up), which was not seen; forebay run absorbs nothing of that, \
                 unless its profile says refuse_io_uring.",
                self.unseen_rings
            ));
        }
        if self.unnoted_calls + self.unseen_tasks > 0 {
            remarks.push(format!(
                "Not all was seen: {} calls on too many files, {} threads or processes that this user may not trace.",
                self.unnoted_calls, self.unseen_tasks
            ));
        }
        if self.whole_file_system_syncs > 0 {
            remarks.push(format!(
                "{} syncs were of whole file systems (sync, syncfs): they stay as they are.",
                self.whole_file_system_syncs
            ));
        }
        remarks
    }

    /// A configuration file with a profile for the program's logs; `None` if there are none.
    pub fn profile(&self) -> Option<String> {
        let logs = || {
            self.files
                .iter()
                .filter(|files| files.under_forebay_run.gains())
        };
        // TOML's strings are JSON's, but for this letter.
        let in_toml = |text: Option<String>| text.map(|text| text.replace('\x7f', "\\u007f"));
        let list = |patterns: Vec<&str>| in_toml(serde_json::to_string(&patterns).ok());
        let absorb: Vec<&str> = logs().map(|files| files.pattern.as_str()).collect();
        let preallocated: Vec<&str> = logs()
            .filter(|files| files.written == "preallocated")
            .map(|files| files.pattern.as_str())
            .collect();
        if absorb.is_empty() {
            return None;
        }
        let name = in_toml(serde_json::to_string(&self.program).ok())?;
        let mut text = format!(
            "# Files that forebay learn saw {} sync. Keep only logs.\n[profile.{name}]\nprograms = [{name}]\nabsorb = {}\n",
            self.program.escape_debug(),
            list(absorb)?,
        );
        if !preallocated.is_empty() {
            text += &format!("preallocated = {}\n", list(preallocated)?);
        }
        Some(text)
    }
}

impl LearnedFiles {
    fn of(pattern: String, learned: LearnedUse, files: &[&TracedFile]) -> Self {
        let mut times = CallTimes::default();
        files.iter().for_each(|file| times.add(&file.syncs));
        let most_written = files.iter().max_by_key(|file| file.writes);
        Self {
            pattern,
            example: files
                .first()
                .map_or_else(String::new, |file| file.path.display().to_string()),
            files: files.len(),
            syncs: times.count(),
            p50_us: times.quantile_us(0.5),
            p99_us: times.quantile_us(0.99),
            seconds: seconds(&times),
            writes: files.iter().map(|file| file.writes).sum(),
            bytes: files.iter().map(|file| file.bytes).sum(),
            written: most_written.map_or("-", |file| manner(file)),
            under_forebay_run: learned,
        }
    }
}

fn seconds(times: &CallTimes) -> f64 {
    times.total().as_secs_f64()
}

/// The paths of all files that are no logs, whether they were synced or not.
fn pages_of<'a>(trace: &'a Trace, policy: &AbsorbPolicy) -> Vec<&'a [u8]> {
    let is_page = |file: &&TracedFile| {
        matches!(
            LearnedUse::of(file, policy),
            LearnedUse::Pages | LearnedUse::Mapped
        )
    };
    (trace.files.iter().filter(is_page))
        .map(|file| file.path.as_os_str().as_bytes())
        .collect()
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
