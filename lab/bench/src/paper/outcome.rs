//! What an experiment gave: one JSON file each, which reports are made from (docs/benchmarks.md, "Experiments").

use super::{Experiment, Size, machine::Machine};
use crate::{BenchError, device::Speed, place::HERE, rounds};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

/// Version of the files.
pub const FORMAT: u32 = 1;

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
    /// How long it took, seconds. Experiments that are measured together have the same.
    pub seconds: f64,
    /// The figures.
    pub rows: Vec<Row>,
    /// What to know when reading them.
    pub notes: Vec<String>,
}

/// A figure, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which of the experiment's panels it belongs to.
    pub panel: String,
    /// What the files were on: `this disk`, or an emulated device's profile.
    pub place: String,
    /// Who: a variant, a mode, a peer.
    pub series: String,
    /// At what: a size, a mix.
    pub x: String,
    /// The median of the rounds, in the panel's unit.
    pub value: Option<f64>,
    /// The smallest of the rounds.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// The rounds, in their order: the series took turns in each. Empty if they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<f64>,
    /// Why there is no figure, and the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

impl Row {
    /// The row of these rounds; nothing was measured if there are none.
    #[must_use]
    pub fn of(panel: &str, place: &str, series: &str, x: &str, figures: &[f64]) -> Self {
        let span = rounds::span(figures);
        let some = |value| (!figures.is_empty()).then_some(value);
        Self {
            panel: panel.to_owned(),
            place: place.to_owned(),
            series: series.to_owned(),
            x: x.to_owned(),
            value: some(rounds::median(figures)),
            min: some(span.min),
            max: some(span.max),
            rounds: figures.to_vec(),
            missing: figures.is_empty().then(|| "not measured".to_owned()),
        }
    }

    fn is(&self, panel: &str, place: &str, series: &str, x: &str) -> bool {
        [&*self.panel, &self.place, &self.series, &self.x] == [panel, place, series, x]
    }

    /// A row that says why there is no figure.
    #[must_use]
    pub fn missing(panel: &str, place: &str, series: &str, x: &str, why: &str) -> Self {
        Self {
            missing: Some(why.to_owned()),
            ..Self::of(panel, place, series, x, &[])
        }
    }
}

/// What a measurement gives: rows of all experiments that it is shared by.
#[derive(Default)]
pub(crate) struct Measured {
    pub rows: Vec<Row>,
    /// The device, as often as it was measured.
    pub devices: Vec<Speed>,
    /// What to know when reading the figures of some panels, or, without any, of all.
    notes: Vec<(&'static [&'static str], String)>,
}

impl Measured {
    /// Nothing, since something is not installed: a row of each panel says so.
    pub fn all_missing(experiments: &[&Experiment], why: &str) -> Self {
        let panels = experiments.iter().flat_map(|it| &it.panels);
        Self {
            rows: panels
                .map(|panel| Row::missing(&panel.id, HERE, "", "", why))
                .collect(),
            ..Self::default()
        }
    }

    /// Adds rounds to the row of that panel, place, series and x, which is made with its first.
    pub fn add(&mut self, panel: &str, place: &str, series: &str, x: &str, figures: &[f64]) {
        let mut rows = self.rows.iter_mut();
        match rows.find(|row| row.is(panel, place, series, x)) {
            Some(row) => {
                let rounds = [&row.rounds, figures].concat();
                *row = Row::of(panel, place, series, x, &rounds);
            }
            None => self.rows.push(Row::of(panel, place, series, x, figures)),
        }
    }

    /// The figure of a row that was added; not a number without one.
    pub fn value(&self, panel: &str, place: &str, series: &str, x: &str) -> f64 {
        let mut rows = self.rows.iter();
        let row = rows.find(|row| row.is(panel, place, series, x));
        row.and_then(|row| row.value).unwrap_or(f64::NAN)
    }

