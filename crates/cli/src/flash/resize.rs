//! `forebay flash resize`.

use super::flush;
use crate::{failure::Failure, output, size, standard_error::complain};
use clap::Args;
use forebay_innodb::{CancelledResize, ResizeResult, SetupError, retry_in_use};
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
        forebay flash resize --flash /fast/cache --data /srv/mysql 5GiB    the data directory was renamed, or mounted, there\n  \
        forebay flash resize --flash /fast/cache --cancel                  the server that resizes it gives that up\n\n\
        Exit status: 0 it has the size, or the resize was given up; 1 it has not (--cancel: it has, or none was under way), or that is not known; nothing is lost; 2 the command line is wrong."
)]
pub struct Resize {
    /// The flash cache
    #[arg(long, value_name = "PATH")]
    flash: PathBuf,
    /// The new size
    #[arg(value_name = "SIZE", value_parser = size::parse_positive, required_unless_present = "cancel")]
    size: Option<u64>,
    /// Give up the resize that a server is at, or that one has begun which is gone: the cache keeps
    /// the size that it has
    #[arg(long, conflicts_with_all = ["size", "data", "json"])]
    cancel: bool,
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
    /// Number of pages that it has room for.
    slots: u64,
    bytes: u64,
}

impl Resize {
    /// By the server that has it.
    fn while_it_runs(&self, bytes: u64) -> Result<ResizeResult, SetupError> {
        let mut said = (Instant::now(), true);
        forebay_innodb::resize_running(&self.flash, bytes, |resizing| {
            let is_whole = resizing.done == resizing.of;
            // After the last page the metadata is written, which may take long.
            if said.0.elapsed() >= Duration::from_secs(1) || is_whole && !said.1 {
                said = (Instant::now(), is_whole);
                complain!("forebay: {} of {} pages", resizing.done, resizing.of);
            }
        })
    }

    fn give_up(&self) -> Result<(), Failure> {
        let flash = self.flash.display();
        let has = |slots| format!("room for {slots} pages");
        match forebay_innodb::cancel_resize(&self.flash)? {
            CancelledResize::GivenUp(now) => complain!(
                "forebay: {flash}: the server has given the resize up; it has {} as before",
                has(now.slots)
            ),
            CancelledResize::Forgotten => {
                complain!("forebay: {flash}: no server was at the resize, and none goes on with it")
            }
            CancelledResize::TooLate(now) => {
                return Err(Failure::Failed(format!(
                    "{flash}: the resize had ended before it could be given up; it has {} now",
                    has(now.slots)
                )));
            }
            CancelledResize::None => {
                return Err(Failure::Failed(format!(
                    "{flash}: no resize is under way, and nothing is given up"
                )));
            }
        }
        Ok(())
    }

    pub fn run(self) -> Result<(), Failure> {
        let Some(bytes) = self.size else {
            return self.give_up();
        };
        let data = flush::directories(&self.data)?;
        let resize = || forebay_innodb::resize(&self.flash, bytes, &data, flush::progress());
        let resized = match retry_in_use(resize) {
            Err(error) if error.is_in_use() => match self.while_it_runs(bytes) {
                Err(SetupError::Released { .. }) => retry_in_use(resize)?,
                done => done?,
            },
            done => done?,
        };
        let report = ResizeReport {
            flash: self.flash,
            pages: resized.pages,
            kept: resized.now.pages,
            slots: resized.now.slots,
            bytes,
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
