//! `forebay-lab demo`: the papers' workloads in every variant, and a store and a Redis that are
//! killed.

mod redis;
pub mod store;

use crate::{
    failed,
    measuring::{default_dir, own_program},
};
use clap::Args;
use forebay_bench::{
    device::{self, Effort},
    report,
};
use forebay_cli::{failure::Failure, output, size};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// See it at work: speed, and a store that is killed and loses nothing
#[derive(Args)]
#[command(
    long_about = "Makes an emulated pool in memory and stores in a temporary directory, and puts \
                  4 KiB under random 8-byte keys, with one thread, for a few seconds in each variant: a sync at each \
                  Put, none at all (unsafe), one buffer in the pool, two. Then another process writes to a store, \
                  telling this one of every Put that was acknowledged, and is killed with SIGKILL in the middle; the store is \
                  reopened, and every acknowledged Put is looked for. Then the same with an unmodified Redis under \
                  `forebay run`, if there is one on this machine. Takes about a minute and removes what it \
                  made. Exit status 1 if anything acknowledged is missing.",
    after_long_help = "Example:\n  forebay-lab demo --seconds 5 --dir /mnt/ssd/tmp"
)]
pub struct Demo {
    /// Seconds of each variant, at most
    #[arg(long, value_name = "S", default_value_t = 4.0)]
    seconds: f64,
    /// Where to make the stores, in a directory that is removed again [default: the one for
    /// temporary files, if that is on a disk]
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
    device: device::Speed,
    variants: Vec<store::Row>,
    killed: store::Killed,
    redis: Option<redis::Shown>,
    redis_missing: Option<String>,
}

impl Demo {
    pub fn run(self) -> Result<(), Failure> {
        let forebay = crate::forebay()?;
        let dir = self.dir.clone().unwrap_or_else(default_dir);
        let puts = puts_max(&dir)?;
        self.say(|| introduction(&dir))?;
        let device = device::measure(&dir, Effort::SHORT).map_err(|error| failed(error.into()))?;
        let variants = store::variants(&dir, self.seconds, puts).map_err(failed)?;
        self.say(|| format!("\n{}{}\n", report::device(&device), store::table(&variants)))?;
        let killed = store::kill(&own_program()?, &dir).map_err(failed)?;
        self.say(|| format!("{}\n", killed.human()))?;
        let (redis, redis_missing) = match redis::run(&forebay, &dir).map_err(failed)? {
            Ok(shown) => (Some(shown), None),
            Err(why) => (None, Some(why)),
        };
        let lossless = killed.lossless() && redis.as_ref().is_none_or(redis::Shown::lossless);
        let shown = Shown {
            device,
            variants,
            killed,
            redis,
            redis_missing,
        };
        output::verdict(self.json, &shown, lossless, |shown| {
            match (&shown.redis, &shown.redis_missing) {
                (Some(redis), _) => redis.human(),
                (None, why) => format!(
                    "no Redis is shown: {}\n",
                    why.as_deref().unwrap_or_default()
                ),
            }
        })
    }

    /// Says something to people.
    fn say(&self, what: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.json {
            true => Ok(()),
            false => output::print(&what()),
        }
    }
}

/// Puts of a variant at most. A quarter of what is free: the user needs the rest.
fn puts_max(dir: &Path) -> Result<u64, Failure> {
    let free = free_bytes(dir)?;
    let puts = OPS_MAX.min(free / 4 / store::VALUE_BYTES as u64);
    if puts < 1000 {
        return Err(Failure::Failed(format!(
            "only {} are free under {}; choose another directory with --dir",
            size::show(free),
            dir.display()
        )));
    }
    Ok(puts)
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
