//! Progress on standard error: a bar on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};

/// A bar over `bytes` bytes of input (a spinner if that is not known). Invisible off a terminal.
#[must_use]
pub fn byte_bar(bytes: Option<u64>, what: &str) -> ProgressBar {
    let bar = match bytes {
        Some(bytes) => ProgressBar::new(bytes).with_style(style(
            "{msg} [{bar:30}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left",
        )),
        None => {
            ProgressBar::new_spinner().with_style(style("{spinner} {msg} {bytes}, {bytes_per_sec}"))
        }
    };
    if !stderr().is_terminal() {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    bar.with_message(what.to_owned())
}

/// The style of a template, or the default one.
#[must_use]
pub fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}