    /// Adds a row that says why there is no figure.
    pub fn missing(&mut self, panel: &str, place: &str, series: &str, x: &str, why: &str) {
        self.rows.push(Row::missing(panel, place, series, x, why));
    }

    /// Notes something about all figures.
    pub fn note(&mut self, text: impl Into<String>) {
        self.note_of(&[], text);
    }

    /// Notes something about the figures of `panels`.
    pub fn note_of(&mut self, panels: &'static [&'static str], text: impl Into<String>) {
        self.notes.push((panels, text.into()));
    }

    /// The rows and notes of an experiment.
    pub fn of(&self, experiment: &Experiment) -> (Vec<Row>, Vec<String>) {
        let is_mine = |panel: &str| experiment.panels.iter().any(|mine| mine.id == panel);
        let rows = self.rows.iter().filter(|row| is_mine(&row.panel));
        let notes = self
            .notes
            .iter()
            .filter(|(panels, _)| panels.is_empty() || panels.iter().any(|panel| is_mine(panel)));
        let rows: Vec<Row> = rows.cloned().collect();
        let notes = notes.map(|(_, text)| text);
        // They are about figures.
        let is_measured = rows.iter().any(|row| row.value.is_some());
        let of_figures = experiment.notes.iter().filter(|_| is_measured);
        let notes = notes.chain(of_figures).cloned().collect();
        (rows, notes)
    }
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
        let failed = || BenchError::io("writing", &path);
        let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed())?;
        serde_json::to_writer_pretty(&mut file, self).map_err(|e| failed()(e.into()))?;
        file.write_all(b"\n").map_err(failed())?;
        file.persist(&path).map_err(|e| failed()(e.error))?;
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
            return Err(foreign(format!(
                "format {}, experiment {}",
                outcome.format, outcome.experiment
            )));
        }
        Ok(Some(outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        Outcome {
            format: FORMAT,
            experiment: "p1-fig5".to_owned(),
            size: Size::Toy,
            command: "forebay-lab paper --toy p1-fig5".to_owned(),
            version: "0".to_owned(),
            machine: Machine::this(),
            device: None,
            started_unix_s: 1,
            seconds: 2.0,
            rows: vec![
                Row::of("puts", "this disk", "double", "4 KiB", &[3.0, 1.0, 2.0]),
                Row::missing(
                    "puts",
                    "sata-ssd",
                    "double",
                    "4 KiB",
                    "not measured: no such device",
                ),
            ],
            notes: Vec::new(),
        }
    }

    #[test]
    fn rounds_make_one_row_in_the_order_of_the_first() {
        let mut measured = Measured::default();
        for (series, figure) in [("a", 3.0), ("b", 9.0), ("b", 7.0), ("a", 1.0), ("a", 2.0)] {
            measured.add("puts", HERE, series, "4 KiB", &[figure]);
        }
        let [a, b] = &measured.rows[..] else {
            panic!("{:?}", measured.rows);
        };
        assert_eq!(*a, Row::of("puts", HERE, "a", "4 KiB", &[3.0, 1.0, 2.0]));
        assert_eq!((b.value, &b.rounds[..]), (Some(8.0), &[9.0, 7.0][..]));
    }

    #[test]
    fn what_was_saved_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let outcome = outcome();
        assert_eq!(Outcome::load(dir.path(), "p1-fig5").unwrap(), None);
        outcome.save(dir.path()).unwrap();
        assert_eq!(Outcome::load(dir.path(), "p1-fig5").unwrap(), Some(outcome));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_or_foreign_file_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        for text in [
            "{\"format\":",
            "{}",
            &serde_json::to_string(&outcome())
                .unwrap()
                .replace("p1-fig5", "p1-fig6"),
        ] {
            fs::write(dir.path().join("p1-fig5.json"), text).unwrap();
            let error = Outcome::load(dir.path(), "p1-fig5")
                .unwrap_err()
                .to_string();
            assert!(error.contains("p1-fig5.json"), "{error}");
        }
    }
}
