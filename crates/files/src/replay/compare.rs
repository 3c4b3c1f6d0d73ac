//! Compares a file with the lane's records of it: a copy that was written to by itself is told from
//! the file, and missing bytes are put into words.
//!
//! Behind the size that a file had when the lane's records of it begin, only those records can have
//! put bytes: all that was there before is on the disk. After a power cut each byte there is one
//! that a record wrote, or a zero. A clone of the file's volume that a program has used has other
//! bytes there, though its files have the same identities (file handles of ext4 and XFS do not name
//! the file system).

use super::lane_contents::LoggedFile;
use crate::{
    image::cut_size,
    record::{FileChange, PayloadHead},
};
use std::{fs::File, io, os::unix::fs::FileExt};

/// Bytes that are read at a time.
const WINDOW: u64 = 1 << 20;
/// Bytes of a block that programs write again: the first one, a header; and the last one, when they
/// add to it.
const BLOCK: u64 = 4096;

/// A write of the lane: its offset and bytes.
type LoggedWrite<'a> = (u64, &'a [u8]);

/// The place at which the file has something, behind the size that it had before the lane's
/// records, that is neither one of theirs nor zeros. None if it has nothing of the kind, or that
/// cannot be told. With `may_be_ahead` it may have what is not in the lane (the kernel gets a write
/// first): then a byte counts only where no program writes again.
///
/// # Errors
/// If it cannot be read.
pub(super) fn foreign(
    file: &LoggedFile<'_>,
    open: &File,
    may_be_ahead: bool,
) -> io::Result<Option<u64>> {
    match grown_from(file).filter(|_| !file.is_touched) {
        Some(had) => unexplained(file, open, had, may_be_ahead),
        None => Ok(None),
    }
}

/// True if all of the lane's bytes that the file lacks may be lost by a write-back that failed,
/// when the pages were evicted: the file has zeros there, an earlier record's bytes, or nothing.
/// Not so a file that is longer than the lane's records leave it, if they cut it: it has a write
/// that the lane lacks, since that had not returned, and would lose it.
pub(super) fn may_be_lost(file: &LoggedFile<'_>, open: &File) -> bool {
    unexplained(file, open, 0, false).is_ok_and(|at| at.is_none())
        && is_longer(file, open).is_ok_and(|is_longer| !is_longer)
}

/// True if the lane's records cut the file, and it is longer than they leave it.
fn is_longer(file: &LoggedFile<'_>, open: &File) -> io::Result<bool> {
    let size = open.metadata()?.len();
    Ok(cut_size(&file.changes).is_some_and(|left| left < size))
}

/// The place at which the file has, from an offset on, neither bytes of the records that wrote
/// there nor zeros.
fn unexplained(
    file: &LoggedFile<'_>,
    open: &File,
    from: u64,
    may_be_ahead: bool,
) -> io::Result<Option<u64>> {
    let given_up = written_in(&file.given_up);
    let mut writes: Vec<LoggedWrite<'_>> = writes(file).chain(given_up).collect();
    writes.sort_by_key(|(at, _)| *at);
    let last = writes.iter().max_by_key(|write| end_of(write));
    let tail = last.map_or(0, |(at, _)| at / BLOCK * BLOCK);
    let is_written_again = |at: u64, times: u8| at < BLOCK || at >= tail || times > 1;
    let size = open.metadata()?.len();
    let (mut from, mut next) = (from, 0);
    let mut near: Vec<LoggedWrite<'_>> = Vec::new();
    let mut found = vec![0; WINDOW as usize];
    loop {
        if near.is_empty() {
            match writes[next..].iter().position(|write| end_of(write) > from) {
                Some(skipped) => next += skipped,
                None => return Ok(None),
            }
            from = from.max(writes[next].0);
        }
        let to = (from + WINDOW).min(size);
        if from >= to {
            return Ok(None);
        }
        while let Some(write) = writes.get(next).filter(|(at, _)| *at < to) {
            near.push(*write);
            next += 1;
        }
        let found = &mut found[..(to - from) as usize];
        open.read_exact_at(found, from)?;
        let known = explained(found, from, &near);
        let is_foreign = |(offset, (times, is_known)): &(usize, (u8, bool))| {
            let is_strange = *times > 0 && !is_known && found[*offset] != 0;
            is_strange && !(may_be_ahead && is_written_again(from + *offset as u64, *times))
        };
        if let Some((offset, _)) = known.into_iter().enumerate().find(is_foreign) {
            return Ok(Some(from + offset as u64));
        }
        near.retain(|write| end_of(write) > to);
        from = to;
    }
}

