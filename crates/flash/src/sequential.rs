//! Pages one after the other: a scan, a dump or a read-ahead, which would only push out what is worth keeping.
//!
//! A few rows are followed at a time, so that one scan does not hide another, nor random pages any of them.

/// Rows that are followed at a time.
const ROWS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    next: u32,
    length: u32,
    /// When it grew last.
    at: u32,
}

/// The rows of one file and direction.
#[derive(Debug, Default)]
pub(crate) struct Sequential {
    rows: [Row; ROWS],
    now: u32,
}

impl Sequential {
    /// `page` is accessed: how many pages have been accessed in a row, this one included.
    pub(crate) fn length(&mut self, page: u32) -> u32 {
        self.now = self.now.wrapping_add(1);
        let now = self.now;
        let known = self
            .rows
            .iter_mut()
            .find(|row| row.length > 0 && row.next == page);
        let row = match known {
            Some(row) => row,
            None => {
                let Some(oldest) =
                    (self.rows.iter_mut()).max_by_key(|row| now.wrapping_sub(row.at))
                else {
                    return 1;
                };
                oldest.length = 0;
                oldest
            }
        };
        row.length = row.length.saturating_add(1);
        row.next = page.wrapping_add(1);
        row.at = now;
        row.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_are_followed_beside_each_other_and_random_pages() {
        let mut sequential = Sequential::default();
        let mut random = 77_777;
        for n in 0..100 {
            assert_eq!(sequential.length(n), n + 1);
            assert_eq!(sequential.length(50_000 + n), n + 1);
            random = (random * 31 + 7) % 1_000_003 + 100_000;
            assert_eq!(sequential.length(random), 1);
        }
        assert_eq!(sequential.length(5), 1);
    }
}
