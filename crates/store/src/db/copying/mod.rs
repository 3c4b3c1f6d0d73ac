//! Checkpoints and backups: a second store with everything that this one had at one moment.
//! docs/store-format.md, "Checkpoint and backup".
//!
//! The moment is a snapshot's, so no writer waits for it, and what it leads to stays: value-log
//! files that begin below its tail, large values, and the tables that it reads. In order:
//!
//! 1. Make the directory, with a mark that it is unfinished (`target`).
//! 2. Wait until the large values that have a number are pointed to, or given up.
//! 3. Link or copy the tables of the snapshot's view, value-log files that are whole below its
//!    tail, large values, and last of all dictionaries: those that the manifest has then. What is
//!    written to still is copied, up to the tail: of the last file what was drained, the rest from
//!    the pool (`log_bytes`).
//! 4. Sync everything; a backup reads what it copied again and checks it (`verify`).
//! 5. Write the manifest: a store that was closed at the tail. The directory is a store from here
//!    on. Remove the mark.
//!
//! A file that was linked is complete: neither store writes to one again. What a store removes, it
//! removes by name.

mod backup;
mod log_bytes;
mod reader_backup;
mod target;
mod verify;

use super::{Snapshot, Store, StoreCore};
use crate::{
    dictionaries,
    error::StoreError,
    index::NamedTable,
    large_values,
    log::{self, FILE_HEADER, VlogFile},
    manifest::{FileRef, ManifestState, SESSIONS_ABOVE, VERSION},
    stats::CopyReport,
};
use forebay_pool::{Lsn, format::segment::next_start};
use log_bytes::LogBytes;
use std::{collections::BTreeSet, ops::Range, path::Path, sync::Arc, thread, time::Duration};
use target::{CopyTarget, SourceFile};

/// Name of the index's directory in the store's.
const INDEX: &str = "index";
/// How often it is looked whether large values are pointed to.
const LOOK: Duration = Duration::from_millis(1);

impl Store {
    /// Makes `dir`, which must be empty or not there, a store with everything that this one has
    /// now, while this one goes on: no writer waits for it. On the same file system it takes room
    /// for the last value-log file only, since complete files are linked; elsewhere they are
    /// copied. It is durable when this returns, and opens without a pool, or with any that has
    /// nothing of this store. A [resident](crate::StoreOptions::resident) log gets no segment back
    /// meanwhile, and may be full.
    ///
    /// # Errors
    /// [`StoreError::NotEmpty`], also if `dir` lies in the store's directory; I/O errors. What was
    /// begun is removed then; if the process ends meanwhile, `dir` is no store, and opening it says
    /// so. This store is as it was.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(&path, None)?;
    /// store.put("boat", "blue")?;
    /// store.checkpoint(&copy)?;
    /// store.put("boat", "red")?;
    /// let copy = options.open(&copy, None)?;
    /// assert_eq!(copy.get("boat")?.as_deref(), Some(&b"blue"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<CopyReport, StoreError> {
        self.shared.check_process()?;
        let snapshot = self.snapshot()?;
        let (disk, store) = (&self.shared.disk, &*self.shared.dir);
        let target = CopyTarget::begin(disk, store, dir.as_ref(), None)?;
        snapshot.copy_to(target.linking())
    }
}

impl Snapshot {
    /// Steps 2 to 5. What was begun is removed if it fails.
    fn copy_to(&self, mut target: CopyTarget<'_>) -> Result<CopyReport, StoreError> {
        match self.copy_parts(&mut target) {
            Ok(()) => Ok(target.report),
            Err(error) => {
                target.remove();
                Err(error)
            }
        }
    }

    fn copy_parts(&self, target: &mut CopyTarget<'_>) -> Result<(), StoreError> {
        let state = self.parts(target)?;
        forebay_pool::failpoint!("store:copied");
        target.sync_parts()?;
        if target.is_verified() {
            self.verify_copy(target, &state)?;
        }
        target.finish(&state)
    }

