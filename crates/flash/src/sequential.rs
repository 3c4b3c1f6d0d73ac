//! Pages one after the other: a scan, a dump or a read-ahead, which would only push out pages worth
//! keeping.
//!
//! A few rows are followed at a time, so that one scan does not hide another, nor random pages any
//! of them. What several threads read for one scan comes in nearly its order.

/// Rows that are followed at a time.
const ROWS: usize = 4;
/// Pages by which a page of a row may come early or late, where threads share it.
const SLACK: u32 = 16;
/// A row that has not grown in so many accesses is none: or random pages of a small file would be
/// one in the end.
const GROWS_WITHIN: u32 = 256;

#[derive(Clone, Copy, Debug, Default)]
struct SequentialRun {
    next: u32,
    /// Bit n: page `next - 1 - n` was accessed.
    seen: u32,
    length: u32,
    /// Time of its last growth.
    at: u32,
}

impl SequentialRun {
    /// True if the page is the next one, or one of those around it that is not there yet.
    fn wants(&self, page: u32, slack: u32, now: u32) -> bool {
        if self.length == 0 || now.wrapping_sub(self.at) > GROWS_WITHIN {
            return false;
        }
        match page.checked_sub(self.next) {
            Some(early) => early <= slack,
            None => {
                let late = self.next - 1 - page;
                late < slack && self.seen >> late & 1 == 0
            }
        }
    }

    fn take(&mut self, page: u32, now: u32) {
        match page.checked_sub(self.next) {
            Some(early) => {
                self.seen = self.seen.checked_shl(early + 1).unwrap_or(0) | 1;
                self.next = page.wrapping_add(1);
            }
            None => self.seen |= 1 << (self.next - 1 - page),
        }
        self.length = self.length.saturating_add(1);
        self.at = now;
    }
}

/// The rows of one file and direction.
#[derive(Debug)]
pub(crate) struct Sequential {
    rows: [SequentialRun; ROWS],
    now: u32,
    slack: u32,
}

impl Sequential {
    /// Rows whose pages come in order.
    pub(crate) fn in_order() -> Self {
        Self::with_slack(0)
    }

    /// Rows that several threads share.
    pub(crate) fn shared() -> Self {
        Self::with_slack(SLACK)
    }

    fn with_slack(slack: u32) -> Self {
        Self {
            rows: [SequentialRun::default(); ROWS],
            now: 0,
            slack,
        }
    }

    /// `page` is accessed: the number of pages accessed in a row, this one included.
    pub(crate) fn length(&mut self, page: u32) -> u32 {
        self.now = self.now.wrapping_add(1);
        let (now, slack) = (self.now, self.slack);
        let known = (self.rows.iter_mut()).find(|row| row.wants(page, slack, now));
        let row = match known {
            Some(row) => row,
            None => {
                let Some(oldest) =
                    (self.rows.iter_mut()).max_by_key(|row| now.wrapping_sub(row.at))
                else {
                    return 1;
                };
                *oldest = SequentialRun {
                    next: page,
                    ..SequentialRun::default()
                };
                oldest
            }
        };
        row.take(page, now);
        row.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_are_followed_beside_each_other_and_random_pages() {
        for mut sequential in [Sequential::in_order(), Sequential::shared()] {
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

    #[test]
    fn a_scan_shared_by_threads_is_sequential_though_out_of_order() {
        let mut sequential = Sequential::shared();
        let mut in_order = Sequential::in_order();
        let mut shortest = u32::MAX;
        for block in 0..20 {
            // Each of 16 threads takes the next page, and the scheduler says whose read comes
            // first.
            for n in [3, 0, 1, 7, 2, 4, 11, 6, 5, 9, 8, 15, 10, 13, 12, 14] {
                let length = sequential.length(block * 16 + n);
                in_order.length(block * 16 + n);
                if block > 0 {
                    shortest = shortest.min(length);
                }
            }
        }
        assert!(shortest >= 16, "{shortest}");
        assert!(in_order.rows.iter().all(|row| row.length < 8));
    }

    #[test]
    fn random_pages_are_hardly_ever_a_row_in_files_of_any_size() {
        for pages in [40, 100, 1000, 100_000] {
            let mut sequential = Sequential::shared();
            let mut random = 1_u64;
            let mut rows = 0;
            for _ in 0..20_000 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                rows += u32::from(sequential.length((random >> 33) as u32 % pages) >= 32);
            }
            assert!(rows < 1000, "{rows} of 20,000, of {pages} pages");
        }
    }

    #[test]
    fn the_last_pages_there_can_be_do_not_overflow() {
        let mut sequential = Sequential::shared();
        for page in [u32::MAX - 2, u32::MAX, u32::MAX - 1, u32::MAX, 0, 1, 0] {
            assert!(sequential.length(page) >= 1);
        }
    }
}
