//! Copies of pages on their way home that flash has not got: it failed, or the policy goes around
//! it. Until they are whole at home a power cut may tear them, and this file makes them whole
//! again: what a doublewrite buffer is to InnoDB. docs/flash-tier.md, "Around flash".
//!
//! The file is `forebay.pages`, beside the system tablespace. It has two halves, which are used in
//! turn:
//!
//! ```text
//!  0          8        12      16         32      40       48   64                    24576
//!  ├──────────┼────────┼───────┼──────────┼───────┼────────┼────┼─────────────────────┼──────────────────┐
//!  │ FBPAGES1 │ CRC-32C│ pages │ cache 16 │ last  │ number │ 0  │ 40 bytes a page     │ pages of 16 KiB  │
//!  └──────────┴────────┴───────┴──────────┴───────┴────────┴────┴─────────────────────┴──────────────────┘
//!  a page: device 8, inode 8, birth 8, offset 8, CRC-32C 4, zero 4
//! ```
//! The first checksum covers bytes 12 to 24576. Pages are written and synced here before the first
//! of them is written home. Of two whole halves the one with the higher number counts, as long as
//! the cache has not recorded position `last`, at which the last of its pages came in. If a half is
//! not whole, none of its pages has been written home, and the other one counts. A failed write
//! home may have torn its pages, which the half that is not whole was to replace. Copies are given
//! up by keeping none.

mod room;

use crate::{
    descriptor::{check_owner, hold_plain, reopen},
    file_kinds::COPIES_FILE,
    file_magic,
    guard::ActiveGuard,
    page::{PAGE_BYTES, PageBuffer},
    page_layout::log_sequence,
};
use forebay_flash::{Cache, FileId, Home, HomePage, Identity};
use forebay_pool::{
    crc32c,
    rewrite::{self, RewrittenFile},
};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};
use uuid::Uuid;

const MAGIC: &[u8; 8] = b"FBPAGES1";
const HEADER: usize = 24 << 10;
const HALF: usize = HEADER + PAGES_MAX * PAGE_BYTES;
/// Bytes that are written at a time.
const WRITTEN: usize = 1 << 20;
/// A disk writes at least so much at once.
const SECTOR: usize = 512;
const ENTRIES: usize = 64;
const ENTRY: usize = 40;
/// The most pages that the cache gives at a time.
const PAGES_MAX: usize = 512;
const _: () = assert!(ENTRIES + PAGES_MAX * ENTRY <= HEADER);

/// The file. It has [room](DoublewriteFile::make_room) before the first page comes into the cache.
pub(crate) struct DoublewriteFile {
    path: PathBuf,
    owner: Uuid,
    /// The owner that it must have, if it must.
    user: Option<u32>,
    /// Open, if it is there.
    kept: Mutex<Option<OpenCopies>>,
}

/// The file in use.
struct OpenCopies {
    file: File,
    /// Copies that could not be kept are written over by the next.
    rewritten: RewrittenFile,
    /// The half that the next copies go to: not the one that has those that count.
    half: usize,
    /// Theirs.
    number: u64,
    /// Copies may be in it.
    used: bool,
    /// The written bytes: kept, since a mebibyte costs as much to get as to copy.
    bytes: Vec<u8>,
}

/// The copies that the file has.
#[derive(Default)]
pub(crate) struct FoundCopies {
    half: usize,
    number: u64,
    last: u64,
    pages: Vec<(Identity, u64, PageBuffer)>,
}

/// A file, and pages that are written to it at these offsets.
type FilePages<'a> = (File, Vec<(u64, &'a [u8])>);

/// The outcome for copies whose cache is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestoredPages {
    /// Pages that were written home again.
    pub pages: u64,
    /// Pages whose files were not found.
    pub not_found: u64,
}

