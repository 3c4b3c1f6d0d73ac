//! `forebay recover`.

pub mod behind_flash;
pub mod copied_directory;
pub mod for_directories;

use crate::{failure::Failure, output, run};
use clap::Args;
use forebay_files::replay::{self, LaneReport, RecoverOptions};
use forebay_pool::PoolOptions;
use serde::Serialize;
use std::path::PathBuf;

/// Bring records that forebay run left in a pool to their files, after a crash or power cut
#[derive(Args)]
#[command(
    long_about = "Brings the acknowledged writes that a run left in the pool to the files that they belong to, and syncs those. After a crash \
                  of processes the kernel has it all, and syncing is enough; after a power cut the writes are done again. Run by root, it works in a \
                  process that is the user whom the pool belongs to. \
                  forebay run does the same before it starts its program; this is for scripts that want it done earlier (a unit ordered before \
                  the database), and for records that forebay run refuses.\n\n\
                  A file that is gone, was replaced, or was changed since is not touched: the reasons are told, and its writes stay in the pool \
                  until one of --force and --discard is given. Doing it twice, or being interrupted, does no harm.",
    after_long_help = "Examples:\n  \
        forebay recover --pool /mnt/pmem/forebay.pool\n  \
        forebay recover --pool /mnt/pmem/forebay.pool --json\n  \
        forebay recover --for /var/lib/postgresql && systemctl start postgresql\n\n\
        Exit status: 0 nothing is left that would be lost; 1 something was refused, or may be in a flash cache; 2 the command line is wrong."
)]
pub struct Recover {
    /// The pool [default: the one of forebay run --emulated]
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// Recover instead each pool that may hold acknowledged writes for the files below these
    /// directories, as their marks and guards say; with exit status 0 a database may be started
    /// there without Forebay. A flash cache that may have newer pages than these files is named,
    /// and stays as it is
    #[arg(long = "for", value_name = "DATA", num_args = 1.., conflicts_with_all = ["pool", "force", "discard", "emulated"])]
    data: Vec<PathBuf>,
    /// With --for: take marks and guards away whose pool is gone for good, or that came with a copy
    /// of the directory. ACKNOWLEDGED WRITES MAY BE MISSING then
    #[arg(long, requires = "data")]
    lift: bool,
    /// Write also to files that were changed since, or that may be newer than the pool: newer
    /// writes to them may be overwritten
    #[arg(long, conflicts_with = "discard")]
    force: bool,
    /// Give up records that cannot be brought to their files. ACKNOWLEDGED WRITES ARE LOST
    #[arg(long)]
    discard: bool,
    /// Open a pool on legs although this one does not answer, or has lost its memory. RECORDS THAT
    /// ONLY THAT LEG HAD ARE LOST
    #[arg(long, value_name = "URL", requires = "pool")]
    lost_leg: Vec<String>,
    /// Open a pool that was made on persistent memory and lies elsewhere now
    #[arg(long)]
    emulated: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct RecoveryReport {
    #[serde(serialize_with = "forebay_files::readable")]
    pool: PathBuf,
    /// True if nothing is left in the pool that would be lost with it.
    done: bool,
    lanes: Vec<LaneReport>,
}

impl Recover {
    pub fn run(self) -> Result<(), Failure> {
        if !self.data.is_empty() {
            return for_directories::recover(&self.data, self.lift, self.json);
        }
        let pool = match &self.pool {
            Some(path) => PoolOptions::new()
                .emulated(self.emulated)
                .lost_legs(self.lost_leg.clone())
                .open(path)?,
            None => run::open_default()?,
        };
        let options = RecoverOptions {
            force: self.force,
            discard: self.discard,
        };
        let lanes = replay::recover(&pool, &options)?;
        let report = RecoveryReport {
            pool: pool.path().to_owned(),
            done: !lanes.iter().any(run::is_refused),
            lanes,
        };
        output::verdict(self.json, &report, report.done, human)
    }
}

/// Said below the reasons of refused lanes.
const REFUSED: &str =
    "The refused records stay in the pool. Follow the reasons above, then repeat.";

fn human(report: &RecoveryReport) -> String {
    let mut text: String = run::lanes(&report.lanes)
        .into_iter()
        .map(|line| line + "\n")
        .collect();
    let pool = report.pool.display();
    if text.is_empty() {
        text = format!(
            "{pool}: nothing to recover. A server that names a guard of this pool nevertheless wants forebay recover --for its data directory\n"
        );
    }
    if !report.done {
        text.push_str(&format!(
            "{REFUSED} Or forebay recover --pool {pool} --force to write to the files nevertheless; or --discard to give them up\n"
        ));
    }
    text
}
