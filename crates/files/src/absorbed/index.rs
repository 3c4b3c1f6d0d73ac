//! The table's index by device and inode. Each open for writing asks it, and there may be a hundred
//! thousand files.
//!
//! The files are in chains, by what their keys are mixed to. The supervisor alone changes them, and
//! says before and after that it does. A reader takes neither lock nor turn: what it finds is what
//! the entry says, and what it does not find in a chain that was changed meanwhile it looks for in
//! all entries. So it does, too, if the supervisor died in the middle, and in a copy, which has no
//! chains.

use super::{ENTRIES, FileKey, TableEntry, TablePage};
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Chains: of three files where there are a hundred thousand.
const CHAINS: usize = 1 << CHAINS_BITS;
const CHAINS_BITS: u32 = 15;

/// The number of the first file of each chain, plus one; 0 for none.
#[repr(transparent)]
pub(super) struct IndexHeads([AtomicU32; CHAINS]);

/// Value of [`TablePage::changes`] while chains are changed; every odd number means that.
pub(super) const CHANGING: u64 = 1;

/// A chain that something has written over has no end.
struct EndlessChain;

/// The chain of a file.
fn chain_of((dev, ino): FileKey) -> usize {
    let mixed = (ino ^ dev.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (u64::BITS - CHAINS_BITS)) as usize
}

impl TablePage {
    /// The entry of a file, which is its number, if the run absorbs it. Neither allocates nor
    /// locks.
    pub(super) fn entry_of(&self, key: FileKey) -> Option<(usize, &TableEntry)> {
        // What is asked about was opened before: either its opening is seen by who absorbs it
        // later, or the entry by us.
        fence(SeqCst);
        let changes = self.changes.load(Acquire);
        if changes & CHANGING == 0 {
            let found = self.in_chain(key);
            fence(Acquire);
            match found {
                Ok(Some(_)) => return found.unwrap_or_default(),
                Ok(None) if self.changes.load(Relaxed) == changes => return None,
                _ => {}
            }
        }
        let mut used = self.used().enumerate();
        used.find(|(_, entry)| entry.is_present_as(key))
    }

    /// # Errors
    /// The chain has no end.
    fn in_chain(&self, key: FileKey) -> Result<Option<(usize, &TableEntry)>, EndlessChain> {
        let mut next = &self.index.0[chain_of(key)];
        for _ in 0..ENTRIES {
            let Some(number) = (next.load(Acquire) as usize).checked_sub(1) else {
                return Ok(None);
            };
            let entry = self.entries.get(number).ok_or(EndlessChain)?;
            if entry.is_present_as(key) {
                return Ok(Some((number, entry)));
            }
            next = &entry.next;
        }
        Err(EndlessChain)
    }

    /// Puts the entry `at` into the file's chain.
    pub(super) fn link(&self, at: usize, key: FileKey) {
        let head = &self.index.0[chain_of(key)];
        self.change(|| {
            self.entries[at].next.store(head.load(Relaxed), Relaxed);
            head.store(at as u32 + 1, Release);
        });
    }

    /// Takes it out again.
    pub(super) fn unlink(&self, at: usize, key: FileKey) {
        let mut before = &self.index.0[chain_of(key)];
        while let Some(number) = (before.load(Relaxed) as usize).checked_sub(1) {
            let next = &self.entries[number].next;
            if number == at {
                self.change(|| before.store(next.load(Relaxed), Release));
                return;
            }
            before = next;
        }
    }

    /// Changes chains, and says so before and after.
    fn change(&self, change: impl FnOnce()) {
        self.changes.fetch_add(1, SeqCst);
        fence(Release);
        change();
        self.changes.fetch_add(1, SeqCst);
    }
}

