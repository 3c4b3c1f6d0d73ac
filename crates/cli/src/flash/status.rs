//! `forebay flash status`.

use crate::{failure::Failure, output, run};
use clap::Args;
use forebay_pages::Status as Running;

/// Say how the flash caches are that servers run with
#[derive(Args)]
#[command(
    long_about = "Says of each flash cache that a server of this user runs with: pages in it, and those that are newer than in the files; hit ratio by window; pages of scans that passed by; versions a page, \
                  second chances; bytes written to flash for each byte of pages; pages and batches that went to the files; policy, watermarks and limits; what flash failed \
                  with. Exit status 1 if one fails.",
    after_long_help = "Examples:\n  forebay flash status\n  forebay flash status --json"
)]
pub struct Status {
    /// Report as JSON: an array
    #[arg(long)]
    json: bool,
}

impl Status {
    pub fn run(self) -> Result<(), Failure> {
        let running = run::running_flash(&run::run_dir()?);
        let running: Vec<Running> = running.into_values().collect();
        let is_well = running.iter().all(Running::is_well);
        output::verdict(self.json, &running, is_well, |running| human(running))
    }
}

fn human(running: &[Running]) -> String {
    if running.is_empty() {
        return "no server runs with a flash cache (for this user)\n".to_owned();
    }
    let each = running
        .iter()
        .map(|status| status.lines().join("\n") + "\n");
    each.collect::<Vec<_>>().join("\n")
}
