//! `forebay store backup`.

use super::opening::{InUse, ReadArguments, ReadStore};
use crate::{failure::Failure, output, progress::byte_bar, size};
use clap::Args;
use forebay_store::BackupReport;
use serde::Serialize;
use std::path::PathBuf;

/// Back a store up: a directory that is a store as of now
#[derive(Args)]
#[command(
    long_about = "Makes a directory with the next number in BACKUPS (000001, 000002, …), which is a store as of this \
                  moment and needs no pool. Files that the backup before has already, by their names, lengths, first \
                  and last 64 KiB, are linked to it, so a further backup takes the room and the time of new files. Each copy is read again and checked before the backup \
                  counts; one that was not finished is no \
                  store, and the next backup removes it. BACKUPS is locked meanwhile, but on NFS: make one at a time \
                  there.\n\n\
                  To restore, copy the directory of one backup to its place, on this machine or another, and open the \
                  copy. Give it no pool that has something of the store it was made from, nor that store the pool of the \
                  copy. To keep only some backups, \
                  use --keep, or remove directories: no other one needs them.\n\n\
                  Where a program has the store open, the backup is made beside it, which waits for nothing: it has all \
                  that was durable when the backup began. If the program removes again and again what is being \
                  copied, the command fails, and the program has to make the backup (Store::backup).",
    after_long_help = "Examples:\n  \
        forebay store backup --dir s --pool /mnt/pmem/p /backups/s --keep 7\n  \
        cp -r /backups/s/000003 restored && forebay store verify --dir restored\n  \
        rsync -aH /backups/s/ elsewhere:/backups/s/"
)]
pub struct Backup {
    #[command(flatten)]
    opening: ReadArguments,
    /// The directory of the backups; made if there is none
    backups: PathBuf,
    /// Remove all backups but the latest N, once the new one is complete
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct BackedUp {
    #[serde(flatten)]
    backup: BackupReport,
    /// The store was read beside the process that has it open, if any.
    beside_owner: bool,
    removed: Vec<String>,
}

impl Backup {
    pub fn run(self) -> Result<(), Failure> {
        let opened = self.opening.open(InUse::ReadBeside)?;
        let beside = matches!(opened, ReadStore::Reader(_));
        let stats = opened.stats();
        let bytes = stats.value_log_bytes + stats.large_value_bytes + stats.index.disk_bytes;
        let bar = byte_bar(Some(bytes), "backing up");
        let made = opened.backup(&self.backups, |so_far| {
            bar.set_position(so_far.done_bytes.min(bytes));
        });
        bar.finish_and_clear();
        let backup = made?;
        let removed = match self.keep {
            Some(keep) => opened.prune_backups(&self.backups, keep as usize),
            None => Ok(Vec::new()),
        };
        let closed = opened.close();
        // The backup was made, whatever goes wrong behind it.
        let (removed, failed) = match removed {
            Ok(removed) => (removed, closed.err()),
            Err(error) => (Vec::new(), Some(error)),
        };
        let report = BackedUp {
            backup,
            beside_owner: beside,
            removed: removed
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
        };
        output::report(self.json, &report, |report| {
            let made = &report.backup;
            let mut text = format!(
                "{}: {} in {} files; {} in {} of them were copied and checked\n",
                made.backup,
                size::show(made.bytes),
                made.files,
                size::show(made.copied_bytes),
                made.copied_files
            );
            for removed in &report.removed {
                text.push_str(&format!("removed {removed}\n"));
            }
            text
        })?;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}
