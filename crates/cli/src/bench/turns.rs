//! A database, plain, with libeatmydata, and under `forebay run`, in turns: round after round, each time on fresh files.

use crate::{
    failure::Failure,
    measuring::{default_dir, own_program},
    output,
};
use clap::Args;
use forebay_measure::{
    disk::{self, Effort, Speed},
    processes::{find_eatmydata, preload},
    rounds::{Span, in_turn, median_round, span},
    scratch::{PoolSource, ScratchDir, ScratchPool},
    server::forebay_run,
    table::{self, Table, figure},
    user::User,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Where a database and its pools are, and how often it is measured.
#[derive(Args)]
pub struct Options {
    /// Where databases are made, in a directory that is removed again [default: the one for temporary files, if that is on a disk]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Use this pool instead of one that is emulated in memory
    #[arg(long, value_name = "PATH")]
    pub pool: Option<PathBuf>,
    /// Besides, measure with the pool on a disk, in a file that is made in DIR and removed again; may be given several times
    #[arg(long, value_name = "DIR")]
    pub pool_disk: Vec<PathBuf>,
    /// Rounds, of which the median counts [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Toy size: shows that it runs, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
    /// Measure with libeatmydata beside, where that is installed
    #[arg(skip = true)]
    pub eatmydata: bool,
}

impl Options {
    /// Where it is measured.
    pub fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(default_dir)
    }

    /// How often.
    pub fn rounds(&self) -> usize {
        self.rounds
            .map_or(if self.quick { 1 } else { 3 }, |rounds| rounds as usize)
    }

    /// How much is written to know the disk.
    pub fn effort(&self) -> Effort {
        match self.quick {
            true => Effort::QUICK,
            false => Effort::SHORT,
        }
    }

    /// The pools that it is measured with: their names in reports, and where they are.
    pub fn pools(&self) -> Vec<(String, PoolSource)> {
        let source = self.pool.clone();
        let source = source.map_or(PoolSource::Emulated, PoolSource::At);
        let disks = self.pool_disk.iter().zip(1..).map(|(dir, number)| {
            let name = match number {
                1 => "forebay_disk".to_owned(),
                _ => format!("forebay_disk_{number}"),
            };
            (name, PoolSource::OnDisk(dir.clone()))
        });
        [("forebay".to_owned(), source)]
            .into_iter()
            .chain(disks)
            .collect()
    }
}

/// What a round of one mode gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Operations a second.
    pub ops_per_s: f64,
    /// The mean latency of an operation, microseconds.
    pub mean_us: Option<f64>,
    /// 99 of 100 took no longer, microseconds.
    pub p99_us: Option<f64>,
}

/// What stands around a database in a round of one mode. Files and pool are gone when this is dropped.
pub struct Around {
    dir: ScratchDir,
    /// What stands before the database's program on its command line. May be empty.
    pub wrapper: Vec<OsString>,
    /// Environment on top of ours.
    pub environment: Vec<(OsString, OsString)>,
    _pool: Option<ScratchPool>,
}

impl Around {
    /// A fresh directory, the user's if there is one.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// A database, and the load that it gets.
pub trait Database {
    /// Its name in reports.
    const NAME: &'static str;
    /// What is counted.
    const COUNTED: &'static str;
    /// What a plain one promises of a write that it acknowledged.
    const PLAIN: &'static str;

    /// The load, in words.
    fn load(&self) -> String;

    /// Whom the server, and what stands before it, runs as, if not as ourselves.
    fn user(&self) -> Option<&User> {
        None
    }

    /// Makes in `dir`, which is the user's, what all rounds begin with.
    fn prepare(&mut self, _dir: &Path) -> Result<(), Failure> {
        Ok(())
    }

