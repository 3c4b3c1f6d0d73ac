//! The state of a group of legs: their links, the ledger, and the waiting writes.

use super::{
    complete_legs::ChosenLegs,
    ledger::{LegLedger, WriteNumber},
    link::LegLink,
    mask::LegMask,
    rejoin,
    superblock::LegRecord,
};
use crate::MonotonicTime;
use std::{collections::HashMap, io, ops::Range, sync::Arc};

/// Called once when a write is on every live leg, or cannot be.
pub(crate) type OnWritten = Box<dyn FnOnce(io::Result<()>) + Send>;

/// One leg, as it is known here.
#[derive(Default)]
pub(super) struct LegSeat {
    pub(super) link: Option<Arc<LegLink>>,
    /// The reason that it is not complete, in words.
    pub(super) why: Option<String>,
    /// Since when a leg that is out can be reached again.
    pub(super) reached: Option<MonotonicTime>,
    /// The newest record that it had when it was asked, an announcement perhaps.
    pub(super) newest: Option<LegRecord>,
}

pub(super) struct GroupState {
    pub(super) seats: Vec<LegSeat>,
    pub(super) chosen: ChosenLegs,
    /// Of the writer.
    pub(super) ledger: Option<LegLedger>,
    pub(super) waiting: HashMap<WriteNumber, OnWritten>,
    /// Writes that count if this is the pool's writer still.
    pub(super) held: Vec<WriteNumber>,
    pub(super) busy: HashMap<WriteNumber, Range<u64>>,
    /// The reason that nothing is written any more.
    pub(super) over: Option<Arc<str>>,
    pub(super) stopping: bool,
    /// A leg that is back, with a new link.
    pub(super) returned: Option<(usize, Arc<LegLink>)>,
}

impl GroupState {
    /// The links to these legs, as far as there are any.
    pub(super) fn links(&self, legs: LegMask) -> Vec<(usize, Arc<LegLink>)> {
        let link = |leg: usize| Some((leg, self.seats.get(leg)?.link.clone()?));
        legs.legs().filter_map(link).collect()
    }

    /// True if a part of it is being written.
    pub(super) fn is_busy(&self, range: &Range<u64>) -> bool {
        let mut busy = self.busy.values();
        busy.any(|other| other.start < range.end && range.start < other.end)
    }

    /// Keeps others from writing it.
    pub(super) fn keep_busy(&mut self, number: WriteNumber, range: Range<u64>) {
        self.busy.insert(number, range);
    }

    pub(super) fn not_busy(&mut self, number: WriteNumber) {
        self.busy.remove(&number);
    }

    #[expect(
        clippy::type_complexity,
        reason = "the start of a write, or the refusal and its addressee"
    )]
    pub(super) fn begin_write(
        &mut self,
        range: Range<u64>,
        then: OnWritten,
    ) -> Result<(WriteNumber, Vec<(usize, Arc<LegLink>)>), (OnWritten, io::Error)> {
        let why = match (&self.over, &self.ledger) {
            (Some(why), _) => Some(why.to_string()),
            (None, None) => Some("another process writes the pool".to_owned()),
            _ => None,
        };
        let Some(ledger) = self.ledger.as_mut().filter(|_| why.is_none()) else {
            return Err((then, io::Error::other(why.unwrap_or_default())));
        };
        let (number, to) = ledger.begin_write();
        self.busy.insert(number, range);
        self.waiting.insert(number, then);
        Ok((number, self.links(to)))
    }

    pub(super) fn forget_settled(&mut self) {
        if let Some(ledger) = &self.ledger {
            self.busy
                .retain(|number, _| *number == rejoin::COPY || !ledger.is_settled(*number));
        }
    }
}
