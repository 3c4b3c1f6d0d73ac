//! `forebay flash resize`.

use super::flush;
use crate::{failure::Failure, output, size, standard_error::complain};
use clap::Args;
use forebay_innodb::{CacheLocation, ResizeResult};
use serde::Serialize;
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// Give a flash cache another size
#[derive(Args)]
#[command(
    long_about = "Makes a flash cache larger or smaller and keeps its contents. A larger one keeps all pages; of a smaller one, pages that are newer than in the database's files and lose \
                  their slot are written to these files first. No page is moved. If a server runs with the cache, that server resizes it and goes on meanwhile. An interrupted resize \
                  continues when it is repeated. forebay run --flash-size does the same with a cache that exists.",
    after_long_help = "Examples:\n  \
        forebay flash resize --flash /fast/cache 40GiB\n  \
        forebay flash resize --flash /fast/cache --data /srv/mysql 5GiB    the data directory was renamed, or mounted, there\n\n\
        Exit status: 0 it has the size; 1 it has not, or that is not known; nothing is lost; 2 the command line is wrong."
)]
pub struct Resize {
    /// The flash cache
    #[arg(long, value_name = "PATH")]
    flash: PathBuf,
    /// The new size
    #[arg(value_name = "SIZE", value_parser = size::parse_positive)]
    size: u64,
    /// Look for the files in this directory too; may be given several times
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ResizeReport {
    #[serde(serialize_with = "forebay_files::readable")]
    flash: PathBuf,
    /// Pages written to the files, because they have no room any more.
    pages: u64,
    /// Pages that are in it.
    kept: u64,
    /// How many pages it has room for.
    slots: u64,
    bytes: u64,
}

impl Resize {
    /// By the server that has it.
    fn while_it_runs(&self) -> Result<ResizeResult, Failure> {
        let flash = CacheLocation::of(&self.flash)?.flash().to_owned();
        let mut said = Instant::now();
        forebay_innodb::resize_running(&flash, self.size, |resizing| {
            if said.elapsed() >= Duration::from_secs(1) {
                said = Instant::now();
                complain!("forebay: {} of {} pages", resizing.done, resizing.of);
            }
        })
        .map_err(Failure::Failed)
    }

    pub fn run(self) -> Result<(), Failure> {
        let data = flush::directories(&self.data)?;
        let resized = match forebay_innodb::resize(&self.flash, self.size, &data, flush::progress())
        {
            Err(error) if error.is_in_use() => self.while_it_runs()?,
            done => done?,
        };
        let report = ResizeReport {
            flash: self.flash,
            pages: resized.pages,
            kept: resized.now.pages,
            slots: resized.now.slots,
            bytes: self.size,
        };
        output::report(self.json, &report, |report| {
            format!(
                "{}: {} now, room for {} pages; {} pages are in it, and {} pages were written to the files\n",
                report.flash.display(),
                size::show(report.bytes),
                report.slots,
                report.kept,
                report.pages
            )
        })
    }
}
