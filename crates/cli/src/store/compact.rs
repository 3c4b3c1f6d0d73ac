//! `forebay store compact`.

use super::opening::{AbsentStore, StoreArguments};
use crate::{failure::Failure, output, progress::byte_bar, size};
use clap::Args;
use forebay_store::CompactionStage;
use std::ops::ControlFlow;

/// Give back all the space of dead entries
#[derive(Args)]
#[command(
    long_about = "Merges the whole index into one sorted run, without replaced or deleted entries, and collects every \
                  value-log file that is worth it. A store does so by itself while it is open, when there is enough to \
                  gain; this is for one that is to be small, or fast to scan, now. The merge needs as much room as the \
                  index takes. Interrupted, it loses nothing: finished work stays. A file that cannot be collected is \
                  named, and the exit status is 1.\n\n\
                  A store has one process at a time. Where a program has it open, that program compacts it \
                  (Store::compact).",
    after_long_help = "Examples:\n  \
        forebay store compact --dir s\n  \
        forebay store compact --dir s --pool /mnt/pmem/p --json"
)]
pub struct Compact {
    #[command(flatten)]
    opening: StoreArguments,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Compact {
    pub fn run(self) -> Result<(), Failure> {
        let opened = self.opening.open(AbsentStore::Refuse)?;
        let bar = byte_bar(Some(0), "merging the index");
        let compacted = opened.store.compact(|so_far| {
            if so_far.stage == CompactionStage::Log {
                bar.set_message("collecting the log");
            }
            bar.set_length(so_far.total_bytes);
            bar.set_position(so_far.done_bytes);
            ControlFlow::Continue(())
        });
        bar.finish_and_clear();
        let report = compacted?;
        opened.store.close()?;
        let is_whole = report.collected.set_aside.is_empty();
        output::verdict(self.json, &report, is_whole, |r| {
            let mut text = format!(
                "compacted: {} before, {} now; {} files collected, {} live records ({}) written again\n",
                size::show(r.bytes_before),
                size::show(r.bytes_after),
                r.collected.files,
                r.collected.relocated,
                size::show(r.collected.relocated_bytes)
            );
            for aside in &r.collected.set_aside {
                text.push_str(&format!(
                    "NOT COLLECTED: {}: {}\n",
                    aside.file, aside.reason
                ));
            }
            text
        })
    }
}
