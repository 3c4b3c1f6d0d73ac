//! `forebay bench redis`.

use super::default_dir;
use crate::{failure::Failure, output, size};
use clap::Args;
use forebay_bench::{
    device::Effort,
    redis::{self, Config, Mode, server::Kind},
    report,
    scratch::PoolSource,
};
use std::path::PathBuf;

/// Measure Redis and Valkey: appendfsync in its modes, and always under forebay
#[derive(Args)]
#[command(
    long_about = "Runs redis-benchmark's SETs of random keys against a server on loopback that was started for the purpose, in each mode: no \
                  append-only file (off); appendfsync no, everysec, always; always with libeatmydata, which makes fsync do nothing; \
                  and always under forebay run. Modes take turns, round after round, each on a fresh server; figures are medians of \
                  the rounds. Servers are redis-server (Debian's redis-tools has it) and valkey-server; make bench installs them.",
    after_long_help = "Examples:\n  \
        forebay bench redis\n  \
        forebay bench redis --sizes 32,8k --clients 50 --modes everysec,eatmydata,forebay --rounds 7\n  \
        forebay bench redis --pool /mnt/pmem/forebay.pool --server redis --json\n  \
        forebay bench redis --sizes 8k --during-rewrite\n  \
        forebay bench redis --sizes 8k --device hdd-7200 --pool-size 16MiB,256MiB,1GiB"
)]
pub struct Redis {
    /// Servers: redis, valkey
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "redis,valkey"
    )]
    server: Vec<Kind>,
    /// Modes: off, no, everysec, always, eatmydata, nvm (all of the server's files in memory), forebay
    #[arg(
        long,
        value_name = "MODE,…",
        value_delimiter = ',',
        default_value = "off,no,everysec,always,eatmydata,forebay"
    )]
    modes: Vec<Mode>,
    /// Bytes of a value; several sizes give rows for each
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse_positive, default_value = "32,128,512,2048,8192")]
    sizes: Vec<u64>,
    /// Connections, each with one SET in flight
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,50"
    )]
    clients: Vec<u64>,
    /// SETs of a round; fewer in mode always [default: 100000]
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Keys that are chosen from at random
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u64,
    /// Rounds [default: 3]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Also measure values of 8 KiB while the append-only file is rewritten again and again
    #[arg(long)]
    during_rewrite: bool,
    /// Where the servers' directories are made, in a directory that is removed again [default: the one for temporary files, if that is on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Use this pool instead of emulated ones
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// Bytes of a segment of an emulated pool
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "8MiB", conflicts_with = "pool")]
    buffer_size: u64,
    /// Segments that the server gets; while the disk is behind it takes more
    #[arg(long, value_name = "N", default_value_t = 2)]
    buffers: u16,
    /// Bytes of an emulated pool; several sizes give a row of mode forebay for each [default: twice the server's segments]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse_positive, conflicts_with = "pool")]
    pool_size: Vec<u64>,
    /// Put the servers' directories on an emulated device: a profile of forebay run --device
    #[arg(long, value_name = "PROFILE")]
    device: Option<String>,
    /// Toy size: shows that it runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// The size at which P4's rewrites stall.
const REWRITE_VALUE_BYTES: u64 = 8192;

impl Redis {
    pub fn run(self) -> Result<(), Failure> {
        let (rounds, requests) = if self.quick { (1, 1000) } else { (3, 100_000) };
        let config = Config {
            dir: self.dir.unwrap_or_else(default_dir),
            servers: self.server,
            modes: self.modes,
            sizes: self.sizes,
            clients: self.clients,
            requests: self.requests.unwrap_or(requests),
            keys: self.keys,
            rounds: self.rounds.unwrap_or(rounds),
            during_rewrite: self.during_rewrite.then_some(REWRITE_VALUE_BYTES),
            pool: self.pool.map_or(PoolSource::Emulated, PoolSource::At),
            buffer_bytes: self.buffer_size,
            buffers: self.buffers,
            pool_sizes: self.pool_size,
            slowed: None,
            device: self.device,
            forebay: super::own_program()?,
            effort: if self.quick {
                Effort::QUICK
            } else {
                Effort::SHORT
            },
        };
        let measured = redis::run(&config, &|note| eprintln!("{note}"))?;
        output::report(self.json, &measured, report::redis)
    }
}
