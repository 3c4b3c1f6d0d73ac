//! The records of the files tier: the contents of its lanes. docs/files-write.md, "Records".
//!
//! Every payload begins with the same head:
//!
//! ```text
//!  0  file     4   number of the file in this lane
//!  4  flags    4   1: of a write that follows a change of metadata which no sync had ordered yet ("Order with the rest of the file system")
//!  8  at       8   write: file offset; truncate, refused: new size; file: the mount that it was on (`identity::mount`), 0 if unknown;
//!                  gone: 1 once it is so, 0 before; touched: the modification time that the file has, ns since 1970; ordered: the log
//!                  address below which the file's records are ordered
//! 16  time     8   wall clock (coarse) after the kernel had the change, of a truncation before it, ns since 1970
//! ```
//! A `file` record goes on with
//!
//! ```text
//! 24  boot id       16
//! 40  identity len   2
//! 42  path len       2
//! 44  identity           file handle (`identity`)
//!     path               absolute
//!     size               8, or nothing: the file's, before the first write to it in this segment; 2^64-1 if that is not known
//!     ahead              8, or nothing: a modification time ahead of the clock that the file has had, ns since 1970
//! ```
//! and a `write` record with the bytes written. Each segment names a file before it writes to it,
//! so that a segment can be understood without those before it, which may be drained.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, time::Duration};

/// A file that changed later than this after its last record was changed by a process that does not
/// absorb it. Record and change take their time from the same coarse clock, the record afterwards;
/// a file system may take the finer clock for the change, which is a tick ahead at most.
const SLACK: Duration = Duration::from_millis(100);
/// The same for a pool on a disk: what is not committed is lost with the power, though the disk may
/// have got it, and the supervisor commits once a second.
const SLACK_ON_DISK: Duration = Duration::from_secs(5);

/// Time after its last record in which a file may have changed without a change that is in no
/// record.
pub(crate) fn slack(pool_is_on_disk: bool) -> Duration {
    match pool_is_on_disk {
        true => SLACK_ON_DISK,
        false => SLACK,
    }
}

/// After so long without a record of a file, whatever changes it is seen to have come later. A
/// record may be late itself.
pub(crate) fn silence(pool_is_on_disk: bool) -> Duration {
    slack(pool_is_on_disk) + Duration::from_secs(2)
}

/// Names a file, or gives it one more name.
pub const KIND_FILE: u16 = 1;
/// Bytes written at an offset.
pub const KIND_WRITE: u16 = 2;
/// A new size. Logged before the kernel has it, since the kernel may make a truncation durable at
/// any time. What the lane still has of the bytes that were cut off must not come back without
/// those before them, which may be drained.
pub const KIND_TRUNCATE: u16 = 3;
/// The file is about to lose its last name, or has lost it: it may be missing.
pub const KIND_GONE: u16 = 4;
/// The file's modification time was moved by something that changes no byte of it, or set.
pub const KIND_TOUCHED: u16 = 5;
/// The file has kept a name after all: it may not be missing.
pub const KIND_KEPT: u16 = 6;
/// The file did not get the size that the record of it before this one says.
pub const KIND_REFUSED: u16 = 7;
/// The file's records below a log address follow no change of metadata any more that a power cut
/// could take back.
pub const KIND_ORDERED: u16 = 8;
/// A flag of the head: the record counts once a later one says that it is [ordered](KIND_ORDERED).
const HELD: u32 = 1;
/// The largest size of a file, and its largest offset.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;

/// In the place of a size that is not known.
const UNKNOWN: u64 = u64::MAX;

/// Bytes of the head of every payload.
pub const HEAD: usize = 24;
/// In place of a record's time, when its file had strayed: by it nothing is newer or older.
pub const NO_TIME: u64 = 0;
const NAME_HEAD: usize = HEAD + 20;

/// The head of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadHead {
    /// Number of the file in this lane.
    pub file: u32,
    /// File offset of a write; new size of a truncation; for the others see the module's head.
    pub at: u64,
    /// Wall clock after the kernel had the change, of a truncation before it, ns since 1970; or
    /// [`NO_TIME`].
    pub time: u64,
    /// It follows a change of metadata that was not ordered yet.
    pub held: bool,
}

