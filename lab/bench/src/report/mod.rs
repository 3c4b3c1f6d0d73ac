//! The same figures as tables for people.

mod memory;
mod wisckey;

pub use forebay_measure::table::{Table, disk as device, figure, grouped};
pub use memory::{emulated, pool};
pub use wisckey::{PAPER, wisckey};

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |s| format!("{:.1} %", s * 100.0))
}

pub(crate) fn min_max(span: Option<crate::rounds::Span>) -> String {
    span.map_or_else(String::new, |s| {
        format!("{}-{}", figure(Some(s.min)), figure(Some(s.max)))
    })
}
