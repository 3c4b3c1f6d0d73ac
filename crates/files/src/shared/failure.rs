//! The run's failed files: those that cannot be synced, and those that may have lost a sync.
//! docs/files-membership.md, "The shared page".
//!
//! A sync that is interrupted may have got the error that no later one gets. So a file that the
//! supervisor was syncing when it died is *feared* not to be sound: as good as failed until it is
//! known. A fear never takes the place of an error, an error that of a fear; and what a member
//! finds sound stays failed where another has found an error meanwhile.

use super::{SharedFile, SharedPageLayout};
use rustix::io::Errno;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The state of a file's syncs: the word of the page that says it. Its lowest 12 bits are 0, an
/// error's number, or [`FEARED`](Self::FEARED); those above count errors, so that one is told from
/// the next one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncFailure(i32);

impl SyncFailure {
    const WHAT: i32 = 0xFFF;
    /// No error's number.
    const FEARED: i32 = 0xFFF;

    /// The error with which the file cannot be synced, if it cannot. What is only feared is one,
    /// too.
    #[inline]
    pub fn error(self) -> Option<Errno> {
        match self.0 & Self::WHAT {
            0 => None,
            Self::FEARED => Some(Errno::IO),
            errno => Some(Errno::from_raw_os_error(errno)),
        }
    }

    /// True if no sync is known to have failed.
    pub fn is_feared(self) -> bool {
        self.0 & Self::WHAT == Self::FEARED
    }

    /// With as many errors, and this of the file.
    const fn with(self, what: i32) -> Self {
        Self(self.0 & !Self::WHAT | what)
    }

    /// One error more.
    fn next(self, errno: Errno) -> Self {
        let counted = self.0.wrapping_add(Self::WHAT + 1);
        Self(counted).with(errno.raw_os_error() & Self::WHAT)
    }
}

impl SharedFile {
    /// The state of its syncs.
    #[inline]
    pub fn failure(&self) -> SyncFailure {
        SyncFailure(self.failure.load(Relaxed))
    }

    /// The error that keeps it from being synced, if it cannot be.
    #[inline]
    pub fn error(&self) -> Option<Errno> {
        self.failure().error()
    }
}

impl SharedPageLayout {
    /// True if any file cannot be synced.
    pub fn failing(&self) -> bool {
        self.failing_file().is_some()
    }

    /// The number of a file that cannot be synced, if there is one.
    pub fn failing_file(&self) -> Option<usize> {
        let mut files = self.used_files().iter();
        files.position(|file| file.error().is_some())
    }

    /// Its error.
    pub fn failure(&self) -> Option<Errno> {
        self.failing_file()
            .and_then(|number| self.files[number].error())
    }

    /// `file` could not be synced.
    pub fn fail(&self, file: usize, errno: Errno) {
        let failure = &self.files[file].failure;
        let next = |now| Some(SyncFailure(now).next(errno).0);
        // It gives a value each time.
        let _ = failure.fetch_update(AcqRel, Relaxed, next);
    }

    /// Supervisor: `file` is sound again.
    pub fn repaired(&self, file: usize) {
        let failure = &self.files[file].failure;
        failure.fetch_and(!SyncFailure::WHAT, Release);
    }

    /// Without a supervisor: `file`, of which so much was `known`, is sound, unless another process
    /// has found since then that it is not. True if it is.
    pub fn repaired_since(&self, file: usize, known: SyncFailure) -> bool {
        let failure = &self.files[file].failure;
        // If another has said it already, that is as well.
        let _ = failure.compare_exchange(known.0, known.with(0).0, AcqRel, Relaxed);
        self.files[file].error().is_none()
    }

    /// Supervisor: `file` is being synced, perhaps beside others.
    pub fn begin_sync(&self, file: usize) {
        self.files[file].syncing.store(SYNCING, Release);
    }

    /// Supervisor: the sync is over, and its outcome is noted.
    pub fn end_sync(&self, file: usize) {
        self.files[file].syncing.store(0, Release);
    }

