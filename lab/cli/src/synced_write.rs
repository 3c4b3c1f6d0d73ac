//! `forebay-lab synced-write`.

use crate::contest::{Common, note};
use clap::Args;
use forebay_bench::synced_write::{self, Config, MODES, Operation};
use forebay_cli::{failure::Failure, size};

/// Measure one write and its fdatasync: plain, in memory, with the library, and below an agent
#[derive(Args)]
#[command(
    long_about = "Has a C program of one thread append some bytes to a log and sync them, again and again, in each mode: as it is (plain); with the \
                  log in memory (tmpfs); under forebay run with the library before it (preload); and linked statically, under forebay run \
                  --front-end notify (notify). Modes take turns, round after round, each on a fresh file; figures are medians of the rounds.\n\n\
                  --operations read,ping has it read a file and send to a socket instead, which are no logs: programs without logs should run as \
                  plainly.",
    mut_arg("modes", |modes| modes.default_value("plain,tmpfs,preload,notify").help("Modes: plain, tmpfs, preload, notify")),
    after_long_help = "Examples:\n  \
        forebay-lab synced-write\n  \
        forebay-lab synced-write --sizes 100,4k --modes preload,notify --rounds 7 --json\n  \
        forebay-lab synced-write --operations read,ping --modes plain,notify --sizes 4k --rounds 9\n  \
        forebay-lab synced-write --dir /slow --pool-disk /fast"
)]
pub struct SyncedWrite {
    /// What it does: write (and sync), read, ping
    #[arg(long, value_name = "WHAT,…", value_delimiter = ',', default_value = "write", value_parser = operation)]
    operations: Vec<Operation>,
    /// Bytes of an operation
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse_positive, default_value = "100")]
    sizes: Vec<u64>,
    /// Seconds of a round; a fifth of that more does not count [default: 3]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    #[command(flatten)]
    common: Common,
}

impl SyncedWrite {
    pub fn run(self) -> Result<(), Failure> {
        let config = Config {
            setup: self.common.setup(&MODES)?,
            operations: self.operations,
            sizes: self.sizes,
            seconds: self.common.seconds(self.seconds, 3),
        };
        self.common.print(synced_write::run(&config, &note))
    }
}

fn operation(name: &str) -> Result<Operation, String> {
    (Operation::ALL.into_iter())
        .find(|operation| operation.name() == name)
        .ok_or_else(|| "write, read or ping".to_owned())
}
