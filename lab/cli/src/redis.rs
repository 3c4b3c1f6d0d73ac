//! `forebay-lab redis`.

use crate::{
    contest::{Clients, Common, note},
    positive,
};
use clap::Args;
use forebay_bench::redis::{self, Config, modes, server::Kind};
use forebay_cli::{failure::Failure, size};

/// Measure Redis and Valkey: appendfsync in its modes, and always under forebay
#[derive(Args)]
#[command(
    long_about = "Runs redis-benchmark's SETs of random keys against a server on loopback that was started for the purpose, in each mode: no \
                  append-only file (off); appendfsync no, everysec, always; always with libeatmydata, which makes fsync do nothing; \
                  and always under forebay run. Modes take turns, round after round, each on a fresh server; figures are medians of \
                  the rounds. Servers are redis-server (Debian's redis-tools has it) and valkey-server; make bench installs them.",
    mut_arg("clients", |clients| clients.default_value("1,50")),
    mut_arg("modes", |modes| modes.default_value("off,no,everysec,always,eatmydata,forebay").help("Modes: off, no, everysec, always, eatmydata, nvm (all of the server's files in memory), forebay, notify (forebay with an agent instead of the library)")),
    after_long_help = "Examples:\n  \
        forebay-lab redis\n  \
        forebay-lab redis --sizes 32,8k --clients 50 --modes everysec,eatmydata,forebay --rounds 7\n  \
        forebay-lab redis --pool /mnt/pmem/forebay.pool --server redis --json\n  \
        forebay-lab redis --sizes 8k --during-rewrite\n  \
        forebay-lab redis --device hdd-7200 --pool-disk /fast --modes always,eatmydata,forebay\n  \
        forebay-lab redis --sizes 8k --device hdd-7200 --pool-size 16MiB,256MiB,1GiB"
)]
pub struct Redis {
    /// Servers: redis, valkey [default: both]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    server: Option<Vec<Kind>>,
    /// Bytes of a value; several sizes give rows for each
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse_positive, default_value = "32,128,512,2048,8192")]
    sizes: Vec<u64>,
    #[command(flatten)]
    clients: Clients,
    /// SETs of a round; fewer in mode always [default: 100000]
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Seconds of a round, about, instead of a number of SETs
    #[arg(long, value_name = "S", value_parser = positive::<f64>, conflicts_with = "requests")]
    seconds: Option<f64>,
    /// Keys that are chosen from at random
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u64,
    /// Also measure values of 8 KiB while the append-only file is rewritten again and again
    #[arg(long)]
    during_rewrite: bool,
    /// Bytes of an emulated pool; several sizes give a row of mode forebay for each [default: twice
    /// the server's segments]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse_positive, conflicts_with = "pool")]
    pool_size: Vec<u64>,
    #[command(flatten)]
    common: Common,
}

/// SETs of a round of some seconds, at most.
const SETS_MAX: u64 = 5_000_000;
/// The size at which P4's rewrites stall.
const REWRITE_VALUE_BYTES: u64 = 8192;

impl Redis {
    pub fn run(self) -> Result<(), Failure> {
        let mut setup = self.common.setup(&modes::ALL)?;
        setup.pools.sizes = self.pool_size;
        let requests = match (self.seconds, self.common.options.form.quick) {
            (Some(_), _) => SETS_MAX,
            (None, true) => 1000,
            (None, false) => 100_000,
        };
        let config = Config {
            setup,
            servers: self.server.unwrap_or(Kind::ALL.to_vec()),
            sizes: self.sizes,
            clients: self.clients.numbers,
            requests: self.requests.unwrap_or(requests),
            seconds: self.seconds,
            keys: self.keys,
            during_rewrite: self.during_rewrite.then_some(REWRITE_VALUE_BYTES),
        };
        self.common.print(redis::run(&config, &note))
    }
}
