//! Figures for people: aligned tables, and numbers with three digits.

use crate::disk::Speed;
use comfy_table::{CellAlignment, presets::NOTHING};

/// A table: a head, and rows of as many cells. The first column is left-aligned, all others
/// right-aligned.
pub struct Table(comfy_table::Table);

impl Table {
    /// A table with this head.
    #[must_use]
    pub fn new(head: &[impl ToString]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_preset(NOTHING);
        table.set_header(head.iter().map(ToString::to_string));
        for (at, column) in table.column_iter_mut().enumerate() {
            let (alignment, left) = match at {
                0 => (CellAlignment::Left, 0),
                _ => (CellAlignment::Right, 2),
            };
            column.set_padding((left, 0)).set_cell_alignment(alignment);
        }
        Self(table)
    }

    /// A table of `rows` with these columns: the name of each, and what it says of a row.
    pub fn of<R>(columns: &[Column<R>], rows: impl IntoIterator<Item = R>) -> Self {
        let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let mut table = Self::new(&head);
        for row in rows {
            table.row(columns.iter().map(|(_, cell)| cell(&row)).collect());
        }
        table
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.0.add_row(cells);
    }

    /// True if there is nothing but the head.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The table as lines.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.trim_fmt() + "\n"
    }

    /// The same with an empty line behind it; nothing of a table without rows.
    #[must_use]
    pub fn paragraph(&self) -> String {
        match self.is_empty() {
            true => String::new(),
            false => self.render() + "\n",
        }
    }
}

/// A column of a table of `R`.
pub type Column<R> = (&'static str, fn(&R) -> String);

/// A figure with about three significant digits; a dash for none.
#[must_use]
pub fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(v) if !v.is_finite() => "-".to_owned(),
        Some(v) if v.abs() >= 100.0 => grouped(v.round() as i64),
        Some(v) if v.abs() >= 10.0 => format!("{v:.1}"),
        Some(v) => format!("{v:.2}"),
    }
}

/// A whole number with thin groups of three digits.
#[must_use]
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// A disk's line.
#[must_use]
pub fn disk(speed: &Speed) -> String {
    format!(
        "device {}{}: {} MB/s sequential writes{}, {} µs for a synced 4 KiB write\n",
        speed.name.as_deref().unwrap_or("(none)"),
        speed
            .file_system
            .as_ref()
            .map_or_else(String::new, |f| format!(" ({f})")),
        figure(Some(speed.seq_write_mb_s)),
        if speed.direct {
            ""
        } else {
            " through the page cache (O_DIRECT is refused)"
        },
        figure(Some(speed.fsync_us)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["who", "µs"]);
        table.row(vec!["double".to_owned(), "12,345".to_owned()]);
        table.row(vec!["fsync".to_owned(), "1".to_owned()]);
        assert_eq!(
            table.render(),
            "who         µs\ndouble  12,345\nfsync        1\n"
        );
    }

    #[test]
    fn figures_have_three_digits_or_more() {
        for (value, text) in [
            (0.123, "0.12"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(figure(Some(value)), text);
        }
        assert_eq!(figure(None), "-");
        assert_eq!(grouped(-1000), "-1,000");
    }
}
