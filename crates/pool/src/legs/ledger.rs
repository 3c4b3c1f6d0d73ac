//! The protocol between a pool's writer and its legs, without any of its input and output.
//! docs/legs.md, "The writer's protocol". `explore` drives it through every order of events.
//!
//! 1. A write goes to every leg that is connected. It counts when every leg of the *set* has it,
//!    and every leg that is *joining*.
//! 2. A leg of the set that fails is *lost*. What waits for it goes on waiting.
//! 3. The set without the lost legs is written, with the next generation, to the superblock of
//!    every leg that is left. With a leg on a disk, it is noted in the pool's file as well. When
//!    all have it, nothing waits for a lost leg any more.
//! 4. A leg that returns is *copied to*: it gets every write from then on, and everything from
//!    before by a copy.
//! 5. When the copy is complete the leg is *joining*: every write needs it.
//! 6. When it has every write from before, the set with it is written with the next generation to
//!    all of them. Then it counts as any other.

use super::{
    mask::LegMask,
    superblock::{LegRecord, TERM},
};
use std::collections::BTreeMap;

/// A write's number: they rise.
pub(crate) type WriteNumber = u64;

/// A change of the set that is being made durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SetChange {
    pub(crate) record: LegRecord,
    /// The legs that do not have it yet.
    pub(crate) unwritten: LegMask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OpenWrite {
    /// Legs it was sent to, or would have been, that do not have it.
    unacknowledged: LegMask,
    /// The program was told.
    told: bool,
}

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LegLedger {
    /// The record that all legs of its set have in their superblocks.
    record: LegRecord,
    /// Legs that failed, and that a superblock may call complete.
    lost: LegMask,
    copying: LegMask,
    /// Legs that have all but the writes below the number.
    joining: BTreeMap<usize, WriteNumber>,
    change: Option<SetChange>,
    /// The newest generation that was begun to be written.
    begun: u64,
    /// The legs know that this writer has the pool.
    is_open: bool,
    writes: BTreeMap<WriteNumber, OpenWrite>,
    next: WriteNumber,
}

impl LegLedger {
    /// Of a writer that takes the pool over: `record` is to be written first, to its set.
    pub(crate) fn begin(record: LegRecord) -> Self {
        Self {
            record,
            lost: LegMask::NONE,
            copying: LegMask::NONE,
            joining: BTreeMap::new(),
            change: Some(SetChange {
                record,
                unwritten: record.set,
            }),
            begun: record.generation,
            is_open: false,
            writes: BTreeMap::new(),
            next: 0,
        }
    }

    /// The record in the legs' superblocks.
    pub(crate) fn record(&self) -> &LegRecord {
        &self.record
    }

    /// The legs that are known to be complete and not to have failed.
    pub(crate) fn live(&self) -> LegMask {
        self.record.set.without(self.lost)
    }

    /// The legs on which a recovery may read, or announce itself: without them no write counts.
    pub(crate) fn looked_at(&self) -> LegMask {
        self.live().union(self.joining.keys().copied().collect())
    }

    /// True if a write reaches this leg.
    pub(crate) fn is_written(&self, leg: usize) -> bool {
        self.live().has(leg) || self.copying.has(leg) || self.joining.contains_key(&leg)
    }

    /// True if it is in no superblock, and is not being made complete.
    pub(crate) fn is_out(&self, leg: usize) -> bool {
        !self.is_written(leg) && !self.record.set.has(leg) && !self.lost.has(leg)
    }

    /// True if every leg of the set is lost.
    pub(crate) fn is_over(&self) -> bool {
        self.live().is_empty()
    }

    /// Step 1: the write's number, and where to send it.
    pub(crate) fn begin_write(&mut self) -> (WriteNumber, LegMask) {
        let joining: LegMask = self.joining.keys().copied().collect();
        let to = self.live().union(self.copying).union(joining);
        let write = OpenWrite {
            unacknowledged: to.union(self.needed()),
            told: false,
        };
        let number = self.next;
        self.next += 1;
        self.writes.insert(number, write);
        (number, to)
    }

    /// A leg has the write: which writes count from now on.
    pub(crate) fn acknowledged(&mut self, number: WriteNumber, leg: usize) -> Vec<WriteNumber> {
        if let Some(write) = self.writes.get_mut(&number) {
            write.unacknowledged = write.unacknowledged.without(LegMask::of(leg));
        }
        self.complete()
    }