    /// Steps 2 and 3; the manifest of the copy.
    fn parts(&self, target: &mut CopyTarget<'_>) -> Result<ManifestState, StoreError> {
        let shared = self.shared();
        let end = self.view().limit();
        // Before all that takes time: whichever is dropped from now on, the copy has as dropped.
        let before = shared.log.state().keyspaces;
        let mut large_next = shared.large.next_id();
        while shared.large.has_in_flight_below(large_next) {
            shared.check_open()?;
            thread::sleep(LOOK);
        }
        let indexed_to = self.copy_index(target)?;
        let files = self.copy_log(target, end)?;
        match target.watch.take() {
            None => self.copy_large(target, large_next)?,
            Some(watch) => {
                target.make_dir(large_values::DIR)?;
                large_next = self.copy_large_beside(target, &watch)?;
            }
        }
        // After all else: of a keyspace that was dropped meanwhile, what was copied may be a part.
        let state = self.copy_dictionaries(target)?;
        Ok(ManifestState {
            format_version: VERSION,
            uuid: state.uuid,
            epoch: state.epoch.saturating_add(SESSIONS_ABOVE),
            pool: None,
            log_end: Some(end),
            large_from: large_next,
            files,
            retired: Vec::new(),
            indexed_to,
            keyspaces: state.keyspaces.of_copy_since(&before),
        })
    }

    /// The tables that the snapshot reads, and their manifest; the address up to which they cover
    /// the log.
    fn copy_index(&self, target: &mut CopyTarget<'_>) -> Result<Lsn, StoreError> {
        let shared = self.shared();
        let from = shared.dir.join(INDEX);
        // Known to the disk from now on, wherever the store's directory is moved. A reader's look
        // has it already, or it is not there.
        let held = shared.disk.create_dir(&from);
        held.map_err(StoreError::io("opening", &from))?;
        let view = self.view().view();
        let is_look = target.watch.is_some();
        target.make_dir(INDEX)?;
        let tables = shared.index.named_tables(&view.tables).into_iter();
        let mut opened = tables.map(|table| {
            let path = from.join(&table.name);
            let file = shared.index.open_table(&table.name);
            let file = file.map_err(StoreError::io("opening", &path))?;
            Ok::<_, StoreError>((table, SourceFile::Table(path, file)))
        });
        let mut add = |(table, source): (NamedTable, SourceFile)| {
            target.add(INDEX, &table.name, &source, table.bytes)
        };
        match is_look {
            false => opened.try_for_each(|opened| add(opened?))?,
            // Before the owner removes any.
            true => {
                let opened = opened.collect::<Result<Vec<_>, StoreError>>()?;
                opened.into_iter().try_for_each(add)?;
            }
        }
        let (name, manifest) = shared.index.manifest_of(&view.tables);
        target.write(INDEX, name, &manifest)?;
        Ok(view.tables.watermark())
    }

