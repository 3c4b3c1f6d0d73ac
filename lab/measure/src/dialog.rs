//! A program that is told one line after the other, and answers each.

use crate::{MeasureError, processes::Process};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

/// How long a program may take to end once it was told everything.
const PATIENCE: Duration = Duration::from_secs(120);

/// Such a program, while it runs. It is killed when this is dropped.
pub struct Dialog {
    process: Process,
    name: String,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Where what it complains of is.
    errors: PathBuf,
}

impl Dialog {
    /// Starts it. What it complains of goes to the file `errors`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn start(mut command: Command, errors: &Path) -> Result<Self, MeasureError> {
        let file = File::create(errors).map_err(MeasureError::io("making", errors))?;
        let name = command.get_program().display().to_string();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file);
        let mut process = Process::spawn(&mut command)?;
        let (input, output) = (process.child().stdin.take(), process.child().stdout.take());
        let output =
            output.ok_or_else(|| MeasureError::Child(format!("({name}) has no output")))?;
        Ok(Self {
            process,
            name,
            input,
            output: BufReader::new(output),
            errors: errors.to_owned(),
        })
    }

    /// Tells it a line, and waits until it has answered with the line `last`.
    ///
    /// # Errors
    /// [`MeasureError::Child`] if it ended, with what it complained of.
    pub fn ask(&mut self, line: &str, last: &str) -> Result<(), MeasureError> {
        let said = match &mut self.input {
            Some(input) => writeln!(input, "{line}").is_ok(),
            None => false,
        };
        let mut answer = String::new();
        while said && answer.trim_end() != last {
            answer.clear();
            if !matches!(self.output.read_line(&mut answer), Ok(1..)) {
                break;
            }
        }
        match answer.trim_end() == last {
            true => Ok(()),
            false => Err(self.failed()),
        }
    }

    /// Has it end, as it does when it is told nothing more.
    ///
    /// # Errors
    /// [`MeasureError::Child`] if it failed, or does not end.
    pub fn end(mut self) -> Result<(), MeasureError> {
        drop(self.input.take());
        match self.process.wait(PATIENCE)?.success() {
            true => Ok(()),
            false => Err(self.failed()),
        }
    }

    fn failed(&self) -> MeasureError {
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        MeasureError::Child(format!("({}) ended and said: {}", self.name, said.trim()))
    }
}
