//! Notes on each traced file.

use hdrhistogram::Histogram;
use std::{collections::HashMap, path::PathBuf, time::Duration};

/// Files of which something is noted; what is done to others is counted alone.
const FILES_MAX: usize = 1 << 16;

/// Durations of calls: of any number of them in a few kilobytes.
#[derive(Clone, Debug)]
pub struct CallTimes {
    /// In microseconds, a sixteenth too long at most.
    times_us: Histogram<u32>,
    total: Duration,
}

/// An hour: of longer times it is enough to know that.
const LONGEST_US: u64 = 3_600_000_000;

impl Default for CallTimes {
    fn default() -> Self {
        // It begins small, and grows with the longest time.
        let times_us = Histogram::new(1);
        Self {
            // It fails for more than five digits alone.
            times_us: times_us.unwrap_or_else(|_| unreachable!()),
            total: Duration::ZERO,
        }
    }
}

impl CallTimes {
    /// Their number.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.times_us.len()
    }

    /// All added up.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.total
    }

    /// So many microseconds a `share` (0 to 1) of them took at most; 0 of none.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> u64 {
        self.times_us.value_at_quantile(share)
    }

    /// Those of another file, too.
    pub fn add(&mut self, other: &Self) {
        // It fails where a histogram cannot grow, and these can.
        let _ = self.times_us.add(&other.times_us);
        self.total += other.total;
    }

    pub(crate) fn took(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // It fails where a histogram cannot grow. `saturating_record` never has one grow.
        let _ = self.times_us.record(us.min(LONGEST_US));
        self.total += time;
    }
}

/// The target of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TracedName {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) path: PathBuf,
}

/// A file under one name: what the program did to it.
#[derive(Clone, Debug, Default)]
pub struct TracedFile {
    /// Its name when this was done.
    pub path: PathBuf,
    /// It is a directory.
    pub is_directory: bool,
    /// Each sync: how long it took. A write to a file that was opened with `O_SYNC` or `O_DSYNC` is
    /// one.
    pub syncs: CallTimes,
    /// Calls that wrote to it.
    pub writes: u64,
    /// The bytes that they wrote.
    pub bytes: u64,
    /// Of these writes, those behind which the file's end was further than before.
    pub growing: u64,
    /// Of these writes, those that began where the last ended, or wrote its end again.
    pub in_sequence: u64,
    /// Room was made in it before it was written to.
    pub is_preallocated: bool,
    /// It was mapped for writing: what is written so is not seen.
    pub is_mapped: bool,
    last: Option<WrittenRange>,
}

/// The range that a write wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenRange {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// The manner in which a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritingManner {
    /// Not at all, as far as was seen.
    Unwritten,
    /// At its end.
    Appended,
    /// From one end to the other, inside its size: a log that has its room already.
    InSequence,
    /// Here and there.
    InPlace,
}

impl TracedFile {
    /// The manner in which it is written: that of nine writes of ten.
    #[must_use]
    pub fn manner(&self) -> WritingManner {
        let most = |part: u64| part * 10 >= self.writes * 9;
        match self.writes {
            0 => WritingManner::Unwritten,
            _ if !most(self.in_sequence) => WritingManner::InPlace,
            _ if most(self.growing) => WritingManner::Appended,
            _ => WritingManner::InSequence,
        }
    }

    /// Notes a write to `range` of the file, which had `size` bytes before.
    pub(crate) fn wrote(&mut self, range: WrittenRange, size: u64) {
        let is_in_sequence = self.last.is_none_or(|last| {
            // A log's last block is written again until it is full.
            range.begin >= last.begin && range.begin <= last.end && range.end >= last.end
        });
        self.writes += 1;
        self.bytes += range.end - range.begin;
        self.growing += u64::from(range.end > size);
        self.in_sequence += u64::from(is_in_sequence);
        self.last = Some(range);
    }
}

/// All files.
#[derive(Debug, Default)]
pub(crate) struct FileTable {
    files: HashMap<TracedName, TracedFile>,
    /// Calls on files beyond [`FILES_MAX`].
    pub(crate) unnoted_calls: u64,
}

impl FileTable {
    /// The note of a file; `None` if there are too many.
    pub(crate) fn of(&mut self, name: TracedName, is_directory: bool) -> Option<&mut TracedFile> {
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&name) {
            self.unnoted_calls += 1;
            return None;
        }
        let path = name.path.clone();
        Some(self.files.entry(name).or_insert_with(|| TracedFile {
            path,
            is_directory,
            ..TracedFile::default()
        }))
    }

    /// The files, those first that took most time.
    pub(crate) fn into_files(self) -> Vec<TracedFile> {
        let mut files: Vec<TracedFile> = self.files.into_values().collect();
        let time = |file: &TracedFile| file.syncs.total();
        files.sort_by(|a, b| time(b).cmp(&time(a)).then_with(|| a.path.cmp(&b.path)));
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(
        ranges: impl IntoIterator<Item = (u64, u64)>,
        size: impl Fn(u64) -> u64,
    ) -> WritingManner {
        let mut file = TracedFile::default();
        for (begin, end) in ranges {
            file.wrote(WrittenRange { begin, end }, size(begin));
        }
        file.manner()
    }

    #[test]
    fn the_times_of_calls_keep_their_quantiles() {
        let (mut times, mut more) = (CallTimes::default(), CallTimes::default());
        for at in 1..=98 {
            times.took(Duration::from_micros(at * 10));
        }
        more.took(Duration::from_secs(2));
        more.took(Duration::from_secs(86_400));
        times.add(&more);
        assert_eq!(times.count(), 100);
        assert_eq!(
            times.total(),
            Duration::from_micros(48_510 + 86_402_000_000)
        );
        for (share, us) in [
            (0.5, 500),
            (0.98, 980),
            (0.99, 2_000_000),
            (1.0, LONGEST_US),
        ] {
            let found = times.quantile_us(share);
            assert!((us..=us + us / 16).contains(&found), "{share}: {found} µs");
        }
    }

    #[test]
    fn writes_that_follow_each_other_at_the_end_are_appended() {
        let ranges = (0..50).map(|at| (at * 100, at * 100 + 100));
        assert_eq!(written(ranges, |begin| begin), WritingManner::Appended);
    }

    #[test]
    fn a_log_that_writes_its_last_block_again_is_in_sequence() {
        let ranges = (0..50).map(|at| (at / 2 * 512, at / 2 * 512 + 512));
        assert_eq!(written(ranges, |_| 1 << 20), WritingManner::InSequence);
    }

    #[test]
    fn pages_here_and_there_are_in_place() {
        let ranges = (0..50).map(|at| (at * 7919 % 64 * 4096, at * 7919 % 64 * 4096 + 4096));
        assert_eq!(written(ranges, |_| 1 << 20), WritingManner::InPlace);
    }
}
