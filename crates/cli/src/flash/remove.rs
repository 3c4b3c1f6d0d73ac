//! `forebay flash remove`.

use crate::{failure::Failure, output};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// End a flash cache that was flushed
#[derive(Args)]
#[command(
    long_about = "Removes a flash cache: the flash file, its metadata (PATH.lane), settings and status. A device is left blank, and may become another cache. \
                  Refused while a server uses the cache, and until it was flushed: it may have newer pages than the database's files, and guards them. \
                  Interrupted, it is repeated.",
    after_long_help = "Examples:\n  \
        forebay flash flush --flash /fast/cache     first: everything to the files\n  \
        forebay flash remove --flash /fast/cache\n\n\
        Exit status: 0 it is gone; 1 it is not, or not all of it; 2 the command line is wrong."
)]
pub struct Remove {
    /// The flash cache
    #[arg(long, value_name = "PATH")]
    flash: PathBuf,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct RemoveReport {
    #[serde(serialize_with = "forebay_files::readable")]
    flash: PathBuf,
    /// Files that are gone.
    removed: Vec<String>,
}

impl Remove {
    pub fn run(self) -> Result<(), Failure> {
        let removed = forebay_innodb::remove(&self.flash)?;
        let removed = removed.iter().map(|path| path.display().to_string());
        let report = RemoveReport {
            flash: self.flash,
            removed: removed.collect(),
        };
        output::report(self.json, &report, |report| {
            format!(
                "{}: no flash cache any more; removed {}\n",
                report.flash.display(),
                report.removed.join(", ")
            )
        })
    }
}
