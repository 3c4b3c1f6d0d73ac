//! `forebay store gc`.

use super::opening::{AbsentStore, StoreArguments};
use crate::{failure::Failure, output, size};
use clap::Args;

/// Collect the value log's garbage now
#[derive(Args)]
#[command(
    long_about = "Copies the live records of value-log files with garbage to the end of the log and removes the \
                  files. A store does so by itself while it is open; this is for one that rarely is. A file that cannot be \
                  collected is named, and the exit status is 1.",
    after_long_help = "Example:\n  forebay store gc --dir s"
)]
pub struct Gc {
    #[command(flatten)]
    opening: StoreArguments,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Gc {
    pub fn run(self) -> Result<(), Failure> {
        let opened = self.opening.open(AbsentStore::Refuse)?;
        let report = opened.store.gc()?;
        opened.store.close()?;
        output::verdict(self.json, &report, report.set_aside.is_empty(), |r| {
            let mut text = format!(
                "collected {} files and {} large values: {} given back, {} live records ({}) written again\n",
                r.files,
                r.large_values,
                size::show(r.reclaimed_bytes),
                r.relocated,
                size::show(r.relocated_bytes)
            );
            for aside in &r.set_aside {
                text.push_str(&format!(
                    "NOT COLLECTED: {}: {}\n",
                    aside.file, aside.reason
                ));
            }
            text
        })
    }
}
