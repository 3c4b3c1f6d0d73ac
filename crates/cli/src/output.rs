//! Standard output, which may be closed at any time (`| head`).

use crate::{failure::Failure, standard_error::complain};
use serde::Serialize;
use std::{
    io::{self, BufWriter, StdoutLock, Write},
    process::ExitCode,
};

/// Buffered standard output.
pub(crate) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    /// Standard output, ours until this is dropped.
    pub fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    /// Writes text as it is.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(Failure::output)
    }

    /// Writes one line of JSON.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        // First all of it: a reader gets a whole object, or none.
        let mut line = serde_json::to_vec(value)
            .map_err(|e| Failure::Failed(format!("the report cannot be written as JSON: {e}")))?;
        line.push(b'\n');
        self.bytes(&line)
    }

    /// Writes buffered output.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.0.flush().map_err(Failure::output)
    }
}

/// Prints `text`.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut output = Output::new();
    output.text(text)?;
    output.finish()
}

/// Prints a report: as JSON, or as the text that `human` makes of it.
pub fn report<R: Serialize>(
    json: bool,
    report: &R,
    human: impl FnOnce(&R) -> String,
) -> Result<(), Failure> {
    let mut output = Output::new();
    if json {
        output.json(report)?;
    } else {
        output.text(&human(report))?;
    }
    output.finish()
}

impl Failure {
    /// Says it on standard error, and, if a report was to be `json`, on standard output as well:
    /// `{"error": …}`. Gives the status.
    pub fn report(self, json: bool) -> ExitCode {
        let (status, message) = match self {
            Self::Usage(message) => (2, Some(message)),
            Self::Failed(message) => (1, Some(message)),
            Self::NotRun(status, message) => (status, Some(message)),
            Self::Reported => (1, None),
            Self::Passed(status) => (status, None),
            Self::OutputClosed => (0, None),
        };
        if let Some(message) = message {
            complain!("error: {message}");
            if json {
                // If that cannot be written, it has been said.
                let _ = print_error(&message);
            }
        }
        ExitCode::from(status)
    }
}

/// Prints as JSON why there is no report.
fn print_error(why: &str) -> Result<(), Failure> {
    let mut output = Output::new();
    output.json(&serde_json::json!({ "error": why }))?;
    output.finish()
}

/// Prints a report as [`report`] does, and fails if not all is well. That its reader has gone away
/// makes nothing well.
pub fn verdict<R: Serialize>(
    json: bool,
    report: &R,
    is_well: bool,
    human: impl FnOnce(&R) -> String,
) -> Result<(), Failure> {
    match self::report(json, report, human) {
        Ok(()) | Err(Failure::OutputClosed) if !is_well => Err(Failure::Reported),
        printed => printed,
    }
}

/// Lines of `name: value`, aligned.
pub fn fields(fields: &[(&str, String)]) -> String {
    let width = fields
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0)
        + 1;
    fields
        .iter()
        .map(|(name, value)| format!("{:width$} {value}\n", format!("{name}:")))
        .collect()
}

/// Text with words of others, which may have anything in them, without characters that a terminal
/// obeys.
pub fn printable(text: &str) -> String {
    let is_plain = |c: char| c == '\n' || !c.is_control();
    text.chars()
        .map(|c| if is_plain(c) { c } else { '?' })
        .collect()
}
