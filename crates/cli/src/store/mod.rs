//! `forebay store`: read and write a store.

mod backup;
mod compact;
mod delete;
mod export;
mod gc;
mod get;
mod import;
mod lines;
mod opening;
mod put;
mod scan;
mod stats;
mod verify;

use crate::failure::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum StoreCommand {
    Put(put::Put),
    Get(get::Get),
    Delete(delete::Delete),
    Scan(scan::ScanCommand),
    Import(import::Import),
    Export(export::Export),
    Stats(stats::StatsCommand),
    Gc(gc::Gc),
    Compact(compact::Compact),
    Verify(verify::Verify),
    Backup(backup::Backup),
}

impl StoreCommand {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Put(put) => put.run(),
            Self::Get(get) => get.run(),
            Self::Delete(delete) => delete.run(),
            Self::Scan(scan) => scan.run(),
            Self::Import(import) => import.run(),
            Self::Export(export) => export.run(),
            Self::Stats(stats) => stats.run(),
            Self::Gc(gc) => gc.run(),
            Self::Compact(compact) => compact.run(),
            Self::Verify(verify) => verify.run(),
            Self::Backup(backup) => backup.run(),
        }
    }
}
