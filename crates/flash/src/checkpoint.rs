//! Checkpoints: the whole metadata as of a moment, so that the lane's segments can be used again.
//! docs/flash-format.md, "Checkpoint".

use crate::{
    epochs::Epochs,
    file::FileId,
    layout::{
        BLOCK, CHECKPOINT_HEADER, CacheGeometry, FILE_ENTRY, PAGE_ENTRY, POSITION_MAX, array,
        get32, get64, put32, put64,
    },
    record::{PageEntry, decode_file, encode_file},
};
use forebay_pool::{Lsn, crc32c};
use uuid::Uuid;

const MAGIC: [u8; 4] = *b"FFCK";
const HEADER: usize = 88;

/// A checkpoint's contents beside files and pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Rises by one with each; checkpoint n lies in region n % 2.
    pub(crate) sequence: u64,
    /// Every record below this is in it.
    pub(crate) through: Lsn,
    pub(crate) front: u64,
    pub(crate) recorded: u64,
    pub(crate) next_file: u32,
    pub(crate) files: u32,
    body_crc: u32,
    /// Of the layout after so many resizes: another one's positions mean other slots.
    layout: u32,
    pub(crate) owner: Uuid,
    pub(crate) epochs: Epochs,
}

impl Checkpoint {
    pub(crate) fn new(
        owner: Uuid,
        layout: u32,
        sequence: u64,
        through: Lsn,
        queue: [u64; 2],
    ) -> Self {
        Self {
            sequence,
            through,
            front: queue[0],
            recorded: queue[1],
            next_file: 0,
            files: 0,
            body_crc: 0,
            layout,
            owner,
            epochs: Epochs::default(),
        }
    }

    /// Bytes behind the header.
    pub(crate) fn body_bytes(&self) -> u64 {
        u64::from(self.files) * FILE_ENTRY + (self.recorded - self.front) * PAGE_ENTRY
    }

    /// Completes `bytes`, which begin with room for the header and end with the body.
    pub(crate) fn finish(mut self, bytes: &mut Vec<u8>) {
        self.body_crc = crc32c([&bytes[CHECKPOINT_HEADER as usize..]]);
        bytes[..4].copy_from_slice(&MAGIC);
        put64(bytes, 8, self.sequence);
        put64(bytes, 16, self.through);
        put64(bytes, 24, self.front);
        put64(bytes, 32, self.recorded);
        put32(bytes, 40, self.next_file);
        put32(bytes, 44, self.files);
        put32(bytes, 48, self.body_crc);
        put32(bytes, 52, self.layout);
        bytes[56..72].copy_from_slice(self.owner.as_bytes());
        put32(bytes, 72, self.epochs.current);
        put32(bytes, 76, self.epochs.next);
        let crc = crc32c([&bytes[8..HEADER]]);
        put32(bytes, 4, crc);
        bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
    }

    /// The checkpoint of `owner` whose header is in `bytes`; `None` if it is none, or cannot be in
    /// a cache of these sizes.
    pub(crate) fn decode(bytes: &[u8], owner: Uuid, geometry: &CacheGeometry) -> Option<Self> {
        if bytes.len() < HEADER || bytes[..4] != MAGIC {
            return None;
        }
        let intact = get32(bytes, 4) == crc32c([&bytes[8..HEADER]]);
        let checkpoint = Self {
            sequence: get64(bytes, 8),
            through: get64(bytes, 16),
            front: get64(bytes, 24),
            recorded: get64(bytes, 32),
            next_file: get32(bytes, 40),
            files: get32(bytes, 44),
            body_crc: get32(bytes, 48),
            layout: get32(bytes, 52),
            owner: Uuid::from_bytes(array(bytes, 56)),
            epochs: Epochs {
                current: get32(bytes, 72),
                next: get32(bytes, 76),
            },
        };
        let fits = checkpoint
            .recorded
            .checked_sub(checkpoint.front)
            .is_some_and(|pages| pages <= u64::from(geometry.slots))
            && checkpoint.recorded < POSITION_MAX
            && checkpoint.files <= geometry.files_max
            && checkpoint.layout == geometry.layout();
        (intact && fits && checkpoint.owner == owner).then_some(checkpoint)
    }

    /// True if `body` was written behind this header.
    pub(crate) fn is_body(&self, body: &[u8]) -> bool {
        body.len() as u64 == self.body_bytes() && crc32c([body]) == self.body_crc
    }

    /// The files in the body.
    pub(crate) fn files<'a>(
        &self,
        body: &'a [u8],
    ) -> impl Iterator<Item = Option<(FileId, &'a str)>> {
        body.chunks_exact(FILE_ENTRY as usize)
            .take(self.files as usize)
            .map(decode_file)
    }

    /// The pages in the body, from the front on.
    pub(crate) fn pages<'a>(&self, body: &'a [u8]) -> impl Iterator<Item = Option<PageEntry>> + 'a {
        let at = self.files as usize * FILE_ENTRY as usize;
        body[at..]
            .chunks_exact(PAGE_ENTRY as usize)
            .map(PageEntry::decode)
    }
}

/// Appends a file to a body.
pub(crate) fn push_file(body: &mut Vec<u8>, id: FileId, name: &str) {
    let end = body.len() + FILE_ENTRY as usize;
    encode_file(id, name, body);
    body.resize(end, 0);
}