impl PayloadHead {
    /// The head's bytes.
    #[must_use]
    pub fn encode(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0..4].copy_from_slice(&self.file.to_le_bytes());
        bytes[4..8].copy_from_slice(&if self.held { HELD } else { 0 }.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.at.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.time.to_le_bytes());
        bytes
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            Some(u64::from_le_bytes(
                payload.get(at..at + 8)?.try_into().ok()?,
            ))
        };
        let first = word(0)?;
        let held = match (first >> 32) as u32 {
            0 => false,
            HELD => true,
            _ => return None,
        };
        Some(Self {
            file: first as u32,
            at: word(8)?,
            time: word(16)?,
            held,
        })
    }
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange<'a> {
    /// The file has this identity and (also) this path.
    File {
        /// The boot in which it was written.
        boot: [u8; 16],
        /// The file's identity.
        identity: &'a [u8],
        /// Its path.
        path: &'a Path,
        /// The size that it had before the first write to it in this segment, if that is known.
        had: Option<u64>,
        /// A modification time that the file on the disk may have though it lies ahead of the
        /// clock, ns since 1970.
        ahead: Option<u64>,
    },
    /// Bytes were written at the head's offset.
    Write(&'a [u8]),
    /// The size was set to the head's.
    Truncate,
    /// The file may be missing.
    Gone {
        /// It has no name any more; otherwise that was only about to happen.
        done: bool,
    },
    /// The modification time is this one, ns since 1970.
    Touched(u64),
    /// The file may not be missing.
    Kept,
    /// The truncation to the head's size did not happen.
    Refused,
    /// The records before the head's log address are ordered.
    Ordered,
}

/// Adds records that change bytes, in order; a truncation that was refused is none.
pub(crate) fn add_change<'a>(
    changes: &mut Vec<(PayloadHead, FileChange<'a>)>,
    head: PayloadHead,
    change: FileChange<'a>,
) {
    let is_it = |(last, change): &mut (PayloadHead, FileChange<'_>)| {
        *change == FileChange::Truncate && last.at == head.at
    };
    match change {
        FileChange::Write(_) | FileChange::Truncate => changes.push((head, change)),
        FileChange::Refused => drop(changes.pop_if(is_it)),
        _ => {}
    }
}

/// The payload of a `file` record. Too long a path is cut: it is then a hint that leads nowhere.
#[must_use]
pub fn encode_file(head: PayloadHead, boot: [u8; 16], identity: &[u8], path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    let path = &path[..path.len().min(usize::from(u16::MAX))];
    let identity = &identity[..identity.len().min(usize::from(u16::MAX))];
    let mut bytes = Vec::with_capacity(NAME_HEAD + identity.len() + path.len());
    bytes.extend(head.encode());
    bytes.extend(boot);
    for part in [identity, path] {
        bytes.extend(u16::try_from(part.len()).unwrap_or(0).to_le_bytes());
    }
    bytes.extend(identity);
    bytes.extend(path);
    bytes
}

/// Says in the payload of a `file` record which size the file had before it was written to in this
/// segment, and which time ahead of the clock it may have.
pub(crate) fn add_before(named: &mut Vec<u8>, had: Option<u64>, ahead: Option<u64>) {
    if had.is_some() || ahead.is_some() {
        named.extend(had.unwrap_or(UNKNOWN).to_le_bytes());
        named.extend(ahead.into_iter().flat_map(u64::to_le_bytes));
    }
}

