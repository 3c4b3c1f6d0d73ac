//! The manifest: the tables that make up the index, their order, and the watermark.
//!
//! ```text
//! forebay-index 1 8f0c…(32 hex digits)      format version; XXH3-128 of all that follows this line
//! watermark 73400320                        the log is covered below this address
//! next 19                                   table numbers from here on have never been named here
//! deleted 71303168 6162 -                   a deleted range: what lies below this address is hidden;
//!                                           first key, and first key behind, in hexadecimal: - is
//!                                           none
//! run                                       a sorted run, newest first
//! table 17 25165824 0d9e…(32 hex digits) 71303040
//!                                           its tables in key order: number, bytes, XXH3-128, and
//!                                           the watermark when it was written
//! run
//! table 3 33554432 …
//! ```
//!
//! Ranges that were deleted at a table's watermark or later hide all of its keys that they have,
//! earlier ones none.
//!
//! It is replaced as a whole: written to a temporary file, synced, renamed, directory synced.
//! Tables and watermark therefore change in one step, and a reader of the file finds either the
//! state before or the state after. The version files of lsm-tree itself are not used: in 3.1.10
//! they state no more than 255 runs, and are not checked against their checksum when read. If their
//! `current` file is lost, an empty tree is made in silence.
use super::{IndexCause, IndexError, run::TableRun, table::TableFacts, view::IndexView};
use crate::{
    disk::HeldDirectory,
    range_tombstones::{RangeTombstone, RangeTombstones},
};
use lsm_tree::checksum::ChecksummedWriter;
use rustix::fs::OFlags;
use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::Path,
};

/// Name of the manifest's file.
pub(super) const NAME: &str = "MANIFEST";

/// Name of the file that is to become the manifest.
pub(super) const TEMPORARY: &str = "MANIFEST.tmp";

const MAGIC: &str = "forebay-index";
/// The manifest's format version.
const VERSION: u32 = 1;

/// The manifest's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexManifest {
    pub(super) watermark: u64,
    pub(super) next_id: u64,
    pub(super) deleted: RangeTombstones,
    /// Newest first.
    pub(super) runs: Vec<Vec<TableFacts>>,
}

/// A manifest that could not be written.
pub(super) struct NotWritten {
    pub(super) error: IndexError,
    /// The new manifest may be in force after a crash all the same, so its tables must stay.
    pub(super) may_count: bool,
}

fn checksum(text: &str) -> u128 {
    let mut hasher = ChecksummedWriter::new(io::sink());
    // Writing to a sink cannot fail.
    let _ = hasher.write_all(text.as_bytes());
    hasher.checksum().into_u128()
}

/// Bytes in hexadecimal, or that there are none.
fn hex(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else {
        return "-".to_owned();
    };
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// The reverse; `None` of what it never is.
fn unhex(text: &str) -> Option<Option<Vec<u8>>> {
    if text == "-" {
        return Some(None);
    }
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| !digits.is_empty() && digits.len() % 2 == 0)?;
    let bytes = digits
        .chunks_exact(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8);
    Some(Some(bytes.collect()))
}

impl IndexManifest {
    /// That of an index that is `view`, with table numbers from `next_id` on not given yet.
    pub(super) fn of(view: &IndexView, next_id: u64) -> Self {
        let tables = |run: &TableRun| run.tables().iter().map(|table| table.facts()).collect();
        Self {
            watermark: view.watermark,
            next_id,
            deleted: RangeTombstones::clone(view.deleted()),
            runs: view.runs.iter().map(|run| tables(run)).collect(),
        }
    }

    pub(super) fn encode(&self) -> String {
        let mut body = format!("watermark {}\nnext {}\n", self.watermark, self.next_id);
        // Writing to a string cannot fail.
        for range in self.deleted.iter() {
            let start = hex(Some(&range.start[..]).filter(|start| !start.is_empty()));
            let _ = writeln!(
                body,
                "deleted {} {start} {}",
                range.lsn,
                hex(range.end.as_deref())
            );
        }
        for run in &self.runs {
            body.push_str("run\n");
            for table in run {
                let _ = writeln!(
                    body,
                    "table {} {} {:032x} {}",
                    table.id, table.bytes, table.checksum, table.known
                );
            }
        }
        format!("{MAGIC} {VERSION} {:032x}\n{body}", checksum(&body))
    }

    fn decode(text: &str) -> Result<Self, String> {
        let (head, body) = text.split_once('\n').ok_or("no complete first line")?;
        let mut words = head.split(' ');
        if words.next() != Some(MAGIC) {
            return Err("not an index manifest".into());
        }
        let version = words.next().unwrap_or_default();
        if version != VERSION.to_string() {
            return Err(format!(
                "manifest version {version:?}, this program reads {VERSION}"
            ));
        }
        let stated = words.next().unwrap_or_default();
        let found = format!("{:032x}", checksum(body));
        if stated != found {
            return Err(format!(
                "the manifest's checksum is {found}, expected {stated:?}"
            ));
        }
        let mut manifest = Self::default();
        for (number, line) in body.lines().enumerate() {
            let bad = || format!("line {}: {line:?}", number + 2);
            let words: Vec<&str> = line.split(' ').collect();
            match (number, &words[..]) {
                (0, ["watermark", at]) => manifest.watermark = at.parse().map_err(|_| bad())?,
                (1, ["next", id]) => manifest.next_id = id.parse().map_err(|_| bad())?,
                (2.., ["deleted", lsn, start, end]) => {
                    let start = unhex(start).ok_or_else(bad)?.unwrap_or_default();
                    let end = unhex(end).ok_or_else(bad)?;
                    let lsn = lsn.parse().map_err(|_| bad())?;
                    let range = RangeTombstone::new(&start, end.as_deref(), lsn);
                    if range.is_empty() {
                        return Err(bad());
                    }
                    manifest.deleted.add(range);
                }
                (2.., ["run"]) => manifest.runs.push(Vec::new()),
                (2.., ["table", id, bytes, checksum, known]) => {
                    manifest.runs.last_mut().ok_or_else(bad)?.push(TableFacts {
                        id: id.parse().map_err(|_| bad())?,
                        bytes: bytes.parse().map_err(|_| bad())?,
                        checksum: u128::from_str_radix(checksum, 16).map_err(|_| bad())?,
                        known: known.parse().map_err(|_| bad())?,
                    });
                }
                _ => return Err(bad()),
            }
        }
        Ok(manifest)
    }

