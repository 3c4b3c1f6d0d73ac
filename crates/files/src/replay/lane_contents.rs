//! The files of a lane, with their records.

use crate::{
    FilesError,
    record::{self, FileChange, NO_TIME, PayloadHead},
};
use forebay_pool::{Lsn, Pool, Recovered};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    time::Duration,
};

/// A record is written at most this long after the change, for most.
const LATE: Duration = Duration::from_secs(1);

/// A file's name: kept, or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoggedNameLoss {
    No,
    /// It was about to lose its last one.
    Maybe,
    Yes,
}

/// A file of a lane.
pub(super) struct LoggedFile<'a> {
    pub(super) identity: &'a [u8],
    /// Absolute; the last is the newest.
    pub(super) paths: Vec<&'a Path>,
    pub(super) boot: [u8; 16],
    /// The mount that it was on, if that is known.
    pub(super) mount: Option<u64>,
    pub(super) gone: LoggedNameLoss,
    /// The size that it had before the first of its records, if the lane says so.
    had: Option<u64>,
    /// The size that it had before a write of which the lane says so, if it was not truncated in
    /// the records before: then the disk may have more of it than that.
    pub(super) grows_from: Option<u64>,
    /// The largest of the sizes that the lane says it had; none once it lacks one.
    said_size: Option<u64>,
    /// Writes and truncations, in order.
    pub(super) changes: Vec<(PayloadHead, FileChange<'a>)>,
    /// Log addresses of the last of them: those that follow a change of metadata which no sync had
    /// ordered yet.
    held: Vec<Lsn>,
    /// Changes that were [given up](Self::give_up_held): the file may have them all the same.
    pub(super) given_up: Vec<(PayloadHead, FileChange<'a>)>,
    /// Its time was moved after the last change that is logged: a write may have failed, or been
    /// left unlogged by a process that died.
    pub(super) is_touched: bool,
    /// Wall clock of the last record.
    last: Duration,
    /// The modification time that the program left it with, if the lane says so.
    pub(super) left: Option<Duration>,
    /// Wall clocks of all records, and modification times that were set: also those before a clock
    /// was set back.
    known: BTreeSet<Duration>,
}

impl<'a> LoggedFile<'a> {
    fn new(identity: &'a [u8], boot: [u8; 16]) -> Self {
        Self {
            identity,
            paths: Vec::new(),
            boot,
            mount: None,
            gone: LoggedNameLoss::No,
            had: None,
            grows_from: None,
            said_size: Some(0),
            changes: Vec::new(),
            is_touched: false,
            held: Vec::new(),
            given_up: Vec::new(),
            last: Duration::ZERO,
            left: None,
            known: BTreeSet::new(),
        }
    }

    /// In tests: with these writes, and truncations, of a file that had so many bytes.
    #[cfg(test)]
    pub(super) fn of_changes(had: Option<u64>, changes: &[(u64, Option<&'a [u8]>)]) -> Self {
        let mut file = Self::new(b"", [0; 16]);
        file.grows_from = had;
        file.changes = (changes.iter())
            .map(|&(at, bytes)| {
                let change = bytes.map_or(FileChange::Truncate, FileChange::Write);
                let head = PayloadHead {
                    at,
                    ..PayloadHead::default()
                };
                (head, change)
            })
            .collect();
        file
    }

    /// The path that it was known by last.
    pub(super) fn path(&self) -> &'a Path {
        self.paths.last().copied().unwrap_or(Path::new("(no path)"))
    }

    /// Wall clock of its last record.
    pub(super) fn last(&self) -> Duration {
        self.last
    }

    /// Bytes written in its records.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.changes.iter().map(|(_, change)| match change {
            FileChange::Write(bytes) => bytes.len() as u64,
            _ => 0,
        });
        bytes.sum()
    }

    /// The directories that have its names.
    pub(super) fn parents(&self) -> BTreeSet<&'a Path> {
        self.paths.iter().filter_map(|path| path.parent()).collect()
    }

    /// Time from the last record to a later change of a file with this modification time; none if
    /// it was the program that changed it. `slack` is what may lie between a change and its record.
    pub(super) fn changed_later(&self, modified: Duration, slack: Duration) -> Option<Duration> {
        if modified <= self.last + slack {
            return None;
        }
        let near = modified.saturating_sub(slack)..=modified + LATE;
        let is_known = self.known.range(near).next().is_some();
        (!is_known).then(|| modified - self.last)
    }

    /// The size that it had already, if it is shorter now, with this size, and the program has not
    /// cut it since: then it is an older copy.
    pub(super) fn is_cut_from(&self, size: u64) -> Option<u64> {
        (self.had).filter(|had| size < *had && !self.is_truncated())
    }

    /// The size that its last record left, if nothing has truncated it.
    pub(super) fn size(&self) -> Option<u64> {
        let ends = self
            .changes
            .iter()
            .filter_map(|(head, change)| match change {
                FileChange::Write(bytes) => Some(head.at + bytes.len() as u64),
                _ => None,
            });
        let said = self.said_size.filter(|_| !self.is_truncated())?;
        Some(ends.fold(said, u64::max))
    }

    fn is_truncated(&self) -> bool {
        (self.changes.iter()).any(|(_, change)| *change == FileChange::Truncate)
    }

    /// Gives up records behind a change of metadata that the disk may lack, and that no sync had
    /// acknowledged: without the page cache, a plain file would not have them either. How many
    /// changes that was.
    pub(super) fn give_up_held(&mut self) -> usize {
        let ordered = self.changes.len() - self.held.len();
        self.given_up = self.changes.split_off(ordered);
        self.held.clear();
        self.given_up.len()
    }

    fn add(&mut self, lsn: Lsn, head: PayloadHead, change: FileChange<'a>) {
        let time = (head.time != NO_TIME).then(|| Duration::from_nanos(head.time));
        if let Some(time) = time {
            self.last = time;
            self.known.insert(time);
        }
        match change {
            FileChange::File {
                path, had, ahead, ..
            } => {
                self.said_size = self.said_size.zip(had).map(|(a, b)| a.max(b));
                self.grows_from = (self.grows_from).or(had.filter(|_| !self.is_truncated()));
                self.known.extend(ahead.map(Duration::from_nanos));
                self.mount = (head.at != 0).then_some(head.at).or(self.mount);
                // Any other would be looked for where the recovering process happens to be.
                if path.is_absolute() {
                    self.paths.retain(|known| *known != path);
                    self.paths.push(path);
                }
            }
            FileChange::Write(_) | FileChange::Truncate | FileChange::Refused => {
                self.left = time.or(self.left);
                self.is_touched = false;
                let before = self.changes.len();
                record::add_change(&mut self.changes, head, change);
                let after = self.changes.len();
                if after > before && (head.held || !self.held.is_empty()) {
                    self.held.push(lsn);
                }
                // One that was refused is taken back.
                self.held.truncate(after);
            }
            FileChange::Ordered => {
                let is_ordered = |lsn: &&Lsn| **lsn < head.at;
                let ordered = self.held.iter().take_while(is_ordered).count();
                self.held.drain(..ordered);
            }
            FileChange::Touched(modified) => {
                self.is_touched = true;
                let modified = Duration::from_nanos(modified);
                self.left = Some(modified);
                self.known.insert(modified);
            }
            FileChange::Gone { done } => {
                self.gone = if done {
                    LoggedNameLoss::Yes
                } else {
                    LoggedNameLoss::Maybe
                }
            }
            FileChange::Kept => self.gone = LoggedNameLoss::No,
        }
    }
}

