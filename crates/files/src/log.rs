//! Logging: changes of a file, as records of the run's lane. By the holder of the file's lock, a
//! member or the supervisor.
//!
//! Each segment names a file before anything else of it, so a segment is understood without those
//! before it. When a segment is full, the thread that finds it so goes on in the next one, which
//! the supervisor has prepared; if it has not, the disk is behind, and is waited for.

use crate::{
    image::final_parts,
    record::{
        self, FileChange, HEAD, KIND_FILE, KIND_GONE, KIND_KEPT, KIND_ORDERED, KIND_REFUSED,
        KIND_TOUCHED, KIND_TRUNCATE, KIND_WRITE, NO_TIME, PayloadHead,
    },
    shared::{FileState, LOOK, NameLoss, SharedFile, SharedPageLayout},
    sys,
};
use forebay_pool::{AppendError, Lsn, Member, MonotonicTime, Record, record_bytes};
use rustix::io::Errno;
use std::{
    ffi::OsString,
    io::IoSlice,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::atomic::{
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
};

/// Parts of one record at most; a write of more becomes several records.
const PARTS: usize = 16;
/// Bytes of the records that name a file in a segment, and of its writes' headers: enough for any.
const NAMES: u64 = 10 << 10;
/// The run has ended, or its supervisor is gone: nothing is logged any more.
pub(crate) const ENDED: Errno = Errno::NOTCONN;

/// The run's lane, to log by.
pub(crate) struct LaneLog<'a> {
    pub(crate) lane: &'a Member,
    pub(crate) page: &'a SharedPageLayout,
    pub(crate) boot: [u8; 16],
    /// True if no supervisor prepares segments any more.
    pub(crate) is_orphan: fn() -> bool,
}