    /// Starts it and measures it.
    fn measure(&self, around: &Around) -> Result<Sample, Failure>;
}

/// What was measured.
#[derive(Serialize)]
pub struct Report {
    bench: &'static str,
    load: String,
    dir: PathBuf,
    device: Speed,
    rounds: usize,
    pub rows: Vec<Row>,
    ratios: BTreeMap<String, f64>,
    notes: Vec<String>,
    #[serde(skip)]
    counted: &'static str,
}

/// A mode, by its median round.
#[derive(Serialize)]
pub struct Row {
    pub mode: String,
    /// Where its pool is.
    pool: Option<String>,
    /// What an acknowledged write survives.
    survives: String,
    pub ops_per_s: f64,
    ops_per_s_span: Span,
    mean_us: Option<f64>,
    pub p99_us: Option<f64>,
}

/// Segments that a database gets.
const SEGMENTS: u16 = 2;
/// Bytes of a segment of a pool that is made.
const SEGMENT_BYTES: u64 = 8 << 20;
/// Segments of a pool in memory that is made: a run takes more than its two while the disk is behind.
const IN_MEMORY: u64 = 8;
/// Segments of a pool on a disk that is made: 128 MiB, as docs/operations.md recommends.
const ON_DISK: u64 = 16;

/// Of what libeatmydata acknowledges.
const EATEN: &str = "survives a process crash, not a power cut: fsync does nothing";

/// One mode: its name, what it runs with, and what its rounds gave.
struct Mode {
    name: String,
    /// Where its pool is, if it has one.
    source: Option<PoolSource>,
    /// A library that is loaded before the program, if there is one.
    library: Option<PathBuf>,
    survives: String,
    samples: Vec<Sample>,
}

impl Mode {
    fn new(name: &str, survives: &str) -> Self {
        Self {
            name: name.to_owned(),
            source: None,
            library: None,
            survives: survives.to_owned(),
            samples: Vec::new(),
        }
    }

    /// All of them, the plain one first.
    fn all(plain: &str, options: &Options) -> Vec<Self> {
        let library = options.eatmydata.then(find_eatmydata).flatten();
        let eaten = library.map(|library| Self {
            library: Some(library),
            ..Self::new("eatmydata", EATEN)
        });
        // What these survive, their pools say.
        let ours = options.pools().into_iter().map(|(name, source)| Self {
            source: Some(source),
            ..Self::new(&name, "")
        });
        [Self::new("plain", plain)]
            .into_iter()
            .chain(eaten)
            .chain(ours)
            .collect()
    }
}

/// Measures `database` in all modes.
pub fn run<D: Database>(mut database: D, options: &Options) -> Result<Report, Failure> {
    let dir = options.dir();
    let scratch = ScratchDir::new_in(&dir)?;
    if let Some(user) = database.user() {
        user.let_in(scratch.path())?;
    }
    eprintln!("measuring the disk under {}", dir.display());
    let device = disk::measure(scratch.path(), options.effort())?;
    eprintln!("preparing {}", D::NAME);
    let template = ScratchDir::new_in(scratch.path())?;
    give(database.user(), template.path())?;
    database.prepare(template.path())?;
    let mut modes = Mode::all(D::PLAIN, options);
    let rounds = options.rounds();
    for round in 0..rounds {
        for mode in in_turn(&mut modes, round) {
            let (now, name) = (round + 1, &mode.name);
            eprintln!("{}, round {now} of {rounds}: {name}", D::NAME);
            let sample = measure(&database, scratch.path(), mode)?;
            mode.samples.push(sample);
        }
    }
    Ok(Report::of::<D>(&database, dir, device, rounds, modes))
}

fn give(user: Option<&User>, path: &Path) -> Result<(), Failure> {
    if let Some(user) = user {
        user.give(path)?;
    }
    Ok(())
}

/// One round of one mode.
fn measure<D: Database>(database: &D, scratch: &Path, mode: &mut Mode) -> Result<Sample, Failure> {
    let dir = ScratchDir::new_in(scratch)?;
    let mut around = Around {
        environment: vec![("FOREBAY_RUN_DIR".into(), dir.path().join("run").into())],
        dir,
        wrapper: Vec::new(),
        _pool: None,
    };
    if let Some(source) = &mode.source {
        let segments = match source {
            PoolSource::OnDisk(_) => ON_DISK,
            _ => IN_MEMORY,
        };
        let pool = ScratchPool::new(source, segments, SEGMENT_BYTES)?;
        mode.survives = pool.pool().durability().to_string();
        if !matches!(source, PoolSource::At(_)) {
            give(database.user(), pool.path().parent().unwrap_or(pool.path()))?;
        }
        around.wrapper = forebay_run(&own_program()?, Some((pool.path(), SEGMENTS)), []);
        around._pool = Some(pool);
    }
    if let Some(library) = &mode.library {
        around
            .environment
            .push(("LD_PRELOAD".into(), preload(library)));
    }
    give(database.user(), around.dir())?;
    // What the round before left for the disk to do is not this one's.
    rustix::fs::sync();
    database.measure(&around)
}

impl Report {
    fn of<D: Database>(
        database: &D,
        dir: PathBuf,
        device: Speed,
        rounds: usize,
        modes: Vec<Mode>,
    ) -> Self {
        let emulated = modes
            .iter()
            .filter_map(|mode| mode.source.as_ref()?.note())
            .collect();
        let rows: Vec<Row> = modes.into_iter().filter_map(Row::of).collect();
        let plain = rows.first().map_or(f64::NAN, |row| row.ops_per_s);
        let ratios = rows
            .iter()
            .skip(1)
            .map(|row| (format!("{}_over_plain", row.mode), row.ops_per_s / plain))
            .collect();
        Self {
            bench: D::NAME,
            load: database.load(),
            dir,
            device,
            rounds,
            rows,
            ratios,
            notes: emulated,
            counted: D::COUNTED,
        }
    }

