//! Replay: bringing files up to date from lanes whose owner is gone. docs/files-protocol.md, "Replay".
//!
//! 1. Claim the lane; the pool recovers its records.
//! 2. Find each file by its identity, and look whether anybody changed it after the lane's last record of it.
//! 3. *Same boot*: the page cache has everything that was written, and is the truth. Sync the files. If nobody else has a file open and
//!    it holds what the lane says, the same bytes are written first: a sync that failed may have left them clean. If one is known to have
//!    failed (the lane's mark), and they cannot be, refuse the lane.
//! 4. *Another boot*: if any file is missing or was changed since, refuse the whole lane, and change nothing. Otherwise mark the lane
//!    as being replayed, write its records in order, and sync the files.
//! 5. Give the lane back. Every step may be cut and repeated.

use crate::{
    FilesError, boot, identity,
    record::{self, Change, Head},
    sys,
};
use forebay_pool::{ClaimOptions, Pool, Recovered};
use rustix::{
    fs::{Timespec, Timestamps},
    io::Errno,
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    ops::Range,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

/// Leads the label of a lane of this tier: eight bytes, so that it changes at once.
const LABEL: &str = "files:  ";
/// Leads the label of a lane whose replay has begun.
const LABEL_REPLAY: &str = "replay: ";
/// Leads the label of a lane of which a file could not be synced.
const LABEL_FAILED: &str = "failed: ";
/// A file that changed later than this after the last record of it was changed by somebody else. Record and change take their time from the
/// same coarse clock, the record afterwards. Somebody who absorbs is waited for longer (`supervisor`).
const SLACK: Duration = Duration::from_secs(1);
/// A replay changes files for no longer than this after its mark.
const REPLAY_MAX: Duration = Duration::from_secs(10);

/// What a lane's label says to a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing.
    None,
    /// A sync of one of its files failed: what the kernel has of them may never reach the disk.
    Failed,
    /// Its replay began at this time.
    Replay(Duration),
}

/// The label of a client's lane; `whose` says which program's, and its process.
pub(crate) fn label(mark: Mark, whose: &str) -> String {
    let (leads, begun) = match mark {
        Mark::None => (LABEL, Duration::ZERO),
        Mark::Failed => (LABEL_FAILED, Duration::ZERO),
        Mark::Replay(begun) => (LABEL_REPLAY, begun),
    };
    format!("{leads}{:010} {whose}", begun.as_secs())
}

/// The same lane's label with another mark.
pub(crate) fn relabelled(before: &str, mark: Mark) -> String {
    label(mark, parse_label(before).map_or("", |(_, whose)| whose))
}

/// A label's parts: its mark, and whose lane it is. `None` for a lane of somebody else.
fn parse_label(label: &str) -> Option<(Mark, &str)> {
    let leads = [LABEL, LABEL_FAILED, LABEL_REPLAY];
    let (leads, rest) = leads
        .into_iter()
        .find_map(|leads| Some((leads, label.strip_prefix(leads)?)))?;
    let (seconds, whose) = rest.split_once(' ').unwrap_or((rest, ""));
    let mark = match leads {
        LABEL => Mark::None,
        LABEL_FAILED => Mark::Failed,
        _ => Mark::Replay(Duration::from_secs(seconds.parse().unwrap_or(0))),
    };
    Some((mark, whose))
}

/// How to recover.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoverOptions {
    /// Write also to files that somebody changed since, and pass over those that are missing.
    pub force: bool,
    /// Give up what cannot be replayed.
    pub discard: bool,
}

/// What became of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It held nothing.
    Empty,
    /// Same boot: its files were synced.
    Synced,
    /// Another boot: its records were written to its files.
    Replayed,
    /// Nothing was changed; see the files' reasons.
    Refused,
    /// Its records were given up, as asked for.
    Discarded,
    /// Its owner is alive.
    InUse,
}

/// What became of a file.
#[derive(Clone, Debug, Serialize)]
pub struct FileReport {
    /// The last path it is known by.
    pub path: PathBuf,
    /// Records of it.
    pub records: u64,
    /// Bytes written in them.
    pub bytes: u64,
    /// Why it cannot be replayed, if it cannot, and what to do.
    pub refused: Option<String>,
}

/// What became of a lane, and of its files.
#[derive(Clone, Debug, Serialize)]
pub struct LaneReport {
    /// Number of the lane.
    pub lane: u32,
    /// Whose it was.
    pub owner: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Its files.
    pub files: Vec<FileReport>,
}