/// Errors of all: that of the file that cannot be synced, if the lane is full because of it;
/// [`ENDED`].
impl LaneLog<'_> {
    /// Logs a write at file offset `at`: the first `bytes` bytes of `parts`.
    #[inline]
    pub(crate) fn write(
        &self,
        number: usize,
        at: u64,
        parts: &[IoSlice<'_>],
        bytes: usize,
    ) -> Result<(), Errno> {
        self.write_records(number, at, parts, bytes, None).map(drop)
    }

    /// The same, beginning in the segment that starts at `segment`. False if another one is open:
    /// then nothing is logged.
    #[inline]
    pub(crate) fn write_in(
        &self,
        segment: Lsn,
        number: usize,
        at: u64,
        parts: &[IoSlice<'_>],
        bytes: usize,
    ) -> Result<bool, Errno> {
        self.write_records(number, at, parts, bytes, Some(segment))
    }

    /// The start of the segment in which the next record is tried.
    #[inline]
    pub(crate) fn segment(&self) -> Result<Lsn, Errno> {
        self.lane.segment().map_err(errno)
    }

    /// A write of more bytes is several records, which may be in different segments.
    #[inline]
    pub(crate) fn record_max(&self) -> usize {
        self.lane.payload_max() - HEAD
    }

    #[inline]
    fn write_records(
        &self,
        number: usize,
        mut at: u64,
        parts: &[IoSlice<'_>],
        bytes: usize,
        mut wanted: Option<Lsn>,
    ) -> Result<bool, Errno> {
        let record_max = self.record_max();
        let mut left = bytes;
        let mut parts = parts.iter();
        let mut part: &[u8] = &[];
        while left > 0 {
            let head = PayloadHead {
                held: self.page.files[number].order.held.load(Relaxed) != 0,
                ..self.head(number, at)
            };
            let head = head.encode();
            let mut slices = [IoSlice::new(&[]); PARTS + 1];
            slices[0] = IoSlice::new(&head);
            let mut used = 1;
            let mut taken = 0;
            while used <= PARTS && taken < left.min(record_max) {
                if part.is_empty() {
                    match parts.next() {
                        Some(next) => part = next,
                        // The kernel cannot have written more than there was.
                        None => return Ok(true),
                    }
                    continue;
                }
                let take = part.len().min(left.min(record_max) - taken);
                let (now, later) = part.split_at(take);
                slices[used] = IoSlice::new(now);
                used += 1;
                taken += take;
                part = later;
            }
            if !self.append_in(wanted.take(), number, KIND_WRITE, &slices[..used])? {
                return Ok(false);
            }
            at += taken as u64;
            left -= taken;
            // At once: the next part may be in another segment, and this one be released before
            // that.
            self.page.files[number].note_logged(at);
        }
        Ok(true)
    }

    /// True if a write of `bytes` bytes waits for no drain.
    #[inline]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.lane.has_room((bytes as u64).saturating_add(NAMES))
    }

    /// The file gets `bytes` bytes: next, or it has them.
    pub(crate) fn truncate(&self, number: usize, bytes: u64) -> Result<(), Errno> {
        // The kernel may refuse it.
        self.page.files[number].set_known_end(None);
        self.append_head(number, KIND_TRUNCATE, bytes)
    }

    /// It did not get them.
    pub(crate) fn refused(&self, number: usize, bytes: u64) -> Result<(), Errno> {
        self.append_head(number, KIND_REFUSED, bytes)
    }

    /// The file's records below `end` follow no change any more that a power cut could take back.
    pub(crate) fn ordered(&self, number: usize, end: Lsn) -> Result<(), Errno> {
        self.append_head(number, KIND_ORDERED, end)
    }

    /// Logs the state of the file's name: kept, or lost.
    pub(crate) fn gone(&self, number: usize, gone: NameLoss) -> Result<(), Errno> {
        // First, so that a segment that is begun meanwhile says so too.
        self.page.files[number].set_gone(gone);
        let (kind, at) = gone_record(gone);
        self.append_head(number, kind, at)
    }

    /// The file was about to lose its last name and has it still. If the lane does not take that,
    /// the page goes on saying what the lane says, and the next call that looks at it logs it.
    pub(crate) fn keeps_name(&self, number: usize) -> Result<(), Errno> {
        let logged = self.gone(number, NameLoss::No);
        logged.inspect_err(|_| self.page.files[number].set_gone(NameLoss::Maybe))
    }

    /// The file's modification time is this one (ns since 1970), though nothing that is logged has
    /// changed it.
    pub(crate) fn touched(&self, number: usize, modified: u64) -> Result<(), Errno> {
        let file = &self.page.files[number];
        if !file.is_logged() {
            file.note_modified(modified);
            return Ok(());
        }
        // It may be that of a change past the lane.
        let has_strayed = file.stamp().state == FileState::Strayed;
        if !has_strayed && file.touched.load(Relaxed) != modified {
            self.append_head(number, KIND_TOUCHED, modified)?;
            file.touched.store(modified, Relaxed);
            file.note_modified(modified);
        }
        Ok(())
    }

    /// Names the file again, by a path.
    pub(crate) fn name(&self, number: usize, path: &Path) -> Result<(), Errno> {
        let named = self.named(number, path);
        self.append(number, KIND_FILE, &[IoSlice::new(&named)])
    }

    fn named(&self, number: usize, path: &Path) -> Vec<u8> {
        let file = &self.page.files[number];
        let head = self.head(number, file.mount.load(Relaxed));
        record::encode_file(head, self.boot, &file.identity.get(), path)
    }

    fn append_head(&self, number: usize, kind: u16, at: u64) -> Result<(), Errno> {
        self.append(
            number,
            kind,
            &[IoSlice::new(&self.head(number, at).encode())],
        )
    }

    /// The head of a record of now; without a time if the file has strayed. A call that is under
    /// way then still logs what the kernel has by it. All else that the lane has of the file must
    /// not become newer by that than what was changed past the lane.
    #[inline]
    fn head(&self, number: usize, at: u64) -> PayloadHead {
        let now = sys::file_time_now();
        // First the time, then the look: a file that strays after both is changed past the lane a
        // silence later than the record says.
        fence(Acquire);
        let time = match self.page.files[number].stamp().state {
            FileState::Strayed => NO_TIME,
            _ => now,
        };
        PayloadHead {
            file: number as u32,
            at,
            time,
            held: false,
        }
    }

    /// Appends a record to a segment that names the file.
    #[inline]
    fn append(&self, number: usize, kind: u16, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        self.append_in(None, number, kind, parts).map(drop)
    }

    /// The same, to the segment that starts at `wanted`, if it is to be that one. False if another
    /// is open, or this one has no room.
    #[inline]
    fn append_in(
        &self,
        wanted: Option<Lsn>,
        number: usize,
        kind: u16,
        parts: &[IoSlice<'_>],
    ) -> Result<bool, Errno> {
        let file = &self.page.files[number];
        if !file.is_logged() {
            // The first sync, which is to come, has it.
            return Ok(true);
        }
        loop {
            let segment = self.segment()?;
            if wanted.is_some_and(|wanted| wanted != segment) {
                return Ok(false);
            }
            if (file.named_in() == Some(segment) || self.name_in(segment, number)?)
                && let Some(lsn) = self.lane.append_in(segment, kind, parts).map_err(errno)?
            {
                let end = lsn + record_bytes(parts.iter().map(|part| part.len()).sum());
                file.end.store(end, Release);
                return Ok(true);
            }
            self.turn(segment)?;
        }
    }

    /// Names the file in the segment. False if there is no room.
    #[cold]
    fn name_in(&self, segment: Lsn, number: usize) -> Result<bool, Errno> {
        let file = &self.page.files[number];
        let append = |kind, payload: &[u8]| {
            let appended = self.lane.append_in(segment, kind, &[IoSlice::new(payload)]);
            appended.map_err(errno).map(|lsn| lsn.is_some())
        };
        // A write that finds the segment full is in the kernel, and in no segment yet.
        let had = file.had().or_else(|| file.known_end());
        let ahead = file.ahead();
        // The newest name is the last.
        for path in paths(file) {
            let mut named = self.named(number, &path);
            record::add_before(&mut named, had, ahead);
            if !append(KIND_FILE, &named)? {
                return Ok(false);
            }
        }
        let gone = file.gone();
        if gone != NameLoss::No {
            let (kind, at) = gone_record(gone);
            if !append(kind, &self.head(number, at).encode())? {
                return Ok(false);
            }
        }
        // Before anything else of it is there: who drains the segment goes by this.
        file.set_named_in(Some(segment));
        file.set_had(None);
        Ok(true)
    }

    /// Opens the segment after `full`, waiting for the drain if need be.
    #[cold]
    fn turn(&self, full: Lsn) -> Result<(), Errno> {
        let mut waits: Option<MonotonicTime> = None;
        loop {
            let seen = self.lane.prepared();
            if self.lane.next_segment(full).map_err(errno)?.is_some() {
                if let Some(begun) = waits {
                    self.page.waited.add(begun.elapsed());
                }
                return Ok(());
            }
            if waits.is_none() {
                self.page.waits.fetch_add(1, Relaxed);
                waits = Some(MonotonicTime::now());
            }
            if let Some(errno) = self.page.failure() {
                return Err(errno);
            }
            if (self.is_orphan)() {
                return Err(ENDED);
            }
            self.lane.wait(seen, LOOK);
        }
    }
}

/// The paths that the file is known by, the newest last.
pub(crate) fn paths(file: &SharedFile) -> Vec<PathBuf> {
    let names = [file.names.link(), file.names.path()];
    let names = names.into_iter().filter(|name| !name.is_empty());
    names
        .map(|name| PathBuf::from(OsString::from_vec(name)))
        .collect()
}

/// Copies of a lane's records of one file.
pub(crate) struct KeptRecords(Vec<(u16, Vec<u8>)>);

impl KeptRecords {
    /// Copies the records of the file with this number: `records` calls its argument with each
    /// record of the lane.
    pub(crate) fn of(number: usize, records: impl FnOnce(&mut dyn FnMut(&Record<'_>))) -> Self {
        let mut kept = Vec::new();
        records(&mut |record| {
            let (kind, payload) = (record.header.kind, record.payload);
            let is_it = |(head, _): (PayloadHead, FileChange<'_>)| head.file as usize == number;
            if record::decode(kind, payload).is_ok_and(is_it) {
                kept.push((kind, payload.to_vec()));
            }
        });
        Self(kept)
    }

    /// Time of the last of them, or the time that the file was given: nanoseconds since 1970.
    pub(crate) fn last(&self) -> Option<u64> {
        let times = self.0.iter().filter_map(|(kind, payload)| {
            let (head, _) = record::decode(*kind, payload).ok()?;
            Some(match *kind {
                KIND_TOUCHED => head.time.max(head.at),
                _ => head.time,
            })
        });
        times.max()
    }

    /// The bytes to be written to the file again, with their places: not those that are newer in
    /// the kernel.
    pub(crate) fn parts(&self, file: &SharedFile) -> Vec<(u64, &[u8])> {
        let mut changes = Vec::new();
        for (kind, payload) in &self.0 {
            if let Ok((head, change)) = record::decode(*kind, payload) {
                record::add_change(&mut changes, head, change);
            }
        }
        let newer: Vec<_> = file.newer().into_iter().collect();
        final_parts(&changes, &newer)
    }
}

/// Kind and `at` of the record that says whether a file has a name.
fn gone_record(gone: NameLoss) -> (u16, u64) {
    match gone {
        NameLoss::No => (KIND_KEPT, 0),
        NameLoss::Maybe => (KIND_GONE, 0),
        NameLoss::Yes => (KIND_GONE, 1),
    }
}

fn errno(error: AppendError) -> Errno {
    match error {
        AppendError::Closed => ENDED,
        AppendError::TooLarge { .. } | AppendError::Stalled(_) | AppendError::Forked => Errno::IO,
    }
}

#[cfg(test)]
mod tests;
