//! Records of the cache's lane, by their kind. docs/flash-format.md, "Records".

use crate::{
    epochs::Epochs,
    file::{FileId, Identity},
    layout::{PAGE_ENTRY, array, get32, get64, put32, put64},
};

/// Pages in slots: their bytes are durable there.
pub(crate) const PAGES: u16 = 1;
/// The queue's front: pages before it are home, durably, or not needed.
pub(crate) const FRONT: u16 = 2;
/// Pages that are home, durably, and stay in the cache.
pub(crate) const CLEAN: u16 = 3;
/// A range of a file of which the cache's pages are void, from now on.
pub(crate) const TOMBSTONE: u16 = 4;
/// A file and its number.
pub(crate) const FILE: u16 = 5;
/// A file that is gone.
pub(crate) const DROP: u16 = 6;
/// Versions of which nothing is needed any more: home is about to be newer.
pub(crate) const VOIDED: u16 = 7;

/// The number of the cache's resizes: later records are of that layout.
pub(crate) const LAYOUT: u16 = 8;
/// The owner's epochs that the cache is in.
pub(crate) const EPOCHS: u16 = 9;

/// The page's home has an older one.
pub(crate) const DIRTY: u8 = 1;
/// Nothing of the slot is needed.
pub(crate) const VOID: u8 = 2;
/// The page was damaged on flash, and its home has an older one.
pub(crate) const LOST: u8 = 4;
/// The flags that are written.
pub(crate) const DURABLE_FLAGS: u8 = DIRTY | VOID | LOST;

/// The contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageEntry {
    pub(crate) file: u32,
    pub(crate) page: u32,
    pub(crate) crc: u32,
    pub(crate) flags: u8,
}

impl PageEntry {
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        let mut bytes = [0; PAGE_ENTRY as usize];
        put32(&mut bytes, 0, self.file);
        put32(&mut bytes, 4, self.page);
        put32(&mut bytes, 8, self.crc);
        bytes[12] = self.flags & DURABLE_FLAGS;
        to.extend_from_slice(&bytes);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let entry = Self {
            file: get32(bytes, 0),
            page: get32(bytes, 4),
            crc: get32(bytes, 8),
            flags: bytes[12],
        };
        (bytes[13..] == [0; 3] && entry.flags & !DURABLE_FLAGS == 0).then_some(entry)
    }
}

