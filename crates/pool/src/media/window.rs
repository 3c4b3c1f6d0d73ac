//! [`SegmentWindow`]: one segment of the medium, through which a stretch of a log is written and read.
//!
//! A window is what makes lending out the memory sound. It is *open* for the log addresses `[start,
//! start + bytes)`. Bytes below its `visible` mark may be read, bytes at or above it may be
//! written; the mark only rises while the window is open. A window that a reader has pinned is not
//! opened again, so the bytes under a [`WindowPin`] never change. For the same reason a window
//! keeps the lane's lock: as long as a pin is out, no thread, of this process or another, makes a
//! window of its own over the segment.

use super::{LockGuard, Media};
use std::{
    io::IoSlice,
    ops::Deref,
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Release, SeqCst},
        },
    },
};

/// The start of a window that is not open.
const CLOSED: u64 = u64::MAX;

/// Keeps a word that every append changes off the cache lines of everything else.
#[repr(C, align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

/// A segment of the medium and the log addresses it holds at present.
pub(crate) struct SegmentWindow {
    media: Arc<dyn Media>,
    /// The lock of the lane that has the segment.
    _lock: Arc<LockGuard>,
    /// The segment's offset in the pool.
    offset: u64,
    bytes: u64,
    /// First log address it holds, or [`CLOSED`].
    start: AtomicU64,
    /// Log addresses below this are published: they are read, and never written again.
    visible: OwnLine<AtomicU64>,
    /// Readers inside.
    pins: AtomicU32,
}

impl SegmentWindow {
    pub(crate) fn new(
        media: Arc<dyn Media>,
        lock: Arc<LockGuard>,
        offset: u64,
        bytes: u64,
    ) -> Self {
        Self {
            media,
            _lock: lock,
            offset,
            bytes,
            start: AtomicU64::new(CLOSED),
            visible: OwnLine(AtomicU64::new(0)),
            pins: AtomicU32::new(0),
        }
    }

    /// The segment's place in the pool.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The first log address the window holds, if it is open.
    #[inline]
    pub(crate) fn start(&self) -> Option<u64> {
        let start = self.start.load(SeqCst);
        (start != CLOSED).then_some(start)
    }

    /// The log address up to which everything is published.
    #[inline]
    pub(crate) fn visible(&self) -> u64 {
        self.visible.0.load(SeqCst)
    }

    /// Opens a closed window at log address `start`, published up to `visible`. False, and nothing
    /// done, if a reader is inside.
    ///
    /// A reader that enters after the look finds the window closed, or open at `start` (see
    /// [`pin`](Self::pin)): either is harmless.
    #[must_use]
    pub(crate) fn open(&self, start: u64, visible: u64) -> bool {
        assert!(self.start().is_none(), "the window is open already");
        assert!((start..=start + self.bytes).contains(&visible));
        if self.pins.load(SeqCst) != 0 {
            return false;
        }
        self.visible.0.store(visible, Release);
        self.start.store(start, SeqCst);
        true
    }

    /// Publishes everything below `to`.
    #[inline]
    pub(crate) fn publish(&self, to: u64) {
        debug_assert!(self.visible() <= to);
        self.visible.0.store(to, Release);
    }

    /// The same if everything below `from` is published and nothing above. False, and nothing done,
    /// otherwise. Sequentially consistent.
    #[inline]
    pub(crate) fn publish_from(&self, from: u64, to: u64) -> bool {
        debug_assert!(from <= to);
        (self.visible.0)
            .compare_exchange(from, to, SeqCst, SeqCst)
            .is_ok()
    }

    /// Publishes the whole window: nothing is written to it until it is opened again.
    pub(crate) fn freeze(&self) {
        if let Some(start) = self.start() {
            self.publish(start + self.bytes);
        }
    }

    /// Closes the window. Readers that are inside stay; no other gets in.
    pub(crate) fn close(&self) {
        self.start.store(CLOSED, SeqCst);
    }

    /// A place at log address `at`, which must not be published: to be written from there on,
    /// before it is.
    ///
    /// `start` is what [`start`](Self::start) said when the caller reserved the address.
    #[inline]
    pub(crate) fn place(&self, start: u64, at: u64) -> WindowPlace<'_> {
        let visible = self.visible();
        assert!(at >= visible, "a published byte is never written");
        WindowPlace {
            media: &*self.media,
            offset: self.offset + (at - start),
            behind: at - visible,
        }
    }

    /// Lends out `bytes` published bytes at log address `at`; `None` if the window does not hold
    /// them (any more).
    #[inline]
    pub(crate) fn pin(self: &Arc<Self>, at: u64, bytes: usize) -> Option<WindowPin> {
        let end = at.checked_add(bytes as u64)?;
        // Enter first, look second: a drain that closes the window after this look sees the pin
        // before it opens the window again (sequentially consistent on both sides).
        self.pins.fetch_add(1, SeqCst);
        let mut pin = WindowPin {
            window: Arc::clone(self),
            offset: 0,
            bytes,
        };
        let start = self.start.load(SeqCst);
        if start == CLOSED || at < start || end > start + self.bytes || end > self.visible() {
            return None;
        }
        pin.offset = self.offset + (at - start);
        Some(pin)
    }
}

