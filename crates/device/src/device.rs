//! What a device does with reads, writes and syncs, and when it is done. docs/devices.md, "Model".
//!
//! All times are nanoseconds of the monotonic clock. Nothing here waits, allocates or locks: the caller waits until the time that it is told.

use crate::{
    PAGE_BYTES, Profile,
    cache::{CLEAN, Pages},
    profile::ns,
    shared::{DeviceState, FileState, count},
};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// A file as the devices know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKey(u64);

impl FileKey {
    /// The file with this device number and inode.
    #[must_use]
    pub const fn new(dev: u64, ino: u64) -> Self {
        Self(mixed(mixed(dev) ^ ino) | 1)
    }

    /// The key as a word, to be kept where there is only room for one.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The key that [`to_word`](Self::to_word) gave.
    #[must_use]
    pub const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// A place in the file, as the queue knows it.
    fn place(self, offset: u64) -> u64 {
        self.0.wrapping_add(offset)
    }
}

/// SplitMix64's finaliser.
const fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// How a descriptor was opened, as far as the device is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// `O_DIRECT`: past the cache.
    pub direct: bool,
    /// `O_DSYNC`: each write is synced.
    pub synced: bool,
}

/// What is written back at once while too much waits.
const WRITE_BACK_BYTES: u64 = 4 << 20;

/// Files that are looked at for one of which more waits.
const LOOKED_AT: u64 = 64;

/// Behind, no more is written back while the device is busy for so long.
const BACKLOG_NS: u64 = 20_000_000;

/// Places in the table of files in which a file may be.
const PROBES: usize = 32;

/// A device, and the state of one run.
pub struct Device<'a> {
    pub(crate) number: usize,
    pub(crate) profile: &'a Profile,
    pub(crate) state: &'a DeviceState,
    pub(crate) files: &'a [FileState],
    pub(crate) pages: Pages<'a>,
}

/// What is written back together.
#[derive(Clone, Copy, Default)]
struct Taken {
    bytes: u64,
    /// Places that it is in.
    runs: u64,
    /// If it is in one: where that begins.
    from: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
}

