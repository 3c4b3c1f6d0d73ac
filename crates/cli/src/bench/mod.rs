//! `forebay bench`: measure the pool, the store, and databases.

mod contest;
mod device;
mod fam;
mod paper;
mod pool;
mod redis;
mod report;
mod rocksdb;
mod sql;
mod wisckey;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use forebay_bench::{device::file_system, processes, scratch};
use forebay_pool::media::Profile;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Command {
    Pool(pool::Pool),
    Device(device::Device),
    Wisckey(wisckey::Wisckey),
    Redis(redis::Redis),
    Rocksdb(rocksdb::Rocksdb),
    Mariadb(sql::Mariadb),
    #[command(name = "postgres")]
    Postgresql(sql::Postgresql),
    Fam(fam::Fam),
    Paper(paper::Paper),
    Report(report::Report),
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        clean_up_on_signals()?;
        match self {
            Self::Pool(pool) => pool.run(),
            Self::Device(device) => device.run(),
            Self::Wisckey(wisckey) => wisckey.run(),
            Self::Redis(redis) => redis.run(),
            Self::Rocksdb(rocksdb) => rocksdb.run(),
            Self::Mariadb(mariadb) => mariadb.run(),
            Self::Postgresql(postgresql) => postgresql.run(),
            Self::Fam(fam) => fam.run(),
            Self::Paper(paper) => paper.run(),
            Self::Report(report) => report.run(),
        }
    }
}

/// Ends processes and removes scratch directories when this one is told to end.
pub fn clean_up_on_signals() -> Result<(), Failure> {
    const INTERRUPTED: i32 = 130;
    ctrlc::set_handler(|| {
        processes::kill_all();
        scratch::remove_all();
        std::process::exit(INTERRUPTED);
    })
    .map_err(|e| Failure::Failed(format!("handling signals: {e}")))
}

/// A directory on a disk, if one is at hand: the system's for temporary files, or else the current one.
pub fn default_dir() -> PathBuf {
    let temporary = std::env::temp_dir();
    match file_system(&temporary) {
        Some(fs) if !fs.is_memory() => temporary,
        _ => PathBuf::from("."),
    }
}

/// This program, for benchmarks that run databases under it.
pub fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(Failure::io("finding", "this program"))
}

/// A slower device's latency.
#[derive(Args)]
pub struct Slowed {
    /// Slow the pool down to a device: dram, nvdimm-n, pcm, xpoint-mm, xpoint-sm, gen-z-uc, gen-z-wt, gen-z-wc
    #[arg(long, value_name = "DEVICE", value_parser = profile)]
    pub profile: Option<Profile>,
}

/// The profile that a name means.
pub fn profile(name: &str) -> Result<Profile, String> {
    Profile::named(name).ok_or_else(|| {
        let names: Vec<&str> = Profile::ALL.iter().map(|p| p.name).collect();
        format!("there is no such device; there are {}", names.join(", "))
    })
}
