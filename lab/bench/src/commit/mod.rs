//! `forebay-lab commit`: an append to a pool beside the synced write that it stands for.
//!
//! One thread makes some bytes durable again and again: by a write to a file and an `fdatasync`,
//! and by an append to each pool and its commit, in turns. Of a pool in a file on a disk,
//! [`pages`] measures a commit beside that disk's own write of a page.

mod pages;

use crate::{
    BenchError,
    data::Values,
    device::{self, Effort, Speed},
    report::{self, Column, Table, figure, notes},
    rounds::{in_turn, median},
    scratch::{PoolSource, ScratchDir, ScratchPool},
    units::bytes_name,
};
use forebay_measure::lane::{drain_all, with_drain};
use forebay_pool::{ClaimOptions, Lane};
use pages::Commit;
use serde::Serialize;
use std::{
    fs::File,
    io::IoSlice,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use uuid::Uuid;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the file is, in a scratch directory that is removed again.
    pub dir: PathBuf,
    /// The pools, and their names in the report.
    pub pools: Vec<(String, PoolSource)>,
    /// Bytes that are made durable at once.
    pub sizes: Vec<u64>,
    /// Rounds.
    pub rounds: usize,
    /// Of a turn.
    pub time: Duration,
    /// How thoroughly the device is measured.
    pub effort: Effort,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    bench: &'static str,
    dir: String,
    device: Speed,
    rounds: usize,
    /// Where each pool is, and what an append to it survives.
    pools: Vec<Medium>,
    rows: Vec<Row>,
    /// Of each pool in a file on a disk: a commit beside the disk's own write.
    commits: Vec<Commit>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Medium {
    mode: String,
    pool: String,
    survives: String,
}

/// A size on one medium.
#[derive(Debug, Serialize)]
struct Row {
    bytes: u64,
    mode: String,
    /// Microseconds until it is durable.
    us: f64,
    /// How often it fits into the file's.
    faster: f64,
}

/// Bytes of the file that is written, and of a segment.
const FILE_BYTES: u64 = 4 << 20;
const SEGMENT_BYTES: u64 = 8 << 20;
const SEGMENTS: u16 = 2;

/// Runs it. `note` is told what is being measured.
///
/// # Errors
/// [`BenchError::Config`] for a size that is too large; I/O errors, and those of the pools.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, BenchError> {
    if let Some(bytes) = config.sizes.iter().find(|bytes| **bytes > FILE_BYTES / 2) {
        return Err(BenchError::Config(format!(
            "--sizes: {} at once are too many; take {} at most",
            bytes_name(*bytes),
            bytes_name(FILE_BYTES / 2)
        )));
    }
    let scratch = ScratchDir::new_in(&config.dir)?;
    note("measuring the device");
    let device = device::measure(scratch.path(), config.effort)?;
    let file = Writes::new(scratch.path())?;
    let mut report = Report {
        bench: "commit",
        dir: config.dir.display().to_string(),
        device,
        rounds: config.rounds,
        pools: Vec::new(),
        rows: Vec::new(),
        commits: Vec::new(),
        notes: Vec::new(),
    };
    let mut modes: Vec<(String, Box<dyn Durable>)> = vec![("file".to_owned(), Box::new(file))];
    for (mode, source) in &config.pools {
        let pool = ScratchPool::new(source, SEGMENTS.into(), SEGMENT_BYTES)?;
        report.notes.extend(source.note());
        report.pools.push(Medium {
            mode: mode.clone(),
            pool: source.to_string(),
            survives: pool.pool().durability().to_string(),
        });
        modes.push((mode.clone(), Box::new(Appends::new(pool)?)));
    }
    let measured = measure_all(config, &mut modes, &mut report, note);
    let ended = modes.into_iter().filter_map(|(_, mode)| mode.end());
    report.notes.extend(ended);
    measured.map(|()| report)
}

/// Fills the report's rows.
fn measure_all(
    config: &Config,
    modes: &mut [(String, Box<dyn Durable>)],
    report: &mut Report,
    note: &dyn Fn(&str),
) -> Result<(), BenchError> {
    for &bytes in &config.sizes {
        note(&bytes_name(bytes));
        report.rows.extend(measure(bytes, modes, config)?);
    }
    for (name, mode) in modes {
        report.commits.extend(mode.commits(name, config)?);
    }
    Ok(())
}

/// Where bytes are made durable.
trait Durable {
    /// Makes these bytes durable again and again for so long. The mean time of one, in seconds.
    fn turn(&mut self, values: &Values, time: Duration) -> Result<f64, BenchError>;

    /// A commit beside the disk's own write, where it is a pool that has commits.
    fn commits(&mut self, _name: &str, _config: &Config) -> Result<Option<Commit>, BenchError> {
        Ok(None)
    }

    /// Gives back what is the user's. In words, if that is not possible.
    fn end(self: Box<Self>) -> Option<String> {
        None
    }
}