    /// The log below `end`; the files that have it.
    ///
    /// Each look takes the next file. They change meanwhile: a file that grew may be complete by
    /// then, and another one begun.
    fn copy_log(&self, target: &mut CopyTarget<'_>, end: Lsn) -> Result<Vec<FileRef>, StoreError> {
        let log = &self.shared().log;
        target.make_dir(log::DIR)?;
        let (mut copies, mut at) = (Vec::new(), 0);
        while at < end {
            // In this order: what was drained by now is in one of these files.
            let drained = self.shared().tail.in_files();
            let files = log.files();
            let next = files.iter().find(|file| (at..end).contains(&file.start));
            let Some(file) = next else {
                // In no file yet.
                let start = at.max(drained);
                if start >= end {
                    break;
                }
                match self.copy_range(target, start..end, 0) {
                    // A resident log's first segment was given back, of which nothing is needed.
                    Err(_) if self.shared().tail.in_files() > start => {
                        target.forget(log::DIR, &log::file_name(start));
                        continue;
                    }
                    copied => copied?,
                }
                copies.push(FileRef { start, end: None });
                break;
            };
            let copied = match file.end().filter(|whole| *whole <= end.min(drained)) {
                Some(whole) => self.copy_whole(target, file, whole),
                None => self.copy_begun(target, file, end),
            };
            match copied {
                Ok(copied) => {
                    copies.push(copied);
                    at = copied.end.unwrap_or(end);
                }
                // What the snapshot leads to stays in the set. Anything else may leave it, and the
                // disk, at any time.
                Err(_) if !log.has(file.start) => {
                    target.forget(log::DIR, &log::file_name(file.start));
                    at = file.start + 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(copies)
    }

    /// A file that is complete, and not written to any more.
    fn copy_whole(
        &self,
        target: &mut CopyTarget<'_>,
        file: &VlogFile,
        end: Lsn,
    ) -> Result<FileRef, StoreError> {
        let source = SourceFile::Disk(file.path.clone(), Arc::clone(&file.file));
        let bytes = FILE_HEADER + (end - file.start);
        target.add(log::DIR, &log::file_name(file.start), &source, bytes)?;
        Ok(FileRef {
            start: file.start,
            end: Some(end),
        })
    }

    /// What a file that is written to, or that goes on behind the moment, has below `end`; of the
    /// last one also what is to come to it, or behind it.
    fn copy_begun(
        &self,
        target: &mut CopyTarget<'_>,
        file: &VlogFile,
        end: Lsn,
    ) -> Result<FileRef, StoreError> {
        let ends = file.end().filter(|file_end| *file_end <= end);
        self.copy_range(target, file.start..ends.unwrap_or(end), file.bytes)?;
        Ok(FileRef {
            start: file.start,
            end: ends,
        })
    }

    /// A file for a range of the log, made for `bytes` or more.
    fn copy_range(
        &self,
        target: &mut CopyTarget<'_>,
        range: Range<Lsn>,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let shared = self.shared();
        let pages = next_start(range.end) - range.start;
        let header = log::file_header(range.start, bytes.max(pages), shared.uuid);
        let source = LogBytes::new(shared, range.end);
        let name = log::file_name(range.start);
        target.copy(log::DIR, &name, FILE_HEADER + pages, |to, offset| {
            // The header is a page, as what is read at a time begins with one.
            let (to, at) = match offset {
                0 => {
                    let (first, rest) = to.split_at_mut(header.len());
                    first.copy_from_slice(&header);
                    (rest, range.start)
                }
                _ => (to, range.start + (offset - FILE_HEADER)),
            };
            source.read(at, to)
        })
    }

    /// The dictionaries that the manifest names; that manifest. What is dropped meanwhile, and its
    /// dictionaries with it, it does not name in the end.
    fn copy_dictionaries(&self, target: &mut CopyTarget<'_>) -> Result<ManifestState, StoreError> {
        let (shared, dir) = (self.shared(), dictionaries::DIR);
        let mut copied = BTreeSet::new();
        loop {
            let state = shared.log.state();
            let named = &state.keyspaces.dictionaries.live;
            if !named.is_empty() && copied.is_empty() {
                target.make_dir(dir)?;
            }
            let mut missing = named.iter().map(|named| named.number);
            let Some(number) = missing.find(|number| !copied.contains(number)) else {
                return Ok(state);
            };
            let name = dictionaries::file_name(number);
            let added = shared
                .dictionaries
                .source(number)
                .and_then(|(path, file, bytes)| {
                    target.add(dir, &name, &SourceFile::Disk(path, file), bytes)
                });
            match added {
                Err(_) if !shared.log.state().keyspaces.dictionaries.has(number) => {
                    target.forget(dir, &name);
                }
                added => {
                    added?;
                    copied.insert(number);
                }
            }
        }
    }

    /// Large values that a record below the moment may point to: those with lower numbers than
    /// `below`. What the snapshot leads to is there; others may be removed at any time.
    fn copy_large(&self, target: &mut CopyTarget<'_>, below: u64) -> Result<(), StoreError> {
        let large = &self.shared().large;
        let dir = large_values::DIR;
        target.make_dir(dir)?;
        for id in large.ids()?.into_iter().filter(|id| *id < below) {
            let name = large_values::file_name(id);
            let copied = large
                .source(id)
                .and_then(|source| target.add_large(&name, source));
            match copied {
                Err(_) if !large.ids()?.contains(&id) => target.forget(dir, &name),
                copied => copied?,
            }
        }
        Ok(())
    }
}

impl StoreCore {
    /// Refuses to wait for what an ending store does no more.
    pub(super) fn check_open(&self) -> Result<(), StoreError> {
        match self.stopping() {
            false => Ok(()),
            true => Err(StoreError::ReadOnly {
                reason: "the store is closed".to_owned(),
            }),
        }
    }
}
