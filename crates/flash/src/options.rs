//! Options to make and open a cache, and those that can be changed while it is open.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Options that a cache is made with.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Bytes of a page: a power of two from 512 to 64 KiB.
    pub page_bytes: u32,
    /// Files that may be registered at the same time; 1 KiB of flash each.
    pub files_max: u32,
    /// The owner of the cache's lane, and the cache's identity.
    pub owner: Uuid,
    /// Segments of the lane, 1 to 64. With three and more a checkpoint holds up no thread.
    pub lane_segments: u16,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            page_bytes: 16 << 10,
            files_max: 1024,
            owner: Uuid::new_v4(),
            lane_segments: 3,
        }
    }
}

/// Options that a cache is opened with.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Pages of a group: the unit that is written to flash, and leaves it.
    pub group_pages: u32,
    /// Full groups that may be written to flash and not synced: this many groups of memory.
    pub groups_unsynced_max: u32,
    /// Groups that leave at a time at most: they share the time of syncing their homes. No more
    /// than an eighth of the slots, or one.
    pub groups_leaving_max: u32,
    /// Pages of a group that are given a second chance at most, and slots that are kept for them. 0
    /// for none: FaCE without GSC.
    pub second_chances_max: u32,
    /// The pages that come in.
    pub contents: AdmissionPolicy,
    /// The policy for writes.
    pub policy: WritePolicy,
    /// The fill at which [`Cache::step`](crate::Cache::step) begins to empty slots, and the one at
    /// which it stops.
    pub watermarks: Watermarks,
    /// So many pages read in a row go past the cache from then on; 0 for never.
    pub bypass_reads: u32,
    /// So many pages written in a row go past the cache from then on; 0 for never. What goes past
    /// it is not protected from being torn: only for writers that protect their pages themselves (a
    /// doublewrite buffer).
    pub bypass_writes: u32,
    /// Milliseconds for which flash is not written to after it failed: pages go straight home
    /// meanwhile.
    pub flash_retry_ms: u32,
    /// Bytes a second that `step` writes home at most; 0 for no limit. Who finds no slot free does
    /// not wait for it.
    pub home_bytes_per_second: u64,
    /// Bytes a second that are written to flash at most; 0 for no limit. What is above it goes
    /// around flash.
    pub flash_bytes_per_second: u64,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            group_pages: 64,
            groups_unsynced_max: 8,
            groups_leaving_max: 4,
            second_chances_max: 32,
            contents: AdmissionPolicy::Dirty,
            policy: WritePolicy::Back,
            watermarks: Watermarks::default(),
            bypass_reads: 32,
            bypass_writes: 0,
            flash_retry_ms: 10_000,
            home_bytes_per_second: 0,
            flash_bytes_per_second: 0,
        }
    }
}

/// The pages that come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum AdmissionPolicy {
    /// Pages that are written: the paper's "FaCE dirty only".
    Dirty,
    /// Also pages that were read at home.
    All,
}

/// The policy for writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum WritePolicy {
    /// To flash; home when the queue's front reaches them.
    Back,
    /// To flash, and home before a sync returns: losing the flash loses nothing that was synced.
    Through,
    /// To memory, and home before a sync returns; not to flash. Nothing comes in, and what is
    /// written is not in the cache any more.
    Around,
    /// As around; and `step` writes all dirty pages home and empties the queue.
    Off,
    /// As back while flash is measurably faster than homes, to read, or to write all pages there
    /// and some of them home later. While it is not, as around, and the cache empties slowly. Pages
    /// that are read come in only while reads are faster.
    Adaptive,
}

impl WritePolicy {
    /// All, by number.
    pub const ALL: [Self; 5] = [
        Self::Back,
        Self::Through,
        Self::Around,
        Self::Off,
        Self::Adaptive,
    ];
}

/// Slots in use, in percent of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// `step` goes on until no more than this are in use.
    pub low: u8,
    /// And begins when more than this are.
    pub high: u8,
}

impl Default for Watermarks {
    fn default() -> Self {
        Self { low: 90, high: 95 }
    }
}