    /// True if no leg is to have the write any more.
    pub(crate) fn is_settled(&self, number: WriteNumber) -> bool {
        !self.writes.contains_key(&number)
    }

    /// Step 2: the leg failed, or does not answer.
    pub(crate) fn failed(&mut self, leg: usize) -> Vec<WriteNumber> {
        if (self.change.as_ref()).is_some_and(|it| it.record.set.has(leg)) {
            // A superblock may say that it is complete: the next one says that it is not.
            self.change = None;
        }
        if self.record.set.has(leg) || self.joining.remove(&leg).is_some() {
            self.lost = self.lost.with(leg);
        } else if self.copying.has(leg) {
            self.copying = self.copying.without(LegMask::of(leg));
            self.forget(leg);
        }
        self.complete()
    }

    /// Nothing waits for a leg that is in no set.
    fn forget(&mut self, leg: usize) {
        for write in self.writes.values_mut() {
            write.unacknowledged = write.unacknowledged.without(LegMask::of(leg));
        }
    }

    /// Step 4: the leg, which is in no set, gets every write from now on.
    pub(crate) fn copying(&mut self, leg: usize) {
        self.copying = self.copying.with(leg);
    }

    /// True if it still does.
    pub(crate) fn is_copying(&self, leg: usize) -> bool {
        self.copying.has(leg)
    }

    /// Step 5: it has everything from before.
    pub(crate) fn copied(&mut self, leg: usize) {
        if self.copying.has(leg) {
            self.copying = self.copying.without(LegMask::of(leg));
            self.joining.insert(leg, self.next);
        }
    }

    /// Steps 3 and 6: the change of the set that is due, to be written to its `unwritten` legs.
    pub(crate) fn due_change(&mut self) -> Option<&SetChange> {
        if self.is_over() {
            return None;
        }
        if self.change.is_none() {
            let joins = |(&leg, &below): (&usize, &WriteNumber)| {
                let mut before = self.writes.range(..below);
                before
                    .all(|(_, write)| !write.unacknowledged.has(leg))
                    .then_some(leg)
            };
            let joined: LegMask = self.joining.iter().filter_map(joins).collect();
            let set = self.live().union(joined);
            // One that a leg may have, and not all legs, is written over.
            let is_old = self.begun != self.record.generation || !self.lost.is_empty();
            if set != self.record.set || is_old {
                self.begun += 1;
                let record = LegRecord {
                    generation: self.begun,
                    set,
                    ..self.record
                };
                self.change = Some(SetChange {
                    record,
                    unwritten: set,
                });
            }
        }
        self.change.as_ref()
    }

    /// A leg has the superblock of this generation: which writes count from now on, once all have.
    pub(crate) fn change_written(&mut self, generation: u64, leg: usize) -> Vec<WriteNumber> {
        let Some(change) = (self.change.as_mut()).filter(|it| it.record.generation == generation)
        else {
            return Vec::new();
        };
        change.unwritten = change.unwritten.without(LegMask::of(leg));
        if !change.unwritten.is_empty() {
            return Vec::new();
        }
        let record = change.record;
        let left = self.record.set.union(self.lost).without(record.set);
        self.change = None;
        self.record = record;
        self.is_open = true;
        self.lost = self.lost.without(left);
        self.joining.retain(|leg, _| !record.set.has(*leg));
        for leg in left.legs() {
            self.forget(leg);
        }
        self.complete()
    }

    /// True if nothing is to be written to superblocks.
    pub(crate) fn is_settled_set(&self) -> bool {
        self.change.is_none() && self.lost.is_empty() && self.joining.is_empty()
    }

    /// True if a leg is to have a write that it does not have.
    pub(crate) fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// The legs without which no write counts.
    fn needed(&self) -> LegMask {
        let joining: LegMask = self.joining.keys().copied().collect();
        self.record.set.union(self.lost).union(joining)
    }

    /// The writes that count from now on. Those that every leg has are forgotten.
    fn complete(&mut self) -> Vec<WriteNumber> {
        let needed = self.needed();
        let mut told = Vec::new();
        for (&number, write) in self.writes.iter_mut().filter(|_| self.is_open) {
            if !write.told && write.unacknowledged.both(needed).is_empty() {
                write.told = true;
                told.push(number);
            }
        }
        self.writes
            .retain(|_, write| !(write.told && write.unacknowledged.is_empty()));
        told
    }
}

/// The first generation of a writer that found `newest`.
pub(crate) fn next_term(newest: u64) -> u64 {
    (newest / TERM + 1) * TERM
}