/// False if the file ends before.
fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(to, offset) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// Makes `header` that of these pages.
fn head(header: &mut Vec<u8>, owner: Uuid, last: u64, number: u64, pages: &[HomePage<'_>]) {
    header.clear();
    header.resize(HEADER, 0);
    header[..8].copy_from_slice(MAGIC);
    header[12..16].copy_from_slice(&(pages.len() as u32).to_le_bytes());
    header[16..32].copy_from_slice(owner.as_bytes());
    header[32..40].copy_from_slice(&last.to_le_bytes());
    header[40..48].copy_from_slice(&number.to_le_bytes());
    for (page, entry) in pages.iter().zip(header[ENTRIES..].chunks_exact_mut(ENTRY)) {
        let of = page.file.identity;
        let numbers = [of.device, of.inode, of.generation, page.offset];
        for (to, number) in entry.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        entry[32..36].copy_from_slice(&crc32c([page.bytes]).to_le_bytes());
    }
    let crc = crc32c([&header[12..]]);
    header[8..12].copy_from_slice(&crc.to_le_bytes());
}

impl OpenCopies {
    fn of(file: File, newest: Option<&FoundCopies>) -> Self {
        Self {
            file,
            rewritten: RewrittenFile::default(),
            half: newest.map_or(0, |newest| 1 - newest.half),
            number: newest.map_or(1, |newest| newest.number + 1),
            used: true,
            bytes: Vec::with_capacity(WRITTEN + PAGE_BYTES),
        }
    }

    /// Pages count from now on, durably, instead of those that do. Until then those count still.
    fn keep(&mut self, owner: Uuid, last: u64, pages: &[HomePage<'_>]) -> io::Result<()> {
        let bytes = &mut self.bytes;
        head(bytes, owner, last, self.number, pages);
        let mut at = (self.half * HALF) as u64;
        for page in pages {
            if bytes.len() >= WRITTEN {
                self.rewritten.write(&self.file, bytes, at)?;
                at += bytes.len() as u64;
                bytes.clear();
            }
            bytes.extend_from_slice(page.bytes);
        }
        self.rewritten.write(&self.file, bytes, at)?;
        self.rewritten.sync(&self.file, File::sync_data)?;
        self.half = 1 - self.half;
        self.number += 1;
        Ok(())
    }
}

impl DoublewriteFile {
    /// Those of the cache `owner`, in this directory.
    pub(crate) fn new(dir: &Path, owner: Uuid) -> Self {
        Self {
            path: dir.join(COPIES_FILE),
            owner,
            user: None,
            kept: Mutex::new(None),
        }
    }

    /// Lets it have parts of this user, or of root, and of no other.
    pub(crate) fn of_user(self, user: u32) -> Self {
        Self {
            user: Some(user),
            ..self
        }
    }

    fn open(&self) -> io::Result<Option<File>> {
        let held = match hold_plain(&self.path) {
            Ok(held) => held,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        if let Some(user) = self.user {
            check_owner(&held, user)?;
        }
        Ok(Some(reopen(&held, false)?))
    }

    /// Keeps these pages, the last of which came in at position `last`, instead of its earlier
    /// ones.
    pub(crate) fn keep(&self, last: u64, pages: &[HomePage<'_>]) -> io::Result<()> {
        if pages.len() > PAGES_MAX {
            return Err(io::Error::other(
                "more pages at a time than there is room for",
            ));
        }
        let mut kept = self.kept.lock();
        let kept = match &mut *kept {
            Some(kept) => kept,
            none => none.insert(self.make()?),
        };
        kept.used = true;
        kept.keep(self.owner, last, pages)
    }

    /// Nothing in it counts any more, durably: before a file whose pages it may have is changed
    /// past the cache.
    pub(crate) fn clear(&self) -> io::Result<()> {
        if let Some(kept) = &mut *self.kept.lock()
            && kept.used
        {
            kept.keep(self.owner, 0, &[])?;
            kept.used = false;
        }
        Ok(())
    }

    /// The file goes: everything is home.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// The copies that count.
    fn newest(&self, file: &File) -> io::Result<Option<FoundCopies>> {
        let halves = [self.find(file, 0)?, self.find(file, 1)?];
        let whole = halves.into_iter().flatten();
        Ok(whole.max_by_key(|found| found.number))
    }

    /// The contents of a half, if it is whole.
    fn find(&self, file: &File, half: usize) -> io::Result<Option<FoundCopies>> {
        let start = half * HALF;
        let mut header = vec![0; HEADER];
        if !read_at(file, &mut header, start as u64)? {
            return Ok(None);
        }
        let header = header;
        let named = |e: io::Error| {
            let path = self.path.display();
            io::Error::new(e.kind(), format!("{path}: {e}"))
        };
        if !file_magic::is_at(&header, MAGIC).map_err(named)? {
            return Ok(None);
        }
        let number =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or([0; 8]));
        let crc = crc32c([&header[12..]]).to_le_bytes();
        let count = number(12) as u32 as usize;
        let has_room = count <= PAGES_MAX;
        let is_whole = header[8..12] == crc && has_room;
        if !is_whole || header[16..32] != *self.owner.as_bytes() {
            return Ok(None);
        }
        let mut pages = Vec::with_capacity(count);
        for at in 0..count {
            let entry = ENTRIES + at * ENTRY;
            let identity = Identity {
                device: number(entry),
                inode: number(entry + 8),
                generation: number(entry + 16),
            };
            let mut page = PageBuffer([0; PAGE_BYTES]);
            let from = start + HEADER + at * PAGE_BYTES;
            if !read_at(file, &mut page.0, from as u64)? {
                return Ok(None);
            }
            if crc32c([&page.0[..]]).to_le_bytes() != header[entry + 32..entry + 36] {
                return Ok(None);
            }
            pages.push((identity, number(entry + 24), page));
        }
        Ok(Some(FoundCopies {
            half,
            number: number(40),
            last: number(32),
            pages,
        }))
    }

    /// After a crash: pages that may be torn at home are written there again, durably; gives their
    /// number. A page of which the cache has a newer version is its, unless that is lost: then it
    /// was written again.
    pub(crate) fn restore(&self, cache: &Cache, homes: &dyn Home) -> io::Result<u64> {
        let Some(file) = self.open()? else {
            return Ok(0);
        };
        let found = self.newest(&file)?;
        *self.kept.lock() = Some(OpenCopies::of(file, found.as_ref()));
        let counts =
            |found: &FoundCopies| !found.pages.is_empty() && !cache.is_recorded(found.last);
        let Some(found) = found.filter(counts) else {
            return Ok(0);
        };
        let files = cache.files();
        let mut batch: Vec<HomePage<'_>> = Vec::new();
        for (identity, offset, page) in &found.pages {
            let Some(file) = files.iter().find(|file| file.id().identity == *identity) else {
                continue;
            };
            let number = u32::try_from(offset / PAGE_BYTES as u64).unwrap_or(u32::MAX);
            let is_within = homes.durable_bytes(file.id())? >= offset + PAGE_BYTES as u64;
            if !is_within || cache.gives_newer_than_home(file, number) {
                continue;
            }
            (cache.forget_pages(file, number, number)).map_err(io::Error::other)?;
            batch.push(HomePage {
                file: file.id(),
                offset: *offset,
                bytes: &page.0,
            });
        }
        write_home(homes, &mut batch)?;
        self.clear()?;
        Ok(batch.len() as u64)
    }

    /// The copies here when the cache is lost.
    pub(crate) fn left(&self) -> io::Result<FoundCopies> {
        let found = self.open()?.map(|file| self.newest(&file)).transpose()?;
        Ok(found.flatten().unwrap_or_default())
    }
}

impl FoundCopies {
    /// The files whose pages these are.
    pub(crate) fn files(&self) -> HashSet<Identity> {
        self.pages.iter().map(|(identity, ..)| *identity).collect()
    }

    /// The cache is lost, and with it whether these pages were all home. So each goes there unless
    /// what is there is newer, by the log's number in the page's first sector: what is older, or
    /// torn, is not. Files are found in `files`; the guarded pages of `system` are in its guard
    /// file.
    pub(crate) fn save(
        &self,
        files: &HashMap<Identity, OwnedFd>,
        system: (Identity, &ActiveGuard),
    ) -> io::Result<RestoredPages> {
        let mut saved = RestoredPages::default();
        // By home: none is the guard file.
        let mut batch: HashMap<Option<&Identity>, FilePages<'_>> = HashMap::new();
        for (identity, offset, page) in &self.pages {
            let guarded = ActiveGuard::moved(*offset).filter(|_| *identity == system.0);
            let (home, at) = match (guarded, files.get(identity)) {
                (Some(at), _) => (system.1.file().try_clone()?, at),
                (None, Some(held)) => (reopen(held, false)?, *offset),
                (None, None) => {
                    saved.not_found += 1;
                    continue;
                }
            };
            let mut start = [0; SECTOR];
            let is_within = home.metadata()?.len() >= at + PAGE_BYTES as u64;
            if is_within {
                home.read_exact_at(&mut start, at)?;
            }
            if is_within && log_sequence(&start) <= log_sequence(&page.0) {
                let of = guarded.is_none().then_some(identity);
                let (_, pages) = batch.entry(of).or_insert((home, Vec::new()));
                pages.push((at, &page.0[..]));
            }
        }
        for (home, pages) in batch.values() {
            rewrite::write(home, pages)?;
            home.sync_data()?;
            rewrite::check(home, pages)?;
            saved.pages += pages.len() as u64;
        }
        Ok(saved)
    }
}

/// Writes pages home, sorted, durably.
fn write_home(homes: &dyn Home, batch: &mut [HomePage<'_>]) -> io::Result<()> {
    batch.sort_unstable_by_key(|page| (page.file.number, page.offset));
    homes.write(batch).map_err(|(_, e)| e)?;
    let mut written: Vec<FileId> = batch.iter().map(|page| page.file).collect();
    written.dedup();
    written.into_iter().try_for_each(|file| homes.sync(file))
}

#[cfg(test)]
mod tests;
