//! The parts of a measurement that takes hours: each is kept when it is done, so that an
//! interruption costs one of them.
//!
//! `DIR/ID.parts.jsonl` has a line for each: its name, at which size and where it was measured, and
//! its figures. `--resume` goes on with the others, and the file goes once the result is there.

use super::{
    machine::Machine,
    outcome::{Measured, write_whole},
    size::Size,
};
use crate::BenchError;
use serde::{Deserialize, Serialize};
use std::{
    cell::RefCell,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// A part that is done.
#[derive(Serialize, Deserialize)]
struct FinishedPart {
    name: String,
    size: Size,
    machine: Machine,
    measured: Measured,
}

/// Those of one measurement.
pub(crate) struct FinishedParts {
    path: PathBuf,
    size: Size,
    done: RefCell<Vec<FinishedPart>>,
}

impl FinishedParts {
    /// Those of a measurement whose results are called `id`, in `dir`. Unless it goes on with an
    /// interrupted one, there are none.
    ///
    /// # Errors
    /// I/O errors; [`BenchError::Config`] for a file of something else.
    pub fn open(dir: &Path, id: &str, size: Size, goes_on: bool) -> Result<Self, BenchError> {
        let path = dir.join(format!("{id}.parts.jsonl"));
        let read = match fs::read_to_string(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(BenchError::io("reading", &path)(e));
            }
            read => read.unwrap_or_default(),
        };
        // What an interruption left of a line has no end.
        let whole = read
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let parsed = whole
            .map(serde_json::from_str)
            .collect::<Result<Vec<FinishedPart>, _>>();
        let mut done = parsed.map_err(|e| {
            BenchError::Config(format!(
                "{} has no parts of this version of forebay-lab ({e}); remove it",
                path.display()
            ))
        })?;
        // In the file they stay until a new one is there.
        done.retain(|part| goes_on || part.size != size);
        Ok(Self {
            path,
            size,
            done: RefCell::new(done),
        })
    }

    /// What the parts that are done gave.
    pub fn measured(&self) -> Measured {
        let mut measured = Measured::default();
        let done = self.done.borrow();
        let done = || done.iter().filter(|part| part.size == self.size);
        for part in done() {
            measured.append(part.measured.clone());
        }
        let this = Machine::this();
        let elsewhere = done().filter(|part| part.machine != this);
        let names: Vec<&str> = elsewhere.map(|part| &*part.name).collect();
        if !names.is_empty() {
            measured.note(format!(
                "measured on another machine, before an interruption: {}",
                names.join("; ")
            ));
        }
        measured
    }

    /// Those of `all` that are not done.
    pub fn left<T>(&self, mut all: Vec<T>, name: impl Fn(&T) -> String) -> Vec<T> {
        let done = self.done.borrow();
        all.retain(|of| {
            let name = name(of);
            done.iter()
                .all(|part| (part.size, &part.name) != (self.size, &name))
        });
        all
    }

    /// Keeps a part.
    ///
    /// # Errors
    /// I/O errors.
    pub fn add(&self, name: String, measured: Measured) -> Result<(), BenchError> {
        let part = FinishedPart {
            name,
            size: self.size,
            machine: Machine::this(),
            measured,
        };
        self.done.borrow_mut().push(part);
        self.save()
    }

    /// Writes the file; it is there whole or as it was.
    fn save(&self) -> Result<(), BenchError> {
        let done = self.done.borrow();
        write_whole(&self.path, |file| {
            for part in &*done {
                serde_json::to_writer(&mut *file, part)?;
                file.write_all(b"\n")?;
            }
            Ok(())
        })
    }

    /// Forgets the parts, since the result is there. Those of other sizes stay.
    ///
    /// # Errors
    /// I/O errors.
    pub fn end(&self) -> Result<(), BenchError> {
        self.done.borrow_mut().retain(|part| part.size != self.size);
        if !self.done.borrow().is_empty() {
            return self.save();
        }
        match fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(BenchError::io("removing", &self.path)(e))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::HERE;

    fn figure(figure: f64) -> Measured {
        let mut measured = Measured::default();
        measured.add("puts", HERE, "a", "4 KiB", &[figure]);
        measured.note("as ever");
        measured
    }

    #[test]
    fn an_interrupted_measurement_goes_on_with_what_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let open = |size, goes_on| FinishedParts::open(dir.path(), "p9", size, goes_on);
        let left = |parts: &FinishedParts| {
            parts.left(vec!["one", "two", "three"], |name| (*name).to_owned())
        };
        let parts = open(Size::Paper, true).unwrap();
        assert_eq!(left(&parts), ["one", "two", "three"]);
        parts.add("one".to_owned(), figure(1.0)).unwrap();
        parts.add("two".to_owned(), figure(2.0)).unwrap();
        let again = open(Size::Paper, true).unwrap();
        assert_eq!(left(&again), ["three"]);
        let mut measured = again.measured();
        assert_eq!(measured.value("puts", HERE, "a", "4 KiB"), 1.5);
        assert_eq!(measured.notes().len(), 1);
        // Another size has none of them, and leaves them.
        let quick = open(Size::Quick, true).unwrap();
        assert_eq!(left(&quick).len(), 3);
        quick.add("one".to_owned(), figure(9.0)).unwrap();
        quick.end().unwrap();
        let parts = open(Size::Paper, true).unwrap();
        parts.add("three".to_owned(), figure(3.0)).unwrap();
        let path = dir.path().join("p9.parts.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        assert_eq!(left(&open(Size::Paper, true).unwrap()), ["three"]);
        fs::write(&path, "{}\n").unwrap();
        assert!(matches!(
            open(Size::Paper, true),
            Err(BenchError::Config(_))
        ));
        fs::write(&path, &text).unwrap();
        let anew = open(Size::Paper, false).unwrap();
        assert_eq!(left(&anew).len(), 3);
        anew.add("two".to_owned(), figure(3.0)).unwrap();
        assert_eq!(left(&open(Size::Paper, true).unwrap()), ["one", "three"]);
        anew.end().unwrap();
        assert!(!path.exists());
    }
}
