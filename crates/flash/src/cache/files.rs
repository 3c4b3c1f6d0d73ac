//! Files: registering them, and dropping pages that are no longer theirs. docs/flash-format.md,
//! "Tombstones".

use super::Cache;
use crate::{
    error::FlashError,
    file::{CachedFile, FileId, Identity},
    layout::NAME_MAX,
    map::Map,
    record::{DIRTY, DROP, FILE, LOST, TOMBSTONE, encode_drop, encode_file, encode_tombstone},
};
use std::{
    collections::{BTreeMap, HashMap},
    io::IoSlice,
    sync::Arc,
};

/// The registered files.
#[derive(Default)]
pub(super) struct FileRegistry {
    by_number: BTreeMap<u32, Arc<CachedFile>>,
    by_identity: HashMap<Identity, u32>,
    /// Of the next file to be registered.
    next: u32,
}

impl FileRegistry {
    pub(super) fn get(&self, number: u32) -> Option<&Arc<CachedFile>> {
        self.by_number.get(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<CachedFile>> {
        self.by_number.values()
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// No number below `next` is given from now on.
    pub(super) fn reserve(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    pub(super) fn insert(&mut self, id: FileId, name: &str) -> Arc<CachedFile> {
        let file = Arc::new(CachedFile::new(id, name));
        self.by_number.insert(id.number, Arc::clone(&file));
        self.by_identity.insert(id.identity, id.number);
        self.next = self.next.max(id.number.saturating_add(1));
        file
    }

    pub(super) fn remove(&mut self, number: u32) {
        if let Some(file) = self.by_number.remove(&number) {
            self.by_identity.remove(&file.id().identity);
        }
    }
}

/// The beginning of a name, whole characters.
fn shortened(name: &str) -> &str {
    let mut end = name.len().min(NAME_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

impl Cache {
    /// The file of this identity: the one that is registered, with the pages that the cache has of
    /// it, or a new one, durably. `name` is for people and for finding it again; its first 480
    /// bytes are kept.
    ///
    /// # Errors
    /// [`FlashError::TooManyFiles`]; what the lane or a checkpoint says.
    pub fn register(&self, identity: Identity, name: &str) -> Result<Arc<CachedFile>, FlashError> {
        let name = shortened(name);
        self.record(|cache, log| {
            let number = {
                let files = cache.files.read();
                if let Some(number) = files.by_identity.get(&identity) {
                    return Ok(files.get(*number).cloned());
                }
                let most = cache.geometry().files_max;
                if files.by_number.len() >= most as usize || files.next == u32::MAX {
                    return Err(FlashError::TooManyFiles(most));
                }
                files.next
            };
            let id = FileId { number, identity };
            log.clear();
            encode_file(id, name, log);
            let appended = cache.try_append(FILE, &[IoSlice::new(log)])?;
            Ok(appended.then(|| cache.files.write().insert(id, name)))
        })
    }

    /// The file has another name from now on, durably.
    ///
    /// # Errors
    /// [`FlashError::NoSuchFile`]; what the lane or a checkpoint says. It has the name that it had
    /// then.
    pub fn rename(&self, file: &CachedFile, name: &str) -> Result<(), FlashError> {
        let name = shortened(name);
        self.record(|cache, log| {
            if file.is_dropped() {
                return Err(FlashError::NoSuchFile(file.id().number));
            }
            if *file.name() == *name {
                return Ok(Some(()));
            }
            log.clear();
            encode_file(file.id(), name, log);
            let appended = cache.try_append(FILE, &[IoSlice::new(log)])?;
            Ok(appended.then(|| file.set_name(name)))
        })
    }

    /// The files that are registered, by number.
    #[must_use]
    pub fn files(&self) -> Vec<Arc<CachedFile>> {
        self.files.read().iter().cloned().collect()
    }

    /// The number of files that may be registered at a time.
    #[must_use]
    pub fn files_max(&self) -> u32 {
        self.geometry().files_max
    }

    /// True if the page that came in at `position` has been recorded, durably.
    #[must_use]
    pub fn is_recorded(&self, position: u64) -> bool {
        position < self.state.lock().map.recorded
    }

    /// True if the cache has a version of the page that is newer than home, and has not lost it.
    #[must_use]
    pub fn gives_newer_than_home(&self, file: &CachedFile, page: u32) -> bool {
        let newest = self.state.lock().map.find(file.id().number, page);
        newest.is_some_and(|version| version.is(DIRTY) && !version.is(LOST))
    }

    /// The pages from `first` to `last`, both included, are about to be cut off, punched or zeroed,
    /// or to be written past the cache. When this returns, no version of them that came in before
    /// ever appears again, in this session or after a crash, and none is being written home. Only
    /// then the caller changes the file. If the change may be refused, the pages are [brought
    /// home](Self::bring_home) first: the file would be left without them.
    ///
    /// # Errors
    /// What the lane, a checkpoint, or the home's owner says, or a home that other pages are on
    /// their way to; then nothing was forgotten, and the file must not be changed.
    pub fn forget_pages(&self, file: &CachedFile, first: u32, last: u32) -> Result<(), FlashError> {
        if file.is_dropped() {
            return Err(FlashError::NoSuchFile(file.id().number));
        }
        self.forget(file, [first, last])?;
        // The file may be shorter after this: its length is asked for again.
        file.set_durable_bytes(0);
        Ok(())
    }

    pub(super) fn forget(&self, file: &CachedFile, pages: [u32; 2]) -> Result<(), FlashError> {
        let number = file.id().number;
        // Held to the end, so that none of them is on its way home.
        let mut homing = self.homing.lock();
        self.give_up_copies(&mut homing)?;
        self.record(|cache, _| {
            let before = cache.state.lock().map.rear;
            forebay_pool::failpoint!("flash:tombstone");
            let tombstone = encode_tombstone(number, pages, before);
            if !cache.try_append(TOMBSTONE, &[IoSlice::new(&tombstone)])? {
                return Ok(None);
            }
            forebay_pool::failpoint!("flash:tombstone-recorded");
            cache.state.lock().map.void(number, pages, before);
            cache.ahead.forget();
            Ok(Some(()))
        })
    }

    /// The file is about to be unlinked, or is gone. As [`forget_pages`](Self::forget_pages) for
    /// all of it, and it is not registered any more. A file that has its identity later is another
    /// one. The copies that [`Home::protect`](crate::Home::protect) keeps stay: those of this file
    /// are no file's any more.
    ///
    /// # Errors
    /// As [`forget_pages`](Self::forget_pages).
    pub fn drop_file(&self, file: &CachedFile) -> Result<(), FlashError> {
        let _no_home_write = self.homing.lock();
        self.record_drop(file, |_| Ok(()))
    }

    /// The file is used past the cache from now on, and has everything when this returns: pages
    /// newer than home go there first. As [`drop_file`](Self::drop_file) otherwise. Nothing is
    /// written to it meanwhile.
    ///
    /// # Errors
    /// As [`flush`](Self::flush) and [`forget_pages`](Self::forget_pages);
    /// [`FlashError::DamagedPages`] if one of its pages cannot be read. The cache has the file,
    /// then, and all its pages.
    pub fn let_go(&self, file: &CachedFile) -> Result<(), FlashError> {
        let mut homing = self.homing.lock();
        self.bring_file_within(file, &mut homing)?;
        self.give_up_copies(&mut homing)?;
        self.record_drop(file, |map| match map.dirty_of(file.id().number) {
            0 => Ok(()),
            pages => Err(FlashError::StillNewer {
                file: file.name().to_string(),
                pages,
            }),
        })
    }

    /// Forgets the file, if the map says that it `may`. The caller holds `homing`.
    fn record_drop(
        &self,
        file: &CachedFile,
        may: impl Fn(&Map) -> Result<(), FlashError>,
    ) -> Result<(), FlashError> {
        let number = file.id().number;
        self.record(|cache, _| {
            // Nothing comes in from here on, so the tombstone means all there is.
            let before = {
                let state = cache.state.lock();
                if file.is_dropped() {
                    return Ok(Some(()));
                }
                may(&state.map)?;
                state.map.rear
            };
            forebay_pool::failpoint!("flash:drop");
            let drop = encode_drop(number, before);
            if !cache.try_append(DROP, &[IoSlice::new(&drop)])? {
                return Ok(None);
            }
            forebay_pool::failpoint!("flash:drop-recorded");
            let mut state = cache.state.lock();
            file.set_dropped();
            let rear = state.map.rear;
            state.map.void(number, [0, u32::MAX], rear);
            cache.ahead.forget();
            cache.files.write().remove(number);
            Ok(Some(()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let name = "ä".repeat(300);
        assert_eq!(shortened(&name).len(), 480);
        let name = format!("a{name}");
        assert_eq!(shortened(&name).len(), 479);
        assert_eq!(shortened("t1.ibd"), "t1.ibd");
    }
}
