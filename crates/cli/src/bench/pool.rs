//! `forebay bench pool`: an append to a pool beside the synced write that it stands for.

use super::{
    commits::{self, Commit},
    report::number,
};
use crate::{failure::Failure, measuring::Options, output, size};
use clap::Args;
use forebay_measure::{
    MeasureError,
    data::Values,
    disk::{self, Speed},
    lane::{drain_all, with_drain},
    rounds::{in_turn, median},
    scratch::{ScratchDir, ScratchPool},
    table::{self, Column, Table, figure},
};
use forebay_pool::{ClaimOptions, Lane, Uuid};
use serde::Serialize;
use std::{
    fs::File,
    io::IoSlice,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Measure durable appends to a pool beside synced writes to a file
#[derive(Args)]
#[command(
    long_about = "Measures what it costs to make some bytes durable: by a write to a file and an fdatasync, on the disk under --dir, and by an append \
                  to a pool. One thread does them in turns, round after round; figures are means of a turn, and medians of the rounds. Of a pool in a file on a \
                  disk, a commit is shown beside that disk's own write of a page.\n\n\
                  Without --pool, the pool is emulated in ordinary memory, and removed again.",
    after_long_help = "Examples:\n  \
        forebay bench pool --dir /var/lib\n  \
        forebay bench pool --pool /mnt/pmem/forebay.pool --json\n  \
        forebay bench pool --pool-disk /fast --sizes 100,16k"
)]
pub struct Pool {
    /// Bytes that are made durable at once
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse_positive, default_value = "64,512,4k,64k")]
    sizes: Vec<u64>,
    #[command(flatten)]
    options: Options,
}

#[derive(Serialize)]
struct Report {
    bench: &'static str,
    #[serde(serialize_with = "forebay_files::readable")]
    dir: PathBuf,
    device: Speed,
    rounds: usize,
    /// Where each pool is, and what an append to it survives.
    pools: Vec<Medium>,
    rows: Vec<Row>,
    /// Of each pool in a file on a disk: a commit beside the disk's own write.
    commits: Vec<Commit>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Medium {
    mode: String,
    pool: String,
    survives: String,
}

/// A size on one medium.
#[derive(Serialize)]
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

impl Pool {
    pub fn run(self) -> Result<(), Failure> {
        let options = &self.options;
        if let Some(bytes) = self.sizes.iter().find(|bytes| **bytes > FILE_BYTES / 2) {
            return Err(Failure::Usage(format!(
                "--sizes: {} at once are too many; take {} at most",
                size::show(*bytes),
                size::show(FILE_BYTES / 2)
            )));
        }
        let dir = options.dir();
        let scratch = ScratchDir::new_in(&dir)?;
        eprintln!("measuring the disk under {}", dir.display());
        let device = disk::measure(scratch.path(), options.effort())?;
        let file = Writes::new(scratch.path())?;
        let mut report = Report {
            bench: "pool",
            dir,
            device,
            rounds: options.rounds(),
            pools: Vec::new(),
            rows: Vec::new(),
            commits: Vec::new(),
            notes: Vec::new(),
        };
        let mut modes: Vec<(String, Box<dyn Durable>)> = vec![("file".to_owned(), Box::new(file))];
        for (mode, source) in options.named_pools() {
            let pool = ScratchPool::new(&source, SEGMENTS.into(), SEGMENT_BYTES)?;
            report.notes.extend(source.note());
            report.pools.push(Medium {
                mode: mode.clone(),
                pool: source.to_string(),
                survives: pool.pool().durability().to_string(),
            });
            modes.push((mode, Box::new(Appends::new(pool)?)));
        }
        let measured = self
            .sizes
            .iter()
            .try_for_each(|&bytes| -> Result<(), Failure> {
                eprintln!("{}", size::show(bytes));
                report.rows.extend(measure(bytes, &mut modes, options)?);
                Ok(())
            })
            .and_then(|()| {
                for (name, mode) in &mut modes {
                    report.commits.extend(mode.commits(name, options)?);
                }
                Ok(())
            });
        let ended = modes.into_iter().filter_map(|(_, mode)| mode.end());
        report.notes.extend(ended);
        measured?;
        output::report(options.json, &report, human)
    }
}

/// Where bytes are made durable.
trait Durable {
    /// Makes these bytes durable again and again for so long. The mean time of one, in seconds.
    fn turn(&mut self, values: &Values, time: Duration) -> Result<f64, Failure>;