/// The files of a lane with their changes, in order.
pub(super) fn read<'a>(
    pool: &Pool,
    lane: u32,
    recovered: &'a Recovered,
) -> Result<Vec<LoggedFile<'a>>, FilesError> {
    let mut files = LoggedFiles::default();
    let mut numbers: BTreeMap<u32, usize> = BTreeMap::new();
    for record in recovered.records() {
        let unknown = |what: String| FilesError::Record {
            path: pool.path().to_owned(),
            lane,
            lsn: record.header.lsn,
            what,
        };
        let (head, change) = record::decode(record.header.kind, record.payload).map_err(unknown)?;
        let known = numbers.get(&head.file).copied();
        let at = match (known, change) {
            // A number is given to another file when nothing of the first is left.
            (
                known,
                FileChange::File {
                    boot,
                    identity,
                    had,
                    ..
                },
            ) => {
                let named = known.filter(|at| files.all[*at].identity == identity);
                let at = named.unwrap_or_else(|| {
                    let begun = LoggedFile {
                        had,
                        ..LoggedFile::new(identity, boot)
                    };
                    files.begin(&mut numbers, begun)
                });
                numbers.insert(head.file, at);
                at
            }
            (Some(at), _) => at,
            // All of that file was drained.
            (
                None,
                FileChange::Gone { .. }
                | FileChange::Kept
                | FileChange::Touched(_)
                | FileChange::Refused
                | FileChange::Ordered,
            ) => {
                continue;
            }
            (None, _) => {
                return Err(unknown(format!(
                    "file {} was not named before it",
                    head.file
                )));
            }
        };
        files.all[at].add(record.header.lsn, head, change);
    }
    Ok(files.all)
}

/// The files that were found so far.
#[derive(Default)]
struct LoggedFiles<'a> {
    all: Vec<LoggedFile<'a>>,
    /// The place of each, by its identity: a lane may have a hundred thousand.
    by_identity: HashMap<&'a [u8], usize>,
}

