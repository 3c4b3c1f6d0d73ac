//! The lane table and the segment map: the owners of lanes and segments. docs/pool-format.md, "Lane
//! table".
//!
//! A lane's entry has two state slots, written in turn, so that one is intact at any moment:
//! ```text
//!  0  CRC-32C                4   over the pool's uuid, the lane's number, and bytes 4..64
//!  4  state                  4   0 free, 1 taken
//!  8  sequence               8   the slot with the higher one counts
//! 16  owner                 16   uuid of the store (or other owner) whose log this is
//! 32  head                  8    log address below which everything is drained and released
//! 40  epoch                 4    rises each time the lane is claimed; stamped on every record
//! 44  segments              4    number of segments that the map gives to the lane
//! 48  incarnation           4    rises each time the lane is given to an owner
//! 52  reserved, zero       12
//! ```
//! A new pool's lanes have one state each, free: so from the first one on a torn write leaves an
//! intact one. Then 128 bytes of label. A segment map entry is one aligned word, so it is never
//! torn: `incarnation << 32 | check << 16 | lane + 1`, 0 when free; `check` is a checksum of the
//! rest.

use crate::{
    checksum::crc32c,
    format::layout::{
        LABEL, LSN_MAX, MAP_ENTRY, PAGE, PoolGeometry, SEGMENTS_MAX, SUPERBLOCKS, u32_at, u64_at,
    },
    media::Media,
    persist::LINE,
};
use std::io::IoSlice;
use uuid::Uuid;

/// No state is written as often: so counting on never overflows.
const SEQUENCE_MAX: u64 = 1 << 62;

/// One state of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// False once the owner gave the lane back.
    pub taken: bool,
    /// Rises with every write of the state.
    pub sequence: u64,
    /// The owner of the log that the lane holds.
    pub owner: Uuid,
    /// Log address below which everything is released.
    pub head: u64,
    /// Session number, stamped on each record.
    pub epoch: u32,
    /// Number of segments of the lane.
    pub segments: u32,
    /// Number of times the lane was given to an owner.
    pub incarnation: u32,
}

/// A lane's entry as found.
#[derive(Clone, Debug)]
pub struct LaneEntry {
    /// The state in force; `None` if none is intact.
    pub state: Option<LaneState>,
    /// The slot that the next state goes to, of the two.
    next_slot: usize,
    /// The owner's words for itself.
    pub label: String,
    /// The damage of a slot, if any.
    pub damage: Option<String>,
}

/// The tables of one pool.
#[derive(Clone, Copy)]
pub struct PoolTables<'a> {
    /// The medium.
    pub media: &'a dyn Media,
    /// The pool's sizes.
    pub geometry: PoolGeometry,
    /// The pool's identity, part of every checksum here.
    pub pool: Uuid,
}

