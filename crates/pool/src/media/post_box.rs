//! The post box of a pool on legs: members ask its owner to write, in memory behind the pool's.
//! docs/legs.md, "Members".
//!
//! 1. A member *claims* a free post, notes which bytes of the pool it means, and *posts* it.
//! 2. The owner *takes* it, writes these bytes to the legs, and notes the result.
//! 3. The member reads the result and *frees* the post.
//!
//! A post's ticket has a count of its uses above the phase, and every step is an exchange of it. So
//! a member that was stopped for long, and whose post the owner freed, does nothing to the next
//! use: it asks anew. Nor is another told of a range that it meant: the owner notes what it wrote.
//! What a member writes here is not believed: the owner checks the range.

use super::mapped::{Atomics, wait, wake, wake_all};
use crate::MonotonicTime;
use std::{
    io,
    ops::Range,
    sync::atomic::{
        AtomicI32, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
    time::Duration,
};

/// Posts: two commits of each lane, and of each thread of a member no more.
const POSTS: usize = 128;
/// Sleep before looking if the owner is gone.
const LOOK: Duration = Duration::from_millis(20);
/// A post that no member frees for so long is a dead one's.
const LEFT: Duration = Duration::from_secs(30);

const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const POSTED: u64 = 2;
const TAKEN: u64 = 3;
const DONE: u64 = 4;
const PHASES: u64 = 8;

/// See the module's head.
#[repr(C)]
pub(super) struct PostBox {
    /// Not 0 while fewer legs are live than there are to be copies.
    degraded: AtomicU32,
    /// Counts what is posted: the owner sleeps on it.
    posted: AtomicU32,
    posts: [Post; POSTS],
}

#[expect(unsafe_code, reason = "it consists of atomics")]
// SAFETY: atomics only, of which every bit pattern is valid.
unsafe impl Atomics for PostBox {}

#[repr(C, align(64))]
struct Post {
    ticket: AtomicU64,
    offset: AtomicU64,
    bytes: AtomicU64,
    /// An errno, or 0.
    result: AtomicI32,
    /// The range that the owner wrote: a member that was stopped right before it posted may have
    /// noted another range than the one that has the post by then.
    written_offset: AtomicU64,
    written_bytes: AtomicU64,
    /// Counts results: the member sleeps on it.
    answered: AtomicU32,
}

/// A post that the owner took.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenPost {
    number: usize,
    ticket: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// For how long each post has had its ticket: the owner's.
pub(super) type PostAges = Vec<(u64, MonotonicTime)>;

impl PostBox {
    pub(super) fn set_degraded(&self, degraded: bool) {
        self.degraded.store(degraded.into(), SeqCst);
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.degraded.load(SeqCst) != 0
    }

    /// A member: has the owner write the range, and returns when that is durable.
    ///
    /// # Errors
    /// The owner's; `NotConnected` if `is_orphan` says that there is none any more.
    pub(super) fn ask(&self, range: &Range<u64>, is_orphan: impl Fn() -> bool) -> io::Result<()> {
        loop {
            if is_orphan() {
                return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
            }
            match self.ask_once(range, &is_orphan) {
                Some(0) => return Ok(()),
                Some(errno) => return Err(io::Error::from_raw_os_error(errno)),
                // All are taken, or the owner took this one away.
                None => {}
            }
        }
    }

    fn ask_once(&self, range: &Range<u64>, is_orphan: &impl Fn() -> bool) -> Option<i32> {
        let Some((post, claimed)) = self.posts.iter().find_map(Post::claim) else {
            std::thread::sleep(Duration::from_millis(1));
            return None;
        };
        post.offset.store(range.start, Relaxed);
        post.bytes.store(range.end - range.start, Relaxed);
        let seen_at_first = post.answered.load(SeqCst);
        if !post.step(claimed, POSTED) {
            return None;
        }
        crate::failpoint!("legs:posted");
        wake(&self.posted);
        let use_count = claimed / PHASES;
        let mut seen = seen_at_first;
        loop {
            let ticket = post.ticket.load(SeqCst);
            if ticket / PHASES != use_count {
                return None;
            }
            if ticket % PHASES == DONE {
                let result = post.result.load(Acquire);
                let written = [&post.written_offset, &post.written_bytes];
                let is_it =
                    written.map(|it| it.load(Acquire)) == [range.start, range.end - range.start];
                return (post.free(ticket) && is_it).then_some(result);
            }
            if is_orphan() {
                // Nobody takes it any more; the box ends with those that have it.
                return Some(libc::ENOTCONN);
            }
            wait(&post.answered, seen, LOOK);
            seen = post.answered.load(SeqCst);
        }
    }

    /// The owner: the posted ranges, to be [answered](Self::answer). It waits for some a while.
    pub(super) fn take(&self, patience: Duration) -> Vec<TakenPost> {
        let seen = self.posted.load(SeqCst);
        let taken: Vec<_> = self.take_posted().collect();
        if !taken.is_empty() {
            return taken;
        }
        wait(&self.posted, seen, patience);
        self.take_posted().collect()
    }

    fn take_posted(&self) -> impl Iterator<Item = TakenPost> {
        self.posts.iter().enumerate().filter_map(|(number, post)| {
            let ticket = post.ticket.load(SeqCst);
            let is_taken = ticket % PHASES == POSTED && post.step(ticket, TAKEN);
            is_taken.then(|| TakenPost {
                number,
                ticket: ticket / PHASES * PHASES + TAKEN,
                offset: post.offset.load(Relaxed),
                bytes: post.bytes.load(Relaxed),
            })
        })
    }

    /// The owner: gives the result.
    pub(super) fn answer(&self, taken: TakenPost, result: &io::Result<()>) {
        let post = &self.posts[taken.number];
        let errno = (result.as_ref().err()).map_or(0, |e| e.raw_os_error().unwrap_or(libc::EIO));
        post.written_offset.store(taken.offset, Release);
        post.written_bytes.store(taken.bytes, Release);
        post.result.store(errno, Release);
        post.step(taken.ticket, DONE);
        post.answered.fetch_add(1, SeqCst);
        wake_all(&post.answered);
    }

    /// The owner ends: a member that asks from now on finds nobody.
    pub(super) fn wake_owner(&self) {
        wake(&self.posted);
    }

    /// The owner: frees posts that dead members [left](LEFT).
    pub(super) fn free_left(&self, ages: &mut PostAges) {
        self.free_older(ages, LEFT);
    }

    fn free_older(&self, ages: &mut PostAges, left: Duration) {
        ages.resize(POSTS, (0, MonotonicTime::now()));
        for (post, age) in self.posts.iter().zip(ages) {
            let ticket = post.ticket.load(SeqCst);
            if age.0 != ticket {
                *age = (ticket, MonotonicTime::now());
            } else if matches!(ticket % PHASES, CLAIMED | DONE) && age.1.elapsed() >= left {
                post.free(ticket);
            }
        }
    }
}

impl Post {
    fn claim(&self) -> Option<(&Self, u64)> {
        let ticket = self.ticket.load(SeqCst);
        let is_claimed = ticket % PHASES == FREE && self.step(ticket, CLAIMED);
        is_claimed.then_some((self, ticket / PHASES * PHASES + CLAIMED))
    }

    /// From this ticket to another phase of the same use.
    fn step(&self, ticket: u64, phase: u64) -> bool {
        let next = ticket / PHASES * PHASES + phase;
        self.ticket
            .compare_exchange(ticket, next, SeqCst, Relaxed)
            .is_ok()
    }

    /// Ends this use.
    fn free(&self, ticket: u64) -> bool {
        let next = (ticket / PHASES).wrapping_add(1).wrapping_mul(PHASES);
        self.ticket
            .compare_exchange(ticket, next, SeqCst, Relaxed)
            .is_ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
