//! `forebay-lab commit`.

use crate::{contest::note, failed, measuring::Options};
use clap::Args;
use forebay_bench::{commit, contest::FOREBAY};
use forebay_cli::{failure::Failure, output, size};
use std::time::Duration;

/// Measure durable appends to a pool beside synced writes to a file
#[derive(Args)]
#[command(
    long_about = "Measures what it costs to make some bytes durable: by a write to a file and an fdatasync, on the disk under --dir, and by an append \
                  to a pool. One thread does them in turns, round after round; figures are means of a turn, and medians of the rounds. Of a pool in a file on a \
                  disk, a commit is shown beside that disk's own write of a page.\n\n\
                  Without --pool, the pool is emulated in ordinary memory, and removed again.",
    after_long_help = "Examples:\n  \
        forebay-lab commit --dir /var/lib\n  \
        forebay-lab commit --pool /mnt/pmem/forebay.pool --json\n  \
        forebay-lab commit --pool-disk /fast --sizes 100,16k"
)]
pub struct Commit {
    /// Bytes that are made durable at once
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse_positive, default_value = "64,512,4k,64k")]
    sizes: Vec<u64>,
    #[command(flatten)]
    options: Options,
}

impl Commit {
    pub fn run(self) -> Result<(), Failure> {
        let options = self.options;
        let pools = options.pools();
        let contenders = pools.contenders([FOREBAY]).into_iter();
        let config = commit::Config {
            dir: options.dir(),
            pools: contenders
                .map(|it| (it.to_string(), pools.source_of(&it)))
                .collect(),
            sizes: self.sizes,
            rounds: options.rounds(),
            time: Duration::from_millis(if options.form.quick { 10 } else { 300 }),
            effort: options.effort(),
        };
        let measured = commit::run(&config, &note).map_err(failed)?;
        output::report(options.form.json, &measured, commit::table)
    }
}
