//! The same figures for people: what all tables are made of.

pub use forebay_measure::table::{
    Column, Table, disk as device, figure, grouped, min_max, notes, object,
};

pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |s| format!("{:.1} %", s * 100.0))
}