impl<'a> LoggedFiles<'a> {
    /// Adds a file that got a number: where it is. If it had one before, it was let go of in
    /// between, so all that the lane had of it was drained. Those records came back with an older
    /// beginning of the lane, and are older than what the file got since.
    fn begin(&mut self, numbers: &mut BTreeMap<u32, usize>, file: LoggedFile<'a>) -> usize {
        let end = self.all.len();
        let at = *self.by_identity.entry(file.identity).or_insert(end);
        match self.all.get_mut(at) {
            None => self.all.push(file),
            Some(known) => {
                numbers.retain(|_, of| *of != at);
                *known = file;
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::slack;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn logged(records: &[(f64, FileChange<'static>)]) -> LoggedFile<'static> {
        let mut file = LoggedFile::new(b"", [0; 16]);
        for (time, change) in records {
            let head = PayloadHead {
                file: 0,
                at: 0,
                time: u64::try_from(seconds(*time).as_nanos()).unwrap(),
                held: false,
            };
            file.add(0, head, *change);
        }
        file
    }

    #[test]
    fn a_change_after_the_last_record_is_told_from_the_programs_own() {
        let file = logged(&[
            (50.0, FileChange::Write(b"a")),
            (100.0, FileChange::Write(b"b")),
        ]);
        for ours in [0.0, 49.0, 75.0, 100.0, 100.004] {
            assert_eq!(
                file.changed_later(seconds(ours), slack(false)),
                None,
                "{ours}"
            );
        }
        assert_eq!(
            file.changed_later(seconds(103.0), slack(false)),
            Some(seconds(3.0))
        );
        assert_eq!(file.left, Some(seconds(100.0)));
    }

    /// Promise: as `a_lane_is_replayed_though_an_unchanged_files_time_moved`.
    #[test]
    fn a_clock_set_back_hides_no_later_change_and_refuses_no_older() {
        let file = logged(&[
            (5000.0, FileChange::Write(b"a")),
            (100.0, FileChange::Write(b"b")),
        ]);
        for ours in [100.0, 4999.9, 5000.0] {
            assert_eq!(
                file.changed_later(seconds(ours), slack(false)),
                None,
                "{ours}"
            );
        }
        assert!(file.changed_later(seconds(200.0), slack(false)).is_some());
    }

    #[test]
    fn a_time_that_the_program_set_is_its_own_however_late() {
        let set = FileChange::Touched(9_000_000_000_000);
        let file = logged(&[(100.0, FileChange::Write(b"a")), (101.0, set)]);
        assert_eq!(file.changed_later(seconds(9000.0), slack(false)), None);
        assert_eq!(file.left, Some(seconds(9000.0)));
        assert!(file.changed_later(seconds(8000.0), slack(false)).is_some());
    }

    /// A record of a later segment says what the file had then: the disk may have what was before.
    #[test]
    fn the_size_after_a_truncation_is_not_the_one_on_the_disk() {
        let named = |had| FileChange::File {
            boot: [0; 16],
            identity: b"",
            path: Path::new("/a.log"),
            had,
            ahead: None,
        };
        let grows_from = |changes: &[FileChange<'static>]| {
            let records: Vec<_> = changes.iter().map(|change| (1.0, *change)).collect();
            logged(&records).grows_from
        };
        let (write, truncate) = (FileChange::Write(b"a"), FileChange::Truncate);
        assert_eq!(grows_from(&[named(Some(5)), write]), Some(5));
        assert_eq!(grows_from(&[named(None), write, named(Some(5))]), Some(5));
        assert_eq!(grows_from(&[named(None), truncate, named(Some(5))]), None);
        assert_eq!(
            grows_from(&[named(Some(5)), truncate, named(Some(0))]),
            Some(5)
        );
    }

    #[test]
    fn a_file_that_kept_its_name_after_all_may_not_be_missing() {
        let (about, done) = (
            FileChange::Gone { done: false },
            FileChange::Gone { done: true },
        );
        assert_eq!(logged(&[(1.0, about)]).gone, LoggedNameLoss::Maybe);
        assert_eq!(
            logged(&[(1.0, about), (1.0, done)]).gone,
            LoggedNameLoss::Yes
        );
        assert_eq!(
            logged(&[(1.0, about), (1.0, FileChange::Kept)]).gone,
            LoggedNameLoss::No
        );
    }

    /// Promise (order): A recovery counts held records once they are ordered, and gives them up in
    /// another boot before that.
    #[test]
    fn held_writes_count_once_they_are_ordered() {
        let head = |held| PayloadHead {
            held,
            ..PayloadHead::default()
        };
        let write = |file: &mut LoggedFile<'static>, lsn, held| {
            file.add(lsn, head(held), FileChange::Write(b"bytes"));
        };
        let ordered = |file: &mut LoggedFile<'static>, at| {
            file.add(1000, PayloadHead { at, ..head(false) }, FileChange::Ordered);
        };
        let mut file = LoggedFile::new(b"", [0; 16]);
        write(&mut file, 10, false);
        write(&mut file, 20, true);
        write(&mut file, 30, true);
        ordered(&mut file, 30);
        assert_eq!((file.give_up_held(), file.changes.len()), (1, 2));
        write(&mut file, 40, true);
        ordered(&mut file, 41);
        assert_eq!((file.give_up_held(), file.changes.len()), (0, 3));
        // What follows one that is held is behind the same change.
        write(&mut file, 50, true);
        write(&mut file, 60, false);
        assert_eq!((file.give_up_held(), file.changes.len()), (2, 3));
    }
}
