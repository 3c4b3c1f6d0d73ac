//! Bytes of a bounded number in memory that processes share.

use std::sync::atomic::{
    AtomicU8, AtomicU16,
    Ordering::{Acquire, Relaxed, Release},
};

/// At most `N` bytes: a path, an identity. Who reads them while they are changed gets bytes of
/// both; so that is done under a lock.
#[repr(C)]
pub struct SharedText<const N: usize> {
    length: AtomicU16,
    bytes: [AtomicU8; N],
}

impl<const N: usize> SharedText<N> {
    /// Changes it. False if there is no room, and it is as it was.
    #[must_use]
    pub fn set(&self, bytes: &[u8]) -> bool {
        let Ok(length) = u16::try_from(bytes.len()) else {
            return false;
        };
        if bytes.len() > N {
            return false;
        }
        self.length.store(0, Relaxed);
        for (to, byte) in self.bytes.iter().zip(bytes) {
            to.store(*byte, Relaxed);
        }
        self.length.store(length, Release);
        true
    }

    /// The text.
    #[must_use]
    pub fn get(&self) -> Vec<u8> {
        let length = usize::from(self.length.load(Acquire));
        let bytes = self.bytes.iter().take(length);
        bytes.map(|byte| byte.load(Relaxed)).collect()
    }
}

/// The one or two paths of a file, of at most `N` bytes together: the newest, and a further one.
/// Who reads them while they are changed gets bytes of both, too.
#[repr(C)]
pub struct SharedNames<const N: usize> {
    path: AtomicU16,
    link: AtomicU16,
    /// The newest from the beginning on, the other up to the end: neither moves for the other.
    bytes: [AtomicU8; N],
}

impl<const N: usize> SharedNames<N> {
    /// Changes the newest. False if there is no room, and it is as it was.
    #[must_use]
    pub fn set_path(&self, path: &[u8]) -> bool {
        self.set(&self.path, 0, path, self.lengths()[1])
    }

    /// The same of the further one.
    #[must_use]
    pub fn set_link(&self, link: &[u8]) -> bool {
        let start = N.saturating_sub(link.len());
        self.set(&self.link, start, link, self.lengths()[0])
    }

    fn set(&self, length: &AtomicU16, start: usize, bytes: &[u8], other: usize) -> bool {
        let Ok(new) = u16::try_from(bytes.len()) else {
            return false;
        };
        if bytes.len() + other > N {
            return false;
        }
        length.store(0, Relaxed);
        let place = self.bytes.iter().skip(start);
        place
            .zip(bytes)
            .for_each(|(to, byte)| to.store(*byte, Relaxed));
        length.store(new, Release);
        true
    }

    /// The newest.
    #[must_use]
    pub fn path(&self) -> Vec<u8> {
        self.get(0, self.lengths()[0])
    }

    /// The further one; empty if there is none.
    #[must_use]
    pub fn link(&self) -> Vec<u8> {
        let length = self.lengths()[1];
        self.get(N - length, length)
    }

    fn get(&self, start: usize, length: usize) -> Vec<u8> {
        let bytes = self.bytes.iter().skip(start).take(length);
        bytes.map(|byte| byte.load(Relaxed)).collect()
    }

    /// True if there is a further one.
    #[must_use]
    pub fn has_link(&self) -> bool {
        self.lengths()[1] != 0
    }

    /// There is no further one any more.
    pub fn clear_link(&self) {
        self.link.store(0, Release);
    }

    /// Their lengths: no longer than there is room, whatever stands there.
    fn lengths(&self) -> [usize; 2] {
        [&self.path, &self.link].map(|length| usize::from(length.load(Acquire)).min(N))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_share_their_room_and_neither_moves_for_the_other() {
        let names = SharedNames::<16> {
            path: AtomicU16::new(0),
            link: AtomicU16::new(0),
            bytes: [const { AtomicU8::new(0) }; 16],
        };
        assert!(names.path().is_empty() && !names.has_link());
        assert!(names.set_path(b"/a.log") && names.set_link(b"/link.log"));
        assert!(names.set_path(b"/ab.log"));
        assert!(!names.set_path(b"/abc.log") && !names.set_link(b"/links.log"));
        assert_eq!(
            (names.path(), names.link()),
            (b"/ab.log".to_vec(), b"/link.log".to_vec())
        );
        names.clear_link();
        assert!(names.set_path(b"/sixteen.bytes.1") && !names.set_link(b"/"));
        assert_eq!(
            (names.path(), names.has_link()),
            (b"/sixteen.bytes.1".to_vec(), false)
        );
        // What a process that writes over the shared memory leaves.
        names.path.store(u16::MAX, Relaxed);
        names.link.store(17, Relaxed);
        assert_eq!((names.path().len(), names.link().len()), (16, 16));
        assert!(!names.set_path(b"/a") && names.set_link(b""));
    }
}
