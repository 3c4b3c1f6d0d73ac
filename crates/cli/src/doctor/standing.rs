//! `forebay doctor DIR`: whether a database may be started there without Forebay.

use crate::{failure::Failure, output};
use forebay_files::marks::{self, Standing, State};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Report {
    directory: PathBuf,
    /// True if no pool holds, or may hold, what belongs into the files below it.
    is_harmless: bool,
    pools: Vec<Standing>,
}

/// Says it; an error if a database must not be started there without Forebay.
pub fn report(directory: &Path, json: bool) -> Result<(), Failure> {
    let pools =
        marks::standing(directory).map_err(Failure::io("looking at", directory.display()))?;
    let report = Report {
        directory: directory.to_owned(),
        is_harmless: pools.iter().all(Standing::is_harmless),
        pools,
    };
    output::report(json, &report, human)?;
    match report.is_harmless {
        true => Ok(()),
        false => Err(Failure::Reported),
    }
}

fn human(report: &Report) -> String {
    let harmful = report.pools.iter().filter(|one| !one.is_harmless());
    let mut text: String = harmful.map(line).collect();
    if text.is_empty() {
        text = format!(
            "no pool holds acknowledged writes for the files in {}\n",
            report.directory.display()
        );
    }
    text
}

fn line(standing: &Standing) -> String {
    let (directory, pool) = (standing.directory.display(), standing.pool.display());
    match &standing.state {
        State::Empty => String::new(),
        State::InUse => {
            format!("{directory}: a program is running on it under Forebay, with the pool {pool}\n")
        }
        State::Holds { records } => format!(
            "{directory}: the pool {pool} holds {records} records of a run that was cut off, acknowledged writes for the files there among them. Start the program \
             under forebay run with this pool, or first: forebay recover --pool {pool}\n"
        ),
        State::Unknown { why } => format!(
            "{directory}: a run that did not end in the orderly way used the pool {pool}, which may hold acknowledged writes for the files there and cannot be looked \
             at ({why}). Bring the pool back; if it is gone for good: setfattr -x user.forebay.pools {directory}\n"
        ),
    }
}
