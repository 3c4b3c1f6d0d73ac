//! `forebay store verify`.

use super::opening::{AbsentStore, StoreArguments};
use crate::{failure::Failure, output, size};
use clap::Args;

/// Read everything and check it
#[derive(Args)]
#[command(
    long_about = "Reads every record of the value log and the value of every key, and checks their checksums. Exit \
                  status 1 if anything is wrong.",
    after_long_help = "Example:\n  forebay store verify --dir s --pool /mnt/pmem/p"
)]
pub struct Verify {
    #[command(flatten)]
    opening: StoreArguments,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub fn run(self) -> Result<(), Failure> {
        let opened = self.opening.open(AbsentStore::Refuse)?;
        let report = opened.store.verify()?;
        opened.store.close()?;
        let is_well = report.problems.is_empty();
        output::verdict(self.json, &report, is_well, |r| {
            let mut text = format!(
                "checked {} keys with {} of values, and {} records of the value log\n",
                r.keys,
                size::show(r.value_bytes),
                r.log_records
            );
            for problem in &r.problems {
                text.push_str(&format!("DAMAGED: {problem}\n"));
            }
            for file in &r.not_collectable {
                text.push_str(&format!("NOT COLLECTABLE: {file}\n"));
            }
            text.push_str(if is_well {
                "no damage found\n"
            } else {
                "damaged\n"
            });
            text
        })
    }
}
