//! The guard: while the cache may have newer pages than the files, a server that is started without
//! Forebay does not come up. docs/flash-tier.md, "The guard".
//!
//! Two pages of the system tablespace hold text instead of what InnoDB looks for. One is page 0,
//! without which it opens nothing. The other says where its doublewrite buffer is, so that it does
//! not take an old page 0 from there. Their real contents are at home in a *guard file* beside it.
//! Of a page of text every sector is text, so a page that is only partly written is known as well.
//!
//! Laying: (1) the guard file, durable, says *laying*; (2) text over page 0, synced; (3) over the
//! other, synced; (4) the guard file says *laid*. Lifting: (1) it says *lifting*; (2) the other
//! page, synced; (3) page 0, synced; (4) the guard file is removed.
//!
//! | the guard file says | page 0 in the tablespace | the two pages are |
//! |---|---|---|
//! | laid | text | in the guard file |
//! | laid | no text | lost: something wrote there since. Refused |
//! | laying, lifting | any sector of text | in the guard file: no server can have been up in between |
//! | laying, lifting | no text | in the tablespace: a server may have been up |
//! | of another tablespace, or none | text | elsewhere: it is a copy of a guarded directory. Refused |
//! | of another epoch than the cache | text | there, of another time than the cache. Refused |

mod inspection;
mod mismatch;
mod running;

pub use inspection::{GuardInspection, standing};
pub(crate) use inspection::{beside_system, is_of, is_of_another};
pub(crate) use mismatch::{Mismatch, if_restored};
pub(crate) use running::claim;

use crate::{
    descriptor::{hold_plain, link_to},
    file_kinds::GUARD_FILE,
    file_magic,
    page::PAGE_BYTES,
};
use forebay_flash::{Epochs, Identity};
use forebay_pool::rewrite::RewrittenFile;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// The pages that are guarded: the tablespace's header, and InnoDB's page of the transaction
/// system, which names the doublewrite buffer.
const PAGES: [u32; 2] = [0, 5];

/// A disk writes at least so much at once.
const SECTOR: usize = 512;
const MAGIC: &[u8; 8] = b"FBGUARD1";
/// Leads each sector of a page of text.
const TEXT: &[u8; 16] = b"FOREBAY GUARD: \n";
/// Offset of the first page in the guard file; one sector is before it.
const FIRST_PAGE: u64 = 4096;
const PATH_MAX: usize = SECTOR - 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum GuardState {
    Laying = 1,
    Laid = 2,
    Lifting = 3,
}

/// The guard file's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GuardHeader {
    state: GuardState,
    /// The cache that has the newer pages.
    owner: Uuid,
    /// The tablespace that it guards.
    of: Identity,
    /// The cache's epoch when a server began with it last.
    epoch: u32,
    /// The cache's path.
    flash: PathBuf,
}