impl PoolTables<'_> {
    fn slot_crc(&self, lane: u32, slot: &[u8; LINE]) -> u32 {
        crc32c([&self.pool.as_bytes()[..], &lane.to_le_bytes(), &slot[4..]])
    }

    /// Reads lane `lane`'s entry.
    #[must_use]
    pub fn lane(&self, lane: u32) -> LaneEntry {
        let at = self.geometry.lane_entry(lane);
        let mut states = [None, None];
        let mut damage = None;
        for (slot, state) in states.iter_mut().enumerate() {
            let mut bytes = [0; LINE];
            self.media.load(at + (slot * LINE) as u64, &mut bytes);
            if bytes == [0; LINE] {
                continue;
            }
            let (stated, found) = (u32_at(&bytes, 0), self.slot_crc(lane, &bytes));
            let read = if stated == found {
                decode(&bytes)
            } else {
                Err(format!("has checksum {found:08x}, states {stated:08x}"))
            };
            match read {
                Ok(intact) => *state = Some(intact),
                Err(what) => damage = Some(format!("state slot {slot} of lane {lane} {what}")),
            }
        }
        if states == [None, None] && damage.is_none() {
            damage = Some(format!("lane {lane} has no state"));
        }
        let sequence = |slot: usize| states[slot].map(|s: LaneState| s.sequence);
        let newest = usize::from(sequence(1) > sequence(0));
        let mut label = [0; LABEL];
        self.media.load(at + 2 * LINE as u64, &mut label);
        let end = label.iter().position(|&b| b == 0).unwrap_or(LABEL);
        LaneEntry {
            state: states[newest],
            // Never over the slot in force.
            next_slot: 1 - newest,
            label: String::from_utf8_lossy(&label[..end]).into_owned(),
            damage,
        }
    }

    /// Makes `state` the lane's state, durably. `entry` is the entry as last read or written; if
    /// the medium fails, it stays so.
    pub fn write_lane(&self, lane: u32, entry: &mut LaneEntry, state: LaneState) {
        let sequence = entry.state.map_or(1, |s| s.sequence + 1);
        let state = LaneState { sequence, ..state };
        let mut bytes = encode(&state);
        let crc = self.slot_crc(lane, &bytes);
        bytes[0..4].copy_from_slice(&crc.to_le_bytes());
        let at = self.geometry.lane_entry(lane) + (entry.next_slot * LINE) as u64;
        self.media.store(at, &[IoSlice::new(&bytes)]);
        self.media.fence();
        if self.media.check().is_err() {
            return;
        }
        entry.state = Some(state);
        entry.next_slot = 1 - entry.next_slot;
    }

    /// Gives every lane of a new pool its first state: free.
    pub fn format(&self) {
        for lane in 0..self.geometry.lanes {
            let free = LaneState {
                taken: false,
                sequence: 0,
                owner: Uuid::nil(),
                head: 0,
                epoch: 0,
                segments: 0,
                incarnation: 0,
            };
            self.write_lane(lane, &mut self.lane(lane), free);
        }
    }

    /// Makes the bytes durable that are read in lane `lane`'s entry. The process that wrote it may
    /// have died before its fence: then it is seen until the power fails, and what is built on it
    /// would be left without it. The caller has the lane's lock.
    pub fn settle_lane(&self, lane: u32) {
        settle(self.media, self.geometry.lane_entry(lane), 2 * LINE as u64);
    }

    /// The same for the superblocks and the segment map. The caller has the pool's lock.
    pub fn settle_pool(&self) {
        for copy in SUPERBLOCKS {
            settle(self.media, copy, 2 * LINE as u64);
        }
        settle(
            self.media,
            self.geometry.map(),
            self.geometry.segments * MAP_ENTRY,
        );
    }

    /// Writes the lane's label, cut to the room for it.
    pub fn write_label(&self, lane: u32, label: &str) {
        let mut bytes = [0; LABEL];
        let end = (0..=label.len().min(LABEL))
            .rev()
            .find(|&end| label.is_char_boundary(end))
            .unwrap_or(0);
        bytes[..end].copy_from_slice(&label.as_bytes()[..end]);
        let at = self.geometry.lane_entry(lane) + 2 * LINE as u64;
        self.media.store(at, &[IoSlice::new(&bytes)]);
        self.media.fence();
    }

    /// The owner of each segment: `(lane, incarnation)`, or none.
    ///
    /// # Errors
    /// In words, the first entry that fails its check.
    pub fn segment_owners(&self) -> Result<Vec<Option<(u32, u32)>>, String> {
        let segments = usize::try_from(self.geometry.segments).unwrap_or(usize::MAX);
        let mut bytes = vec![0; segments * MAP_ENTRY as usize];
        self.media.load(self.geometry.map(), &mut bytes);
        bytes
            .chunks_exact(MAP_ENTRY as usize)
            .enumerate()
            .map(|(segment, word)| {
                let word = u64_at(word, 0);
                if word == 0 {
                    return Ok(None);
                }
                let (lane, incarnation) = ((word & 0xFFFF) as u32, (word >> 32) as u32);
                if lane == 0
                    || lane > self.geometry.lanes
                    || word != self.map_word(segment as u64, lane - 1, incarnation)
                {
                    return Err(format!("segment map entry {segment} reads {word:016x}"));
                }
                Ok(Some((lane - 1, incarnation)))
            })
            .collect()
    }

    fn map_word(&self, segment: u64, lane: u32, incarnation: u32) -> u64 {
        let check = crc32c([
            &self.pool.as_bytes()[..],
            &segment.to_le_bytes(),
            &lane.to_le_bytes(),
            &incarnation.to_le_bytes(),
        ]);
        u64::from(incarnation) << 32 | u64::from(check & 0xFFFF) << 16 | u64::from(lane + 1)
    }

    /// Sets the owner of every segment, durably. Words that do not change are rewritten as they
    /// are.
    pub fn write_segment_owners(&self, owners: &[Option<(u32, u32)>]) {
        let bytes: Vec<u8> = owners
            .iter()
            .zip(0u64..)
            .flat_map(|(owner, segment)| {
                owner
                    .map_or(0, |(lane, incarnation)| {
                        self.map_word(segment, lane, incarnation)
                    })
                    .to_le_bytes()
            })
            .collect();
        self.media
            .store(self.geometry.map(), &[IoSlice::new(&bytes)]);
        self.media.fence();
    }
}

