//! `forebay flash status`.

use crate::{
    failure::Failure,
    output::{self, complain},
    run::{self, RunningFlash},
};
use clap::Args;

/// Say how the flash caches are that servers run with
#[derive(Args)]
#[command(
    long_about = "Says of each flash cache that a server of this user runs with: pages in it, and those that are newer than in the files; hit ratio by window; pages of scans that passed by; versions a page, \
                  second chances; bytes written to flash for each byte of pages; pages and batches that went to the files; policy, watermarks and limits; what flash failed \
                  with. Exit status 1 if one fails or has lost pages, or if for ten seconds, while a run's program runs, no server in it has said how it is: that run is named, in JSON on standard error alone.",
    after_long_help = "Examples:\n  forebay flash status\n  forebay flash status --json"
)]
pub struct Status {
    /// Report as JSON: an array
    #[arg(long)]
    json: bool,
}

impl Status {
    pub fn run(self) -> Result<(), Failure> {
        let running = RunningFlash::of(&run::run_dir()?);
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
