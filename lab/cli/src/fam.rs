//! `forebay-lab fam`.

use crate::{
    contest::note,
    failed,
    measuring::{RunForm, default_dir},
    positive,
};
use clap::Args;
use forebay_bench::fam::{self, Config, Policy};
use forebay_cli::{failure::Failure, output, size};
use std::path::PathBuf;

/// Measure the store and LevelDB on fabric-attached memory under three cache policies
#[derive(Args)]
#[command(
    long_about = "Runs the workload of the paper on a Gen-Z memory device: 10,000 pairs of 16 B to 16 KiB are put in order, in random order, and in \
                  random order with a sync, and got in order and in random order, with the device behind a processor's cache that is off \
                  (uc), writes through (wt), or combines writes (wc). Two stores: forebay's with its value log resident in the memory, \
                  and LevelDB with its directory on the device, emulated by forebay-lab run --device. Medians of rounds in which all take \
                  turns, with the fastest and slowest, and how far wt and wc are below uc.\n\n\
                  The memory is emulated: ordinary memory, as slow as the paper's device (docs/devices-memory.md).",
    after_long_help = "Examples:\n  \
        forebay-lab fam\n  \
        forebay-lab fam --sizes 64,1k,16k --policies uc,wc --rounds 5 --json"
)]
pub struct Fam {
    /// Cache policies: uc, wt, wc [default: all]
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',')]
    policies: Option<Vec<Policy>>,
    /// Bytes of key (8) and value together [default: the powers of two from 16 to 16k]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse_positive)]
    sizes: Option<Vec<u64>>,
    /// Pairs [default: 10000]
    #[arg(long, value_name = "N", value_parser = positive::<u64>)]
    pairs: Option<u64>,
    /// Rounds [default: 3]
    #[arg(long, value_name = "N", value_parser = positive::<usize>)]
    rounds: Option<usize>,
    /// Where the directories are made, in one that is removed again [default: the one for temporary
    /// files, if that is on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    form: RunForm,
}

impl Fam {
    pub fn run(self) -> Result<(), Failure> {
        let dir = self.dir.unwrap_or_else(default_dir);
        let usual = Config::usual(&dir, &crate::forebay()?, self.form.quick);
        let config = Config {
            policies: self.policies.unwrap_or(usual.policies),
            sizes: self.sizes.unwrap_or(usual.sizes),
            pairs: self.pairs.unwrap_or(usual.pairs),
            rounds: self.rounds.unwrap_or(usual.rounds),
            ..usual
        };
        let measured = fam::run(&config, &note).map_err(failed)?;
        output::report(self.form.json, &measured, fam::table)
    }
}
