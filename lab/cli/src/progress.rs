//! Progress of the laboratory's measurements, on standard error: a line on a terminal that changes,
//! lines otherwise.

use forebay_cli::progress::style;
use indicatif::ProgressBar;
use std::{
    io::{IsTerminal, stderr},
    time::Duration,
};

/// Shows how a benchmark goes on.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// Progress on standard error.
    pub fn new() -> Self {
        Self(stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner().with_style(style("{spinner} {msg} {elapsed}"));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        }))
    }

    /// Says what is being done.
    pub fn note(&self, what: &str) {
        match &self.0 {
            Some(bar) => bar.set_message(what.to_owned()),
            None => eprintln!("{what}"),
        }
    }

    /// Says something that stays.
    pub fn say(&self, line: &str) {
        match &self.0 {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