impl LaneReport {
    fn is_refused(&self) -> bool {
        self.files.iter().any(|file| file.refused.is_some())
    }
}

/// Recovers every lane of this tier whose owner is gone.
///
/// # Errors
/// Of the pool, of the files' file systems. What was not finished is found again by the next recovery.
pub fn recover(pool: &Pool, options: &RecoverOptions) -> Result<Vec<LaneReport>, FilesError> {
    sys::ignore_lease_breaks();
    let mut reports = Vec::new();
    for lane in pool.lanes() {
        let Some((_, whose)) = parse_label(&lane.label) else {
            continue;
        };
        reports.push(if lane.in_use {
            LaneReport {
                lane: lane.lane,
                owner: whose.to_owned(),
                outcome: Outcome::InUse,
                files: Vec::new(),
            }
        } else {
            recover_lane(pool, lane.owner, options)?
        });
    }
    Ok(reports)
}

/// A file of a lane.
struct Logged<'a> {
    identity: &'a [u8],
    paths: Vec<&'a Path>,
    boot: [u8; 16],
    /// Wall clock of the last record.
    last: Duration,
    may_be_missing: bool,
    changes: Vec<(Head, Change<'a>)>,
}

impl Logged<'_> {
    fn path(&self) -> &Path {
        self.paths.last().copied().unwrap_or(Path::new(""))
    }

    fn report(&self, refused: Option<String>) -> FileReport {
        let bytes = self.changes.iter().map(|(_, change)| match change {
            Change::Write(bytes) => bytes.len() as u64,
            _ => 0,
        });
        FileReport {
            path: self.path().to_owned(),
            records: self.changes.len() as u64,
            bytes: bytes.sum(),
            refused,
        }
    }
}

/// Recovers the lane of `owner`, which must be free.
pub(crate) fn recover_lane(
    pool: &Pool,
    owner: Uuid,
    options: &RecoverOptions,
) -> Result<LaneReport, FilesError> {
    let claim = ClaimOptions {
        salvage: options.discard,
        ..ClaimOptions::default()
    };
    let label = pool.lanes().into_iter().find(|lane| lane.owner == owner);
    let label = label.map(|lane| lane.label).unwrap_or_default();
    let (mark, whose) = parse_label(&label).unwrap_or((Mark::None, ""));
    let (lane, recovered) = pool.claim(owner, &claim)?;
    let mut report = LaneReport {
        lane: lane.number(),
        owner: whose.to_owned(),
        outcome: Outcome::Empty,
        files: Vec::new(),
    };
    let files = read(pool, lane.number(), &recovered)?;
    if !files.is_empty() {
        let boot = boot::id()?;
        let same_boot = files.iter().all(|file| file.boot == *boot.as_bytes());
        if same_boot {
            for file in &files {
                let refused = settle_same_boot(file, mark == Mark::Failed, options.force)
                    // The next attempt must not take its own sync's success for this one's.
                    .inspect_err(|_| lane.relabel(&relabelled(&label, Mark::Failed)))?;
                report.files.push(file.report(refused));
            }
            report.outcome = match report.is_refused() {
                false => Outcome::Synced,
                true if options.discard => Outcome::Discarded,
                true => Outcome::Refused,
            };
        } else {
            let mut targets = Vec::new();
            for file in &files {
                let found = find(file, mark, options.force)?;
                report
                    .files
                    .push(file.report(found.as_ref().err().cloned()));
                targets.push(found.ok().flatten());
            }
            if !report.is_refused() {
                let now = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                reset_times(&files, &targets)?;
                lane.relabel(&relabelled(&label, Mark::Replay(now)));
                replay(&files, &targets)?;
                report.outcome = Outcome::Replayed;
            } else if options.discard {
                report.outcome = Outcome::Discarded;
            } else {
                report.outcome = Outcome::Refused;
            }
        }
        if report.outcome == Outcome::Refused {
            return Ok(report);
        }
    }
    forebay_pool::failpoint!("files:replayed");
    drop(files);
    drop(recovered);
    lane.seal();
    while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
        sealed.release();
    }
    // Refused only if something is left in it; then the next recovery finds it.
    let _ = lane.remove();
    Ok(report)
}

