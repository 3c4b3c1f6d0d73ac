//! The owner's service to the processes that have the memory of a pool on legs: it writes the
//! ranges that they post. docs/legs.md, "Members".
#![expect(unsafe_code, reason = "writes from memory that others have, too")]

use super::super::{
    mapped::Mapped,
    mapping::{MappingKind, PoolAccess, SharedMapping},
    post_box::{PostAges, PostBox, TakenPost},
};
use crate::{format::layout::PAGE, legs::LegGroup, stack::OnPanic};
use parking_lot::Mutex;
use std::{
    fs::File,
    io,
    ops::Range,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Acquire},
        mpsc,
    },
    time::Duration,
};

/// Interval of the owner's looks at work that no member posts.
const LOOK: Duration = Duration::from_millis(100);

/// The memory that all processes of the pool have.
pub(super) struct SharedParts {
    pub(super) memory: SharedMapping,
    pub(super) posts: Mapped<PostBox>,
    /// Held while the group is asked whether it is degraded and the members are told.
    telling: Mutex<()>,
}

impl SharedParts {
    pub(super) fn map(memory: &File, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let both = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        Ok(Self {
            memory: SharedMapping::new(memory, length, MappingKind::Shared, PoolAccess::ReadWrite)?,
            posts: Mapped::map_from(memory.as_fd(), both, bytes)?,
            telling: Mutex::default(),
        })
    }

    /// Tells the members whether the pool lacks a copy. One that was asked later is told later: of
    /// a write that counts without a leg, the member is to know that before it goes on.
    pub(super) fn tell_degraded(&self, group: &LegGroup) {
        let _one = self.telling.lock();
        self.posts.set_degraded(group.is_degraded());
    }
}

/// Bytes behind the pool's.
pub(super) fn post_bytes() -> u64 {
    (size_of::<PostBox>() as u64).next_multiple_of(64 << 10)
}

pub(super) fn write_and_wait(group: &Arc<LegGroup>, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let (told, answer) = mpsc::channel();
    let then = Box::new(move |result| drop(told.send(result)));
    group.write(offset, bytes, then);
    // It is told in any case, unless its thread panics.
    answer.recv().unwrap_or_else(|e| Err(io::Error::other(e)))
}

/// The owner's: writes the ranges that members post, until it ends.
pub(super) fn serve(shared: &Arc<SharedParts>, group: &Arc<LegGroup>, is_over: &AtomicBool) {
    // Members settle without this process, and would wait for the thread for ever.
    let _aborts = OnPanic(|| std::process::abort());
    let mut ages = PostAges::new();
    while !is_over.load(Acquire) {
        let taken = shared.posts.take(LOOK);
        shared.tell_degraded(group);
        if taken.is_empty() {
            shared.posts.free_left(&mut ages);
        }
        for post in taken {
            let Some(range) = checked(shared, post) else {
                let refused = Err(io::Error::from_raw_os_error(libc::EINVAL));
                shared.posts.answer(post, &refused);
                continue;
            };
            // SAFETY: the member keeps writers out, as `write_back` says; what one writes there all
            // the same is written back as it is then.
            let bytes = unsafe {
                shared
                    .memory
                    .slice(range.start, (range.end - range.start) as usize)
            };
            let (answering, legs) = (Arc::clone(shared), Arc::clone(group));
            let then = move |result: io::Result<()>| {
                // Before the member is told: it then syncs really.
                answering.tell_degraded(&legs);
                answering.posts.answer(post, &result);
            };
            group.write(range.start, bytes, Box::new(then));
        }
    }
}

/// Whole pages of the pool behind its superblocks, or none.
fn checked(shared: &SharedParts, post: TakenPost) -> Option<Range<u64>> {
    let end = post.offset.checked_add(post.bytes)?;
    let is_sound = post.offset.is_multiple_of(PAGE)
        && post.bytes.is_multiple_of(PAGE)
        && post.bytes > 0
        && post.offset >= 2 * PAGE
        && end <= shared.memory.bytes() as u64;
    is_sound.then_some(post.offset..end)
}
