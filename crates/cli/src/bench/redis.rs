//! `forebay bench redis`.

use super::report::{Report, number};
use crate::{failure::Failure, measuring::Options, size};
use clap::Args;
use forebay_databases::redis::{self, Config, modes::ALWAYS, server::Kind};

/// Measure Redis with appendfsync always: plain, and under forebay run
#[derive(Args)]
#[command(
    long_about = "Runs redis-benchmark's SETs against a redis-server on loopback that is started for the purpose, with an append-only file that \
                  is synced at each write: plain, under forebay run, and, where libeatmydata is installed, with syncs that do nothing. They \
                  take turns, round after round, each on fresh files; figures are medians of the rounds. Both programs have to be installed \
                  (Debian: redis-server).",
    after_long_help = "Examples:\n  \
        forebay bench redis --dir /var/lib\n  \
        forebay bench redis --pool /mnt/pmem/forebay.pool --clients 50 --json\n  \
        forebay bench redis --pool-disk /fast"
)]
pub struct Redis {
    /// Connections, each with one SET in flight
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "512")]
    value_size: u64,
    #[command(flatten)]
    options: Options,
}

impl Redis {
    pub fn run(self) -> Result<(), Failure> {
        let seconds = if self.options.quick { 0.2 } else { 5.0 };
        let Self {
            clients,
            value_size,
            options,
        } = self;
        Kind::Redis.program().map_err(Failure::Usage)?;
        measure(&options, clients.into(), value_size, seconds)?.print(options.json)
    }
}

/// SETs of a round at most.
const SETS_MAX: u64 = 5_000_000;
/// Keys that are chosen from.
const KEYS: u64 = 100_000;

/// SETs of random keys, for about so many seconds.
pub fn measure(
    options: &Options,
    clients: u64,
    value_bytes: u64,
    seconds: f64,
) -> Result<Report, Failure> {
    let config = Config {
        setup: options.setup(ALWAYS.settings)?,
        servers: vec![Kind::Redis],
        sizes: vec![value_bytes],
        clients: vec![clients],
        requests: SETS_MAX,
        seconds: Some(seconds),
        keys: KEYS,
        during_rewrite: None,
    };
    let measured = redis::run(&config, &|note| eprintln!("{note}"))?;
    let load = format!(
        "redis-benchmark, {}, values of {value_bytes} bytes, appendfsync always",
        number(clients as usize, "connection"),
    );
    Report::of(load, &config.setup, measured)
}