/// The files of a lane with their changes, in order.
fn read<'a>(
    pool: &Pool,
    lane: u32,
    recovered: &'a Recovered,
) -> Result<Vec<Logged<'a>>, FilesError> {
    let mut files: Vec<Logged<'a>> = Vec::new();
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
                Change::File {
                    boot,
                    identity,
                    path,
                },
            ) => {
                let at = known
                    .filter(|at| files[*at].identity == identity)
                    .unwrap_or_else(|| {
                        files.push(Logged {
                            identity,
                            paths: Vec::new(),
                            boot,
                            last: Duration::ZERO,
                            may_be_missing: false,
                            changes: Vec::new(),
                        });
                        files.len() - 1
                    });
                numbers.insert(head.file, at);
                files[at].paths.retain(|known| *known != path);
                files[at].paths.push(path);
                at
            }
            (Some(at), change) => {
                files[at].may_be_missing |= change == Change::Gone;
                if change != Change::Gone {
                    files[at].changes.push((head, change));
                }
                at
            }
            // All of that file was drained.
            (None, Change::Gone) => continue,
            (None, _) => {
                return Err(unknown(format!(
                    "file {} was not named before it",
                    head.file
                )));
            }
        };
        files[at].last = files[at].last.max(Duration::from_nanos(head.time));
    }
    Ok(files)
}

/// Makes one change to a file. Changing it again changes nothing.
fn apply(fd: BorrowedFd<'_>, head: Head, change: Change<'_>) -> Result<(), Errno> {
    match change {
        Change::Write(bytes) => write_at(fd, bytes, head.at),
        Change::Truncate => rustix::fs::ftruncate(fd, head.at),
        Change::File { .. } | Change::Gone => Ok(()),
    }
}

/// Writes all of `bytes` at offset `at`.
pub(crate) fn write_at(fd: BorrowedFd<'_>, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let done = match rustix::io::pwrite(fd, bytes, at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(done) => done,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        bytes = &bytes[done..];
        at += done as u64;
    }
    Ok(())
}

/// The page cache has it all: sync it. If a sync of it `failed` before, another that succeeds says nothing of what that one left out, unless
/// it is written again: else why not, and what to do.
fn settle_same_boot(
    file: &Logged<'_>,
    failed: bool,
    force: bool,
) -> Result<Option<String>, FilesError> {
    let path = file.path().display();
    let doing = || format!("syncing {path}");
    let Some(target) =
        identity::open(file.identity, &file.paths).map_err(FilesError::errno(doing()))?
    else {
        // Unlinked by somebody, or moved where we cannot find it: whatever of it there is gets durable with its file system.
        for directory in parents(file) {
            if let Ok(directory) = File::open(directory) {
                rustix::fs::syncfs(&directory).map_err(FilesError::errno(doing()))?;
            }
        }
        let may_be_missing = !failed || file.may_be_missing || force;
        return Ok((!may_be_missing).then(|| missing(file)));
    };
    let is_alone = sys::take_lease(target.as_fd());
    let is_written =
        is_alone && write_same_again(file, &target).map_err(FilesError::io(doing()))?;
    if failed && !is_written {
        if !force {
            let why = match is_alone {
                true => "it holds something else than the pool says: if that is right",
                false => {
                    "another process has it open: stop that and recover again. If what the file holds is right"
                }
            };
            return Ok(Some(format!(
                "a sync of {path} failed, so its last writes have to be written again, but {why}, `forebay recover --discard` drops the \
                 pool's writes; if the pool's are, `forebay recover --force` writes them"
            )));
        }
        for (head, change) in &file.changes {
            apply(target.as_fd(), *head, *change).map_err(FilesError::errno(doing()))?;
        }
    }
    target.sync_all().map_err(FilesError::io(doing()))?;
    sync_parents(file)?;
    Ok(None)
}

