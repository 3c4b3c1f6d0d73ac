//! The table of descriptors and their page files: a word a descriptor, so that a descriptor of
//! another file costs one load.

use crate::file::{PageFile, PageRoute};
use forebay_flash::Identity;
use parking_lot::RwLock;
use std::{
    collections::HashSet,
    ffi::c_int,
    sync::{
        Arc,
        atomic::{
            AtomicU32,
            Ordering::{Acquire, Release},
        },
    },
};

/// Descriptors above this cannot be page files.
const DESCRIPTORS: usize = 1 << 16;

/// The place in [`FILES`] plus one; 0 for a descriptor of another file.
static ENTRIES: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];

/// The files that are open, or were: a place is used again when no descriptor leads to it. None has
/// been [let go of](remove).
static FILES: RwLock<Vec<Option<Arc<PageFile>>>> = RwLock::new(Vec::new());

fn entry(fd: c_int) -> Option<&'static AtomicU32> {
    ENTRIES.get(usize::try_from(fd).ok()?)
}

/// True if reads and writes of `fd` may go to the cache. Costs one load.
#[inline]
#[must_use]
pub fn is_cached(fd: c_int) -> bool {
    entry(fd).is_some_and(|entry| entry.load(Acquire) != 0)
}

/// The file of a descriptor.
pub(crate) fn file(fd: c_int) -> Option<Arc<PageFile>> {
    let at = entry(fd)?.load(Acquire).checked_sub(1)?;
    FILES.read().get(at as usize).cloned().flatten()
}

/// `fd` leads to `file` from now on. False if its number is too large for the table.
pub(crate) fn set(fd: c_int, file: &Arc<PageFile>) -> bool {
    let Some(entry) = entry(fd) else {
        return false;
    };
    let mut files = FILES.write();
    let is_it = |known: &Option<Arc<PageFile>>| {
        known.as_ref().is_some_and(|known| Arc::ptr_eq(known, file))
    };
    let known = files.iter().position(is_it);
    let at = known.unwrap_or_else(|| {
        // One that only the table has is of no descriptor, unless one of a child that shares our
        // memory still has it.
        match free(&files) {
            Some(at) => {
                files[at] = Some(Arc::clone(file));
                at
            }
            None => {
                files.push(Some(Arc::clone(file)));
                files.len() - 1
            }
        }
    });
    entry.store(at as u32 + 1, Release);
    true
}

/// A place that no descriptor leads to. Looked for only when there are many.
fn free(files: &[Option<Arc<PageFile>>]) -> Option<usize> {
    const MANY: usize = 256;
    if files.len() < MANY {
        return None;
    }
    used(files).iter().position(|used| !used)
}

/// The places that a descriptor leads to.
fn used(files: &[Option<Arc<PageFile>>]) -> Vec<bool> {
    let mut used = vec![false; files.len()];
    for entry in &ENTRIES {
        if let Some(at) = entry.load(Acquire).checked_sub(1) {
            used[at as usize] = true;
        }
    }
    used
}

/// The files that a descriptor leads to.
fn opened() -> Vec<Arc<PageFile>> {
    let files = FILES.read();
    let used = used(&files).into_iter();
    let open = files.iter().zip(used).filter(|(_, used)| *used);
    open.filter_map(|(file, _)| file.clone()).collect()
}

/// Their identities.
pub(crate) fn open() -> HashSet<Identity> {
    opened().iter().map(|file| file.known.identity).collect()
}

/// The number of them that are being made.
pub(crate) fn undecided() -> usize {
    let is_being_made = |file: &&Arc<PageFile>| matches!(&*file.state.read(), PageRoute::Undecided);
    opened().iter().filter(is_being_made).count()
}

/// The file, which no descriptor leads to, is another one when it is opened again.
pub(crate) fn remove(identity: Identity) {
    for place in &mut *FILES.write() {
        place.take_if(|file| file.known.identity == identity);
    }
}

/// `fd` is closed, or something else is put in its place.
pub(crate) fn clear(fd: c_int) {
    if let Some(entry) = entry(fd) {
        entry.store(0, Release);
    }
}

/// `to` leads where `from` does.
pub(crate) fn copy(from: c_int, to: c_int) -> bool {
    match (entry(from), entry(to)) {
        (Some(from), Some(to)) => {
            to.store(from.load(Acquire), Release);
            true
        }
        _ => false,
    }
}

/// The file that is open with this identity.
pub(crate) fn find(of: impl Fn(&PageFile) -> bool) -> Option<Arc<PageFile>> {
    let files = FILES.read();
    files.iter().flatten().find(|file| of(file)).cloned()
}
