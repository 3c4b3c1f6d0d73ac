//! The superblock: a pool's identity and layout. Two copies, either one enough.
//! docs/pool-format.md, "Superblock".
//!
//! ```text
//!  0  magic "FOREBAY\0"      8
//!  8  version                4
//! 12  CRC-32C                4   over the 128 bytes with this field zero
//! 16  uuid                  16
//! 32  pool bytes             8
//! 40  segment bytes          8
//! 48  segments               8
//! 56  lanes                  4
//! 60  flags                  4   bit 0: made as an emulated pool; bit 1: made on a disk
//! 64  epoch                  8   the copy with the higher one counts
//! 72  created                8   seconds since 1970
//! 80  reserved, zero        48
//! ```

use crate::{
    checksum::crc32c,
    error::{PoolError, PoolErrorKind},
    format::layout::{FORMAT_VERSION, PoolGeometry, SUPERBLOCKS, u32_at, u64_at},
    media::Media,
};
use std::{
    io::IoSlice,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

const MAGIC: &[u8; 8] = b"FOREBAY\0";
const BYTES: usize = 128;
const CRC: std::ops::Range<usize> = 12..16;
const EMULATED: u32 = 1;
const DISK: u32 = 2;

/// The contents of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The pool's identity.
    pub uuid: Uuid,
    /// Its sizes.
    pub geometry: PoolGeometry,
    /// True if it was made as an emulated pool.
    pub emulated: bool,
    /// True if it was made on a disk.
    pub disk: bool,
    /// The copy with the higher one counts.
    pub epoch: u64,
    /// Time at which it was made, seconds since 1970.
    pub created_s: u64,
}

/// The superblock in force, and the damage of its copies.
#[derive(Debug)]
pub struct ReadSuperblock {
    /// The newest intact copy.
    pub superblock: Superblock,
    /// The damage of each copy that is not intact.
    pub damage: Vec<String>,
}