/// Writes what the file holds already, if it holds all that the lane says: whether it does.
fn write_same_again(file: &Logged<'_>, target: &File) -> std::io::Result<bool> {
    let parts = final_parts(&file.changes, &[]);
    for (at, bytes) in &parts {
        let mut found = vec![0; bytes.len()];
        match target.read_exact_at(&mut found, *at) {
            Ok(()) if found == *bytes => {}
            Ok(()) => return Ok(false),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    for (at, bytes) in &parts {
        target.write_all_at(bytes, *at)?;
    }
    Ok(true)
}

/// What the changes leave in the file: disjoint parts, which no later change touches. Ranges that are `newer` than all of them count as later
/// changes.
pub(crate) fn final_parts<'a>(
    changes: &[(Head, Change<'a>)],
    newer: &[Range<u64>],
) -> Vec<(u64, &'a [u8])> {
    let mut parts = Vec::new();
    // Ranges that later changes cover, by start; disjoint and apart.
    let mut covered: BTreeMap<u64, u64> = BTreeMap::new();
    let newer = newer.iter().map(|range| (range.start, range.end, None));
    let changes = changes.iter().rev().filter_map(|(head, change)| {
        let end = match change {
            Change::Write(bytes) => head.at + bytes.len() as u64,
            Change::Truncate => u64::MAX,
            Change::File { .. } | Change::Gone => return None,
        };
        Some((head.at, end, Some(*change)))
    });
    for (start, end, change) in newer.chain(changes) {
        let (mut merged_start, mut merged_end) = (start, end);
        let mut at = start;
        let from = covered
            .range(..=start)
            .next_back()
            .map_or(start, |(s, _)| *s);
        let touching: Vec<(u64, u64)> = covered
            .range(from..=end)
            .map(|(s, e)| (*s, *e))
            .filter(|(s, e)| *e >= start && *s <= end)
            .collect();
        let mut push = |from: u64, to: u64| {
            if let Some(Change::Write(bytes)) = change
                && from < to
            {
                parts.push((from, &bytes[(from - start) as usize..(to - start) as usize]));
            }
        };
        for (s, e) in touching {
            push(at, s.max(at).min(end));
            at = at.max(e);
            merged_start = merged_start.min(s);
            merged_end = merged_end.max(e);
            covered.remove(&s);
        }
        push(at.min(end), end);
        covered.insert(merged_start, merged_end);
    }
    parts
}

/// The file to replay to, none if it may be missing and is; in words why not, and what to do.
fn find(
    file: &Logged<'_>,
    mark: Mark,
    force: bool,
) -> Result<Result<Option<File>, String>, FilesError> {
    let path = file.path().display();
    let target = match identity::open(file.identity, &file.paths) {
        Ok(target) => target,
        Err(errno) => {
            return Ok(Err(format!(
                "{path} cannot be opened for writing: {errno}. Run the recovery as a user who may"
            )));
        }
    };
    let Some(target) = target else {
        return Ok(if file.may_be_missing || force {
            Ok(None)
        } else {
            Err(missing(file))
        });
    };
    let meta = target
        .metadata()
        .map_err(FilesError::io(format!("looking at {path}")))?;
    let changed = modified(&meta);
    let ours = changed <= file.last + SLACK
        || matches!(mark, Mark::Replay(begun) if (begun..=begun + REPLAY_MAX).contains(&changed));
    if !ours && !force {
        return Ok(Err(format!(
            "{path} was changed {:.1} s after the last write that the pool knows of: was the database started without a recovery? If what the \
             file holds now is right, `forebay recover --discard` drops the pool's writes; if the pool's are, `forebay recover --force` writes them",
            (changed - file.last).as_secs_f64()
        )));
    }
    Ok(Ok(Some(target)))
}

fn missing(file: &Logged<'_>) -> String {
    format!(
        "{} is missing, or another file has its name. Put it back, or mount its file system, and recover again; or go on without it by \
         `forebay recover --force`",
        file.path().display()
    )
}

fn modified(meta: &std::fs::Metadata) -> Duration {
    let seconds = u64::try_from(meta.mtime()).unwrap_or(0);
    let nanoseconds = u32::try_from(meta.mtime_nsec()).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

/// Undoes what a replay that was cut did to the files' times, so that the next one knows them again.
fn reset_times(files: &[Logged<'_>], targets: &[Option<File>]) -> Result<(), FilesError> {
    for (file, target) in files.iter().zip(targets) {
        let Some(target) = target else { continue };
        let doing = || format!("setting the time of {}", file.path().display());
        let meta = target.metadata().map_err(FilesError::io(doing()))?;
        if modified(&meta) <= file.last + SLACK {
            continue;
        }
        let last = Timespec {
            tv_sec: i64::try_from(file.last.as_secs()).unwrap_or(0),
            tv_nsec: i64::from(file.last.subsec_nanos()),
        };
        let times = Timestamps {
            last_access: last,
            last_modification: last,
        };
        rustix::fs::futimens(target, &times).map_err(FilesError::errno(doing()))?;
        target.sync_all().map_err(FilesError::io(doing()))?;
    }
    Ok(())
}

/// Writes the changes, in order, and makes them durable.
fn replay(files: &[Logged<'_>], targets: &[Option<File>]) -> Result<(), FilesError> {
    for (file, target) in files.iter().zip(targets) {
        let Some(target) = target else { continue };
        let doing = || format!("replaying {}", file.path().display());
        for (head, change) in &file.changes {
            apply(target.as_fd(), *head, *change).map_err(FilesError::errno(doing()))?;
            forebay_pool::failpoint!("files:replay");
            cut_here();
        }
        target.sync_all().map_err(FilesError::io(doing()))?;
        sync_parents(file)?;
    }
    Ok(())
}

/// In tests: dies in the middle of a replay, after as many changes as the environment says.
fn cut_here() {
    static LEFT: OnceLock<Option<AtomicU64>> = OnceLock::new();
    let left = LEFT.get_or_init(|| {
        let text = std::env::var("FOREBAY_TEST_CUT_REPLAY").ok()?;
        text.parse().ok().map(AtomicU64::new)
    });
    if left
        .as_ref()
        .is_some_and(|left| left.fetch_sub(1, Relaxed) == 1)
    {
        std::process::abort();
    }
}

fn parents<'a>(file: &Logged<'a>) -> BTreeSet<&'a Path> {
    file.paths.iter().filter_map(|path| path.parent()).collect()
}

fn sync_parents(file: &Logged<'_>) -> Result<(), FilesError> {
    for directory in parents(file) {
        // One that is gone since needs no sync.
        if let Ok(open) = File::open(directory) {
            open.sync_all()
                .map_err(FilesError::io(format!("syncing {}", directory.display())))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: u64, bytes: &[u8]) -> (Head, Change<'_>) {
        (
            Head {
                file: 0,
                at,
                time: 0,
            },
            Change::Write(bytes),
        )
    }

    #[test]
    fn final_parts_are_what_a_file_holds_after_all_changes() {
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..2000 {
            let data: Vec<Vec<u8>> = (0..8)
                .map(|i| vec![i as u8 + 1; 1 + next(9) as usize])
                .collect();
            let changes: Vec<_> = data
                .iter()
                .map(|bytes| {
                    if next(4) == 0 {
                        (
                            Head {
                                file: 0,
                                at: next(20),
                                time: 0,
                            },
                            Change::Truncate,
                        )
                    } else {
                        write(next(20), bytes)
                    }
                })
                .collect();
            let mut file: Vec<u8> = Vec::new();
            let mut known = vec![false; 64];
            for (head, change) in &changes {
                let at = head.at as usize;
                match change {
                    Change::Write(bytes) => {
                        file.resize(file.len().max(at + bytes.len()), 0);
                        file[at..at + bytes.len()].copy_from_slice(bytes);
                        known[at..at + bytes.len()].fill(true);
                    }
                    _ => {
                        file.resize(at, 0);
                        known[at..].fill(false);
                    }
                }
            }
            let mut covered = vec![false; 64];
            let from = next(20);
            let newer: Vec<_> = (next(2) == 0)
                .then(|| from..from + next(9))
                .into_iter()
                .collect();
            for range in &newer {
                known[range.start as usize..range.end as usize].fill(false);
            }
            for (at, bytes) in final_parts(&changes, &newer) {
                let at = at as usize;
                assert_eq!(&file[at..at + bytes.len()], bytes);
                assert!(
                    covered[at..at + bytes.len()].iter().all(|c| !c),
                    "parts overlap"
                );
                covered[at..at + bytes.len()].fill(true);
            }
            assert_eq!(covered, known);
        }
    }

    #[test]
    fn a_label_tells_whose_lane_it_is_and_what_became_of_it() {
        let begun = Duration::from_secs(1_763_700_000);
        let marks = [Mark::None, Mark::Failed, Mark::Replay(begun)];
        for mark in marks {
            let label = label(mark, "redis-server 7");
            assert_eq!(parse_label(&label), Some((mark, "redis-server 7")));
            for other in marks {
                let relabelled = relabelled(&label, other);
                assert_eq!(parse_label(&relabelled), Some((other, "redis-server 7")));
            }
        }
        assert_eq!(parse_label("store /data"), None);
    }
}
