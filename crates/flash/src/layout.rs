//! The flash file's header, and the offsets of its parts. docs/flash-format.md, "Layout" and
//! "Header".
//!
//! ```text
//! 0        header A        4 KiB
//! 4096     header B        4 KiB
//! 8192     checkpoint 0    regions of the same size
//! …        checkpoint 1
//! data     slots           data is a multiple of 4 KiB
//! ```
//! All integers are little-endian.

use crate::error::FlashError;
use forebay_pool::crc32c;
use uuid::Uuid;

/// The version of the format.
pub const VERSION: u32 = 1;
/// Bytes of a header, and the alignment of regions.
pub const BLOCK: u64 = 4096;
/// Offsets of the headers.
pub const HEADERS: [u64; 2] = [0, BLOCK];
/// Offset of the checkpoints.
pub const CHECKPOINTS: u64 = 2 * BLOCK;
/// Bytes of a checkpoint's own header.
pub const CHECKPOINT_HEADER: u64 = BLOCK;
/// Bytes of a file in a checkpoint.
pub const FILE_ENTRY: u64 = 512;
/// Bytes of a page in a checkpoint and in a record.
pub const PAGE_ENTRY: u64 = 16;
/// Bytes of a file's name at most.
pub const NAME_MAX: usize = FILE_ENTRY as usize - 32;
/// Smallest and largest page.
pub const PAGE_BYTES: [u32; 2] = [512, 64 << 10];
/// The queue has at least so many groups of slots, or there is no room for a second chance.
pub const GROUPS_MIN: u32 = 4;
/// No position is as high as this: more pages than ever come in, and counting on never overflows.
pub const POSITION_MAX: u64 = 1 << 62;

const MAGIC: [u8; 4] = *b"FFCH";
const HEADER: usize = 80;

/// The sizes that fix a cache's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheGeometry {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Slots for pages.
    pub slots: u32,
    /// Files that a checkpoint has room for.
    pub files_max: u32,
    /// The change of a resize; `None` until the first one.
    pub(crate) moved: Option<MovedLayout>,
}

/// The layout of a cache that was resized. Its slots begin where they began; the checkpoints are
/// behind them, or where they were first. All zero in the header of one that was never resized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MovedLayout {
    /// The number of its resizes.
    pub(crate) layout: u32,
    /// Slots that it was made with, whose metadata had room before them.
    pub(crate) slots_first: u32,
    /// Offset of the checkpoints.
    pub(crate) checkpoints: u64,
    /// Bytes that were asked for.
    pub(crate) wanted: u64,
}

impl CacheGeometry {
    /// As many slots as fit into `bytes`, at least [`GROUPS_MIN`] groups of `group_pages`.
    ///
    /// # Errors
    /// [`FlashError::BadSize`] that names the bound.
    pub fn fit(
        bytes: u64,
        page_bytes: u32,
        files_max: u32,
        group_pages: u32,
    ) -> Result<Self, FlashError> {
        let bad = |reason: String| Err(FlashError::BadSize { reason });
        let [least, most] = PAGE_BYTES;
        if !page_bytes.is_power_of_two() || !(least..=most).contains(&page_bytes) {
            return bad(format!(
                "a page has {page_bytes} bytes; a power of two from {least} to {most} is needed"
            ));
        }
        if files_max == 0 || group_pages < 2 {
            return bad(format!(
                "room for {files_max} files, groups of {group_pages} pages; 1 and 2 are needed"
            ));
        }
        let mut geometry = Self {
            page_bytes,
            slots: 0,
            files_max,
            moved: None,
        };
        let each = u64::from(page_bytes) + 2 * PAGE_ENTRY;
        let slots = bytes.saturating_sub(geometry.data()) / each;
        geometry.slots = u32::try_from(slots).unwrap_or(u32::MAX - 1);
        while geometry.slots > 0 && geometry.bytes() > bytes {
            geometry.slots -= 1;
        }
        let needed = group_pages.saturating_mul(GROUPS_MIN);
        if geometry.slots < needed {
            return bad(format!(
                "{bytes} bytes hold {} pages of {page_bytes} bytes beside the metadata of {files_max} files; {GROUPS_MIN} groups of {group_pages} pages are needed. Give a larger file",
                geometry.slots
            ));
        }
        Ok(geometry)
    }

    /// Bytes of one checkpoint region.
    #[must_use]
    pub fn checkpoint_bytes(&self) -> u64 {
        self.region_of(self.slots)
    }

    fn region_of(&self, slots: u32) -> u64 {
        let body = u64::from(self.files_max) * FILE_ENTRY + u64::from(slots) * PAGE_ENTRY;
        CHECKPOINT_HEADER + body.next_multiple_of(BLOCK)
    }

