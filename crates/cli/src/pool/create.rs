//! `forebay pool create`.

use super::status::PoolReport;
use crate::{failure::Failure, output, size};
use clap::Args;
use forebay_pool::{CreateOptions, Pool};
use std::path::PathBuf;

/// Make a pool in a file on persistent memory, or on a devdax device
#[derive(Args)]
#[command(
    long_about = "Makes a pool: a file on a file system mounted with -o dax on persistent memory, or a devdax \
                  device. Nothing that exists is overwritten.\n\n\
                  With --emulated, an ordinary file will do. Such a pool survives a crash of the process, and is \
                  lost when the machine goes down: good for trying things out, and nothing else.",
    after_long_help = "Examples:\n  \
        forebay pool create /mnt/pmem/forebay.pool --size 64MiB\n  \
        forebay pool create /dev/dax0.0 --size 1GiB --segment-size 16MiB\n  \
        forebay pool create /dev/shm/try.pool --emulated"
)]
pub struct Create {
    /// Where: a file to be made, or a devdax device
    path: PathBuf,
    /// Bytes of the pool
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size::parse_positive)]
    size: u64,
    /// Bytes of a segment, that is, of one buffer of a store: 4 KiB to 64 MiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = size::parse_positive)]
    segment_size: u64,
    /// Owners (stores) at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    lanes: u32,
    /// Make it in ordinary memory: it survives a process crash only
    #[arg(long)]
    emulated: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Create {
    pub fn run(self) -> Result<(), Failure> {
        let options = CreateOptions {
            bytes: self.size,
            segment_bytes: self.segment_size,
            lanes: self.lanes,
            emulated: self.emulated,
        };
        let pool = Pool::create(&self.path, options)?;
        output::report(self.json, &PoolReport::of(&pool), |report| {
            format!("created {}\n{}", self.path.display(), report.human())
        })
    }
}