/// Of each byte of a window that begins at `from`: how often it was written, and whether it is what
/// was written once.
fn explained(found: &[u8], from: u64, near: &[LoggedWrite<'_>]) -> Vec<(u8, bool)> {
    let mut known = vec![(0u8, false); found.len()];
    for (at, bytes) in near {
        let (skipped, begins) = (from.saturating_sub(*at), at.saturating_sub(from));
        let bytes = bytes.get(skipped as usize..).unwrap_or_default();
        let there = known.iter_mut().zip(found).skip(begins as usize);
        for (((times, is_known), there), byte) in there.zip(bytes) {
            *times = times.saturating_add(1);
            *is_known |= there == byte;
        }
    }
    known
}

/// The size that the file had before records of it, of which the lane says so, if they only made it
/// longer: what was cut off may be there again.
fn grown_from(file: &LoggedFile<'_>) -> Option<u64> {
    let had = file.grows_from?;
    let mut size = had;
    for (head, change) in &file.changes {
        match change {
            FileChange::Truncate if head.at < size => return None,
            FileChange::Truncate => size = head.at,
            FileChange::Write(bytes) => size = size.max(head.at + bytes.len() as u64),
            _ => {}
        }
    }
    Some(had)
}

fn writes<'a>(file: &'a LoggedFile<'_>) -> impl Iterator<Item = LoggedWrite<'a>> {
    written_in(&file.changes)
}

fn written_in<'a>(
    changes: &'a [(PayloadHead, FileChange<'_>)],
) -> impl Iterator<Item = LoggedWrite<'a>> {
    changes.iter().filter_map(|(head, change)| match change {
        FileChange::Write(bytes) => Some((head.at, *bytes)),
        _ => None,
    })
}

fn end_of((at, bytes): &LoggedWrite<'_>) -> u64 {
    at + bytes.len() as u64
}

/// In words: the file holds something else than the lane says, and is right. `on_disk`: the pool
/// may lack what was not committed.
pub(super) fn kept(file: &LoggedFile<'_>, open: &File, is_readable: bool, on_disk: bool) -> String {
    let path = file.path().display();
    if !is_readable {
        return format!(
            "{path} cannot be read, so it was not compared with the pool's writes: it was on its mount all the time, so the kernel has them, and was synced"
        );
    }
    let end = writes(file).map(|write| end_of(&write)).max().unwrap_or(0);
    let size = open.metadata().map_or(0, |meta| meta.len());
    let (what, why) = match () {
        () if size < end => (
            format!("lacks acknowledged writes: it has {size} bytes, and they reach to {end}"),
            "Something that Forebay does not see has cut it since",
        ),
        () if on_disk => (
            "holds something else than the pool's writes".to_owned(),
            "It has writes that were not committed, or something that Forebay does not see has changed it since",
        ),
        () if is_longer(file, open).unwrap_or_default() => (
            "is longer than the pool's writes leave it".to_owned(),
            "It has a write that had not returned, or something that Forebay does not see has changed it since",
        ),
        () => (
            "lacks acknowledged writes: it holds something else where they were".to_owned(),
            "Something that Forebay does not see has changed it since",
        ),
    };
    format!(
        "{path} {what}. {why} (a process outside, a ring, a system call past the C library). It stayed on its mount all the time, so its contents are newer: they were synced, and the pool's {} writes of it are dropped",
        file.changes.len()
    )
}

