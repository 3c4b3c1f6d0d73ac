//! The supervisor's files, by number and by each other key that it asks for. There may be a hundred
//! thousand, and none of these questions looks at all of them.

use super::run::AbsorbedFile;
use crate::absorbed::FileKey;
use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    sync::{Arc, Weak},
};

/// See the module's head.
#[derive(Default)]
pub(super) struct KnownFiles {
    by_number: Vec<Option<Arc<AbsorbedFile>>>,
    /// The number of each that has a key.
    by_key: HashMap<FileKey, usize>,
    /// Numbers that are no file's.
    free: usize,
    /// The number on each device.
    devices: BTreeMap<u64, usize>,
    /// Directories that some of them have open.
    directories: HashMap<FileKey, Weak<File>>,
    /// With so many of them, those that no file has any more are looked for.
    directories_max: usize,
}

/// Directories that are kept without a look.
const DIRECTORIES: usize = 1024;

impl KnownFiles {
    /// Numbers below this one are files', or were.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Numbers below `count` may be files' from now on.
    pub(super) fn grow(&mut self, count: usize) {
        self.free += count.saturating_sub(self.len());
        self.by_number.resize(count.max(self.len()), None);
    }

    /// The file with this number.
    pub(super) fn get(&self, number: usize) -> Option<&Arc<AbsorbedFile>> {
        self.by_number.get(number)?.as_ref()
    }

    /// All that are files', with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Arc<AbsorbedFile>)> {
        let numbers = self.by_number.iter().enumerate();
        numbers.filter_map(|(number, known)| Some((number, known.as_ref()?)))
    }

    /// The number of the file with this key.
    pub(super) fn find(&self, key: FileKey) -> Option<usize> {
        self.by_key.get(&key).copied()
    }

    /// The count of numbers that are no file's.
    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// The first of them from `next` on, or from the beginning.
    pub(super) fn next_free(&self, next: usize) -> Option<usize> {
        let next = next.min(self.len());
        let mut numbers = (next..self.len()).chain(0..next);
        (self.free > 0).then(|| numbers.find(|number| self.by_number[*number].is_none()))?
    }

    /// The devices that some of them are on.
    pub(super) fn devices(&self) -> impl Iterator<Item = u64> {
        self.devices.keys().copied()
    }

    /// The number is this file's from now on.
    pub(super) fn set(&mut self, number: usize, file: AbsorbedFile) {
        drop(self.take(number));
        let Some(place) = self.by_number.get_mut(number) else {
            return;
        };
        if let Some(key) = file.key {
            self.by_key.insert(key, number);
        }
        *self.devices.entry(file.stat.st_dev).or_default() += 1;
        self.free -= 1;
        *place = Some(Arc::new(file));
    }

    /// The number is no file's any more: which it was.
    pub(super) fn take(&mut self, number: usize) -> Option<Arc<AbsorbedFile>> {
        let known = self.by_number.get_mut(number)?.take()?;
        self.free += 1;
        if let Some(key) = known
            .key
            .filter(|key| self.by_key.get(key) == Some(&number))
        {
            self.by_key.remove(&key);
        }
        let device = known.stat.st_dev;
        if let Some(count) = self.devices.get_mut(&device) {
            *count -= 1;
            if *count == 0 {
                self.devices.remove(&device);
            }
        }
        Some(known)
    }

    /// A directory that a file in it has open already; else `opened` is.
    pub(super) fn directory(&mut self, key: FileKey, opened: Arc<File>) -> Arc<File> {
        if let Some(held) = self.directories.get(&key).and_then(Weak::upgrade) {
            return held;
        }
        if self.directories.len() >= self.directories_max.max(DIRECTORIES) {
            self.directories.retain(|_, held| held.strong_count() > 0);
            // However many are in use, a look comes after as many more.
            self.directories_max = 2 * self.directories.len();
        }
        self.directories.insert(key, Arc::downgrade(&opened));
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::watch::WatchedFile;
    use std::path::PathBuf;

    fn file(key: Option<FileKey>) -> AbsorbedFile {
        let path = PathBuf::from("/dev/null");
        AbsorbedFile {
            stat: rustix::fs::stat(&path).unwrap(),
            path,
            pattern: None,
            parent: None,
            key,
            directory: None,
            pid: 1,
            identity: Vec::new(),
            file: None,
            unlinked_from: None,
            watched: WatchedFile::Not,
        }
    }

    #[test]
    fn file_is_known_by_its_key_as_long_as_it_has_the_number() {
        let mut files = KnownFiles::default();
        assert_eq!((files.next_free(0), files.free()), (None, 0));
        files.grow(3);
        assert_eq!(
            (files.next_free(2), files.next_free(7), files.free()),
            (Some(2), Some(0), 3)
        );
        files.set(0, file(Some((8, 9))));
        files.set(2, file(Some((8, 10))));
        assert_eq!(
            (files.find((8, 9)), files.find((8, 10))),
            (Some(0), Some(2))
        );
        assert_eq!(
            (files.next_free(2), files.free(), files.devices().count()),
            (Some(1), 1, 1)
        );
        // It is released: its inode may be another file's.
        files.set(0, file(None));
        files.set(1, file(Some((8, 9))));
        assert_eq!((files.find((8, 9)), files.next_free(0)), (Some(1), None));
        assert!(files.take(0).is_some() && files.take(0).is_none() && files.take(9).is_none());
        assert_eq!((files.find((8, 9)), files.next_free(1)), (Some(1), Some(0)));
        assert!(files.take(1).is_some() && files.take(2).is_some());
        assert_eq!(
            (files.find((8, 9)), files.free(), files.devices().count()),
            (None, 3, 0)
        );
        assert_eq!(files.iter().count(), 0);
    }

    #[test]
    fn directory_is_open_once_for_all_files_in_it() {
        let mut files = KnownFiles::default();
        let open = || Arc::new(File::open("/").unwrap());
        let first = files.directory((8, 2), open());
        assert!(Arc::ptr_eq(&first, &files.directory((8, 2), open())));
        drop(first);
        let second = open();
        assert!(Arc::ptr_eq(
            &second,
            &files.directory((8, 2), Arc::clone(&second))
        ));
        for ino in 0..5000 {
            files.directory((8, ino + 10), open());
        }
        assert!(files.directories.len() <= 1024);
        // Of those in use all are kept, and not looked at for each one more.
        let held: Vec<_> = (0..5000)
            .map(|ino| files.directory((9, ino), open()))
            .collect();
        assert!(files.directories.len() >= held.len());
        assert!(files.directories_max > files.directories.len());
    }
}