impl TableEntry {
    fn is_present_as(&self, key: FileKey) -> bool {
        self.present.load(Acquire) != 0 && self.is_of(key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::AbsorbedTable;
    use super::*;
    use crate::{FILES_MAX, absorbed::TableView};
    use std::thread;
    use uuid::Uuid;

    fn table(files: usize) -> (tempfile::TempDir, AbsorbedTable, TableView) {
        let dir = tempfile::tempdir().unwrap();
        let table = AbsorbedTable::new_in(dir.path(), b"/run", b"socket", Uuid::from_u128(7));
        let table = table.unwrap();
        table.reserve(files).unwrap();
        let view = TableView::open(&table.path).unwrap();
        (dir, table, view)
    }

    /// Promise (files): Each file of a hundred thousand is found where the run absorbs it, and none
    /// that it does not.
    #[test]
    fn each_of_all_files_is_found_by_its_inode() {
        let (_dir, table, view) = table(FILES_MAX);
        let key = |number: usize| (8, 1000 + 3 * number as u64);
        for number in 0..FILES_MAX {
            assert!(table.publish(number, 7, key(number), 0));
        }
        assert!((0..FILES_MAX).all(|number| view.number_of(key(number)) == Some(number)));
        assert!((0..1000).all(|ino| !view.has((8, ino)) && !view.has((9, 1000 + 3 * ino))));
        // In another order than they came.
        for number in (0..FILES_MAX).rev().step_by(2) {
            table.withdraw(number, key(number));
        }
        for number in 0..FILES_MAX {
            let there = (number % 2 == 0).then_some(number);
            assert_eq!(view.number_of(key(number)), there);
        }
        // A number that is another file's by now is not freed with the one that it was.
        table.withdraw(4, key(5));
        assert!(view.has(key(4)) && table.publish(5, 7, key(3), 0));
        assert_eq!(view.number_of(key(3)), Some(5));
    }

    #[test]
    fn file_is_found_beside_all_that_come_and_go() {
        let (_dir, table, view) = table(1024);
        let stays = (8, 77);
        assert!(table.publish(500, 7, stays, 0));
        thread::scope(|scope| {
            let changes = scope.spawn(|| {
                for round in 0..20_000_u64 {
                    let number = (round % 400) as usize;
                    table.withdraw(number, (8, (1000 + round).wrapping_sub(400)));
                    assert!(table.publish(number, 7, (8, 1000 + round), 0));
                }
            });
            while !changes.is_finished() {
                assert_eq!(view.number_of(stays), Some(500));
                assert!(!view.has((8, 78)));
            }
        });
    }

    #[test]
    fn index_left_half_changed_or_leading_astray_hides_no_file() {
        let (_dir, table, view) = table(256);
        for number in 0..200 {
            assert!(table.publish(number, 7, (8, number as u64), 0));
        }
        // Killed in a change, with the chain that it was about cut off.
        let chain = &table.page.index.0[chain_of((8, 5))];
        let was = chain.swap(0, Relaxed);
        table.page.changes.fetch_add(1, Relaxed);
        assert!((0..200).all(|ino| view.number_of((8, ino)) == Some(ino as usize)));
        assert!(!view.has((8, 200)));
        // What no chain of the supervisor's has: a circle, and no entry at all.
        table.page.changes.fetch_add(1, Relaxed);
        chain.store(was, Relaxed);
        let astray = [6, u32::MAX, ENTRIES as u32 + 1];
        for next in astray {
            table.page.entries[5].next.store(next, Relaxed);
            chain.store(next, Relaxed);
            assert_eq!(view.number_of((8, 5)), Some(5), "{next}");
            assert!(!view.has((8, 200)));
        }
    }

    #[test]
    fn copy_of_a_table_finds_what_the_table_has() {
        use std::os::fd::AsFd;
        let (_dir, table, _view) = table(256);
        assert!(table.publish(3, 7, (8, 9), 5) && table.publish(200, 7, (8, 10), 5));
        let copy = TableView::copy_of(table.file.as_fd()).unwrap();
        assert_eq!(
            [9, 10, 11].map(|ino| copy.number_of((8, ino))),
            [Some(3), Some(200), None]
        );
    }
}
