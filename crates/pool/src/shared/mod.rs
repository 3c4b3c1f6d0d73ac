//! The shared lane: one log that several processes append to.
//!
//! Its *owner* ([`SharedLane`]) opens segments, drains and releases them. Its *members*
//! ([`Member`]), processes that the owner numbers, append. What they share ([`state`]) is a sealed
//! memfd of atomics, which no pool knows of: after a crash the lane is recovered as any other.
//!
//! An append ([`member`]):
//!
//! 1. *Announce*: take a writer's cell and put the member's number in it.
//! 2. *Reserve* lines by an exchange of the tail.
//! 3. *Claim*: note in the cell which lines they are.
//! 4. *Copy*, *fence*: the record is durable.
//! 5. *Publish* in log order ([`publish`](crate::lane)): one mark for the whole lane.
//! 6. Free the cell.
//!
//! The next segment is prepared, its header durable, before it is needed. A member that finds the
//! segment full moves the tail into it, and fills what is left of the full one with a void record.
//! So members need no lock, and the owner is waited for only where it is behind.
//!
//! A member may die anywhere. What it had reserved is then a hole that nothing behind it can be
//! published over. When the owner knows that the process is gone, it *buries* the member
//! ([`dead_members`]): lines below the tail that are not published and that no living writer claims
//! are holes, and become void records. A writer that has announced itself, and not claimed yet, may
//! own any of them: it is waited for first.
//!
//! Records of the next segment are written while some of the one before it are not published. At
//! most two segments are unpublished at a time: the owner prepares no third.

mod claim;
mod commit;
mod control;
mod dead_members;
mod elastic;
mod member;
mod next_segment;
mod orphan;
mod owner;
mod prefault;
mod state;
#[cfg(test)]
mod tests;

pub use member::Member;
pub use owner::{CompleteSegment, SharedLane};

/// Members of a lane at most, the owner included.
pub const MEMBERS_MAX: u32 = 1 << 20;
