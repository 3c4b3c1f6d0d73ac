//! `forebay flash status`.

use crate::{
    failure::Failure,
    output,
    run::{self, RunningFlash},
    standard_error::complain,
};
use clap::Args;

/// Show the state of the flash caches that are in use
#[derive(Args)]
#[command(
    long_about = "Shows, for each flash cache that a server of this user runs with: its pages, and those newer than in the files; hit ratio by window; pages of scans that were not cached; \
                  versions per page and second chances; bytes written to flash per byte of pages; pages and batches written to the files; policy, watermarks and limits; the last error of \
                  flash. Exit status 1 if a cache fails or has lost pages, or if no server of a run has reported for ten seconds while the run's program runs: that run is named, with --json \
                  on standard error only.",
    after_long_help = "Examples:\n  forebay flash status\n  forebay flash status --json"
)]
pub struct FlashStatus {
    /// Report as JSON: an array
    #[arg(long)]
    json: bool,
}

impl FlashStatus {
    pub fn run(self) -> Result<(), Failure> {
        let running = RunningFlash::find(&run::existing_run_dir()?, run::whose());
        if self.json {
            running.silent().for_each(|line| complain!("{line}"));
        }
        let statuses: Vec<_> = running.statuses.iter().map(|(_, status)| status).collect();
        let is_well = running.is_well();
        output::verdict(self.json, &statuses, is_well, |_| human(&running))
    }
}

fn human(running: &RunningFlash) -> String {
    let paragraphs: Vec<String> = running.paragraphs().collect();
    if paragraphs.is_empty() {
        return "no server runs with a flash cache (for this user)\n".to_owned();
    }
    paragraphs.join("\n")
}
