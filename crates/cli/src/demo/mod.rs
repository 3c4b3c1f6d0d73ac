//! `forebay demo`: the papers' workloads in every variant, and a store and a Redis that are killed.

mod redis;

use crate::{
    bench::{clean_up_on_signals, default_dir},
    failure::Failure,
    internal, output,
    progress::Progress,
    size,
};
use clap::Args;
use forebay_bench::{
    crash::{Storm, Strike},
    data::fresh_seed,
    device::Effort,
    report::{self, PAPER, Table, figure, grouped},
    rounds::Span,
    scratch::{PoolSource, ScratchDir, ScratchPool},
    wisckey::{self, Config, Limit, Report},
};
use forebay_store::Variant;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// See it at work: speed, and a store that is killed and loses nothing
#[derive(Args)]
#[command(
    long_about = "Makes an emulated pool in memory and stores in a temporary directory, and runs the paper's workload \
                  (Puts of 4 KiB under random 8-byte keys, one thread) for a few seconds in each variant: a sync at each \
                  Put, none at all (unsafe), one buffer in the pool, two. Then another process writes to a store, \
                  telling this one of every Put that was acknowledged, and is killed with SIGKILL in the middle; the store is \
                  reopened, and every acknowledged Put is looked for. Then the same with an unmodified Redis under \
                  `forebay run`, if there is one on this machine. Takes about a minute and removes what it \
                  made. Exit status 1 if anything acknowledged is missing.",
    after_long_help = "Example:\n  forebay demo --seconds 5 --dir /mnt/ssd/tmp"
)]
pub struct Demo {
    /// Seconds of each variant, at most
    #[arg(long, value_name = "S", default_value_t = 4.0)]
    seconds: f64,
    /// Where to make the stores, in a directory that is removed again [default: the one for temporary files, if that is on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// Puts of a variant at most: 2 GB.
const OPS_MAX: u64 = 524_288;

#[derive(Serialize)]
struct Shown {
    bench: Report,
    killed: Killed,
    redis: Option<redis::Shown>,
    redis_missing: Option<String>,
}

/// What the killing showed.
#[derive(Serialize)]
struct Killed {
    acknowledged: u64,
    recovered: u64,
    missing: u64,
    in_flight_recovered: u64,
    alive_seconds: f64,
    reopen_seconds: f64,
    wrong: Vec<String>,
}

impl Demo {
    pub fn run(self) -> Result<(), Failure> {
        clean_up_on_signals()?;
        let dir = self.dir.clone().unwrap_or_else(default_dir);
        if !self.json {
            output::print(&introduction(&dir))?;
        }
        let progress = Progress::new();
        let bench = wisckey::run(&[self.config(&dir)?], &progress)?;
        if !self.json {
            output::print(&format!(
                "\n{}{}\n",
                report::device(&bench.device),
                table(&bench)
            ))?;
        }
        let killed = kill(&dir, &progress)?;
        drop(progress);
        if !self.json {
            output::print(&format!("{}\n", killed.human()))?;
        }
        let (redis, redis_missing) = match redis::run(&dir)? {
            Ok(shown) => (Some(shown), None),
            Err(why) => (None, Some(why)),
        };
        let lossless = killed.missing == 0
            && killed.wrong.is_empty()
            && redis.as_ref().is_none_or(redis::Shown::lossless);
        let shown = Shown {
            bench,
            killed,
            redis,
            redis_missing,
        };
        output::report(self.json, &shown, |shown| {
            match (&shown.redis, &shown.redis_missing) {
                (Some(redis), _) => redis.human(),
                (None, why) => format!(
                    "no Redis is shown: {}\n",
                    why.as_deref().unwrap_or_default()
                ),
            }
        })?;
        if lossless {
            Ok(())
        } else {
            Err(Failure::Reported)
        }
    }

