//! The outcome of an experiment: one JSON file each, which reports are made from
//! (docs/benchmarks.md, "forebay-lab paper").

use super::{catalogue::Experiment, machine::Machine, size::Size};
use crate::{
    BenchError,
    device::Speed,
    place::HERE,
    report::Row,
    rounds::{Span, median, span},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Version of the files.
pub const FORMAT: u32 = 1;

/// What a figure is of.
const CELL: [&str; 4] = ["panel", "place", "series", "x"];

/// What an experiment gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`FORMAT`].
    pub format: u32,
    /// The experiment's id.
    pub experiment: String,
    /// At which size it was run.
    pub size: Size,
    /// The command that repeats it.
    pub command: String,
    /// Forebay's version.
    pub version: String,
    /// Where it was run.
    pub machine: Machine,
    /// The device under the directory, measured in the same run.
    pub device: Option<Speed>,
    /// When it began, seconds since 1970.
    pub started_unix_s: u64,
    /// How long it took since the last interruption, seconds. Experiments that are measured
    /// together have the same.
    pub seconds: f64,
    /// The figures.
    pub rows: Vec<Row>,
    /// What to know when reading them.
    pub notes: Vec<String>,
}

/// The row of a panel's figures in the rounds, at a place, of a series at an x: docs/benchmarks.md
/// says what its fields are. Without figures it says why there are none.
fn row(cell: [&str; 4], figures: Result<&[f64], &str>) -> Row {
    let [panel, place, series, x] = cell;
    let row = Row::of(json!({"panel": panel, "place": place, "series": series, "x": x}));
    match figures {
        Err(why) => row.with(json!({"value": null, "missing": why})),
        Ok([]) => self::row(cell, Err("not measured")),
        Ok(figures) => {
            let Span { min, max } = span(figures);
            let value = median(figures);
            row.with(json!({"value": value, "min": min, "max": max, "rounds": figures}))
        }
    }
}

/// What a measurement gives: rows of all experiments that it is shared by.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub rows: Vec<Row>,
    /// The device, as often as it was measured.
    pub devices: Vec<Speed>,
    /// What to know when reading the figures.
    notes: Vec<String>,
}

impl Measured {
    /// Nothing, since something is not installed: a row of each panel says so.
    pub fn all_missing(experiments: &[&Experiment], why: &str) -> Self {
        let mut measured = Self::default();
        for panel in experiments.iter().flat_map(|it| &it.panels) {
            measured.missing(&panel.id, HERE, "", "", why);
        }
        measured
    }

    /// The row of that panel, place, series and x, if something was added to it.
    fn find(&mut self, cell: [&str; 4]) -> Option<&mut Row> {
        let mut rows = self.rows.iter_mut();
        rows.find(|row| CELL.map(|name| row.text(name)) == cell)
    }

    /// Adds rounds to the row of that panel, place, series and x, which is made with its first.
    pub fn add(&mut self, panel: &str, place: &str, series: &str, x: &str, figures: &[f64]) {
        let cell = [panel, place, series, x];
        match self.find(cell) {
            Some(found) => {
                let rounds = [&found.list("rounds"), figures].concat();
                *found = row(cell, Ok(&rounds));
            }
            None => self.rows.push(row(cell, Ok(figures))),
        }
    }