    /// Without a supervisor: `file` is feared not to be sound if it was being synced when the
    /// supervisor died, which may have got its error instead of the program.
    pub fn fear_if_interrupted(&self, file: usize) {
        if self.files[file].syncing.load(Acquire) == SYNCING {
            let failure = &self.files[file].failure;
            let _ = failure.fetch_update(AcqRel, Relaxed, |now| {
                let now = SyncFailure(now);
                let is_sound = now.error().is_none();
                is_sound.then(|| now.with(SyncFailure::FEARED).0)
            });
            // Only now: where this process dies, one of the two tells the next one. Once the file
            // is known to be sound, none fears for it again.
            self.end_sync(file);
        }
    }
}

/// The mark of a file that it is being synced.
const SYNCING: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::{PART, SharedPage};

    #[test]
    fn a_file_fails_once_however_often_it_is_said() {
        let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
        page.set_used(0, 8);
        page.fail(1, Errno::IO);
        page.fail(1, Errno::NOSPC);
        assert!(page.failing());
        assert_eq!(page.failure(), Some(Errno::NOSPC));
        page.repaired(1);
        page.repaired(1);
        assert!(!page.failing());
        assert_eq!(page.failure(), None);
    }

    #[test]
    fn an_interrupted_sync_has_an_error_feared_until_one_is_known() {
        let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
        page.set_used(0, 8);
        let file = &page.files[3];
        page.begin_sync(3);
        page.fear_if_interrupted(2);
        assert_eq!(page.failing_file(), None);
        page.fear_if_interrupted(3);
        assert_eq!(file.error(), Some(Errno::IO));
        // Who takes over from the one that died then knows no more.
        page.fear_if_interrupted(3);
        assert!(file.failure().is_feared());
        page.fail(3, Errno::NOSPC);
        assert!(!file.failure().is_feared());
        assert_eq!(file.error(), Some(Errno::NOSPC));
    }

    #[test]
    fn of_files_synced_at_a_time_each_is_feared_for_until_its_end() {
        let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
        page.set_used(0, 8);
        [3, 4, 5].into_iter().for_each(|file| page.begin_sync(file));
        page.end_sync(4);
        (0..8).for_each(|file| page.fear_if_interrupted(file));
        let feared = |file: &usize| page.files[*file].failure().is_feared();
        assert_eq!((0..8).filter(feared).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn an_error_known_before_the_supervisor_died_is_no_feared_one() {
        let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
        page.set_used(0, 8);
        page.begin_sync(3);
        page.fail(3, Errno::NOSPC);
        page.fear_if_interrupted(3);
        assert_eq!(page.files[3].error(), Some(Errno::NOSPC));
        assert!(!page.files[3].failure().is_feared());
    }

    #[test]
    fn a_file_that_was_found_sound_is_not_feared_for_again() {
        let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
        page.set_used(0, 8);
        page.begin_sync(3);
        page.fear_if_interrupted(3);
        let known = page.files[3].failure();
        assert!(page.repaired_since(3, known));
        page.fear_if_interrupted(3);
        assert!(!page.failing());
        // Another, which had feared for it too, comes later.
        assert!(page.repaired_since(3, known));
    }

    #[test]
    fn an_error_found_meanwhile_is_not_taken_for_the_feared_one() {
        let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
        page.set_used(0, 8);
        page.begin_sync(3);
        page.fear_if_interrupted(3);
        for known in [page.files[3].failure(), SyncFailure(0)] {
            page.fail(3, Errno::NOSPC);
            assert!(!page.repaired_since(3, known));
            assert_eq!(page.files[3].error(), Some(Errno::NOSPC));
        }
        // Nor is one error taken for the next one of the same number, also where another process
        // has said in between that the file is sound.
        let known = page.files[3].failure();
        for is_repaired in [false, true] {
            if is_repaired {
                page.repaired(3);
            }
            page.fail(3, Errno::NOSPC);
            assert!(!page.repaired_since(3, known));
        }
        assert!(page.repaired_since(3, page.files[3].failure()));
    }
}