/// Stores `[offset, offset + bytes)`, rounded up to lines, once more as it is read, and fences.
/// No other thread or process writes it meanwhile.
pub(crate) fn settle(media: &dyn Media, offset: u64, bytes: u64) {
    let mut chunk = vec![0; 64 << 10];
    let mut done = 0;
    while done < bytes {
        let now = (bytes - done)
            .next_multiple_of(LINE as u64)
            .min(chunk.len() as u64);
        let part = &mut chunk[..usize::try_from(now).unwrap_or(LINE)];
        media.load(offset + done, part);
        media.store(offset + done, &[IoSlice::new(part)]);
        done += now;
    }
    media.fence();
}

fn encode(state: &LaneState) -> [u8; LINE] {
    let mut bytes = [0; LINE];
    bytes[4..8].copy_from_slice(&u32::from(state.taken).to_le_bytes());
    bytes[8..16].copy_from_slice(&state.sequence.to_le_bytes());
    bytes[16..32].copy_from_slice(state.owner.as_bytes());
    bytes[32..40].copy_from_slice(&state.head.to_le_bytes());
    bytes[40..44].copy_from_slice(&state.epoch.to_le_bytes());
    bytes[44..48].copy_from_slice(&state.segments.to_le_bytes());
    bytes[48..52].copy_from_slice(&state.incarnation.to_le_bytes());
    bytes
}

/// Reads a state whose checksum is right. In words, what in it no state can have: everything behind
/// relies on these bounds.
fn decode(bytes: &[u8; LINE]) -> Result<LaneState, String> {
    let mut owner = [0; 16];
    owner.copy_from_slice(&bytes[16..32]);
    let state = LaneState {
        taken: u32_at(bytes, 4) == 1,
        sequence: u64_at(bytes, 8),
        owner: Uuid::from_bytes(owner),
        head: u64_at(bytes, 32),
        epoch: u32_at(bytes, 40),
        segments: u32_at(bytes, 44),
        incarnation: u32_at(bytes, 48),
    };
    if u32_at(bytes, 4) > 1 {
        return Err(format!("is of unknown state {}", u32_at(bytes, 4)));
    }
    if state.sequence > SEQUENCE_MAX {
        return Err("has used up its sequence numbers".to_owned());
    }
    if !state.head.is_multiple_of(PAGE) || state.head > LSN_MAX {
        return Err(format!("has its head at {}", state.head));
    }
    if state.taken && !(1..=u32::from(SEGMENTS_MAX)).contains(&state.segments) {
        return Err(format!("states {} segments", state.segments));
    }
    Ok(state)
}

#[cfg(test)]
mod tests;
