//! `forebay flash flush`.

use crate::{failure::Failure, output, standard_error::complain};
use clap::Args;
use forebay_innodb::FlushProgress;
use serde::Serialize;
use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Bring everything in a flash cache to the files, so that the server may be started without
/// Forebay
#[derive(Args)]
#[command(
    long_about = "Writes all pages that are newer in the flash cache than in the database's files to these files, empties the cache, and removes the guard that stops a server \
                  without Forebay. The server must not run. The time depends on the number of such pages, not on the cache's size; an interrupted flush continues when it is repeated.",
    after_long_help = "Examples:\n  \
        forebay flash flush --flash /fast/cache\n  \
        forebay flash flush --flash /fast/cache --data /srv/mysql    the data directory was renamed, or mounted, there\n  \
        forebay flash flush --cache-is-lost --data /srv/mysql        the cache is gone, and so are the pages that only it had\n\n\
        Exit status: 0 the files have everything (with --cache-is-lost: all that there is; \
        with pages not found, not_found as JSON, files may have torn pages); 1 they have not; 2 the command line is wrong."
)]
pub struct Flush {
    /// The flash cache
    #[arg(long, value_name = "PATH", required_unless_present = "cache_is_lost")]
    flash: Option<PathBuf>,
    /// Look for the files in this directory too; may be given several times
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// Give up the pages of this file, which is gone or was replaced by another; may be given
    /// several times
    #[arg(long, value_name = "FILE", requires = "flash")]
    give_up: Vec<PathBuf>,
    /// The cache is lost for good: let a server start on these data directories (--data) with the
    /// pages in their files. Pages that a crash tore on their way around flash are repaired from
    /// forebay.pages there. After policy through nothing that was synced is missing; after any
    /// other policy restore a backup
    #[arg(long, conflicts_with = "flash", requires = "data")]
    cache_is_lost: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct FlushReport {
    flash: Option<String>,
    /// Pages written to the files.
    pages: u64,
    /// Pages that a crash may have torn, and whose files were not found.
    not_found: u64,
    /// System tablespaces whose guard was taken away.
    lifted: Vec<String>,
}

impl Flush {
    pub fn run(self) -> Result<(), Failure> {
        let data = directories(&self.data)?;
        let given_up: Vec<PathBuf> = (self.give_up.iter())
            .map(|file| whole(file))
            .collect::<Result<_, _>>()?;
        let flushed = match &self.flash {
            Some(flash) => forebay_innodb::flush(flash, &data, &given_up, progress())?,
            None => forebay_innodb::give_up(&data)?,
        };
        let shown = |path: &PathBuf| path.display().to_string();
        let report = FlushReport {
            flash: self.flash.as_ref().map(shown),
            pages: flushed.pages,
            not_found: flushed.not_found,
            lifted: flushed.lifted.iter().map(shown).collect(),
        };
        output::report(self.json, &report, human)
    }
}

/// The directories of `--data`, whole names.
pub fn directories(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let each = given.iter().map(|dir| {
        (dir.canonicalize()).map_err(Failure::io("looking for files in", dir.display()))
    });
    each.collect()
}

/// A file of `--give-up` by its whole name, as the cache knows it. It may be gone; where it is not
/// said from the root, its directory is not.
fn whole(file: &Path) -> Result<PathBuf, Failure> {
    let beside = Path::new(".").join(file);
    match (beside.parent(), beside.file_name()) {
        (Some(dir), Some(name)) if file.is_relative() => {
            let dir = dir.canonicalize();
            let dir = dir.map_err(Failure::io("looking for the directory of", file.display()))?;
            Ok(dir.join(name))
        }
        _ => Ok(file.to_owned()),
    }
}

/// Says every second how far it is.
pub fn progress() -> impl FnMut(FlushProgress) -> ControlFlow<()> {
    const OFTEN: Duration = Duration::from_secs(1);
    let mut said = Instant::now();
    move |progress| {
        if said.elapsed() >= OFTEN {
            said = Instant::now();
            complain!("forebay: {} of {} pages", progress.done, progress.of);
        }
        ControlFlow::Continue(())
    }
}

fn human(report: &FlushReport) -> String {
    let mut text = match &report.flash {
        Some(flash) => format!(
            "{flash}: {} pages were written to the files, and the cache is empty\n",
            report.pages
        ),
        None if report.pages > 0 => format!(
            "{} pages that a crash may have torn on their way to the files were written again\n",
            report.pages
        ),
        None => String::new(),
    };
    if report.not_found > 0 {
        text.push_str(&format!(
            "{} pages that a crash may have torn are of files that were not found: of deleted ones, or of some outside these directories. \
             Run innochecksum over the latter\n",
            report.not_found
        ));
    }
    for path in &report.lifted {
        text.push_str(&format!(
            "{path}: the server may be started without Forebay, with innodb_doublewrite on\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_given_up_is_known_by_its_whole_path_though_gone() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        for (given, known) in [
            ("t.ibd", here.join("t.ibd")),
            ("./src/t.ibd", here.join("src/t.ibd")),
            ("src/../t.ibd", here.join("t.ibd")),
            ("/srv/mysql/t.ibd", PathBuf::from("/srv/mysql/t.ibd")),
        ] {
            assert_eq!(whole(Path::new(given)).unwrap(), known);
        }
        assert!(whole(Path::new("no/such/directory/t.ibd")).is_err());
    }
}
