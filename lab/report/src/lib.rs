//! The papers' tables with ours beside them: one page in HTML and one in Markdown, from the files
//! of `forebay-lab paper` alone.
//!
//! [`read`] gathers the results of a directory; [`html`] and [`markdown`] are the pages. What both
//! say (claims, sentences, tables) is made once, in `section`; `claim` is what the papers say,
//! `compare` computes ours in the same manner, `chart` draws.

mod chart;
mod claim;
mod compare;
mod html;
mod markdown;
mod section;
mod words;

pub use html::html;
pub use markdown::markdown;

use forebay_bench::{
    BenchError,
    paper::{Experiment, Outcome, catalogue},
};
use std::path::Path;

/// The results that pages are made from: each experiment in the catalogue's order, and what it
/// gave, if it was run.
#[derive(Debug)]
pub struct Results(Vec<(&'static Experiment, Option<Outcome>)>);

/// Reads the results in `dir`.
///
/// # Errors
/// I/O errors, files that are no results, and [`BenchError::Config`] if there are none at all.
pub fn read(dir: &Path) -> Result<Results, BenchError> {
    let results = catalogue::ALL
        .iter()
        .map(|experiment| Ok((experiment, Outcome::load(dir, &experiment.id)?)))
        .collect::<Result<Vec<_>, BenchError>>()?;
    if results.iter().all(|(_, outcome)| outcome.is_none()) {
        return Err(BenchError::Config(format!(
            "there are no results in {0}; measure some first: forebay-lab paper --quick --out {0}",
            dir.display()
        )));
    }
    Ok(Results(results))
}
