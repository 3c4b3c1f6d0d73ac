//! What is noted of each file.

use std::{collections::HashMap, path::PathBuf, time::Duration};

/// What a descriptor leads to.
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
    pub syncs: Vec<Duration>,
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

/// Where a write wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenRange {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// How a file is written.
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
    /// How it is written: what nine writes of ten do.
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
pub(crate) struct FileTable(HashMap<TracedName, TracedFile>);

impl FileTable {
    pub(crate) fn of(&mut self, key: TracedName, is_directory: bool) -> &mut TracedFile {
        let path = key.path.clone();
        self.0.entry(key).or_insert_with(|| TracedFile {
            path,
            is_directory,
            ..TracedFile::default()
        })
    }

    /// The files, those first that took most time.
    pub(crate) fn into_files(self) -> Vec<TracedFile> {
        let mut files: Vec<TracedFile> = self.0.into_values().collect();
        let time = |file: &TracedFile| file.syncs.iter().sum::<Duration>();
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
