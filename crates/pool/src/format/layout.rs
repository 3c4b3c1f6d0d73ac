//! The layout of a pool. docs/pool-format.md draws it.
//!
//! ```text
//! 0        superblock A      4 KiB
//! 4096     superblock B      4 KiB
//! 8192     lane table        256 bytes a lane
//! …        segment map       8 bytes a segment
//! data     segments          data offset is a multiple of 4 KiB
//! ```
//! All integers are little-endian.

use crate::error::PoolErrorKind;

/// Version of the pool's format, which each pool states.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes of a page: segments start at a multiple of it, in the pool and in the log.
pub const PAGE: u64 = 4096;
/// Offsets of the two superblocks.
pub const SUPERBLOCKS: [u64; 2] = [0, PAGE];
/// Offset of the lane table.
pub const LANE_TABLE: u64 = 2 * PAGE;
/// Bytes of a lane table entry: two state slots of one line each, and the label.
pub const LANE_ENTRY: u64 = 256;
/// Bytes of a lane's label, UTF-8, zero-padded.
pub const LABEL: usize = 128;
/// Bytes of a segment map entry.
pub const MAP_ENTRY: u64 = 8;
/// Smallest segment.
pub const SEGMENT_MIN: u64 = 4 << 10;
/// Largest segment.
pub const SEGMENT_MAX: u64 = 64 << 20;
/// Largest pool: the largest size of a file.
pub const POOL_MAX: u64 = i64::MAX as u64;
/// The highest log address at which a log may start.
pub const START_MAX: u64 = 1 << 61;
/// No log address is above this: the 2^61 bytes from [`START_MAX`] to here are more than a log is
/// ever appended, and adding the size of a segment to an address never overflows.
pub const LSN_MAX: u64 = 1 << 62;
/// Lanes of a pool at most.
pub const LANES_MAX: u32 = 1024;
/// Segments of one lane at most: the slot's number is packed into the six low bits of the
/// lane's tail, which a line-aligned log address leaves free.
pub const SEGMENTS_MAX: u16 = 64;

const _: () = assert!(LANE_ENTRY == 2 * 64 + LABEL as u64);
const _: () = assert!(SEGMENTS_MAX as usize == crate::persist::LINE);
const _: () = assert!(SEGMENT_MIN.is_multiple_of(PAGE));

/// The sizes that fix a pool's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolGeometry {
    /// Bytes of the whole pool.
    pub pool_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// Number of lanes.
    pub lanes: u32,
}

impl PoolGeometry {
    /// As many segments of `segment_bytes` as fit into `pool_bytes` beside the tables.
    ///
    /// # Errors
    /// [`PoolErrorKind::BadSize`] that names the bound.
    pub fn fit(pool_bytes: u64, segment_bytes: u64, lanes: u32) -> Result<Self, PoolErrorKind> {
        let bad = |reason: String| Err(PoolErrorKind::BadSize { reason });
        if !(SEGMENT_MIN..=SEGMENT_MAX).contains(&segment_bytes)
            || !segment_bytes.is_multiple_of(PAGE)
        {
            return bad(format!(
                "a segment has {segment_bytes} bytes; a multiple of 4 KiB from 4 KiB to 64 MiB is needed"
            ));
        }
        if !(1..=LANES_MAX).contains(&lanes) {
            return bad(format!("{lanes} lanes; 1 to {LANES_MAX} are possible"));
        }
        if pool_bytes > POOL_MAX {
            return bad(format!("{pool_bytes} bytes; {POOL_MAX} are possible"));
        }
        let tables = LANE_TABLE + u64::from(lanes) * LANE_ENTRY;
        let mut segments = pool_bytes.saturating_sub(tables) / (segment_bytes + MAP_ENTRY);
        let mut geometry = Self {
            pool_bytes,
            segment_bytes,
            segments,
            lanes,
        };
        while segments > 0 && geometry.data() + segments * segment_bytes > pool_bytes {
            segments -= 1;
            geometry.segments = segments;
        }
        if segments == 0 {
            return bad(format!(
                "{pool_bytes} bytes hold no segment of {segment_bytes} bytes beside {tables} bytes of tables"
            ));
        }
        Ok(geometry)
    }

    /// Bytes of the smallest pool that has room for `segments` segments of `segment_bytes` and
    /// tables of so many lanes.
    #[must_use]
    pub fn bytes_for(segments: u64, segment_bytes: u64, lanes: u32) -> u64 {
        let geometry = Self {
            pool_bytes: 0,
            segment_bytes,
            segments,
            lanes,
        };
        geometry.data() + segments * segment_bytes
    }

    /// Offset of lane `lane`'s table entry.
    #[must_use]
    pub fn lane_entry(&self, lane: u32) -> u64 {
        debug_assert!(lane < self.lanes);
        LANE_TABLE + u64::from(lane) * LANE_ENTRY
    }

    /// Offset of the segment map.
    #[must_use]
    pub fn map(&self) -> u64 {
        LANE_TABLE + u64::from(self.lanes) * LANE_ENTRY
    }

    /// Offset of the first segment.
    #[must_use]
    pub fn data(&self) -> u64 {
        (self.map() + self.segments * MAP_ENTRY).next_multiple_of(PAGE)
    }

    /// Offset of segment `segment`.
    #[must_use]
    pub fn segment(&self, segment: u64) -> u64 {
        debug_assert!(segment < self.segments);
        self.data() + segment * self.segment_bytes
    }
}

/// Reads a little-endian `u64` at `at`.
#[must_use]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Reads a little-endian `u32` at `at`.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// Reads a little-endian `u16` at `at`.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segments_fit_behind_the_tables_and_no_further_one_would() {
        for pool_bytes in [1 << 20, (1 << 20) + 4097, 64 << 20, 1 << 30] {
            for segment_bytes in [4096, 65536, 1 << 20] {
                let Ok(g) = PoolGeometry::fit(pool_bytes, segment_bytes, 16) else {
                    continue;
                };
                assert!(g.data() >= g.map() + g.segments * MAP_ENTRY);
                let end = g.segment(g.segments - 1) + segment_bytes;
                assert!(end <= pool_bytes);
                assert!(end + segment_bytes + 2 * PAGE > pool_bytes);
            }
        }
    }

    #[test]
    fn a_pool_one_byte_below_the_smallest_has_a_segment_less() {
        for (segments, segment_bytes, lanes) in [(2, 4096, 1), (2, 8 << 20, 16), (600, 4096, 7)] {
            let bytes = PoolGeometry::bytes_for(segments, segment_bytes, lanes);
            let fit = |bytes| {
                PoolGeometry::fit(bytes, segment_bytes, lanes)
                    .unwrap()
                    .segments
            };
            assert_eq!(fit(bytes), segments);
            assert_eq!(fit(bytes - 1), segments - 1);
        }
    }

    #[test]
    fn sizes_out_of_bounds_are_refused_with_the_bound() {
        for (pool, segment, lanes, word) in [
            (1 << 20, 5000, 4, "multiple of 4 KiB"),
            (1 << 20, 128 << 20, 4, "64 MiB"),
            (1 << 20, 4096, 0, "lanes"),
            (4096, 4096, 1, "no segment"),
            (u64::MAX, 4096, 1, "are possible"),
        ] {
            let error = PoolGeometry::fit(pool, segment, lanes)
                .unwrap_err()
                .to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
