//! The same figures for people: what all tables are made of.

pub use forebay_measure::table::{Column, Table, disk as device, figure, grouped};

use serde_json::{Map, Value};

/// The entries of an object; none of anything else.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(entries) => entries,
        _ => Map::new(),
    }
}

/// What to know when reading the figures, a line each.
pub(crate) fn notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("note: {note}\n")).collect()
}

pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |s| format!("{:.1} %", s * 100.0))
}

pub(crate) fn min_max(span: Option<crate::rounds::Span>) -> String {
    span.map_or_else(
        || "-".to_owned(),
        |s| format!("{}-{}", figure(Some(s.min)), figure(Some(s.max))),
    )
}
