//! The bytes that a lane's changes leave in a file, whatever they found there.

use crate::record::{FileChange, PayloadHead};
use std::{collections::BTreeMap, fs::File, io, ops::Range, os::unix::fs::FileExt};

/// Zeros that are compared at a time.
const CHUNK: usize = 64 << 10;

/// Bytes, and their offset.
pub(crate) type ImagePart<'a> = (u64, &'a [u8]);

/// A file's content after all changes of it.
pub(crate) struct FileImage<'a> {
    /// Bytes at offsets; disjoint.
    pub(crate) parts: Vec<ImagePart<'a>>,
    /// Ranges that were cut off and grown again; disjoint.
    zeros: Vec<Range<u64>>,
    /// The size, if the file was cut to one.
    pub(crate) size: Option<u64>,
}

impl<'a> FileImage<'a> {
    pub(crate) fn of(changes: &[(PayloadHead, FileChange<'a>)]) -> Self {
        let size = cut_size(changes);
        let (mut parts, mut zeros) = (Vec::new(), Vec::new());
        remains(changes, &[], |range, change| match change {
            RangeContent::Bytes(bytes) => parts.push((range.start, bytes)),
            RangeContent::Zeros => {
                let end = range.end.min(size.unwrap_or(0));
                if range.start < end {
                    zeros.push(range.start..end);
                }
            }
        });
        Self { parts, zeros, size }
    }

    /// True if the file holds all of it already.
    pub(crate) fn is_in(&self, file: &File) -> io::Result<bool> {
        let size = file.metadata()?.len();
        let is_size = self.size.is_none_or(|expected| expected == size);
        Ok(is_size
            && self
                .missing(file, size)?
                .is_some_and(|tail| tail.is_empty()))
    }

    /// The bytes that a file of `size` bytes lacks at its end, in order; none if anything before
    /// that is not as it is to be.
    pub(crate) fn missing(&self, file: &File, size: u64) -> io::Result<Option<Vec<ImagePart<'a>>>> {
        let mut tail = Vec::new();
        for (at, bytes) in &self.parts {
            let there = usize::try_from(size.saturating_sub(*at)).unwrap_or(usize::MAX);
            let (there, lacking) = bytes.split_at(there.min(bytes.len()));
            if !is_there(file, *at, there)? {
                return Ok(None);
            }
            if !lacking.is_empty() {
                tail.push((*at + there.len() as u64, lacking));
            }
        }
        for range in &self.zeros {
            if !is_zero(file, range.start..range.end.min(size))? {
                return Ok(None);
            }
        }
        tail.sort_unstable_by_key(|(at, _)| *at);
        Ok(Some(tail))
    }
}

/// The size that the changes leave, if they cut the file to one.
pub(crate) fn cut_size(changes: &[(PayloadHead, FileChange<'_>)]) -> Option<u64> {
    let after = |size: Option<u64>, (head, change): &(PayloadHead, FileChange<'_>)| match change {
        FileChange::Truncate => Some(head.at),
        FileChange::Write(bytes) => size.map(|size| size.max(head.at + bytes.len() as u64)),
        _ => size,
    };
    changes.iter().fold(None, after)
}

fn is_there(file: &File, at: u64, bytes: &[u8]) -> io::Result<bool> {
    let mut found = vec![0; bytes.len()];
    match file.read_exact_at(&mut found, at) {
        Ok(()) => Ok(found == bytes),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

/// True if the file has nothing but zeros in `range`, which lies before its end. Holes are not
/// read: they may be large.
pub(crate) fn is_zero(file: &File, mut range: Range<u64>) -> io::Result<bool> {
    let mut found = vec![0; CHUNK];
    while range.start < range.end {
        match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(range.start)) {
            Ok(data) if data >= range.end => return Ok(true),
            Ok(data) => range.start = data,
            Err(rustix::io::Errno::NXIO) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
        let bytes = usize::try_from(range.end - range.start).map_or(CHUNK, |b| b.min(CHUNK));
        match file.read_exact_at(&mut found[..bytes], range.start) {
            Ok(()) if found[..bytes].iter().all(|byte| *byte == 0) => {}
            Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => return Err(e),
            _ => return Ok(false),
        }
        range.start += bytes as u64;
    }
    Ok(true)
}

/// The contents of a range of a file after all changes.
enum RangeContent<'a> {
    Bytes(&'a [u8]),
    /// If the file is so large.
    Zeros,
}

/// The bytes that the changes leave in the file: disjoint parts, which no later change touches.
/// Ranges that are `newer` than all of them count as later changes.
pub(crate) fn final_parts<'a>(
    changes: &[(PayloadHead, FileChange<'a>)],
    newer: &[Range<u64>],
) -> Vec<ImagePart<'a>> {
    let mut parts = Vec::new();
    remains(changes, newer, |range, remains| {
        if let RangeContent::Bytes(bytes) = remains {
            parts.push((range.start, bytes));
        }
    });
    parts
}

/// Calls `found` with each range that a change leaves something in, from the last change to the
/// first.
fn remains<'a>(
    changes: &[(PayloadHead, FileChange<'a>)],
    newer: &[Range<u64>],
    mut found: impl FnMut(Range<u64>, RangeContent<'a>),
) {
    // Ranges that later changes cover, by start; disjoint and apart.
    let mut covered: BTreeMap<u64, u64> = BTreeMap::new();
    let newer = newer.iter().map(|range| (range.start, range.end, None));
    let changes = changes.iter().rev().filter_map(|(head, change)| {
        let end = match change {
            FileChange::Write(bytes) => head.at + bytes.len() as u64,
            FileChange::Truncate => u64::MAX,
            _ => return None,
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
        let mut push = |from: u64, to: u64| match change {
            Some(FileChange::Write(bytes)) if from < to => {
                let bytes = &bytes[(from - start) as usize..(to - start) as usize];
                found(from..to, RangeContent::Bytes(bytes));
            }
            Some(FileChange::Truncate) if from < to => found(from..to, RangeContent::Zeros),
            _ => {}
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn write(at: u64, bytes: &[u8]) -> (PayloadHead, FileChange<'_>) {
        (
            PayloadHead {
                at,
                ..PayloadHead::default()
            },
            FileChange::Write(bytes),
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
                            PayloadHead {
                                at: next(20),
                                ..PayloadHead::default()
                            },
                            FileChange::Truncate,
                        )
                    } else {
                        write(next(20), bytes)
                    }
                })
                .collect();
            let mut file: Vec<u8> = Vec::new();
            let mut known = vec![false; 64];
            let mut cut: Option<usize> = None;
            for (head, change) in &changes {
                let at = head.at as usize;
                match change {
                    FileChange::Write(bytes) => {
                        file.resize(file.len().max(at + bytes.len()), 0);
                        file[at..at + bytes.len()].copy_from_slice(bytes);
                        known[at..at + bytes.len()].fill(true);
                    }
                    _ => {
                        file.resize(at, 0);
                        known[at..].fill(false);
                        cut = Some(cut.map_or(at, |cut| cut.min(at)));
                    }
                }
            }
            let image = FileImage::of(&changes);
            let mut on_disk = tempfile::tempfile().unwrap();
            on_disk.write_all(&file).unwrap();
            assert!(image.is_in(&on_disk).unwrap());
            let spoiled = next(file.len().max(1) as u64) as usize;
            if let Some(byte) = file.get(spoiled) {
                on_disk.write_all_at(&[byte ^ 1], spoiled as u64).unwrap();
                // What neither a write nor a truncation made is not known.
                let is_known = known[spoiled] || cut.is_some_and(|cut| spoiled >= cut);
                assert_eq!(!image.is_in(&on_disk).unwrap(), is_known);
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
}