/// A place for bytes about to be written, by the only one who may: it cannot be published
/// meanwhile. The mark is looked at once, since another processor writes it all the time.
pub(crate) struct WindowPlace<'a> {
    media: &'a dyn Media,
    offset: u64,
    behind: u64,
}

impl WindowPlace<'_> {
    /// Bytes between the place and the end of published records when it was made.
    #[inline]
    pub(crate) fn behind(&self) -> u64 {
        self.behind
    }

    /// Its offset in the pool.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Streams to `at` bytes behind the place (see [`Media::stream`]).
    #[inline]
    pub(crate) fn stream(&self, at: u64, parts: &[IoSlice<'_>]) {
        self.media.store(self.offset + at, parts);
    }
}

/// Published bytes of a window, lent out; the window is not recycled meanwhile.
pub(crate) struct WindowPin {
    window: Arc<SegmentWindow>,
    offset: u64,
    bytes: usize,
}

impl WindowPin {
    /// The bytes' offset in the pool.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }
}

impl Deref for WindowPin {
    type Target = [u8];

    #[expect(
        unsafe_code,
        reason = "the one place where the pool lends its memory out"
    )]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes were below `visible` when the pin was made; `place` refuses those, and
        // `open`, which lowers the mark, refuses as long as the pin is there.
        unsafe { self.window.media.slice(self.offset, self.bytes) }
    }
}

impl Drop for WindowPin {
    fn drop(&mut self) {
        self.window.pins.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::SimMedia;

    fn window() -> Arc<SegmentWindow> {
        let media: Arc<dyn Media> = Arc::new(SimMedia::new(8192));
        let lock = Arc::new(LockGuard::take(&media, 1, false).unwrap());
        Arc::new(SegmentWindow::new(media, lock, 4096, 4096))
    }

    #[test]
    fn only_published_bytes_are_lent() {
        let window = window();
        assert!(window.pin(0, 1).is_none());
        assert!(window.open(8192, 8192));
        window.place(8192, 8192).stream(0, &[IoSlice::new(b"abc")]);
        assert!(window.pin(8192, 3).is_none());
        assert!(window.publish_from(8192, 8256));
        assert!(!window.publish_from(8192, 8320));
        assert_eq!(&*window.pin(8192, 3).unwrap(), b"abc");
        assert!(window.pin(8192, 65).is_none());
        assert!(window.pin(8191, 2).is_none());
        assert!(window.pin(u64::MAX, 2).is_none());
    }

    #[test]
    #[should_panic(expected = "a published byte is never written")]
    fn a_published_byte_cannot_be_written() {
        let window = window();
        assert!(window.open(0, 64));
        window.place(0, 0).stream(0, &[IoSlice::new(b"x")]);
    }

    #[test]
    fn a_pinned_window_keeps_its_bytes_after_it_is_closed() {
        let window = window();
        assert!(window.open(0, 0));
        window.place(0, 0).stream(0, &[IoSlice::new(b"kept")]);
        window.publish(64);
        let pin = window.pin(0, 4).unwrap();
        window.close();
        assert!(window.pin(0, 4).is_none());
        assert!(!window.open(4096, 4096));
        assert_eq!(&*pin, b"kept");
        drop(pin);
        assert!(window.open(4096, 4096));
    }

    /// Promise: as `lent_bytes_keep_the_lane_and_its_segments_from_all_others`.
    #[test]
    fn readers_at_no_moment_stop_the_writer_or_see_it_write() {
        let window = window();
        let last = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    let generation = last.load(SeqCst);
                    if let Some(pin) = window.pin(generation * 4096, 64) {
                        assert_eq!(*pin, [generation as u8; 64]);
                    }
                    if generation == 20_000 {
                        return;
                    }
                }
            });
            for generation in 1..=20_000u64 {
                let start = generation * 4096;
                while !window.open(start, start) {
                    std::hint::spin_loop();
                }
                let line = [generation as u8; 64];
                window.place(start, start).stream(0, &[IoSlice::new(&line)]);
                window.publish(start + 64);
                last.store(generation, SeqCst);
                window.close();
            }
            reader.join().unwrap();
        });
    }
}
