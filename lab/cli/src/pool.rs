//! `forebay-lab pool`.

use crate::{
    Slowed, failed,
    measuring::{RunForm, own_program},
    positive,
    progress::Progress,
};
use clap::Args;
use forebay_bench::pool_bench;
use forebay_cli::{failure::Failure, output, size};
use std::path::PathBuf;

/// Measure appends to the pool beside a bare copy and fence
#[derive(Args)]
#[command(
    long_about = "Measures what an append to a lane of the pool costs, with 1 to 16 threads, beside the floor: a bare \
                  non-temporal copy and fence of the same bytes to memory of the same kind. The two take turns, round \
                  after round; figures are medians of the rounds.\n\n\
                  Without --pool, an emulated pool in ordinary memory is used and removed again.",
    after_long_help = "Examples:\n  \
        forebay-lab pool\n  \
        forebay-lab pool --pool /mnt/pmem/forebay.pool --json\n  \
        forebay-lab pool --profile pcm --sizes 64,4k\n  \
        forebay-lab pool --sizes 100,4k --threads 1,2,4,8 --processes 1,2,4,8"
)]
pub struct Pool {
    /// Use a lane of this pool, which gets it back
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    #[command(flatten)]
    slowed: Slowed,
    /// Payload sizes
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse, default_value = "64,512,4k,64k")]
    sizes: Vec<u64>,
    /// Numbers of threads
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = positive::<usize>,
        default_value = "1,2,4,8,16"
    )]
    threads: Vec<usize>,
    /// Numbers of processes on a shared lane, to be measured as well, beside as many threads of one
    /// process on it
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = positive::<usize>, conflicts_with = "profile")]
    processes: Vec<usize>,
    /// Bytes of a segment of the emulated pool
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "64MiB", conflicts_with = "pool")]
    segment_size: u64,
    /// Rounds
    #[arg(long, value_name = "N", value_parser = positive::<usize>)]
    rounds: Option<usize>,
    /// Seconds of each size and number of threads in a round [default: 0.2]
    #[arg(long, value_name = "S", value_parser = positive::<f64>)]
    seconds: Option<f64>,
    #[command(flatten)]
    form: RunForm,
}

impl Pool {
    pub fn run(self) -> Result<(), Failure> {
        let (rounds, slice_seconds) = if self.form.quick { (1, 0.01) } else { (7, 0.2) };
        let config = pool_bench::Config {
            pool: self.pool.into(),
            profile: self.slowed.profile,
            segment_bytes: self.segment_size,
            sizes: self
                .sizes
                .iter()
                .map(|&size| usize::try_from(size).unwrap_or(usize::MAX))
                .collect(),
            threads: self.threads,
            processes: self.processes,
            program: own_program()?,
            rounds: self.rounds.unwrap_or(rounds),
            slice_seconds: self.seconds.unwrap_or(slice_seconds),
        };
        let progress = Progress::new();
        let measured = pool_bench::run(&config, &|what| progress.note(what)).map_err(failed)?;
        drop(progress);
        output::report(self.form.json, &measured, pool_bench::table)
    }
}