    /// Reads the manifest in `dir`; `None` if there is none.
    ///
    /// # Errors
    /// I/O errors; a file that is not a manifest or is damaged.
    pub(super) fn read(dir: &HeldDirectory) -> Result<Option<Self>, IndexError> {
        let path = dir.path().join(NAME);
        let fail = |cause| IndexError {
            path: path.clone(),
            doing: "reading the manifest",
            cause,
        };
        let bytes = match dir.read(NAME) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(fail(IndexCause::Io(e))),
        };
        let text =
            String::from_utf8(bytes).map_err(|_| fail(IndexCause::Corrupt("not text".into())))?;
        Self::decode(&text)
            .map(Some)
            .map_err(|found| fail(IndexCause::Corrupt(found)))
    }

    /// Makes this the manifest in `dir`, durably.
    ///
    /// # Errors
    /// I/O errors. Unless [`NotWritten::may_count`], the manifest in force is the one before.
    pub(super) fn write(&self, dir: &HeldDirectory) -> Result<(), NotWritten> {
        let (temporary, path) = (Path::new(TEMPORARY), dir.path().join(NAME));
        let fail = |may_count| {
            let path = path.clone();
            move |e| NotWritten {
                error: IndexError {
                    path,
                    doing: "writing the manifest",
                    cause: IndexCause::Io(e),
                },
                may_count,
            }
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let written = dir
            .open_file(temporary, flags)
            .and_then(|mut file| {
                file.write_all(self.encode().as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| dir.rename(temporary, Path::new(NAME)));
        if let Err(e) = written {
            // If this fails too, the next attempt truncates the file.
            let _ = dir.remove(temporary);
            return Err(fail(false)(e));
        }
        dir.sync().map_err(fail(true))
    }
}

/// See [`super::fuzz_manifest`].
#[cfg(feature = "failpoints")]
pub(super) fn fuzz(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let _ = IndexManifest::decode(text);
    let sealed = format!("{MAGIC} {VERSION} {:032x}\n{text}", checksum(text));
    if let Ok(manifest) = IndexManifest::decode(&sealed) {
        assert_eq!(IndexManifest::decode(&manifest.encode()), Ok(manifest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_tombstones::{RANGE_BYTES_MAX, RANGES_IN_MANIFEST, RANGES_MAX};

    fn sample() -> IndexManifest {
        let table = |id| TableFacts {
            id,
            bytes: 1 << id,
            checksum: u128::MAX / u128::from(id),
            known: u64::MAX - id,
        };
        let mut deleted = RangeTombstones::default();
        deleted.add(RangeTombstone::new(b"", Some(b"a\x00"), 7));
        deleted.add(RangeTombstone::new(b"b c\n", None, 9));
        IndexManifest {
            watermark: u64::MAX,
            next_id: 12,
            deleted,
            runs: vec![vec![table(11)], vec![table(3), table(7)]],
        }
    }

    #[test]
    fn a_manifest_is_read_back_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let held = HeldDirectory::open(dir.path()).unwrap();
        assert_eq!(IndexManifest::read(&held).unwrap(), None);
        let without_ranges = IndexManifest {
            deleted: RangeTombstones::default(),
            ..sample()
        };
        for manifest in [IndexManifest::default(), without_ranges, sample()] {
            assert!(manifest.write(&held).is_ok());
            assert_eq!(IndexManifest::read(&held).unwrap(), Some(manifest));
        }
        assert!(!dir.path().join(TEMPORARY).exists());
    }

    #[test]
    fn a_full_disks_reserve_has_room_for_as_many_ranges_as_are_kept() {
        let digits = RANGE_BYTES_MAX / RANGES_MAX / 2 - 1;
        let mut deleted = RangeTombstones::default();
        for number in 0..RANGES_MAX {
            let key = |last: char| format!("{number:0digits$}{last}").into_bytes();
            deleted.add(RangeTombstone::new(&key('a'), Some(&key('b')), u64::MAX));
        }
        assert_eq!(deleted.len(), RANGES_MAX);
        let manifest = IndexManifest {
            deleted,
            ..sample()
        };
        let bytes = manifest.encode().len() as u64;
        // And thousands of tables.
        assert!(bytes + (512 << 10) < RANGES_IN_MANIFEST, "{bytes}");
    }

    #[test]
    fn a_manifests_every_truncation_and_flipped_bit_is_noticed() {
        let text = sample().encode();
        for len in 0..text.len() {
            assert!(IndexManifest::decode(&text[..len]).is_err(), "{len} bytes");
        }
        for at in 0..text.len() {
            for bit in 0..7 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let damaged = String::from_utf8(bytes).unwrap();
                assert!(
                    IndexManifest::decode(&damaged).is_err(),
                    "byte {at}, bit {bit}"
                );
            }
        }
    }

    #[test]
    fn a_newer_format_is_refused_by_its_version() {
        let newer = sample().encode().replacen(" 1 ", " 2 ", 1);
        assert!(
            IndexManifest::decode(&newer)
                .unwrap_err()
                .contains("version \"2\"")
        );
    }
}
