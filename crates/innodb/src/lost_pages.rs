//! Pages that only the flash cache had the newest version of, by name, for people.

use forebay_flash::PageName;
use std::fmt::Write;

/// The pages of each file, a line each: `/srv/mysql/shop/t1.ibd: pages 3, 5 to 9`.
#[must_use]
pub fn by_file(pages: &[PageName]) -> Vec<String> {
    let mut sorted: Vec<&PageName> = pages.iter().collect();
    sorted.sort_unstable();
    sorted.dedup();
    let files = sorted.chunk_by(|a, b| a.file == b.file);
    files
        .map(|of| {
            let mut line = format!(
                "{}: {}",
                of[0].file,
                if of.len() == 1 { "page" } else { "pages" }
            );
            let rows = of.chunk_by(|a, b| a.page.checked_add(1) == Some(b.page));
            for (at, row) in rows.enumerate() {
                let [first, last] = [row[0].page, row[row.len() - 1].page];
                let comma = if at == 0 { "" } else { "," };
                // A string takes whatever is written to it.
                let _ = match row.len() {
                    1 => write!(line, "{comma} {first}"),
                    2 => write!(line, "{comma} {first}, {last}"),
                    _ => write!(line, "{comma} {first} to {last}"),
                };
            }
            line
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_named_file_by_file_and_rows_of_them_as_such() {
        let page = |file: &str, page| PageName {
            file: file.to_owned(),
            page,
        };
        let pages = [
            page("b", 7),
            page("a", 9),
            page("a", 3),
            page("a", 8),
            page("a", 4),
            page("a", 5),
            page("a", 3),
        ];
        assert_eq!(by_file(&pages), ["a: pages 3 to 5, 8, 9", "b: page 7"]);
        assert!(by_file(&[]).is_empty());
    }
}