    /// Offset of checkpoint region 0 or 1.
    #[must_use]
    pub fn checkpoint(&self, region: u64) -> u64 {
        let first = self.moved.map_or(CHECKPOINTS, |moved| moved.checkpoints);
        first + region * self.checkpoint_bytes()
    }

    /// Offset of the slots: the same for as long as the cache lives.
    #[must_use]
    pub fn data(&self) -> u64 {
        let slots = self.moved.map_or(self.slots, |moved| moved.slots_first);
        CHECKPOINTS + 2 * self.region_of(slots)
    }

    /// The number of the cache's resizes.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.moved.map_or(0, |moved| moved.layout)
    }

    /// Offset of the slot of `position`.
    #[must_use]
    pub fn slot(&self, position: u64) -> u64 {
        self.data() + position % u64::from(self.slots) * u64::from(self.page_bytes)
    }

    /// The end of the slots.
    fn data_end(&self) -> u64 {
        self.data() + u64::from(self.slots) * u64::from(self.page_bytes)
    }

    /// Bytes of the whole cache.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.data_end().max(self.checkpoint(2))
    }
}

/// The header that makes a flash file a cache. Written when it is made, and when it is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHeader {
    /// The sizes.
    pub geometry: CacheGeometry,
    /// The cache's identity; also the owner of its lane.
    pub owner: Uuid,
    /// The pool that the lane is in.
    pub pool: Uuid,
}

/// The reason that bytes are no header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// Nothing but zeros.
    Blank,
    /// Something else.
    Foreign,
    /// One of a cache, but its checksum or its sizes are wrong.
    Damaged,
    /// Flash could not read it.
    Unreadable,
    /// Of another version.
    Version(u32),
}

impl CacheHeader {
    /// The header as it lies on flash.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK as usize] {
        let mut bytes = [0; BLOCK as usize];
        bytes[..4].copy_from_slice(&MAGIC);
        put32(&mut bytes, 8, VERSION);
        put32(&mut bytes, 12, self.geometry.page_bytes);
        put32(&mut bytes, 16, self.geometry.slots);
        put32(&mut bytes, 20, self.geometry.files_max);
        if let Some(moved) = self.geometry.moved {
            put32(&mut bytes, 24, moved.layout);
            put32(&mut bytes, 28, moved.slots_first);
            put64(&mut bytes, 64, moved.checkpoints);
            put64(&mut bytes, 72, moved.wanted);
        }
        bytes[32..48].copy_from_slice(self.owner.as_bytes());
        bytes[48..64].copy_from_slice(self.pool.as_bytes());
        let crc = crc32c([&bytes[8..HEADER]]);
        put32(&mut bytes, 4, crc);
        bytes
    }

    /// The header in `bytes`.
    ///
    /// # Errors
    /// [`BadHeader`] says what they are instead.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(BadHeader::Blank);
        }
        if bytes.len() < HEADER || bytes[..4] != MAGIC {
            return Err(BadHeader::Foreign);
        }
        if get32(bytes, 4) != crc32c([&bytes[8..HEADER]]) {
            return Err(BadHeader::Damaged);
        }
        let version = get32(bytes, 8);
        if version != VERSION {
            return Err(BadHeader::Version(version));
        }
        let moved = MovedLayout {
            layout: get32(bytes, 24),
            slots_first: get32(bytes, 28),
            checkpoints: get64(bytes, 64),
            wanted: get64(bytes, 72),
        };
        let geometry = CacheGeometry {
            page_bytes: get32(bytes, 12),
            slots: get32(bytes, 16),
            files_max: get32(bytes, 20),
            moved: (moved != MovedLayout::default()).then_some(moved),
        };
        let [least, most] = PAGE_BYTES;
        let sizes = geometry.page_bytes.is_power_of_two()
            && (least..=most).contains(&geometry.page_bytes)
            && geometry.slots > 0
            && geometry.moved.is_none_or(|moved| moved.is_sound(&geometry));
        if !sizes {
            return Err(BadHeader::Damaged);
        }
        Ok(Self {
            geometry,
            owner: Uuid::from_bytes(array(bytes, 32)),
            pool: Uuid::from_bytes(array(bytes, 48)),
        })
    }
}

/// `N` bytes from `at`, which the caller has checked to be there.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

pub(crate) fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn get64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(crate) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

const _: () = assert!(HEADER <= BLOCK as usize);
const _: () = assert!(BLOCK.is_multiple_of(FILE_ENTRY) && BLOCK.is_multiple_of(PAGE_ENTRY));

mod resized;

#[cfg(test)]
mod tests;
