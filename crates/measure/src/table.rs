//! Figures for people: aligned tables, and numbers with three digits.

use crate::disk::Speed;

/// A table: a head, and rows of as many cells. The first column is left-aligned, all others right-aligned.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this head.
    #[must_use]
    pub fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|&cell| cell.to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// True if there is nothing but the head.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The table as lines.
    #[must_use]
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width - cell.chars().count());
                if column == 0 {
                    line.push_str(cell);
                    line.push_str(&padding);
                } else {
                    line.push_str("  ");
                    line.push_str(&padding);
                    line.push_str(cell);
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

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