/// In words: the file is a clone's, which was used by itself.
pub(super) fn is_clone(file: &LoggedFile<'_>, at: u64) -> String {
    format!(
        "{} has bytes from {at} on that no write of the program put there, behind its size before the pool's first write: is it on a clone or a snapshot of \
         its volume that was used by itself? Mount the volume that the program wrote to, and recover again; or `forebay recover --discard` drops the pool's writes, \
         `forebay recover --force` writes them over the bytes of this one",
        file.path().display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// The bytes of a file of this content that are foreign to these writes behind a size, if the
    /// lane has all writes and if it may lack some.
    fn of(
        had: Option<u64>,
        changes: &[(u64, Option<&'static [u8]>)],
        content: &[u8],
    ) -> [Option<u64>; 2] {
        let file = LoggedFile::of_changes(had, changes);
        let mut open = tempfile::tempfile().unwrap();
        open.write_all(content).unwrap();
        [false, true].map(|may_be_ahead| foreign(&file, &open, may_be_ahead).unwrap())
    }

    #[test]
    fn what_a_cut_may_leave_is_not_foreign() {
        let writes = [
            (2, Some(&b"abcd"[..])),
            (6, Some(b"efgh")),
            (4, Some(b"XY")),
        ];
        for content in [
            "..",
            "..ab",
            "..abcdefgh",
            "..abXYefgh",
            "..\0bcY\0\0gh",
            "?!abXYefghmore",
        ] {
            assert_eq!(
                of(Some(2), &writes, content.as_bytes()),
                [None; 2],
                "{content}"
            );
        }
    }

    /// Promise: as `a_clone_that_was_used_gets_nothing_in_its_originals_place`.
    #[test]
    fn what_no_write_put_behind_the_old_end_is_foreign() {
        let writes = [(2, Some(&b"abcd"[..])), (6, Some(b"efgh"))];
        for (content, at) in [("..abBBefgh", 4), ("..abcdefBB", 8), ("..B", 2)] {
            assert_eq!(
                of(Some(2), &writes, content.as_bytes()),
                [Some(at), None],
                "{content}"
            );
        }
        // Where it was before, and where the lane does not say, it is not known.
        assert_eq!(of(Some(4), &writes, b"..BBcdefgh"), [None; 2]);
        assert_eq!(of(None, &writes, b"..abBBefgh"), [None; 2]);
        // What was cut off may be there again.
        let cut = [(2, Some(&b"abcd"[..])), (0, None), (0, Some(b"ab"))];
        assert_eq!(of(Some(2), &cut, b"..BBBB"), [None; 2]);
        let grown = [(2, Some(&b"abcd"[..])), (90, None)];
        assert_eq!(of(Some(2), &grown, b"..BBBB")[0], Some(2));
    }

    #[test]
    fn a_file_longer_than_the_lane_cut_it_lost_no_bytes() {
        let changes = [(0, Some(&b"abcdef"[..])), (2, None), (2, Some(b"XY"))];
        let lost = |changes: &[_], content: &[u8]| {
            let file = LoggedFile::of_changes(None, changes);
            let mut open = tempfile::tempfile().unwrap();
            open.write_all(content).unwrap();
            may_be_lost(&file, &open)
        };
        assert!(lost(&changes, b"ab"));
        assert!(lost(&changes, b"ab\0\0"));
        assert!(!lost(&changes, b"abXYmore"));
        // Without a truncation nothing would be cut.
        assert!(lost(&changes[..1], b"ab\0\0\0\0more"));
    }

    #[test]
    fn bytes_that_end_inside_a_long_log_are_foreign_in_any_case() {
        static PART: [u8; 1000] = [b'A'; 1000];
        let writes: Vec<_> = (0..3000).map(|at| (at * 1000, Some(&PART[..]))).collect();
        let mut content = vec![b'A'; 3_000_000];
        assert_eq!(of(Some(0), &writes, &content), [None; 2]);
        content[2_999_000..].fill(b'B');
        assert_eq!(of(Some(0), &writes, &content), [Some(2_999_000), None]);
        content[2_000_001..].fill(b'B');
        content.truncate(2_000_002);
        assert_eq!(of(Some(0), &writes, &content), [Some(2_000_001); 2]);
    }
}