/// All modes at one size: the file first.
fn measure(
    bytes: u64,
    modes: &mut [(String, Box<dyn Durable>)],
    config: &Config,
) -> Result<Vec<Row>, BenchError> {
    let values = Values::new(usize::try_from(bytes).unwrap_or(usize::MAX));
    let mut us: Vec<Vec<f64>> = modes.iter().map(|_| Vec::new()).collect();
    for round in 0..config.rounds {
        for (mode, us) in in_turn(modes.iter_mut().zip(&mut us), round) {
            us.push(mode.1.turn(&values, config.time)? * 1e6);
        }
    }
    let medians: Vec<f64> = us.iter().map(|us| median(us)).collect();
    let file = medians.first().copied().unwrap_or(f64::NAN);
    let rows = modes.iter().zip(medians).map(|((mode, _), us)| Row {
        bytes,
        mode: mode.clone(),
        us,
        faster: file / us,
    });
    Ok(rows.collect())
}

/// A file that is written and synced.
struct Writes {
    file: File,
    path: PathBuf,
}

impl Writes {
    fn new(dir: &Path) -> Result<Self, BenchError> {
        let path = dir.join("file");
        let failed = || BenchError::io("writing", &path);
        let file = File::create(&path).map_err(failed())?;
        // Its blocks are there, as those of a database's log mostly are.
        let zeros = vec![0; FILE_BYTES as usize];
        file.write_all_at(&zeros, 0).map_err(failed())?;
        file.sync_all().map_err(failed())?;
        Ok(Self { file, path })
    }
}

impl Durable for Writes {
    fn turn(&mut self, values: &Values, time: Duration) -> Result<f64, BenchError> {
        let failed = || BenchError::io("writing", &self.path);
        let begun = Instant::now();
        let (mut done, mut at) = (0, 0);
        while begun.elapsed() < time {
            let value = values.value(done);
            self.file.write_all_at(value, at).map_err(failed())?;
            self.file.sync_data().map_err(failed())?;
            done += 1;
            at = (at + value.len() as u64) % (FILE_BYTES / 2);
        }
        Ok(begun.elapsed().as_secs_f64() / done as f64)
    }
}

/// A lane of a pool that is appended to, and what is in it thrown away.
struct Appends {
    lane: Lane,
    pool: ScratchPool,
}

impl Appends {
    fn new(pool: ScratchPool) -> Result<Self, BenchError> {
        let claim = ClaimOptions::new();
        let claim = claim.segments(SEGMENTS).label("forebay-lab commit");
        let (lane, recovered) = pool.pool().claim(Uuid::new_v4(), &claim)?;
        drop(recovered);
        Ok(Self { lane, pool })
    }

    /// Makes `value` durable.
    fn append(&self, value: &[u8]) -> Result<(), BenchError> {
        const KIND: u16 = 1;
        let lsn = self.lane.append(KIND, &[IoSlice::new(value)]);
        let committed = lsn.and_then(|lsn| self.lane.commit(lsn + 1));
        committed.map_err(BenchError::from)
    }
}

impl Durable for Appends {
    fn turn(&mut self, values: &Values, time: Duration) -> Result<f64, BenchError> {
        /// Appends between two looks at the clock, which costs about as much as a small one.
        const STEP: u64 = 16;
        let step = if self.lane.needs_commit() { 1 } else { STEP };
        with_drain(&self.lane, || {
            let begun = Instant::now();
            let mut appended = 0;
            while begun.elapsed() < time {
                for _ in 0..step {
                    self.append(values.value(appended))?;
                    appended += 1;
                }
            }
            Ok(begun.elapsed().as_secs_f64() / appended as f64)
        })
    }

    fn commits(&mut self, name: &str, config: &Config) -> Result<Option<Commit>, BenchError> {
        let path = self.pool.path();
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        // Of a device there is no other part to write to.
        if !self.lane.needs_commit() || !path.is_file() {
            return Ok(None);
        }
        let values = Values::new(pages::BYTES);
        let mut appended = 0;
        let commit = || {
            let start = Instant::now();
            self.append(values.value(appended))?;
            appended += 1;
            Ok(start.elapsed().as_secs_f64() * 1e6)
        };
        let (rounds, time) = (config.rounds, config.time);
        let measure = || pages::measure(name, dir, rounds, time, commit);
        with_drain(&self.lane, measure).map(Some)
    }

    fn end(self: Box<Self>) -> Option<String> {
        let drained = drain_all(&self.lane).is_ok();
        let kept = "the lane \"forebay-lab commit\" could not be given back to the pool";
        (!drained || !self.lane.remove()).then(|| kept.to_owned())
    }
}

/// The report for people.
#[must_use]
pub fn table(report: &Report) -> String {
    let columns: [Column<&Row>; 4] = [
        ("bytes", |row| row.bytes.to_string()),
        ("where", |row| row.mode.clone()),
        ("µs until durable", |row| figure(Some(row.us))),
        ("x the file", |row| figure(Some(row.faster))),
    ];
    let mut text = report::device(&report.device);
    for pool in &report.pools {
        text.push_str(&format!(
            "{}: {}: {}\n",
            pool.mode, pool.pool, pool.survives
        ));
    }
    text.push_str(&format!(
        "file: a write and an fdatasync; medians of {} round{}\n\n{}",
        report.rounds,
        if report.rounds == 1 { "" } else { "s" },
        Table::of(&columns, &report.rows).render()
    ));
    if !report.commits.is_empty() {
        text.push_str(&pages::table(&report.commits));
    }
    text + &notes(&report.notes)
}
