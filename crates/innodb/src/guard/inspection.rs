//! Inspects a data directory's guard from outside: root does so, too, at other users' directories.

use super::{GuardHeader, GuardState, has_text, read_header};
use crate::{
    descriptor::{hold_regular, link_to},
    file_kinds::GUARD_FILE,
    identity,
    page::PAGE_BYTES,
};
use forebay_flash::Identity;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// The guard of a data directory.
#[derive(Clone, Debug)]
pub struct GuardInspection {
    /// The flash file whose cache may have newer pages.
    pub flash: PathBuf,
    /// The cache.
    pub cache: Uuid,
    /// True if the guard is of the tablespace that lies there, not of one that this is a copy of.
    pub is_its_own: bool,
}

/// True if this file is a system tablespace that is guarded, with newer pages in the cache `owner`.
pub(crate) fn is_of(path: &Path, owner: Uuid) -> bool {
    let is_system = crate::file_kinds::is_system(path.as_os_str().as_encoded_bytes());
    let dir = path.parent().filter(|_| is_system);
    let found = dir.and_then(|dir| standing(dir).ok().flatten());
    found.is_some_and(|found| found.is_its_own && found.cache == owner)
}

/// The same of another file than `own`, which is not opened: closing it would drop the lock that
/// this process has on it.
pub(crate) fn is_of_another(path: &Path, owner: Uuid, own: &Path) -> bool {
    let key = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    let there = key(path);
    let is_own = there.is_some() && there == key(own);
    !is_own && is_of(path, owner)
}

/// The system tablespace of a data directory: what it is a link to, if it is one.
fn system_of(dir: &Path) -> io::Result<PathBuf> {
    let system = dir.join("ibdata1");
    match system.canonicalize() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(system),
        found => found,
    }
}

/// The path of a data directory's guard: beside the file that its system tablespace is, which may
/// be a link's target.
pub(crate) fn beside_system(dir: &Path) -> io::Result<PathBuf> {
    Ok(parent(&system_of(dir)?).to_owned())
}

fn parent(system: &Path) -> &Path {
    system.parent().unwrap_or(Path::new("/"))
}

/// Opens a file to be read. None if there is none.
fn open_file(path: &Path) -> io::Result<Option<File>> {
    let held = match hold_regular(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        held => held?,
    };
    let reads = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(Some(
        rustix::fs::open(link_to(&held), reads, Mode::empty())?.into(),
    ))
}

/// The error with the path of what it is about, which only those of the operating system lack.
fn named(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |e| match e.raw_os_error() {
        Some(_) => io::Error::new(e.kind(), format!("{}: {e}", path.display())),
        None => e,
    }
}

/// The identity of the system tablespace.
fn identity_of(tablespace: &File, path: &Path) -> io::Result<Option<Identity>> {
    match identity::of(tablespace) {
        Ok(known) => Ok(known.map(|known| known.identity)),
        Err(Errno::OPNOTSUPP) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "{}: its file system does not say when a file was born, so the owner of {GUARD_FILE} beside it is not known",
                path.display()
            ),
        )),
        Err(e) => Err(named(path)(e.into())),
    }
}

/// The files there are part of a data directory, or of a copy of one: which of the two cannot be
/// told.
fn without_tablespace(guard: &Path, flash: &Path) -> io::Error {
    let what = format!(
        "{} says that newer pages are in the flash cache {}, and the ibdata1 that it goes with is not there. Bring that back; its pages 0 and 5 are in the guard, and nowhere else. \
         Only if this is a part of a copy, and that ibdata1 has its guard elsewhere, remove the guard from the copy",
        guard.display(),
        flash.display()
    );
    io::Error::new(io::ErrorKind::NotFound, what)
}

/// The tablespace is guarded, and by which cache cannot be told.
fn without_guard(system: &Path, guard: &Path) -> io::Error {
    let what = format!(
        "{0} is guarded: a flash cache (head -c 512 {0} says which) may have newer pages, and {1}, which has pages 0 and 5 of it, is missing or damaged. Put that back as it was beside \
         this ibdata1; or, if this is a copy, make it again, with the guard or after forebay flash flush. Without it there is only a backup to go back to",
        system.display(),
        guard.display()
    );
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The guard file's header. None if there is none, or it is damaged.
fn header_of(guard: &Path) -> io::Result<Option<GuardHeader>> {
    let header = open_file(guard).and_then(|file| match file {
        Some(file) => read_header(&file),
        None => Ok(None),
    });
    header.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", guard.display())))
}

/// True if the tablespace's page 0 is a guard's text.
fn begins_with_text(tablespace: &File, path: &Path) -> io::Result<bool> {
    let mut page = vec![0; PAGE_BYTES];
    let read = rustix::io::pread(tablespace, &mut page, 0).map_err(|e| named(path)(e.into()))?;
    Ok(has_text(&page[..read]))
}

/// The guard in a data directory, if there is one.
///
/// # Errors
/// It cannot be looked at: what has its name, or that of the system tablespace, is no file. There
/// is no tablespace, or one that is guarded without a guard file that says by which cache. What the
/// operating system says.
pub fn standing(dir: &Path) -> io::Result<Option<GuardInspection>> {
    let system = system_of(dir).map_err(named(&dir.join("ibdata1")))?;
    let path = parent(&system).join(GUARD_FILE);
    let header = header_of(&path)?;
    let tablespace = match (open_file(&system), &header) {
        (Ok(Some(tablespace)), _) => tablespace,
        (Ok(None), Some(header)) => return Err(without_tablespace(&path, &header.flash)),
        (Ok(None), None) => return Ok(None),
        // No guard is laid over what is no regular file.
        (Err(e), None) if e.kind() == io::ErrorKind::InvalidInput => return Ok(None),
        (Err(e), _) => return Err(named(&system)(e)),
    };
    match (header, begins_with_text(&tablespace, &system)?) {
        (None, true) => Err(without_guard(&system, &path)),
        (None, false) => Ok(None),
        (Some(header), false) if header.state != GuardState::Laid => Ok(None),
        (Some(header), _) => Ok(Some(GuardInspection {
            is_its_own: identity_of(&tablespace, &system)? == Some(header.of),
            flash: header.flash,
            cache: header.owner,
        })),
    }
}
