//! Payloads that a lane on a simulated medium was told to keep, and the judgement of those that it
//! has.

use super::*;
use crate::{Lane, media::SimMedia};
use std::{collections::BTreeMap, sync::Arc};

/// A pool's medium: one where an append is durable, or one where that takes a commit.
#[derive(Clone, Copy)]
pub(super) enum On {
    Memory,
    Disk,
}

impl On {
    /// A medium, its bytes and a segment's.
    pub(super) fn medium(self) -> (SimMedia, u64, u64) {
        match self {
            Self::Memory => (SimMedia::new(64 << 10), 64 << 10, 4096),
            Self::Disk => (SimMedia::disk(vec![0; 256 << 10]), 256 << 10, 16 << 10),
        }
    }
}

/// In a note: this record is durable elsewhere.
pub(super) const DRAINED: u64 = 1 << 63;

pub(super) fn new_pool(on: On) -> Arc<SimMedia> {
    let (sim, bytes, segment) = on.medium();
    new_pool_on(sim, bytes, segment)
}

pub(super) fn new_pool_on(sim: SimMedia, bytes: u64, segment: u64) -> Arc<SimMedia> {
    let sim = Arc::new(sim);
    PoolOptions::new()
        .size(bytes)
        .segment_size(segment)
        .lanes(3)
        .create_on("sim", sim.clone())
        .unwrap();
    Arc::new(sim.of_its_kind(sim.image()))
}

pub(super) fn open(sim: &Arc<SimMedia>) -> Pool {
    PoolOptions::new().open_on("sim", sim.clone()).unwrap()
}

/// The promises up to a moment.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub(super) acknowledged: BTreeSet<u64>,
    pub(super) drained: BTreeSet<u64>,
}

impl Known {
    pub(super) fn learn(&mut self, notes: impl Iterator<Item = u64>) {
        for note in notes {
            match note & DRAINED {
                0 => self.acknowledged.insert(note),
                _ => self.drained.insert(note & !DRAINED),
            };
        }
    }

    /// Fails unless the log may hold `found`.
    pub(super) fn judge(&self, found: &[u64]) {
        let set: BTreeSet<u64> = found.iter().copied().collect();
        assert_eq!(set.len(), found.len(), "one is there twice");
        let lost: Vec<_> = (self.acknowledged.difference(&self.drained))
            .filter(|number| !set.contains(number))
            .collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:x?}");
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for number in found {
            let (worker, turn) = (number >> 32, number & 0xFFFF_FFFF);
            let before = last.insert(worker, turn);
            assert!(before < Some(turn), "out of order");
        }
    }
}

/// A record's payload: its number, and bytes that follow from it.
pub(super) fn payload(number: u64, bytes: u64) -> Vec<u8> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(8 + bytes as usize, (number ^ number >> 32) as u8);
    payload
}

pub(super) fn number_of(payload: &[u8]) -> u64 {
    let number = u64::from_le_bytes(payload[..8].try_into().unwrap());
    let fill = (number ^ number >> 32) as u8;
    assert!(
        payload[8..].iter().all(|byte| *byte == fill),
        "bytes that were not appended"
    );
    number
}

pub(super) fn claim(pool: &Pool) -> (Lane, Vec<u64>) {
    let (lane, recovered) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    let found = recovered.records().map(|r| number_of(r.payload)).collect();
    (lane, found)
}