/// Reads a record's payload; the mistake, if there is one.
///
/// # Errors
/// In words: an unknown kind, or lengths that do not fit.
pub fn decode(kind: u16, payload: &[u8]) -> Result<(PayloadHead, FileChange<'_>), String> {
    let head = PayloadHead::decode(payload).ok_or_else(|| {
        format!(
            "its {} bytes are too few, or its flags are unknown",
            payload.len()
        )
    })?;
    let change = match kind {
        KIND_FILE => {
            let parts = || {
                let boot = payload.get(HEAD..HEAD + 16)?.try_into().ok()?;
                let length = |at: usize| {
                    let bytes = payload.get(at..at + 2)?.try_into().ok()?;
                    Some(usize::from(u16::from_le_bytes(bytes)))
                };
                let middle = NAME_HEAD + length(HEAD + 16)?;
                let identity = payload.get(NAME_HEAD..middle)?;
                let end = middle + length(HEAD + 18)?;
                let path = payload.get(middle..end)?;
                let mut words = payload[end..].chunks_exact(8);
                let mut word = || Some(u64::from_le_bytes(words.next()?.try_into().ok()?));
                let (had, ahead) = (word(), word());
                Some(FileChange::File {
                    boot,
                    identity,
                    path: Path::new(OsStr::from_bytes(path)),
                    had: had.filter(|had| *had != UNKNOWN),
                    ahead,
                })
            };
            parts().ok_or("its lengths do not fit")?
        }
        KIND_WRITE => {
            let bytes = &payload[HEAD..];
            let end = head.at.checked_add(bytes.len() as u64);
            end.filter(|end| *end <= SIZE_MAX)
                .ok_or("it lies behind the end of any file")?;
            FileChange::Write(bytes)
        }
        KIND_TRUNCATE if head.at > SIZE_MAX => {
            return Err("it is larger than any file".to_owned());
        }
        KIND_TRUNCATE => FileChange::Truncate,
        KIND_REFUSED => FileChange::Refused,
        KIND_GONE => FileChange::Gone { done: head.at == 1 },
        KIND_TOUCHED => FileChange::Touched(head.at),
        KIND_KEPT => FileChange::Kept,
        KIND_ORDERED => FileChange::Ordered,
        other => return Err(format!("its kind {other} is unknown")),
    };
    Ok((head, change))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at: u64) -> PayloadHead {
        PayloadHead {
            file: 0,
            at,
            ..PayloadHead::default()
        }
    }

    #[test]
    fn records_are_read_back_and_cut_ones_refused() {
        let head = PayloadHead {
            file: 7,
            at: 1 << 40,
            time: 99,
            held: true,
        };
        let path = Path::new("/data/appendonly.aof");
        let file = encode_file(head, [5; 16], b"handle", path);
        let change = FileChange::File {
            boot: [5; 16],
            identity: b"handle",
            path,
            had: None,
            ahead: None,
        };
        assert_eq!(decode(KIND_FILE, &file), Ok((head, change)));
        for before in [(Some(77), None), (Some(77), Some(88)), (None, Some(88))] {
            let mut sized = file.clone();
            add_before(&mut sized, before.0, before.1);
            let Ok((_, FileChange::File { had, ahead, .. })) = decode(KIND_FILE, &sized) else {
                panic!("a record with a size is not read");
            };
            assert_eq!((had, ahead), before);
        }
        for cut in 0..file.len() {
            assert!(decode(KIND_FILE, &file[..cut]).is_err(), "{cut}");
        }
        let write = [&head.encode()[..], b"SET a b"].concat();
        assert_eq!(
            decode(KIND_WRITE, &write),
            Ok((head, FileChange::Write(b"SET a b")))
        );
        assert_eq!(
            decode(KIND_GONE, &write),
            Ok((head, FileChange::Gone { done: false }))
        );
        assert_eq!(
            decode(KIND_TOUCHED, &write),
            Ok((head, FileChange::Touched(1 << 40)))
        );
        assert!(decode(9, &write).unwrap_err().contains("unknown"));
    }

    #[test]
    fn a_refused_truncation_takes_back_itself_and_nothing_before_it() {
        let write = (at(3), FileChange::Write(b"abc"));
        let cut = (at(5), FileChange::Truncate);
        let refused = |size| (at(size), FileChange::Refused);
        for (records, left) in [
            (vec![write, cut, refused(5)], vec![write]),
            (vec![write, cut, refused(9)], vec![write, cut]),
            (vec![cut, write, refused(5)], vec![cut, write]),
            (vec![refused(5), cut], vec![cut]),
            (vec![cut, cut, refused(5), write], vec![cut, write]),
        ] {
            let mut changes = Vec::new();
            for (head, change) in records {
                add_change(&mut changes, head, change);
            }
            assert_eq!(changes, left);
        }
    }

    #[test]
    fn a_record_behind_the_end_of_any_file_is_refused() {
        let write = |head: PayloadHead| [&head.encode()[..], b"bytes"].concat();
        for far in [u64::MAX, u64::MAX - 2, i64::MAX as u64 - 4] {
            assert!(decode(KIND_WRITE, &write(at(far))).is_err(), "{far}");
        }
        assert!(decode(KIND_WRITE, &write(at(i64::MAX as u64 - 5))).is_ok());
        assert!(decode(KIND_TRUNCATE, &at(1 << 63).encode()).is_err());
    }
}