impl Device<'_> {
    /// Its profile.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.profile
    }

    /// A file of `size` bytes was opened. One without any is new: nothing of an earlier one is in memory.
    pub fn opened(&self, key: FileKey, size: u64) {
        let file = self.file(key);
        file.device.store(self.number as u64 + 1, Relaxed);
        if size == 0 {
            self.emptied(key);
        } else if file.end.load(Relaxed) == 0 {
            file.end.store(size, Relaxed);
            file.data_end.store(size, Relaxed);
            file.synced_end.store(size, Relaxed);
        }
    }

    /// The file's contents are gone (truncated to nothing, or unlinked): what waited to be written need not be.
    pub fn emptied(&self, key: FileKey) {
        let file = self.file(key);
        file.generation.fetch_add(1, Relaxed);
        self.forgive(file.dirty.swap(0, Relaxed));
        for word in [
            &file.runs,
            &file.end,
            &file.data_end,
            &file.synced_end,
            &file.read_end,
            &file.write_end,
        ] {
            word.store(0, Relaxed);
        }
    }

    /// The file's size was set; what it grew by is room that nothing was written to.
    pub fn resized(&self, key: FileKey, size: u64) {
        if size == 0 {
            self.emptied(key);
        } else {
            let file = self.file(key);
            file.end.store(size, Relaxed);
            file.data_end.fetch_min(size, Relaxed);
        }
    }

    /// `bytes` from `offset` on need not be in memory any more (`POSIX_FADV_DONTNEED`). Pages that wait to be written stay.
    pub fn dropped(&self, key: FileKey, offset: u64, bytes: u64) {
        let file = self.file(key);
        for page in pages(offset, bytes.min(self.cached_bytes_max())) {
            let page = self.page(key, file, page);
            if self.pages.find(page) != Some(epoch(file)) {
                self.pages.remove(page);
            }
        }
    }

    /// `bytes` at `offset` are read: when they are there.
    #[must_use]
    pub fn read(&self, key: FileKey, offset: u64, bytes: u64, mode: Mode, now: u64) -> u64 {
        if bytes == 0 {
            return now;
        }
        if mode.direct || !self.profile.cache.reads {
            return self.request(Kind::Read, key, offset, bytes, now);
        }
        let file = self.file(key);
        let end = offset.saturating_add(bytes);
        let mut ahead = 0;
        if file.read_end.swap(end, Relaxed) == offset {
            // A reader that goes on gets more: up to the file's end, if that is known.
            let window = self.profile.cache.read_ahead_kib * 1024;
            ahead = window.min(file.end.load(Relaxed).saturating_sub(end));
        }
        let done = self.fetch(key, file, offset, bytes, ahead, now);
        if done == now {
            self.count(count::CACHED_READS, 1);
        }
        done
    }

    /// A page of a mapping is touched: `bytes` at `offset` are read with it: when they are there.
    #[must_use]
    pub fn touch(&self, key: FileKey, offset: u64, bytes: u64, now: u64) -> u64 {
        if !self.profile.cache.reads {
            return self.request(Kind::Read, key, offset, bytes, now);
        }
        self.fetch(key, self.file(key), offset, bytes, 0, now)
    }

    /// Reads what is not in memory of `bytes` at `offset`, in as few requests as there are gaps; if any of that is not there, `ahead` bytes more.
    fn fetch(
        &self,
        key: FileKey,
        file: &FileState,
        offset: u64,
        bytes: u64,
        ahead: u64,
        now: u64,
    ) -> u64 {
        let wanted = pages(offset, bytes);
        let last = wanted.end;
        let mut done = now;
        let mut gap = None;
        for number in wanted {
            let page = self.page(key, file, number);
            if self.pages.find(page).is_some() {
                if let Some(from) = gap.take() {
                    done = done.max(self.fill(key, file, from, number, now));
                }
            } else {
                gap.get_or_insert(number);
            }
        }
        if let Some(from) = gap {
            let last = last.max(pages(offset, bytes + ahead).end);
            done = done.max(self.fill(key, file, from, last, now));
        }
        done
    }

    /// Reads pages into memory.
    fn fill(&self, key: FileKey, file: &FileState, from: u64, to: u64, now: u64) -> u64 {
        for number in from..to {
            let page = self.page(key, file, number);
            if self.pages.find(page).is_none() {
                self.pages.insert(page, CLEAN);
            }
        }
        self.request(
            Kind::Read,
            key,
            from * PAGE_BYTES,
            (to - from) * PAGE_BYTES,
            now,
        )
    }

    /// `bytes` were written at `offset`: when the caller may go on.
    #[must_use]
    pub fn write(&self, key: FileKey, offset: u64, bytes: u64, mode: Mode, now: u64) -> u64 {
        if bytes == 0 {
            return now;
        }
        let file = self.file(key);
        let end = offset.saturating_add(bytes);
        let done = if mode.direct || !self.profile.cache.writes {
            self.write_through(key, file, offset, bytes, now)
        } else {
            self.write_behind(key, file, offset, bytes, now)
        };
        file.end.fetch_max(end, AcqRel);
        file.data_end.fetch_max(end, Relaxed);
        if mode.synced {
            self.sync(key, end.max(file.end.load(Relaxed)), true, done)
        } else {
            done
        }
    }

    fn write_through(
        &self,
        key: FileKey,
        file: &FileState,
        offset: u64,
        bytes: u64,
        now: u64,
    ) -> u64 {
        if self.profile.cache.reads {
            for number in pages(offset, bytes.min(self.cached_bytes_max())) {
                self.pages.insert(self.page(key, file, number), CLEAN);
            }
        }
        self.request(Kind::Write, key, offset, bytes, now)
    }

    fn write_behind(
        &self,
        key: FileKey,
        file: &FileState,
        offset: u64,
        bytes: u64,
        now: u64,
    ) -> u64 {
        let mut done = now;
        let (end, data_end) = (offset + bytes, file.data_end.load(Relaxed));
        let dirty = epoch(file);
        let mut new_pages = 0;
        let mut first_new = None;
        for number in pages(offset, bytes) {
            let page = self.page(key, file, number);
            let held = self.pages.find(page);
            let (from, to) = (number * PAGE_BYTES, (number + 1) * PAGE_BYTES);
            let is_partial = offset > from || end < to.min(data_end);
            if held.is_none() && is_partial && from < data_end {
                // The rest of the page has to be read first.
                done = done.max(self.request(Kind::Read, key, from, PAGE_BYTES, now));
            }
            if held != Some(dirty) {
                self.pages.insert(page, dirty);
                new_pages += 1;
                first_new.get_or_insert(number);
            }
        }
        if let Some(first) = first_new {
            // A log's last block is written again with what follows it: that is one place still.
            let before = file.write_end.swap(end, Relaxed);
            let joins = first == before / PAGE_BYTES || first == before.div_ceil(PAGE_BYTES);
            if !joins || file.runs.load(Relaxed) == 0 {
                file.runs.fetch_add(1, Relaxed);
            }
            file.dirty.fetch_add(new_pages * PAGE_BYTES, Relaxed);
            self.state.dirty.fetch_add(new_pages * PAGE_BYTES, Relaxed);
        }
        self.write_back(key, file, done)
    }

    /// Writes some of a file back if too much waits: behind from half of the limit on, and from the limit on at the writer's cost.
    fn write_back(&self, key: FileKey, file: &FileState, now: u64) -> u64 {
        let limit = self.profile.cache.dirty_mib << 20;
        let waiting = self.state.dirty.load(Relaxed);
        if waiting <= limit / 2 {
            return now;
        }
        let is_busy = self.state.queue.free_at(self.profile.channels) > now + BACKLOG_NS;
        if waiting <= limit && is_busy {
            return now;
        }
        let (key, file) = self.fullest(key, file);
        let taken = self.take_dirty(file, WRITE_BACK_BYTES);
        let done = self.request_runs(key, taken, now);
        if waiting > limit { done } else { now }
    }

    /// The file if enough of it waits to be written, or one of which more does: what a writer has finished with is written back as well.
    fn fullest<'a>(&'a self, key: FileKey, file: &'a FileState) -> (FileKey, &'a FileState) {
        let waits = |file: &FileState| file.dirty.load(Relaxed);
        if waits(file) >= WRITE_BACK_BYTES {
            return (key, file);
        }
        let from = self.state.hand.fetch_add(LOOKED_AT, Relaxed) as usize;
        let on_this = |file: &&FileState| file.device.load(Relaxed) == self.number as u64 + 1;
        (from..from + LOOKED_AT as usize)
            .map(|at| &self.files[at % self.files.len()])
            .filter(on_this)
            .max_by_key(|other| waits(other))
            .filter(|other| waits(other) > waits(file))
            .map_or((key, file), |other| {
                (FileKey(other.key.load(Relaxed)), other)
            })
    }

    /// The file is synced (`data_only`: as `fdatasync` does it), and has `size` bytes: when that is done.
    #[must_use]
    pub fn sync(&self, key: FileKey, size: u64, data_only: bool, now: u64) -> u64 {
        let file = self.file(key);
        let mut taken = self.take_dirty(file, u64::MAX);
        // By ways that are not seen: streams, sendfile, …
        let unseen = size.saturating_sub(file.end.fetch_max(size, AcqRel));
        taken.bytes += unseen.div_ceil(PAGE_BYTES) * PAGE_BYTES;
        taken.runs += u64::from(unseen > 0);
        if unseen > 0 {
            file.data_end.fetch_max(size, Relaxed);
        }
        let grown = file.synced_end.swap(size, Relaxed) != size;
        let mut done = self.request_runs(key, taken, now);
        let mut is_charged = done != now;
        if self.profile.journal && (grown || !data_only && taken.bytes > 0) {
            done = self.commit(done);
            is_charged = true;
        }
        let flushed = self.flush(done);
        is_charged |= flushed != done;
        if is_charged {
            self.count(count::SYNCS, 1);
        }
        flushed
    }

    /// A directory is synced: when that is done.
    #[must_use]
    pub fn sync_directory(&self, now: u64) -> u64 {
        self.count(count::SYNCS, 1);
        let committed = if self.profile.journal {
            self.commit(now)
        } else {
            now
        };
        self.flush(committed)
    }

    /// A record of the file system's journal: a page, away from the data.
    fn commit(&self, now: u64) -> u64 {
        self.state.unflushed.store(1, Relaxed);
        self.count(count::WRITES, 1);
        self.count(count::WRITE_BYTES, PAGE_BYTES);
        let journal = mixed(u64::MAX);
        let queue = &self.state.queue;
        queue.reserve(
            self.profile.channels,
            &self.profile.write,
            journal,
            PAGE_BYTES,
            now,
        )
    }

    fn flush(&self, now: u64) -> u64 {
        if self.state.unflushed.swap(0, Relaxed) == 0 || self.profile.flush_us == 0.0 {
            return now;
        }
        self.count(count::FLUSHES, 1);
        let queue = &self.state.queue;
        queue.reserve_for(self.profile.channels, ns(self.profile.flush_us), 0, now)
    }

    /// One request at one place.
    fn request(&self, kind: Kind, key: FileKey, offset: u64, bytes: u64, now: u64) -> u64 {
        let (cost, requests, sum) = match kind {
            Kind::Read => (&self.profile.read, count::READS, count::READ_BYTES),
            Kind::Write => {
                self.state.unflushed.store(1, Relaxed);
                (&self.profile.write, count::WRITES, count::WRITE_BYTES)
            }
        };
        self.count(requests, 1);
        self.count(sum, bytes);
        let queue = &self.state.queue;
        queue.reserve(self.profile.channels, cost, key.place(offset), bytes, now)
    }

    /// Writes back what was taken: the channels share its places.
    fn request_runs(&self, key: FileKey, Taken { bytes, runs, from }: Taken, now: u64) -> u64 {
        if bytes == 0 || runs == 0 {
            return now;
        }
        self.state.unflushed.store(1, Relaxed);
        self.count(count::WRITES, runs);
        self.count(count::WRITE_BYTES, bytes);
        let (queue, cost) = (&self.state.queue, &self.profile.write);
        if runs == 1 {
            return queue.reserve(self.profile.channels, cost, key.place(from), bytes, now);
        }
        let parts = runs.min(u64::from(self.profile.channels));
        let fixed = ns(cost.random_us) * runs / parts;
        let transfer = cost.transfer_ns(bytes / parts);
        let part = |_| queue.reserve_for(self.profile.channels, fixed, transfer, now);
        (0..parts).map(part).max().unwrap_or(now)
    }

    /// Takes at most about `bytes_max` of what waits to be written. The pages count as clean from then on.
    fn take_dirty(&self, file: &FileState, bytes_max: u64) -> Taken {
        if file.dirty.load(Relaxed) == 0 {
            return Taken::default();
        }
        let runs = file.runs.swap(0, Relaxed).max(1);
        let all = file.dirty.swap(0, Relaxed);
        let bytes = all.min(bytes_max);
        let taken = Taken {
            bytes,
            runs: (u128::from(runs) * u128::from(bytes)).div_ceil(u128::from(all.max(1))) as u64,
            from: file.write_end.load(Relaxed).saturating_sub(all),
        };
        if bytes < all {
            file.dirty.fetch_add(all - bytes, Relaxed);
            file.runs.fetch_add((runs - taken.runs).max(1), Relaxed);
        }
        file.epoch.fetch_add(1, Relaxed);
        self.forgive(bytes);
        taken
    }

    /// So much less waits to be written.
    fn forgive(&self, bytes: u64) {
        let less = |dirty: u64| Some(dirty.saturating_sub(bytes));
        let _ = self.state.dirty.fetch_update(Relaxed, Relaxed, less);
    }

    fn count(&self, figure: usize, more: u64) {
        self.state.counts[figure].fetch_add(more, Relaxed);
    }

    /// The number of the device that the file was opened on, if it is known.
    pub(crate) fn known_on(files: &[FileState], key: FileKey) -> Option<usize> {
        let found = probes(files, key).find(|file| file.key.load(Relaxed) == key.0)?;
        (found.device.load(Relaxed) as usize).checked_sub(1)
    }

    /// What is known of the file; if there are too many, in another's place.
    fn file(&self, key: FileKey) -> &FileState {
        for file in probes(self.files, key) {
            let found = match file.key.load(Relaxed) {
                0 => file.key.compare_exchange(0, key.0, AcqRel, Relaxed),
                other => Err(other),
            };
            if found == Ok(0) || found == Err(key.0) {
                return file;
            }
        }
        let file = &self.files[first_probe(self.files, key)];
        self.forgive(file.dirty.swap(0, Relaxed));
        for word in [
            &file.runs,
            &file.end,
            &file.data_end,
            &file.synced_end,
            &file.read_end,
            &file.write_end,
        ] {
            word.store(0, Relaxed);
        }
        file.key.store(key.0, Relaxed);
        file
    }

    fn page(&self, key: FileKey, file: &FileState, number: u64) -> u64 {
        mixed(mixed(key.0 ^ file.generation.load(Relaxed)) ^ number)
    }

    fn cached_bytes_max(&self) -> u64 {
        self.profile.cache.mib << 20
    }
}

fn first_probe(files: &[FileState], key: FileKey) -> usize {
    (key.0 >> 1) as usize % files.len()
}

/// Where a file may be.
fn probes(files: &[FileState], key: FileKey) -> impl Iterator<Item = &FileState> {
    let from = first_probe(files, key);
    (from..from + PROBES).map(|at| &files[at % files.len()])
}

/// The number that a page has which waits to be written: not [`CLEAN`].
fn epoch(file: &FileState) -> u16 {
    (file.epoch.load(Relaxed) % u64::from(u16::MAX)) as u16 + 1
}

/// The numbers of the pages that hold `bytes` at `offset`.
fn pages(offset: u64, bytes: u64) -> std::ops::Range<u64> {
    offset / PAGE_BYTES..offset.saturating_add(bytes).div_ceil(PAGE_BYTES)
}
