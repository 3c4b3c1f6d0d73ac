//! Figures for people: what the laboratory adds to [`forebay_probe::table`].

pub use forebay_probe::table::{Column, Table, disk, figure, grouped};

use crate::rounds::Span;
use serde_json::{Map, Value};

/// The smallest and the largest of a figure.
#[must_use]
pub fn min_max(span: Option<Span>) -> String {
    span.map_or_else(
        || "-".to_owned(),
        |s| format!("{}-{}", figure(Some(s.min)), figure(Some(s.max))),
    )
}

/// What to know when reading the figures, a line each.
#[must_use]
pub fn notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("note: {note}\n")).collect()
}

/// The entries of an object; none of anything else.
#[must_use]
pub fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(entries) => entries,
        _ => Map::new(),
    }
}