impl Superblock {
    /// A new pool's superblock.
    #[must_use]
    pub fn new(geometry: PoolGeometry, emulated: bool, disk: bool) -> Self {
        Self {
            disk,
            uuid: Uuid::new_v4(),
            geometry,
            emulated,
            epoch: 1,
            created_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        }
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(self.uuid.as_bytes());
        bytes[32..40].copy_from_slice(&self.geometry.pool_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.geometry.segment_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.geometry.segments.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.geometry.lanes.to_le_bytes());
        let flags = (u32::from(self.emulated) * EMULATED) | (u32::from(self.disk) * DISK);
        bytes[60..64].copy_from_slice(&flags.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.created_s.to_le_bytes());
        let crc = crc32c([&bytes[..]]);
        bytes[CRC].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Result<Self, UnreadableSuperblock> {
        if &bytes[0..8] != MAGIC {
            let start: String = bytes[..8].iter().map(|b| format!("{b:02x}")).collect();
            return Err(UnreadableSuperblock::Damaged(format!(
                "it starts with {start}, not with FOREBAY"
            )));
        }
        let mut zeroed = *bytes;
        zeroed[CRC].fill(0);
        let (stated, found) = (u32_at(bytes, CRC.start), crc32c([&zeroed[..]]));
        if stated != found {
            return Err(UnreadableSuperblock::Damaged(format!(
                "its checksum is {found:08x}, it states {stated:08x}"
            )));
        }
        let version = u32_at(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(UnreadableSuperblock::Version(version));
        }
        let stated = PoolGeometry {
            pool_bytes: u64_at(bytes, 32),
            segment_bytes: u64_at(bytes, 40),
            segments: u64_at(bytes, 48),
            lanes: u32_at(bytes, 56),
        };
        let geometry = PoolGeometry::fit(stated.pool_bytes, stated.segment_bytes, stated.lanes)
            .map_err(|e| UnreadableSuperblock::Damaged(e.to_string()))?;
        if geometry != stated {
            return Err(UnreadableSuperblock::Damaged(format!(
                "it states {} segments where {} fit",
                stated.segments, geometry.segments
            )));
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[16..32]);
        Ok(Self {
            uuid: Uuid::from_bytes(uuid),
            geometry,
            emulated: u32_at(bytes, 60) & EMULATED != 0,
            disk: u32_at(bytes, 60) & DISK != 0,
            epoch: u64_at(bytes, 64),
            created_s: u64_at(bytes, 72),
        })
    }

    /// The superblock of a pool that was made on a disk, by the `start` of that; none if it is
    /// anything else.
    pub(crate) fn on_disk(start: &[u8]) -> Option<Self> {
        let copies = SUPERBLOCKS.into_iter().filter_map(|at| {
            let at = usize::try_from(at).ok()?;
            Self::decode(start.get(at..at + BYTES)?.try_into().ok()?).ok()
        });
        copies
            .max_by_key(|copy| copy.epoch)
            .filter(|copy| copy.disk)
    }

    /// Writes both copies, one after the other, each durable before the next.
    pub fn write(&self, media: &dyn Media) {
        let bytes = self.encode();
        for at in SUPERBLOCKS {
            media.store(at, &[IoSlice::new(&bytes)]);
            media.fence();
        }
    }

    /// Writes the copies that are not as this one, which is read from an intact one: so there is
    /// an intact copy at any moment.
    pub fn repair(&self, media: &dyn Media) {
        let bytes = self.encode();
        for at in SUPERBLOCKS {
            let mut found = [0; BYTES];
            media.load(at, &mut found);
            if found != bytes {
                media.store(at, &[IoSlice::new(&bytes)]);
                media.fence();
            }
        }
    }

    /// Reads the newest intact copy.
    ///
    /// # Errors
    /// [`PoolErrorKind::NotAPool`] if no copy is intact, [`PoolErrorKind::Version`] if either is of
    /// another format, [`PoolErrorKind::Truncated`] if the medium is smaller than the pool.
    pub fn read(media: &dyn Media, path: &Path) -> Result<ReadSuperblock, PoolError> {
        let fail = |kind| Err(PoolError::new(path, kind));
        let mut newest: Option<Self> = None;
        let mut damage = Vec::new();
        let mut version = None;
        for (copy, at) in ["A", "B"].into_iter().zip(SUPERBLOCKS) {
            if at + BYTES as u64 > media.bytes() {
                damage.push(format!("superblock {copy} lies behind the end of the file"));
                continue;
            }
            let mut bytes = [0; BYTES];
            media.load(at, &mut bytes);
            match Self::decode(&bytes) {
                Ok(found) if newest.is_none_or(|n| n.epoch < found.epoch) => newest = Some(found),
                Ok(_) => {}
                Err(UnreadableSuperblock::Version(found)) => version = Some(found),
                Err(UnreadableSuperblock::Damaged(what)) => {
                    damage.push(format!("superblock {copy}: {what}"))
                }
            }
        }
        if let Some(found) = version {
            // Also beside a copy that is known: a change to that version was cut between the two.
            let known = FORMAT_VERSION;
            return fail(PoolErrorKind::Version { found, known });
        }
        let Some(superblock) = newest else {
            let found = damage.join("; ");
            return fail(PoolErrorKind::NotAPool { found });
        };
        if superblock.geometry.pool_bytes > media.bytes() {
            return fail(PoolErrorKind::Truncated {
                stated: superblock.geometry.pool_bytes,
                found: media.bytes(),
            });
        }
        Ok(ReadSuperblock { superblock, damage })
    }
}

enum UnreadableSuperblock {
    Version(u32),
    Damaged(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::SimMedia;

    const BYTES_ALL: usize = 32 << 10;

    fn superblock() -> Superblock {
        Superblock::new(
            PoolGeometry::fit(BYTES_ALL as u64, 4096, 4).unwrap(),
            true,
            false,
        )
    }

    #[test]
    fn either_copy_alone_is_enough_and_the_damaged_one_is_named() {
        let ours = superblock();
        let medium = SimMedia::new(BYTES_ALL);
        ours.write(&medium);
        let intact = Superblock::read(&medium, Path::new("p")).unwrap();
        assert_eq!(intact.superblock, ours);
        assert!(intact.damage.is_empty());
        for (copy, at) in [("A", 0usize), ("B", 4096)] {
            for bit in 0..BYTES * 8 {
                let mut image = medium.image();
                image[at + bit / 8] ^= 1 << (bit % 8);
                let read = Superblock::read(&SimMedia::from_image(image), Path::new("p")).unwrap();
                assert_eq!(read.superblock, ours);
                assert_eq!(read.damage.len(), 1);
                assert!(read.damage[0].contains(&format!("superblock {copy}")));
            }
        }
    }

    #[test]
    fn another_version_in_either_copy_is_refused_as_no_damage() {
        let medium = SimMedia::new(BYTES_ALL);
        superblock().write(&medium);
        for copies in [&[0, 4096][..], &[0], &[4096]] {
            let mut image = medium.image();
            for &at in copies {
                image[at + 8] = 9;
                image[at + 12..at + 16].fill(0);
                let crc = crc32c([&image[at..at + BYTES]]);
                image[at + 12..at + 16].copy_from_slice(&crc.to_le_bytes());
            }
            let error = Superblock::read(&SimMedia::from_image(image), Path::new("p")).unwrap_err();
            assert!(matches!(
                error.kind,
                PoolErrorKind::Version { found: 9, known: 1 }
            ));
        }
    }

    #[test]
    fn a_medium_without_a_superblock_or_too_small_is_refused() {
        let error = Superblock::read(&SimMedia::new(8192), Path::new("p")).unwrap_err();
        assert!(error.to_string().contains("not a Forebay pool"), "{error}");
        let medium = SimMedia::new(BYTES_ALL);
        superblock().write(&medium);
        let cut = SimMedia::from_image(medium.image()[..BYTES_ALL / 2].to_vec());
        let error = Superblock::read(&cut, Path::new("p")).unwrap_err();
        assert!(error.to_string().contains("truncated"), "{error}");
    }
}
