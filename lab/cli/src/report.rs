//! `forebay-lab report`.

use crate::failed;
use clap::Args;
use forebay_cli::{failure::Failure, output};
use forebay_report as report;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Make a page of what forebay-lab paper measured: the papers' figures, and ours beside them
#[derive(Args)]
#[command(
    long_about = "Reads the results of forebay-lab paper in DIR and makes a page of them: a summary, and each table and figure with the paper's ratio, \
                  ours, the command, the machine, and a sentence on each difference. --html writes one file that needs nothing else, light or dark as \
                  the reader's system is; --markdown writes the same as text. Without either, the Markdown goes to standard output.",
    after_long_help = "Examples:\n  \
        forebay-lab report results --html report.html\n  \
        forebay-lab report results --markdown report.md"
)]
pub struct Report {
    /// Where the results are
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Write the page to this file as HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the page to this file as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl Report {
    pub fn run(self) -> Result<(), Failure> {
        let results = report::read(&self.dir).map_err(failed)?;
        if let Some(path) = &self.html {
            write(path, &report::html(&results))?;
        }
        if let Some(path) = &self.markdown {
            write(path, &report::markdown(&results))?;
        }
        match (&self.html, &self.markdown) {
            (None, None) => output::print(&report::markdown(&results)),
            _ => Ok(()),
        }
    }
}

fn write(path: &Path, page: &str) -> Result<(), Failure> {
    fs::write(path, page).map_err(Failure::io("writing", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
