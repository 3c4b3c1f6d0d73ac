//! The first half of the demo: a store in its variants, and one whose writer is killed.

use forebay_bench::{
    BenchError,
    data::{Values, fresh_seed, key},
    processes::{Process, Watched},
    report::{Table, figure, grouped},
    scratch::{PoolSource, ScratchDir, ScratchPool},
};
use forebay_pool::Pool;
use forebay_store::{Durability, Store, StoreError, StoreOptions};
use rustix::process::Signal;
use serde::Serialize;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Variants, and what a Put in each survives that was acknowledged.
const VARIANTS: [(Durability, &str); 4] = [
    (Durability::Fsync, "a power cut"),
    (Durability::NoSync, "a crash"),
    (Durability::SINGLE, "what the pool does"),
    (Durability::DOUBLE, "what the pool does"),
];

pub const VALUE_BYTES: usize = 4096;
const SEGMENTS: u64 = 2;
const SEGMENT_BYTES: u64 = 8 << 20;
/// How long the writer lives.
const ALIVE: Duration = Duration::from_millis(1500);

/// A variant.
#[derive(Serialize)]
pub struct Row {
    variant: String,
    survives: &'static str,
    puts: u64,
    puts_per_s: f64,
    over_fsync: f64,
}

/// What the killing showed.
#[derive(Serialize)]
pub struct Killed {
    acknowledged: u64,
    recovered: u64,
    reopen_seconds: f64,
}

fn pool() -> Result<ScratchPool, BenchError> {
    ScratchPool::new(&PoolSource::Emulated, SEGMENTS, SEGMENT_BYTES)
}

fn open(dir: &Path, pool: &Pool, variant: Durability) -> Result<Store, StoreError> {
    let pool = matches!(variant, Durability::Buffered(_)).then_some(pool);
    StoreOptions::new().durability(variant).open(dir, pool)
}

/// Puts new keys for `seconds` into a store of each variant, but not more than `puts`. The clock
/// stops when everything is on the disk.
pub fn variants(dir: &Path, seconds: f64, puts: u64) -> Result<Vec<Row>, BenchError> {
    let values = Values::new(VALUE_BYTES);
    let mut rows = Vec::new();
    let mut fsync = f64::NAN;
    for (variant, survives) in VARIANTS {
        eprintln!("a store, {variant}");
        let scratch = ScratchDir::new_in(dir)?;
        let pool = pool()?;
        let store = open(&scratch.path().join("store"), pool.pool(), variant)?;
        let seed = fresh_seed();
        let begun = Instant::now();
        let mut done = 0;
        while done < puts && begun.elapsed().as_secs_f64() < seconds {
            store.put(&key(seed, done), values.value(done))?;
            done += 1;
        }
        store.close()?;
        let puts_per_s = done as f64 / begun.elapsed().as_secs_f64();
        if variant == Durability::Fsync {
            fsync = puts_per_s;
        }
        rows.push(Row {
            variant: variant.to_string(),
            survives,
            puts: done,
            puts_per_s,
            over_fsync: puts_per_s / fsync,
        });
    }
    Ok(rows)
}

/// The variants as a table.
pub fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&["variant", "puts/s", "x fsync", "a write survives"]);
    for row in rows {
        table.row(vec![
            row.variant.clone(),
            figure(Some(row.puts_per_s)),
            figure(Some(row.over_fsync)),
            row.survives.to_owned(),
        ]);
    }
    table.render()
}

/// Gives the keys that the writer puts, and the process that reopens the store looks for.
const SEED: u64 = 0x0F0E_BA11;

/// Puts pair after pair into the store `dir`, and says a line of each once it is acknowledged.
pub fn write_until_killed(dir: &Path, pool: &Path) -> Result<(), BenchError> {
    let pool = forebay_pool::PoolOptions::new().open(pool)?;
    let store = open(dir, &pool, Durability::DOUBLE)?;
    let values = Values::new(VALUE_BYTES);
    let mut output = std::io::stdout().lock();
    for done in 0.. {
        store.put(&key(SEED, done), values.value(done))?;
        output
            .write_all(b"\n")
            .map_err(BenchError::io("reporting to", Path::new("the parent")))?;
    }
    Ok(())
}

/// Starts a writer, which is `program`, kills it, and looks for everything that it was promised.
pub fn kill(program: &Path, dir: &Path) -> Result<Killed, BenchError> {
    eprintln!("a writer, to be killed");
    let scratch = ScratchDir::new_in(dir)?;
    let pool = pool()?;
    let store = scratch.path().join("store");
    let mut writer = Process::spawn(
        Command::new(program)
            .args(["internal", "write"])
            .args([&store, pool.path()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped()),
    )?;
    let handle = Watched::clone(writer.handle());
    let mut acknowledged = 0;
    if let Some(lines) = writer.child().stdout.take() {
        let mut lines = BufReader::new(lines).lines().map_while(Result::ok);
        // A machine with much to do takes its time to start a program: it lives this long from its
        // first Put.
        acknowledged += u64::from(lines.next().is_some());
        let killer = thread::spawn(move || {
            thread::sleep(ALIVE);
            handle.signal(Signal::KILL);
        });
        // What it had said when it was killed is read to the end.
        acknowledged += lines.count() as u64;
        // It does nothing that could panic.
        drop(killer.join());
    }
    writer.wait(Duration::from_secs(60))?;
    let begun = Instant::now();
    let store = open(&store, pool.pool(), Durability::DOUBLE)?;
    let reopen_seconds = begun.elapsed().as_secs_f64();
    let values = Values::new(VALUE_BYTES);
    let mut recovered = 0;
    for number in 0..acknowledged {
        let found = store.get(&key(SEED, number))?;
        recovered += u64::from(found.as_deref() == Some(values.value(number)));
    }
    store.close()?;
    Ok(Killed {
        acknowledged,
        recovered,
        reopen_seconds,
    })
}

impl Killed {
    /// True if nothing acknowledged is missing.
    pub fn lossless(&self) -> bool {
        self.acknowledged == self.recovered && self.acknowledged > 0
    }

    pub fn human(&self) -> String {
        format!(
            "killed with SIGKILL after {:.1} s; reopened in {:.3} s\n\
             acknowledged Puts {:>12}\n\
             recovered         {:>12}\n{}",
            ALIVE.as_secs_f64(),
            self.reopen_seconds,
            grouped(self.acknowledged as i64),
            grouped(self.recovered as i64),
            if self.lossless() {
                "Every acknowledged Put is there, with its value.\n"
            } else {
                "ACKNOWLEDGED PUTS ARE MISSING. This must not happen; please report it.\n"
            }
        )
    }
}
