//! `forebay flush`.

use crate::{failure::Failure, output};
use clap::Args;
use serde::Serialize;
use std::{
    ops::ControlFlow,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Bring everything in a flash cache to the files, so that the server may be started without Forebay
#[derive(Args)]
#[command(
    long_about = "Writes all pages that are newer in a flash cache than in the database's files to these, empties the cache, and takes the guard away that \
                  keeps the server from being started without Forebay. The server must not run. \
                  It takes as long as there are such pages, however large the cache is; what is interrupted goes on where it was.",
    after_long_help = "Examples:\n  \
        forebay flush --flash /fast/cache\n  \
        forebay flush --flash /fast/cache --data /srv/mysql    the data directory was moved there\n\n\
        Exit status: 0 the files have everything; 1 they have not; 2 the command line is wrong."
)]
pub struct Flush {
    /// The flash cache
    #[arg(long, value_name = "PATH")]
    flash: PathBuf,
    /// Look for the files in this directory too; may be given several times
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    flash: PathBuf,
    /// Pages written to the files.
    pages: u64,
    /// System tablespaces whose guard was taken away.
    lifted: Vec<PathBuf>,
}

impl Flush {
    pub fn run(self) -> Result<(), Failure> {
        const OFTEN: Duration = Duration::from_secs(1);
        let mut said = Instant::now();
        let mut data = Vec::new();
        for dir in &self.data {
            let dir = dir.canonicalize();
            data.push(dir.map_err(Failure::io("looking for files in", "--data"))?);
        }
        let flushed = forebay_pages::flush(&self.flash, &data, |progress| {
            if said.elapsed() >= OFTEN {
                said = Instant::now();
                eprintln!("forebay: {} of {} pages", progress.done, progress.of);
            }
            ControlFlow::Continue(())
        })?;
        let report = Report {
            flash: self.flash,
            pages: flushed.pages,
            lifted: flushed.lifted,
        };
        output::report(self.json, &report, human)
    }
}

fn human(report: &Report) -> String {
    let flash = report.flash.display();
    let mut text = format!(
        "{flash}: {} pages were written to the files, and the cache is empty\n",
        report.pages
    );
    for path in &report.lifted {
        text.push_str(&format!(
            "{}: the server may be started without Forebay\n",
            path.display()
        ));
    }
    text
}
