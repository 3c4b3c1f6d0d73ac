//! Choosing by name on a command line.

use std::fmt::Display;

/// The one of `all` that is shown as `text`.
///
/// # Errors
/// In words: that there is no such `what`, and which there are.
pub(crate) fn named<T: Copy + Display>(all: &[T], what: &str, text: &str) -> Result<T, String> {
    let found = all.iter().find(|one| one.to_string() == text).copied();
    found.ok_or_else(|| {
        let names: Vec<String> = all.iter().map(T::to_string).collect();
        format!("there is no such {what}; there are {}", names.join(", "))
    })
}