impl GuardHeader {
    /// One sector: magic 8, CRC-32C of what follows 4, state 4, owner 16, device, inode, generation
    /// 8 each, length of the path 4, epoch 4, the path from 64 on.
    fn encode(&self) -> [u8; SECTOR] {
        use std::os::unix::ffi::OsStrExt;
        let mut sector = [0; SECTOR];
        let path = self.flash.as_os_str().as_bytes();
        let path = &path[..path.len().min(PATH_MAX)];
        sector[..8].copy_from_slice(MAGIC);
        sector[12..16].copy_from_slice(&(self.state as u32).to_le_bytes());
        sector[16..32].copy_from_slice(self.owner.as_bytes());
        let numbers = [self.of.device, self.of.inode, self.of.generation];
        for (at, number) in (32..).step_by(8).zip(numbers) {
            sector[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        sector[56..60].copy_from_slice(&(path.len() as u32).to_le_bytes());
        sector[60..64].copy_from_slice(&self.epoch.to_le_bytes());
        sector[64..64 + path.len()].copy_from_slice(path);
        let crc = forebay_pool::crc32c([&sector[12..]]);
        sector[8..12].copy_from_slice(&crc.to_le_bytes());
        sector
    }

    /// Of a sector that begins with the magic.
    fn decode(sector: &[u8; SECTOR]) -> Option<Self> {
        use std::os::unix::ffi::OsStrExt;
        let number = |at: usize| {
            let bytes = sector[at..at + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(bytes)
        };
        let crc = forebay_pool::crc32c([&sector[12..]]);
        if sector[8..12] != crc.to_le_bytes() {
            return None;
        }
        let state = match sector[12] {
            1 => GuardState::Laying,
            2 => GuardState::Laid,
            3 => GuardState::Lifting,
            _ => return None,
        };
        let length = (number(56) as u32 as usize).min(PATH_MAX);
        Some(Self {
            state,
            owner: Uuid::from_slice(&sector[16..32]).ok()?,
            of: Identity {
                device: number(32),
                inode: number(40),
                generation: number(48),
            },
            epoch: (number(56) >> 32) as u32,
            flash: PathBuf::from(std::ffi::OsStr::from_bytes(&sector[64..64 + length])),
        })
    }
}

/// The pages of text, and whether a page is one in part at least.
fn text(owner: Uuid, flash: &Path) -> Vec<u8> {
    let words = format!(
        "newer pages of this data directory are in the flash cache {}\n({owner}). Start the server under forebay run --flash, or first: \
         forebay flash flush --flash {}\n",
        flash.display(),
        flash.display()
    );
    let mut sector = [b' '; SECTOR];
    let room = SECTOR - TEXT.len();
    sector[..TEXT.len()].copy_from_slice(TEXT);
    let words = &words.as_bytes()[..words.len().min(room)];
    sector[TEXT.len()..][..words.len()].copy_from_slice(words);
    sector.repeat(PAGE_BYTES / SECTOR)
}

fn has_text(page: &[u8]) -> bool {
    page.chunks(SECTOR).any(|sector| sector.starts_with(TEXT))
}

/// A guard, as it was found.
pub(crate) enum FoundGuard {
    /// No guard, and the tablespace's pages are its own.
    None,
    /// The two pages are in the guard file.
    Here(ActiveGuard),
    Mismatch(Mismatch),
}

/// A guard that holds: where the two pages are at home.
#[derive(Debug)]
pub(crate) struct ActiveGuard {
    file: File,
    /// A page is written again after a sync that failed.
    rewritten: RewrittenFile,
    path: PathBuf,
    header: GuardHeader,
}

/// An open file that is never closed by a lock's sake is the caller's; this one is the guard
/// file's.
fn open(path: &Path) -> io::Result<File> {
    let held = hold_plain(path)?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let fd: OwnedFd = rustix::fs::open(link_to(&held), flags, Mode::empty())?;
    Ok(File::from(fd))
}

fn read_header(file: &File) -> io::Result<Option<GuardHeader>> {
    let mut sector = [0; SECTOR];
    match file.read_exact_at(&mut sector, 0) {
        Ok(()) => Ok(file_magic::is_at(&sector, MAGIC)?
            .then(|| GuardHeader::decode(&sector))
            .flatten()),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

fn offset(page: u32) -> u64 {
    u64::from(page) * PAGE_BYTES as u64
}

fn read_page(tablespace: &File, page: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; PAGE_BYTES];
    tablespace.read_exact_at(&mut bytes, offset(page))?;
    Ok(bytes)
}

impl ActiveGuard {
    fn new(file: File, path: PathBuf, header: GuardHeader) -> Self {
        Self {
            file,
            rewritten: RewrittenFile::default(),
            path,
            header,
        }
    }

    /// Finds the guard for the tablespace `of`, open without `O_DIRECT`, in `dir`, with the cache
    /// `owner`, if that is there in these epochs. Changes nothing.
    pub(crate) fn find(
        dir: &Path,
        tablespace: &File,
        of: Identity,
        (owner, epochs): (Uuid, Option<Epochs>),
    ) -> io::Result<FoundGuard> {
        let path = dir.join(GUARD_FILE);
        let is_text = has_text(&read_page(tablespace, 0)?);
        let none_but = |mismatch| match is_text {
            true => FoundGuard::Mismatch(mismatch),
            false => FoundGuard::None,
        };
        let file = match open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(none_but(Mismatch::NoGuardFile));
            }
            Err(e) => return Err(e),
        };
        let found = read_header(&file).map_err(|e| {
            let path = path.display();
            io::Error::new(e.kind(), format!("{path}: {e}"))
        })?;
        let Some(header) = found.filter(|header| header.of == of) else {
            return Ok(none_but(Mismatch::Copy));
        };
        if header.owner != owner {
            return Ok(match is_text || header.state == GuardState::Laid {
                true => FoundGuard::Mismatch(Mismatch::OtherCache(header.flash, header.owner)),
                false => FoundGuard::None,
            });
        }
        let is_of_its_time = epochs.is_none_or(|epochs| epochs.is(header.epoch));
        Ok(match (header.state, is_text) {
            (_, true) if !is_of_its_time => FoundGuard::Mismatch(Mismatch::OtherTime(header.flash)),
            (GuardState::Laid, false) => FoundGuard::Mismatch(Mismatch::WrittenSince),
            (_, false) => FoundGuard::None,
            (_, true) => FoundGuard::Here(Self::new(file, path, header)),
        })
    }

    /// Lays it anew, over a tablespace whose pages are its own, and of which the cache has nothing
    /// that is newer.
    pub(crate) fn lay(
        dir: &Path,
        tablespace: &File,
        of: Identity,
        (owner, epoch): (Uuid, u32),
        flash: &Path,
    ) -> io::Result<Self> {
        if flash.as_os_str().len() > PATH_MAX {
            let what = format!(
                "the path of the flash cache has more than {PATH_MAX} bytes: give it a shorter one"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let path = dir.join(GUARD_FILE);
        let aside = dir.join(format!("{GUARD_FILE}.new"));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&aside, flags, Mode::RUSR | Mode::WUSR)?);
        let header = GuardHeader {
            state: GuardState::Laying,
            owner,
            of,
            epoch,
            flash: flash.to_owned(),
        };
        file.write_all_at(&header.encode(), 0)?;
        for (at, page) in PAGES.into_iter().enumerate() {
            file.write_all_at(&read_page(tablespace, page)?, place(at))?;
        }
        file.sync_all()?;
        rustix::fs::rename(&aside, &path)?;
        sync_directory(dir)?;
        let mut guard = Self::new(file, path, header);
        guard.complete(tablespace)?;
        Ok(guard)
    }

    /// Makes it hold: steps 2 to 4 of laying, as far as they are not done.
    pub(crate) fn complete(&mut self, tablespace: &File) -> io::Result<()> {
        if self.header.state == GuardState::Laid {
            return Ok(());
        }
        let text = text(self.header.owner, &self.header.flash);
        let rewritten = RewrittenFile::default();
        for page in PAGES {
            forebay_pool::failpoint!("pages:laying");
            rewritten.write(tablespace, &text, offset(page))?;
            rewritten.sync(tablespace, File::sync_data)?;
        }
        self.set(GuardState::Laid)
    }

    /// Gives the tablespace its pages back, and removes the guard file: the cache has nothing any
    /// more.
    pub(crate) fn lift(mut self, tablespace: &File) -> io::Result<()> {
        self.set(GuardState::Lifting)?;
        let rewritten = RewrittenFile::default();
        for (at, page) in PAGES.into_iter().enumerate().rev() {
            let mut bytes = vec![0; PAGE_BYTES];
            self.file.read_exact_at(&mut bytes, place(at))?;
            forebay_pool::failpoint!("pages:lifting");
            rewritten.write(tablespace, &bytes, offset(page))?;
            rewritten.sync(tablespace, File::sync_data)?;
        }
        forebay_pool::failpoint!("pages:lifted");
        rustix::fs::unlink(&self.path)?;
        sync_directory(self.path.parent().unwrap_or(Path::new("/")))
    }

    /// True if a guard has the whole path of this cache.
    pub(crate) fn has_whole(flash: &Path) -> bool {
        flash.as_os_str().len() < PATH_MAX
    }

    /// A server begins with its cache, which is at `flash`, in this epoch.
    pub(crate) fn begin(&mut self, epoch: u32, flash: &Path) -> io::Result<()> {
        self.header.epoch = epoch;
        self.header.flash = flash.to_owned();
        self.set(self.header.state)
    }

    /// The epoch that it notes.
    pub(crate) fn epoch(&self) -> u32 {
        self.header.epoch
    }

    fn set(&mut self, state: GuardState) -> io::Result<()> {
        self.header.state = state;
        self.write(&self.header.encode(), 0)?;
        self.sync()
    }

    /// The place in the guard file of the bytes at `at` of the tablespace, if they are in a guarded
    /// page.
    pub(crate) fn moved(at: u64) -> Option<u64> {
        let page = at / PAGE_BYTES as u64;
        let which = PAGES.iter().position(|&one| u64::from(one) == page)?;
        Some(place(which) + at % PAGE_BYTES as u64)
    }

    /// The guard file: the home of the guarded pages. It is written to by [`ActiveGuard::write`]
    /// alone.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Writes to the guard file.
    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.rewritten.write(&self.file, bytes, at)
    }

    /// Syncs the guard file.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.rewritten.sync(&self.file, File::sync_data)
    }
}

/// Offset of the guarded page of this number in the guard file.
fn place(at: usize) -> u64 {
    FIRST_PAGE + (at * PAGE_BYTES) as u64
}

/// Bytes that a tablespace must have to be guarded.
pub(crate) fn bytes_min() -> u64 {
    offset(PAGES[1] + 1)
}

pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty())?;
    Ok(rustix::fs::fsync(dir)?)
}

#[cfg(test)]
mod tests;
