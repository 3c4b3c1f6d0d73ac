//! [`ValueLog`]: the ordered set of value-log files. How they leave it: [`retire`](super::retire).
//!
//! A file begins at a segment's start, and the next one begins where it ends; garbage collection
//! takes files out. The manifest says which there are: a new file is in it before anything is
//! written to the file, and a file leaves it before it is unlinked.
//!
//! Lock order: `place`, then the manifest's lock. Readers take neither.

use super::{
    content::ZEROS,
    file::{FILE_HEADER, VlogFile},
    reserve::{Reserve, ReserveNeed},
    unlisted_files::{self, UnlistedFiles},
};
use crate::{
    disk::Disk,
    error::{StoreError, is_full},
    manifest::{FileRef, ManifestState, StoreManifest},
    salvage::GivenUp,
};
use arc_swap::ArcSwap;
use forebay_pool::{
    Lsn, PAGE, RecordHeader,
    format::{
        layout::LSN_MAX,
        record::{HEADER, KIND_SEAL},
        segment::next_start,
    },
    persist::LINE,
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};
use uuid::Uuid;

/// Name of the directory of the value-log files.
pub(crate) const DIR: &str = "vlog";
/// A file is made for a part of the log that is one in so many. So the preallocated space of the
/// last one, and a file more or less, are small beside what the store holds.
const FILES: u64 = 32;
/// But not for less than this, if the options allow for as much.
const FILE_BYTES_MIN: u64 = 16 << 20;
/// Bytes of a log's end that are written again if its session was not closed: more than a writer
/// that syncs every put leaves to one sync.
const AGAIN: u64 = 64 << 20;

/// All value-log files of a store.
pub(crate) struct ValueLog {
    pub(super) dir: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
    store: Uuid,
    file_bytes_max: u64,
    /// In address order.
    pub(super) files: ArcSwap<Vec<Arc<VlogFile>>>,
    pub(super) manifest: Arc<Mutex<StoreManifest>>,
    given_up: GivenUp,
    reserve: Reserve,
    /// Files that were unlinked, but whose names a power cut may bring back: the manifest still
    /// says that they were collected.
    pub(super) unlinked: Mutex<Vec<Lsn>>,
    /// Files that could not be unlinked, and why.
    pub(super) leftovers: Mutex<BTreeMap<Lsn, String>>,
    /// Held while the ordered set of files changes.
    pub(super) place: Mutex<()>,
    /// Times that a sync of a drain failed. Whatever was written and not synced before may be lost
    /// then.
    pub(crate) failed_syncs: AtomicU64,
    /// Shared by the drain's syncs in flight.
    pub(crate) syncs: RwLock<()>,
}

