//! `forebay-lab etcd` and `forebay-lab nats`.

use crate::contest::{Clients, Common, note};
use clap::Args;
use forebay_bench::{
    closed_loop::{Config, MODES},
    etcd, nats,
};
use forebay_cli::{failure::Failure, size};
use forebay_device::block::in_own_namespace;

/// Measure etcd: its log synced by the disk, in memory, and under forebay
#[derive(Args)]
#[command(
    long_about = "Has so many clients put values into an etcd of one member, each with one put in flight, in each mode: as it is (plain); with all of \
                  its files in memory (tmpfs), which no disk can reach; and under forebay run --front-end notify. Modes take turns, round after round, \
                  each on a fresh server and directory; figures are medians of the rounds. Clients are connections and threads of this process.",
    after_long_help = "Examples:\n  \
        forebay-lab etcd\n  \
        forebay-lab etcd --clients 1,64 --sizes 256 --rounds 5 --json\n  \
        forebay-lab etcd --device hdd-7200 --modes plain,forebay"
)]
pub struct Etcd {
    #[command(flatten)]
    load: LoopLoad,
}

/// Measure NATS JetStream with sync_interval always: synced by the disk, in memory, under forebay
#[derive(Args)]
#[command(
    long_about = "Has so many clients publish messages to a JetStream stream in files, each with one message in flight, on a NATS server that syncs \
                  each before it acknowledges it, in each mode: as it is (plain); with all of its files in memory (tmpfs), which no disk can reach; and \
                  under forebay run --front-end notify. Modes take turns, round after round, each on a fresh server and directory; figures are medians \
                  of the rounds. Clients are connections and threads of this process.",
    after_long_help = "Examples:\n  \
        forebay-lab nats\n  \
        forebay-lab nats --clients 1,64 --sizes 256 --rounds 5 --json\n  \
        forebay-lab nats --device hdd-7200 --modes plain,forebay"
)]
pub struct Nats {
    #[command(flatten)]
    load: LoopLoad,
}

#[derive(Args)]
#[command(
    mut_arg("clients", |clients| clients.default_value("1,8,64")),
    mut_arg("modes", |modes| modes.default_value("plain,tmpfs,forebay").help("Modes: plain, tmpfs, forebay"))
)]
struct LoopLoad {
    /// Bytes of a value
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse_positive, default_value = "256")]
    sizes: Vec<u64>,
    #[command(flatten)]
    clients: Clients,
    /// Seconds of a round; a fifth of that more does not count [default: 5]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    #[command(flatten)]
    common: Common,
}

impl LoopLoad {
    fn config(&self) -> Result<Config, Failure> {
        if self.common.emulates() {
            in_own_namespace().map_err(|e| Failure::Usage(format!("--device: {e}")))?;
        }
        Ok(Config {
            setup: self.common.setup(&MODES)?,
            sizes: self.sizes.clone(),
            clients: self.clients.numbers.clone(),
            seconds: self.common.seconds(self.seconds, 5),
        })
    }
}

impl Etcd {
    pub fn run(self) -> Result<(), Failure> {
        let measured = etcd::run(&self.load.config()?, &note);
        self.load.common.print(measured)
    }
}

impl Nats {
    pub fn run(self) -> Result<(), Failure> {
        let measured = nats::run(&self.load.config()?, &note);
        self.load.common.print(measured)
    }
}