    fn config(&self, dir: &Path) -> Result<Config, Failure> {
        // A quarter of what is free: the disk is somebody's.
        let free = free_bytes(dir)?;
        let ops = OPS_MAX.min(free / 4 / Config::default().pair_bytes());
        if ops < 1000 {
            return Err(Failure::Failed(format!(
                "only {} are free under {}; choose another directory with --dir",
                size::show(free),
                dir.display()
            )));
        }
        Ok(Config {
            dir: dir.to_owned(),
            limit: Limit {
                ops: Some(ops),
                seconds: Some(self.seconds),
            },
            rounds: 1,
            effort: Effort::SHORT,
            ..Config::default()
        })
    }
}

fn free_bytes(dir: &Path) -> Result<u64, Failure> {
    let found =
        rustix::fs::statvfs(dir).map_err(|e| Failure::io("looking at", dir.display())(e.into()))?;
    Ok(found.f_bavail * found.f_frsize)
}

fn introduction(dir: &Path) -> String {
    format!(
        "This demonstration uses a pool *emulated in ordinary memory*: what is in it survives the\n\
         death of the process, not a power cut. On persistent memory the same pool survives both.\n\
         The stores are made under {} and removed again.\n\n",
        dir.display()
    )
}

/// The variants, with the paper's ratios beside ours.
fn table(bench: &Report) -> String {
    let mut table = Table::new(&[
        "variant",
        "puts/s",
        "MB/s",
        "p99 µs",
        "x fsync",
        "paper",
        "a write survives",
    ]);
    let fsync = bench
        .row("put", "fsync")
        .map_or(f64::NAN, |row| row.ops_per_s);
    for (variant, paper) in PAPER {
        let Some(row) = bench.row("put", variant) else {
            continue;
        };
        table.row(vec![
            variant.to_owned(),
            figure(Some(row.ops_per_s)),
            figure(Some(row.mb_per_s)),
            figure(row.latency.p99_us),
            format!("{:.2}", row.ops_per_s / fsync),
            format!("{paper:.2}"),
            match variant {
                "fsync" => "a power cut",
                "nosync" => "a crash",
                _ => "what the pool does",
            }
            .to_owned(),
        ]);
    }
    table.render()
}

/// How long the writer lives, in seconds.
const ALIVE: Span = Span { min: 1.0, max: 2.0 };

/// Kills a writer once and compares.
fn kill(dir: &Path, progress: &Progress) -> Result<Killed, Failure> {
    const BUFFERS: u64 = 2;
    const BUFFER_BYTES: u64 = 8 << 20;
    let scratch = ScratchDir::new_in(dir)?;
    let pool = ScratchPool::new(&PoolSource::Emulated, BUFFERS, BUFFER_BYTES, None)?;
    let mut storm = Storm::new(
        internal::command("write")?,
        &scratch.path().join("store"),
        Some(pool.path()),
        Variant::DOUBLE,
        fresh_seed(),
    );
    let limit = Limit {
        ops: None,
        seconds: Some(ALIVE.max),
    };
    progress.follow("a writer, to be killed", limit, &storm.live);
    let Strike {
        verdict,
        alive,
        reopen,
    } = storm.strike(ALIVE)?;
    Ok(Killed {
        acknowledged: verdict.acknowledged,
        recovered: verdict.found - verdict.in_flight_done,
        missing: verdict.keys - verdict.found,
        in_flight_recovered: verdict.in_flight_done,
        alive_seconds: alive.as_secs_f64(),
        reopen_seconds: reopen.as_secs_f64(),
        wrong: verdict.wrong,
    })
}

impl Killed {
    fn human(&self) -> String {
        let mut text = format!(
            "killed with SIGKILL after {:.1} s of writing; reopened in {:.3} s\n\
             acknowledged Puts {:>12}\n\
             recovered         {:>12}\n\
             missing           {:>12}\n",
            self.alive_seconds,
            self.reopen_seconds,
            grouped(self.acknowledged as i64),
            grouped(self.recovered as i64),
            grouped(self.missing as i64)
        );
        for what in &self.wrong {
            text.push_str(&format!("WRONG: {what}\n"));
        }
        if self.in_flight_recovered > 0 {
            text.push_str("(and the Put that was in flight, done but not yet acknowledged)\n");
        }
        text.push_str(if self.missing == 0 && self.wrong.is_empty() {
            "Every acknowledged Put is there, with its value.\n"
        } else {
            "ACKNOWLEDGED PUTS ARE MISSING. This must not happen; please report it.\n"
        });
        text
    }
}