/// A record, read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CacheRecord<'a> {
    /// Pages from this position on, [`PAGE_ENTRY`] bytes each.
    Pages {
        first: u64,
        entries: &'a [u8],
    },
    Front(u64),
    /// Positions, 8 bytes each.
    Clean(&'a [u8]),
    Tombstone {
        file: u32,
        /// The first page, and the last.
        pages: [u32; 2],
        /// Versions at this position and later are not meant.
        before: u64,
    },
    File {
        id: FileId,
        name: &'a str,
    },
    Drop {
        file: u32,
        before: u64,
    },
    /// Positions, 8 bytes each.
    Voided(&'a [u8]),
    /// The number of the cache's resizes.
    Layout(u32),
    Epochs(Epochs),
}

impl<'a> CacheRecord<'a> {
    /// `None` if it is no record of this version.
    pub(crate) fn decode(kind: u16, payload: &'a [u8]) -> Option<Self> {
        let bytes = payload.len();
        match kind {
            PAGES if bytes >= 8 && (bytes - 8).is_multiple_of(PAGE_ENTRY as usize) => {
                Some(Self::Pages {
                    first: get64(payload, 0),
                    entries: &payload[8..],
                })
            }
            FRONT if bytes == 8 => Some(Self::Front(get64(payload, 0))),
            CLEAN if bytes.is_multiple_of(8) => Some(Self::Clean(payload)),
            TOMBSTONE if bytes == 20 => Some(Self::Tombstone {
                file: get32(payload, 0),
                pages: [get32(payload, 4), get32(payload, 8)],
                before: get64(payload, 12),
            }),
            FILE => {
                let (id, name) = decode_file(payload)?;
                Some(Self::File { id, name })
            }
            DROP if bytes == 12 => Some(Self::Drop {
                file: get32(payload, 0),
                before: get64(payload, 4),
            }),
            VOIDED if bytes.is_multiple_of(8) => Some(Self::Voided(payload)),
            EPOCHS if bytes == 8 => Some(Self::Epochs(Epochs {
                current: get32(payload, 0),
                next: get32(payload, 4),
            })),
            LAYOUT if bytes == 4 => Some(Self::Layout(get32(payload, 0))),
            _ => None,
        }
    }
}

pub(crate) fn encode_tombstone(file: u32, pages: [u32; 2], before: u64) -> [u8; 20] {
    let mut bytes = [0; 20];
    put32(&mut bytes, 0, file);
    put32(&mut bytes, 4, pages[0]);
    put32(&mut bytes, 8, pages[1]);
    put64(&mut bytes, 12, before);
    bytes
}

pub(crate) fn encode_drop(file: u32, before: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    put32(&mut bytes, 0, file);
    put64(&mut bytes, 4, before);
    bytes
}

pub(crate) fn encode_epochs(epochs: Epochs) -> [u8; 8] {
    let mut bytes = [0; 8];
    put32(&mut bytes, 0, epochs.current);
    put32(&mut bytes, 4, epochs.next);
    bytes
}

/// A file: number, identity, length of the name, name.
pub(crate) fn encode_file(id: FileId, name: &str, to: &mut Vec<u8>) {
    to.extend_from_slice(&id.number.to_le_bytes());
    to.extend_from_slice(&u32::try_from(name.len()).unwrap_or(0).to_le_bytes());
    for part in [
        id.identity.device,
        id.identity.inode,
        id.identity.generation,
    ] {
        to.extend_from_slice(&part.to_le_bytes());
    }
    to.extend_from_slice(name.as_bytes());
}

/// The file in the first bytes of `bytes`.
pub(crate) fn decode_file(bytes: &[u8]) -> Option<(FileId, &str)> {
    if bytes.len() < 32 {
        return None;
    }
    let length = usize::try_from(get32(bytes, 4)).ok()?;
    let name = bytes.get(32..32 + length)?;
    let part = |at| u64::from_le_bytes(array(bytes, at));
    let id = FileId {
        number: get32(bytes, 0),
        identity: Identity {
            device: part(8),
            inode: part(16),
            generation: part(24),
        },
    };
    Some((id, std::str::from_utf8(name).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let entry = PageEntry {
            file: 3,
            page: 4,
            crc: 5,
            flags: DIRTY,
        };
        let mut bytes = 9u64.to_le_bytes().to_vec();
        entry.encode(&mut bytes);
        let Some(CacheRecord::Pages { first: 9, entries }) = CacheRecord::decode(PAGES, &bytes)
        else {
            panic!("no pages");
        };
        assert_eq!(PageEntry::decode(entries), Some(entry));
        let tombstone = encode_tombstone(1, [2, 3], 4);
        let expected = CacheRecord::Tombstone {
            file: 1,
            pages: [2, 3],
            before: 4,
        };
        assert_eq!(CacheRecord::decode(TOMBSTONE, &tombstone), Some(expected));
        let expected = CacheRecord::Drop { file: 1, before: 4 };
        assert_eq!(
            CacheRecord::decode(DROP, &encode_drop(1, 4)),
            Some(expected)
        );
        let id = FileId {
            number: 8,
            identity: Identity {
                device: 1,
                inode: 2,
                generation: 3,
            },
        };
        let mut bytes = Vec::new();
        encode_file(id, "./test/t1.ibd", &mut bytes);
        let name = "./test/t1.ibd";
        assert_eq!(
            CacheRecord::decode(FILE, &bytes),
            Some(CacheRecord::File { id, name })
        );
        bytes.pop();
        assert_eq!(CacheRecord::decode(FILE, &bytes), None);
        assert_eq!(CacheRecord::decode(99, &[]), None);
        assert_eq!(CacheRecord::decode(FRONT, &[0; 7]), None);
    }
}