    /// Adds what another has: rounds to rows that are there, and notes that are not.
    pub fn append(&mut self, other: Self) {
        for added in other.rows {
            let cell = CELL.map(|name| added.text(name));
            match self.find(cell) {
                Some(found) => {
                    let rounds = [found.list("rounds"), added.list("rounds")].concat();
                    *found = row(cell, Ok(&rounds));
                }
                None => self.rows.push(added),
            }
        }
        self.devices.extend(other.devices);
        for note in other.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// What was noted.
    #[cfg(test)]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The figure of a row that was added; not a number without one.
    pub fn value(&mut self, panel: &str, place: &str, series: &str, x: &str) -> f64 {
        let row = self.find([panel, place, series, x]);
        row.and_then(|row| row.number("value")).unwrap_or(f64::NAN)
    }

    /// Adds a row that says why there is no figure.
    pub fn missing(&mut self, panel: &str, place: &str, series: &str, x: &str, why: &str) {
        self.rows.push(row([panel, place, series, x], Err(why)));
    }

    /// Notes something about the figures.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// The rows and notes of an experiment.
    pub fn of(&self, experiment: &Experiment) -> (Vec<Row>, Vec<String>) {
        let is_mine = |panel: &str| experiment.panels.iter().any(|mine| mine.id == panel);
        let mut rows = self.rows.clone();
        rows.retain(|row| is_mine(row.text("panel")));
        let mut notes = self.notes.clone();
        // They are about figures.
        if rows.iter().any(|row| row.number("value").is_some()) {
            notes.extend_from_slice(&experiment.notes);
        }
        (rows, notes)
    }
}

/// Writes the file that `path` names, in a directory that is there: it is there whole or as it was.
///
/// # Errors
/// I/O errors.
pub(super) fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut tempfile::NamedTempFile) -> io::Result<()>,
) -> Result<(), BenchError> {
    let failed = BenchError::io("writing", path);
    let dir = path.parent().unwrap_or(Path::new("."));
    let done = tempfile::NamedTempFile::new_in(dir).and_then(|mut file| {
        write(&mut file)?;
        file.persist(path).map_err(|e| e.error)
    });
    done.map(drop).map_err(failed)
}

impl Outcome {
    /// The file of an experiment in `dir`.
    #[must_use]
    pub fn path(dir: &Path, experiment: &str) -> PathBuf {
        dir.join(format!("{experiment}.json"))
    }

    /// Writes the file; it is there whole or not at all.
    ///
    /// # Errors
    /// I/O errors.
    pub fn save(&self, dir: &Path) -> Result<PathBuf, BenchError> {
        let path = Self::path(dir, &self.experiment);
        write_whole(&path, |file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            file.write_all(b"\n")
        })?;
        Ok(path)
    }

    /// Reads the file of `experiment` in `dir`, if there is one.
    ///
    /// # Errors
    /// I/O errors, and [`BenchError::Config`] for a file that is none of this format.
    pub fn load(dir: &Path, experiment: &str) -> Result<Option<Self>, BenchError> {
        let path = Self::path(dir, experiment);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BenchError::io("reading", &path)(error)),
        };
        let foreign = |what: String| {
            BenchError::Config(format!(
                "{} is not a result of this version of forebay ({what}); remove it, or measure again without --resume",
                path.display()
            ))
        };
        let outcome: Self = serde_json::from_slice(&bytes).map_err(|e| foreign(e.to_string()))?;
        if (outcome.format, outcome.experiment.as_str()) != (FORMAT, experiment) {
            let Self {
                format, experiment, ..
            } = outcome;
            return Err(foreign(format!("format {format}, experiment {experiment}")));
        }
        Ok(Some(outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_make_one_row_in_the_order_of_the_first() {
        let mut measured = Measured::default();
        for (series, figure) in [("a", 3.0), ("b", 9.0), ("b", 7.0), ("a", 1.0), ("a", 2.0)] {
            measured.add("puts", HERE, series, "4 KiB", &[figure]);
        }
        measured.add("puts", HERE, "c", "4 KiB", &[]);
        let [a, b, c] = &measured.rows[..] else {
            panic!("{:?}", measured.rows);
        };
        assert_eq!(*a, row(["puts", HERE, "a", "4 KiB"], Ok(&[3.0, 1.0, 2.0])));
        assert_eq!((a.number("value"), a.number("max")), (Some(2.0), Some(3.0)));
        assert_eq!(
            (b.number("value"), b.list("rounds")),
            (Some(8.0), vec![9.0, 7.0])
        );
        assert_eq!(
            (c.number("value"), c.text("missing")),
            (None, "not measured")
        );
    }
}