impl ValueLog {
    /// Opens all files that the manifest names, and finds those that it does not. Changes nothing.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        store_dir: &Path,
        file_bytes_max: u64,
        manifest: Arc<Mutex<StoreManifest>>,
        given_up: GivenUp,
    ) -> Result<(Self, Vec<UnlistedFiles>), StoreError> {
        let dir = store_dir.join(DIR);
        disk.create_dir(&dir)
            .map_err(StoreError::io("creating", &dir))?;
        let state = manifest.lock().state().clone();
        let mut files = Vec::with_capacity(state.files.len());
        for &FileRef { start, end } in &state.files {
            files.push(Arc::new(VlogFile::open(
                &*disk, &dir, start, end, state.uuid,
            )?));
        }
        let unnamed = unlisted_files::find(&*disk, &dir, &state)?;
        let log = Self {
            dir,
            reserve: Reserve::open(Arc::clone(&disk), store_dir),
            disk,
            store: state.uuid,
            file_bytes_max,
            files: ArcSwap::from_pointee(files),
            manifest,
            given_up,
            place: Mutex::new(()),
            unlinked: Mutex::default(),
            leftovers: Mutex::default(),
            failed_syncs: AtomicU64::new(0),
            syncs: RwLock::new(()),
        };
        Ok((log, unnamed))
    }

    /// Room that is kept for a full disk.
    pub(crate) fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// Changes the manifest, durably; with the reserve, if there is no other room.
    pub(crate) fn note(&self, change: impl Fn(&mut ManifestState)) -> Result<(), StoreError> {
        let note = || self.note_at_leisure(&change);
        (self.reserve).with_room(ReserveNeed::Manifest, StoreError::is_full_disk, note)
    }

    /// The same, of what may wait until there is room without the reserve.
    pub(crate) fn note_at_leisure(
        &self,
        change: impl Fn(&mut ManifestState),
    ) -> Result<(), StoreError> {
        self.manifest.lock().update(&*self.disk, &change)
    }

    /// Does `write`, to a file that has its place; if there is no room for it, again with each step
    /// of the reserve. What was allocated may have been cut off at an opening, and a file system
    /// may need a block of its own to say that an allocated one is written.
    #[inline]
    pub(crate) fn with_room<T>(&self, write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        self.reserve.with_room(ReserveNeed::Log, is_full, write)
    }

    /// Bytes that are free, as far as the file system says.
    pub(crate) fn free_bytes(&self) -> u64 {
        let free = rustix::fs::statvfs(&self.dir);
        free.map_or(u64::MAX, |it| it.f_bavail.saturating_mul(it.f_frsize))
    }

    /// Bytes that may be written, of those that are kept too.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.free_bytes().saturating_add(self.reserve.kept_bytes())
    }

    /// Bytes that the reserve is missing and that are not free either.
    pub(crate) fn missing_bytes(&self) -> u64 {
        self.reserve
            .missing_bytes()
            .saturating_sub(self.free_bytes())
    }

    /// Refuses if the store's files were removed.
    pub(crate) fn check_exists(&self) -> Result<(), StoreError> {
        self.manifest.lock().check_exists()
    }

    /// True if the manifest in the directory is the one that the files were opened by.
    pub(crate) fn is_current(&self) -> bool {
        self.manifest.lock().is_there().unwrap_or(false)
    }

    /// Keeps room for the next full disk, in proportion to the files.
    pub(crate) fn keep_reserve(&self) {
        let largest = self.files.load().iter().map(|file| file.log_bytes()).max();
        self.reserve
            .keep(self.next_file_bytes().max(largest.unwrap_or(0)));
    }

    /// The store was closed, and the log ends at `end`: gives back room that is allocated for what
    /// may come, the last file's and the reserve's, as far as a small log does not need it.
    pub(crate) fn give_back_room(&self, end: Lsn) {
        let files = self.files();
        let held = |file: &VlogFile| file.end().unwrap_or(end).saturating_sub(file.start);
        let bytes: u64 = files.iter().map(|file| held(file)).sum();
        if let Some(last) = files.last().filter(|last| last.end().is_none()) {
            last.give_back_room(next_start(end));
        }
        if bytes < self.next_file_bytes() {
            self.reserve.shrink(bytes);
        }
    }

    /// The directory of the files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// All files, in address order.
    pub(crate) fn files(&self) -> Arc<Vec<Arc<VlogFile>>> {
        self.files.load_full()
    }

    /// True if the file that starts there is still one of them.
    pub(crate) fn has(&self, start: Lsn) -> bool {
        self.files.load().iter().any(|file| file.start == start)
    }

    /// The manifest's state.
    pub(crate) fn state(&self) -> ManifestState {
        self.manifest.lock().state().clone()
    }

    /// The size that the next file is made for.
    pub(crate) fn next_file_bytes(&self) -> u64 {
        let held: u64 = self.files.load().iter().map(|file| file.log_bytes()).sum();
        let min = FILE_BYTES_MIN.min(self.file_bytes_max);
        (held / FILES)
            .clamp(min, self.file_bytes_max)
            .next_multiple_of(PAGE)
    }

    /// The file that holds a log address; `None` if it was never written or is collected.
    #[inline]
    pub(crate) fn find(&self, lsn: Lsn) -> Option<Arc<VlogFile>> {
        if lsn > LSN_MAX {
            return None;
        }
        let files = self.files.load();
        let behind = files.partition_point(|file| file.start <= lsn);
        let file = files.get(behind.checked_sub(1)?)?;
        file.holds(lsn).then(|| Arc::clone(file))
    }

    /// The file to write the segment to that starts at `start`, holds no more than `content` bytes,
    /// and has `whole` of them. A new file is begun where the last one has no room for the content;
    /// it has room for a whole segment and more, if the disk has.
    pub(crate) fn place(
        &self,
        start: Lsn,
        whole: u64,
        content: u64,
    ) -> Result<Arc<VlogFile>, StoreError> {
        let _changing = self.place.lock();
        let files = self.files();
        if let Some(file) = files.iter().rev().find(|file| file.start <= start) {
            let fits = match file.end() {
                // It was placed before: the file was completed behind it.
                Some(end) => start < end,
                None => start + content <= file.start + file.bytes,
            };
            if fits {
                file.take_room(self.reserve.is_short());
                return Ok(Arc::clone(file));
            }
        }
        if let Some(last) = files.last().filter(|last| last.start > start) {
            // Never happens: segments are placed in log order.
            return Err(StoreError::damaged(
                &last.path,
                format!("it starts behind log address {start}, which is in no file"),
            ));
        }
        let file = Arc::new(self.create(start, whole, content)?);
        let unlinked = self.unlinked_for_good()?;
        let noted = self.note(|state| {
            state.no_longer_retired(&unlinked);
            // One that was made for this segment, and is too small, is made anew.
            state.files.retain(|earlier| earlier.start < start);
            for earlier in &mut state.files {
                earlier.end.get_or_insert(start);
            }
            state.files.push(FileRef { start, end: None });
        });
        noted.inspect_err(|error| self.take_back(&file, error))?;
        self.unlinked.lock().retain(|file| !unlinked.contains(file));
        forebay_pool::failpoint!("store:new-file");
        let mut next = Vec::clone(&files);
        next.retain(|earlier| earlier.start < start);
        if let Some(last) = next.last().filter(|last| last.end().is_none()) {
            last.complete(start);
        }
        next.push(Arc::clone(&file));
        self.files.store(Arc::new(next));
        self.keep_reserve();
        Ok(file)
    }

    /// Makes the file that begins at `start`, of the size that the log calls for. If there is no
    /// room for that, it is of a `whole` segment or of its `content`, in the end with the reserve.
    fn create(&self, start: Lsn, whole: u64, content: u64) -> Result<VlogFile, StoreError> {
        let of_size = |size| VlogFile::create(&*self.disk, &self.dir, start, size, self.store);
        let sizes = [self.next_file_bytes().max(whole), whole];
        let sizes = sizes.into_iter().filter(|_| !self.reserve.is_short());
        for size in sizes.filter(|size| *size > content) {
            match of_size(size) {
                Err(e) if e.is_full_disk() => {}
                made => return made,
            }
        }
        (self.reserve).with_room(ReserveNeed::Log, StoreError::is_full_disk, || {
            of_size(content)
        })
    }

    /// Gives back the room of a new file that the manifest has no room to name: without it no file
    /// could be collected either.
    fn take_back(&self, file: &VlogFile, error: &StoreError) {
        if !error.is_full_disk() {
            return;
        }
        match self.manifest.lock().is_there() {
            // What was not renamed names nothing.
            Ok(true) => drop(self.disk.remove(&file.path)),
            _ => drop(file.file.truncate(FILE_HEADER)),
        }
    }

    /// The address at which a walk from `from` begins: `from`, or if it is in no file, the next
    /// address that is; if none is, `from` all the same.
    pub(crate) fn first_from(&self, from: Lsn) -> Lsn {
        match self.find(from) {
            Some(_) => from,
            None => {
                let files = self.files();
                let next = files.iter().find(|file| file.start > from);
                next.map_or(from, |file| file.start)
            }
        }
    }

    /// Ends the log at `end`, where the last session stopped, so that the next one can begin at the
    /// following page:
    ///
    /// 1. Files that begin behind are forgotten: that session began them, but what was to be before
    ///    them did not arrive.
    /// 2. A segment that was not sealed is.
    /// 3. If that session was not `closed`: what it left behind the end is cut off, or a later walk
    ///    that begins there, and knows of no epoch, would take it for the new session's. And the
    ///    last of what is before is written again: a sync that failed may have left it clean in
    ///    memory, and not on the disk.
    /// 4. What is before, from `from` on, is synced: that session may have written it and not lived
    ///    to.
    pub(crate) fn end_at(
        &self,
        from: Lsn,
        end: Lsn,
        epoch: u32,
        closed: bool,
    ) -> Result<(), StoreError> {
        self.forget(|start| start > end, false)?;
        let files = self.files();
        let Some(file) = files.iter().rev().find(|file| file.start <= end) else {
            return Ok(());
        };
        if !end.is_multiple_of(PAGE) {
            let header = RecordHeader {
                length: 0,
                lsn: end,
                epoch,
                lag: u32::MAX,
                kind: KIND_SEAL,
            };
            let mut line = [0; LINE];
            line[..HEADER].copy_from_slice(&header.encode(self.store, &[]));
            self.with_room(|| file.file.write_all_at(&line, file.offset(end)))
                .map_err(StoreError::io("writing", &file.path))?;
        }
        if !closed && file.end().is_none() {
            self.say_what_is_cut(file, next_start(end))?;
            file.cut(next_start(end))
                .map_err(StoreError::io("cutting", &file.path))?;
        }
        let unsynced = files
            .iter()
            .filter(|file| file.start <= end && file.end().is_none_or(|end| end >= from));
        for file in unsynced {
            if !closed {
                let to = file.end().unwrap_or(end).min(end);
                let last = to.saturating_sub(AGAIN).max(from).max(file.start);
                file.write_again(last, to)?;
            }
            file.file
                .sync()
                .map_err(StoreError::io("syncing", &file.path))?;
        }
        Ok(())
    }

    /// Says what a salvage cuts off. Otherwise nothing stands there that was acknowledged, and
    /// nothing is said.
    fn say_what_is_cut(&self, file: &VlogFile, from: Lsn) -> Result<(), StoreError> {
        if let (true, Some(lsn)) = (
            self.given_up.is_allowed(),
            file.find_record(self.store, from, ZEROS, |_| true)?,
        ) {
            self.given_up.say(format!(
                "the log in {} from log address {from} on, with a record at {lsn}, was cut off",
                file.path.display()
            ));
        }
        Ok(())
    }

    /// Takes the last files, those whose start is `behind` the log's end, out of the manifest, and
    /// unlinks them. What they hold is `elsewhere`, and the manifest says that they may be
    /// unlinked; or it is given up, and then they are set aside.
    fn forget(&self, behind: impl Fn(Lsn) -> bool, elsewhere: bool) -> Result<(), StoreError> {
        let _changing = self.place.lock();
        let files = self.files();
        let (gone, kept): (Vec<_>, Vec<_>) =
            files.iter().cloned().partition(|file| behind(file.start));
        let Some(first) = gone.first() else {
            return Ok(());
        };
        // Unless there is a gap, of collected files.
        let goes_on = kept
            .last()
            .filter(|last| last.end().is_none_or(|end| end == first.start));
        self.note(|state| {
            state.files.retain(|file| !behind(file.start));
            if let (Some(last), true) = (state.files.last_mut(), goes_on.is_some()) {
                last.end = None;
            }
            if elsewhere {
                let starts = gone.iter().map(|file| file.start);
                state.retired.extend(starts);
            }
        })?;
        if let Some(last) = goes_on {
            last.reopen();
        }
        self.files.store(Arc::new(kept));
        for file in gone {
            if !elsewhere && file.holds_log()? {
                self.given_up.set_aside(&*self.disk, &file.path)?;
            } else {
                self.unlink_file(file.start, &file.path);
            }
        }
        Ok(())
    }

    /// The files end at `end`, and the log goes on in a pool's lane, which has what they hold
    /// behind it: files that begin there or behind are forgotten, the last one is complete.
    pub(crate) fn complete_at(&self, end: Lsn) -> Result<(), StoreError> {
        self.forget(|start| start >= end, true)?;
        let _changing = self.place.lock();
        let Some(last) = self.files().last().filter(|f| f.end().is_none()).cloned() else {
            return Ok(());
        };
        self.note(|state| {
            if let Some(last) = state.files.last_mut() {
                last.end = Some(end);
            }
        })?;
        last.complete(end);
        Ok(())
    }

    /// The address at which the content of the files ends before `end`, if they have only zeros
    /// there; otherwise `end`.
    pub(crate) fn content_end(&self, end: Lsn) -> Result<Lsn, StoreError> {
        let files = self.files();
        let Some(file) = files.iter().rev().find(|file| file.start < end) else {
            return Ok(end);
        };
        let there = file.start.saturating_add(file.bytes_there()?);
        let to = end.min(there).min(file.end().unwrap_or(end));
        Ok(file.stops_short_of(self.store, to)?.unwrap_or(to))
    }

    /// Bytes of all files on the disk, headers included.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.files
            .load()
            .iter()
            .map(|file| file.file.len().unwrap_or(0))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{
        HeldDirectory, RealDisk,
        faulty::{Fault, FaultPlan, FaultyDisk},
    };

    const SEGMENT: u64 = 64 << 10;

    fn log_in(dir: &Path, plan: &Arc<FaultPlan>) -> ValueLog {
        let disk = FaultyDisk::new(Arc::new(RealDisk::default()), Arc::clone(plan));
        let held = HeldDirectory::open(dir).unwrap();
        let found = StoreManifest::read(&held).unwrap();
        let manifest = found.unwrap_or_else(|| StoreManifest::create(&disk, &held).unwrap());
        let manifest = Arc::new(Mutex::new(manifest));
        let given_up = GivenUp::new(dir, false);
        let log = ValueLog::open(Arc::new(disk), dir, 1 << 20, manifest, given_up);
        log.unwrap().0
    }

    fn starts(log: &ValueLog) -> Vec<Lsn> {
        let named = log.manifest.lock();
        let named: Vec<Lsn> = named.state().files.iter().map(|file| file.start).collect();
        let there: Vec<Lsn> = log.files().iter().map(|file| file.start).collect();
        assert_eq!(named, there);
        there
    }

    /// A disk has room for a segment's content only; after a crash the whole segment may have to be
    /// placed.
    ///
    /// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
    #[test]
    fn a_segment_has_one_file_whatever_room_it_is_placed_with() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Arc::new(FaultPlan::default());
        let log = log_in(dir.path(), &plan);
        log.reserve.release(ReserveNeed::Log);
        let (first, content) = (PAGE, 2 * PAGE);
        let placed = log.place(first, SEGMENT, content).unwrap();
        assert_eq!(placed.bytes, content, "the store is short");
        // Again, in this session and the next, and whole.
        assert_eq!(log.place(first, SEGMENT, content).unwrap().bytes, content);
        drop(log);
        let log = log_in(dir.path(), &plan);
        assert_eq!(log.place(first, SEGMENT, content).unwrap().bytes, content);
        let whole = log.place(first, SEGMENT, SEGMENT).unwrap();
        assert!(whole.bytes >= SEGMENT, "{}", whole.bytes);
        assert_eq!(starts(&log), [first]);
        // What follows goes on in it while there is room, and then elsewhere.
        let next = first + content;
        assert_eq!(log.place(next, SEGMENT, PAGE).unwrap().start, first);
        let behind = first + whole.bytes - PAGE;
        assert_eq!(log.place(behind, SEGMENT, content).unwrap().start, behind);
        assert_eq!(starts(&log), [first, behind]);
        assert_eq!(log.place(next, SEGMENT, PAGE).unwrap().start, first);
    }

    #[test]
    fn a_file_that_cannot_be_made_larger_stays_the_segments() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Arc::new(FaultPlan::default());
        let log = log_in(dir.path(), &plan);
        log.reserve.release(ReserveNeed::Log);
        log.place(PAGE, SEGMENT, PAGE).unwrap();
        plan.strike(1, Fault::FullFor(u64::MAX / 2));
        assert!(log.place(PAGE, SEGMENT, SEGMENT).is_err());
        plan.heal();
        assert_eq!(log.place(PAGE, SEGMENT, PAGE).unwrap().start, PAGE);
        assert_eq!(starts(&log), [PAGE]);
    }
}