    /// As a table.
    pub fn human(&self) -> String {
        let counted = format!("{}/s", self.counted);
        let mut table = Table::new(&[
            self.bench, &counted, "min-max", "mean µs", "p99 µs", "x plain",
        ]);
        let mut survives = String::new();
        for row in &self.rows {
            let name = match &row.pool {
                Some(pool) => format!("forebay run, pool {pool}"),
                None => row.mode.clone(),
            };
            survives.push_str(&format!("{name}: {}\n", row.survives));
            let ratio = self.ratios.get(&format!("{}_over_plain", row.mode));
            let span = row.ops_per_s_span;
            table.row(vec![
                name,
                figure(Some(row.ops_per_s)),
                format!("{}-{}", figure(Some(span.min)), figure(Some(span.max))),
                figure(row.mean_us),
                figure(row.p99_us),
                figure(ratio.copied()),
            ]);
        }
        let mut text = format!(
            "{}{}; medians of {}\n\n{}\n{survives}",
            table::disk(&self.device),
            self.load,
            number(self.rounds, "round"),
            table.render()
        );
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }

    /// Prints it.
    pub fn print(&self, json: bool) -> Result<(), Failure> {
        output::report(json, self, Self::human)
    }
}

/// `1 round`, `3 rounds`.
pub fn number(of: usize, what: &str) -> String {
    match of {
        1 => format!("1 {what}"),
        _ => format!("{of} {what}s"),
    }
}

impl Row {
    fn of(mode: Mode) -> Option<Self> {
        let rates: Vec<f64> = mode.samples.iter().map(|s| s.ops_per_s).collect();
        let median = median_round(mode.samples, |sample| sample.ops_per_s)?;
        Some(Self {
            mode: mode.name,
            pool: mode.source.map(|source| source.to_string()),
            survives: mode.survives,
            ops_per_s: median.ops_per_s,
            ops_per_s_span: span(&rates),
            mean_us: median.mean_us,
            p99_us: median.p99_us,
        })
    }
}
