//! Images that a crash may leave of a simulated medium.

use super::SimEvent;
use std::{
    collections::{BTreeMap, HashMap},
    thread::ThreadId,
};

/// Every state a [`SimMedia`](super::SimMedia) can be found in after a crash.
#[derive(Clone)]
pub struct CrashImages {
    /// Bytes that arrive as one.
    pub(super) unit: usize,
    pub(super) base: Vec<u8>,
    pub(super) events: Vec<SimEvent>,
}

impl CrashImages {
    /// Number of points in time at which the crash can be: before each event and after the last.
    #[must_use]
    pub fn points(&self) -> usize {
        self.events.len() + 1
    }

    /// The notes that were made before crash point `point`.
    pub fn notes_before(&self, point: usize) -> impl Iterator<Item = u64> {
        self.events[..point].iter().filter_map(|event| match event {
            SimEvent::Note(what) => Some(*what),
            _ => None,
        })
    }

    /// The medium as found when the power failed at `point`. `persisted` is asked for each
    /// eight-byte word, or sector, of each store in flight whether it had arrived.
    pub fn at(&self, point: usize, persisted: impl FnMut() -> bool) -> Vec<u8> {
        let mut moment = self.start();
        while moment.point < point && moment.step() {}
        moment.image(persisted)
    }

    /// The first crash point; [`step`](CrashPoint::step) goes through all of them at the cost of
    /// one.
    #[must_use]
    pub fn start(&self) -> CrashPoint<'_> {
        CrashPoint {
            unit: self.unit,
            events: &self.events,
            point: 0,
            durable: self.base.clone(),
            in_flight: BTreeMap::new(),
            unfenced: HashMap::new(),
        }
    }
}

/// One point in time at which the power can fail.
pub struct CrashPoint<'a> {
    /// Bytes that arrive as one: a word.
    unit: usize,
    events: &'a [SimEvent],
    point: usize,
    /// The bytes that are there for certain.
    durable: Vec<u8>,
    /// For each word with stores in flight, by its offset: who stored what, in order.
    in_flight: BTreeMap<u64, Vec<(ThreadId, &'a [u8])>>,
    /// The words that each thread stored since its last fence.
    unfenced: HashMap<ThreadId, Vec<u64>>,
}

impl CrashPoint<'_> {
    /// Its number: that of the events before it.
    #[must_use]
    pub fn point(&self) -> usize {
        self.point
    }

    /// Goes on to the next point. False at the last one.
    pub fn step(&mut self) -> bool {
        let Some(event) = self.events.get(self.point) else {
            return false;
        };
        self.point += 1;
        match event {
            SimEvent::Store {
                thread,
                offset,
                bytes,
            } => {
                let unfenced = self.unfenced.entry(*thread).or_default();
                let units = bytes.chunks_exact(self.unit);
                for (at, word) in (*offset..).step_by(self.unit).zip(units) {
                    self.in_flight.entry(at).or_default().push((*thread, word));
                    unfenced.push(at);
                }
            }
            SimEvent::Fence { thread } => {
                for at in self.unfenced.remove(thread).unwrap_or_default() {
                    let Some(stores) = self.in_flight.get_mut(&at) else {
                        continue;
                    };
                    // What others stored there before cannot arrive any more after this.
                    if let Some(last) = stores.iter().rposition(|(by, _)| by == thread) {
                        put(&mut self.durable, at, stores[last].1);
                        stores.drain(..=last);
                    }
                    if stores.is_empty() {
                        self.in_flight.remove(&at);
                    }
                }
            }
            SimEvent::Settle => {
                for (at, stores) in std::mem::take(&mut self.in_flight) {
                    if let Some((_, last)) = stores.last() {
                        put(&mut self.durable, at, last);
                    }
                }
                self.unfenced.clear();
            }
            SimEvent::Note(_) => {}
        }
        true
    }

    /// The medium as found when the power failed here. `persisted` is asked for each eight-byte
    /// word, or sector, of each store in flight whether it had arrived.
    pub fn image(&self, mut persisted: impl FnMut() -> bool) -> Vec<u8> {
        let mut image = self.durable.clone();
        for (at, stores) in &self.in_flight {
            for (_, word) in stores {
                if persisted() {
                    put(&mut image, *at, word);
                }
            }
        }
        image
    }

    /// The places of stores in flight, and the bytes of each.
    pub fn in_flight(&self) -> impl Iterator<Item = (u64, usize)> {
        self.in_flight.keys().map(|at| (*at, self.unit))
    }
}

pub(super) fn put(image: &mut [u8], offset: u64, bytes: &[u8]) {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    image[at..at + bytes.len()].copy_from_slice(bytes);
}
