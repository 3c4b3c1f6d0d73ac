//! `forebay flash resize`.

use crate::{failure::Failure, flush, output, size};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Give a flash cache another size
#[derive(Args)]
#[command(
    long_about = "Writes all pages that are newer in a flash cache than in the database's files to these, and makes the cache anew with another size, larger or smaller. \
                  The server must not run. It takes as long as there are such pages; what is interrupted goes on where it was when it is repeated. \
                  The cache is empty then, and fills as the server runs.",
    after_long_help = "Examples:\n  \
        forebay flash resize --flash /fast/cache 40GiB\n  \
        forebay flash resize --flash /fast/cache --data /srv/mysql 5GiB    the data directory was moved there\n\n\
        Exit status: 0 it has the size; 1 it has not, and nothing is lost; 2 the command line is wrong."
)]
pub struct Resize {
    /// The flash cache
    #[arg(long, value_name = "PATH")]
    flash: PathBuf,
    /// How large it is to be
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
struct Report {
    flash: PathBuf,
    /// Pages written to the files.
    pages: u64,
    /// How many pages it has room for.
    slots: u64,
    bytes: u64,
}

impl Resize {
    pub fn run(self) -> Result<(), Failure> {
        let data = flush::directories(&self.data)?;
        let resized = forebay_pages::resize(&self.flash, self.size, &data, flush::progress())?;
        let report = Report {
            flash: self.flash,
            pages: resized.pages,
            slots: resized.slots,
            bytes: self.size,
        };
        output::report(self.json, &report, |report| {
            format!(
                "{}: {} now, room for {} pages; {} pages were written to the files, and the cache is empty\n",
                report.flash.display(),
                size::show(report.bytes),
                report.slots,
                report.pages
            )
        })
    }
}