    /// A commit beside the disk's own write, where it is a pool that has commits.
    fn commits(&mut self, _name: &str, _options: &Options) -> Result<Option<Commit>, Failure> {
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
    options: &Options,
) -> Result<Vec<Row>, Failure> {
    let time = time(options);
    let values = Values::new(usize::try_from(bytes).unwrap_or(usize::MAX));
    let mut us: Vec<Vec<f64>> = modes.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds() {
        for (mode, us) in in_turn(modes.iter_mut().zip(&mut us), round) {
            us.push(mode.1.turn(&values, time)? * 1e6);
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

/// Of a turn.
fn time(options: &Options) -> Duration {
    Duration::from_millis(if options.quick { 10 } else { 300 })
}

/// A file that is written and synced.
struct Writes {
    file: File,
    path: PathBuf,
}

impl Writes {
    fn new(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join("file");
        let failed = || MeasureError::io("writing", &path);
        let file = File::create(&path).map_err(failed())?;
        // Its blocks are there, as those of a database's log mostly are.
        let zeros = vec![0; FILE_BYTES as usize];
        file.write_all_at(&zeros, 0).map_err(failed())?;
        file.sync_all().map_err(failed())?;
        Ok(Self { file, path })
    }
}

impl Durable for Writes {
    fn turn(&mut self, values: &Values, time: Duration) -> Result<f64, Failure> {
        let failed = || MeasureError::io("writing", &self.path);
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
    fn new(pool: ScratchPool) -> Result<Self, Failure> {
        let claim = ClaimOptions::new();
        let claim = claim.segments(SEGMENTS).label("forebay bench pool");
        let (lane, recovered) = pool.pool().claim(Uuid::new_v4(), &claim)?;
        drop(recovered);
        Ok(Self { lane, pool })
    }

    /// Makes `value` durable.
    fn append(&self, value: &[u8]) -> Result<(), Failure> {
        const KIND: u16 = 1;
        let lsn = self.lane.append(KIND, &[IoSlice::new(value)]);
        let committed = lsn.and_then(|lsn| self.lane.commit(lsn + 1));
        committed.map_err(|error| MeasureError::from(error).into())
    }
}

impl Durable for Appends {
    fn turn(&mut self, values: &Values, time: Duration) -> Result<f64, Failure> {
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

    fn commits(&mut self, name: &str, options: &Options) -> Result<Option<Commit>, Failure> {
        let path = self.pool.path();
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        // Of a device there is no other part to write to.
        if !self.lane.needs_commit() || !path.is_file() {
            return Ok(None);
        }
        let values = Values::new(commits::BYTES);
        let mut appended = 0;
        let commit = || {
            let start = Instant::now();
            self.append(values.value(appended))?;
            appended += 1;
            Ok(start.elapsed().as_secs_f64() * 1e6)
        };
        let (rounds, time) = (options.rounds(), time(options));
        let measure = || commits::measure(name, dir, rounds, time, commit);
        with_drain(&self.lane, measure).map(Some)
    }

    fn end(self: Box<Self>) -> Option<String> {
        let drained = drain_all(&self.lane).is_ok();
        let kept = "the lane \"forebay bench pool\" could not be given back to the pool";
        (!drained || !self.lane.remove()).then(|| kept.to_owned())
    }
}

fn human(report: &Report) -> String {
    let columns: [Column<&Row>; 4] = [
        ("bytes", |row| row.bytes.to_string()),
        ("where", |row| row.mode.clone()),
        ("µs until durable", |row| figure(Some(row.us))),
        ("x the file", |row| figure(Some(row.faster))),
    ];
    let mut text = table::disk(&report.device);
    for pool in &report.pools {
        text.push_str(&format!(
            "{}: {}: {}\n",
            pool.mode, pool.pool, pool.survives
        ));
    }
    text.push_str(&format!(
        "file: a write and an fdatasync; medians of {}\n\n{}",
        number(report.rounds, "round"),
        Table::of(&columns, &report.rows).render()
    ));
    if !report.commits.is_empty() {
        text.push_str(&commits::human(&report.commits));
    }
    text + &table::notes(&report.notes)
}
