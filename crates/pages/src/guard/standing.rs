//! Whether a data directory is guarded, for who looks at it from outside: root, too, at other users' directories.

use super::{GUARD_FILE, State, has_text, read_header};
use crate::{
    PAGE_BYTES,
    descriptor::{hold_regular, link_to},
    identity,
};
use forebay_flash::Identity;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// What guards a data directory.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The flash file whose cache may have newer pages.
    pub flash: PathBuf,
    /// The cache.
    pub cache: Uuid,
    /// True if the guard is of the tablespace that lies there, not of one that this is a copy of.
    pub is_its_own: bool,
}

/// True if this file is a system tablespace that is guarded, with newer pages in the cache `owner`.
pub(crate) fn is_of(path: &Path, owner: Uuid) -> bool {
    let is_system = crate::names::is_system(path.as_os_str().as_encoded_bytes());
    let dir = path.parent().filter(|_| is_system);
    let found = dir.and_then(|dir| standing(dir).ok().flatten());
    found.is_some_and(|found| found.is_its_own && found.cache == owner)
}

/// The system tablespace of a data directory: what it is a link to, if it is one.
fn system_of(dir: &Path) -> io::Result<PathBuf> {
    let system = dir.join("ibdata1");
    match system.canonicalize() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(system),
        found => found,
    }
}

/// Where the guard of a data directory is: beside what its system tablespace is, which may be a link.
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

/// Who the system tablespace is.
fn identity_of(tablespace: &File, path: &Path) -> io::Result<Option<Identity>> {
    match identity::of(tablespace) {
        Ok(known) => Ok(known.map(|known| known.identity)),
        Err(Errno::OPNOTSUPP) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "{}: its file system does not say when a file was born, so whether {GUARD_FILE} beside it is its own is not known",
                path.display()
            ),
        )),
        Err(e) => Err(named(path)(e.into())),
    }
}

/// What is there is part of a data directory, or of a copy of one: which of the two cannot be told.
fn without_tablespace(guard: &Path, flash: &Path) -> io::Error {
    let what = format!(
        "{} says that newer pages are in the flash cache {}, and the ibdata1 that it goes with is not there. Bring that back; or, if this is only a part of a copy, remove the guard from it",
        guard.display(),
        flash.display()
    );
    io::Error::new(io::ErrorKind::NotFound, what)
}

/// The guard in a data directory, if there is one.
///
/// # Errors
/// It cannot be looked at: what has its name, or that of the system tablespace, is no file, or there is no tablespace; what the operating system says.
pub fn standing(dir: &Path) -> io::Result<Option<Standing>> {
    let system = system_of(dir).map_err(named(&dir.join("ibdata1")))?;
    let path = parent(&system).join(GUARD_FILE);
    let Some(file) = open_file(&path).map_err(named(&path))? else {
        return Ok(None);
    };
    let Some(header) = read_header(&file).map_err(named(&path))? else {
        return Ok(None);
    };
    let Some(tablespace) = open_file(&system).map_err(named(&system))? else {
        return Err(without_tablespace(&path, &header.flash));
    };
    let mut page = vec![0; PAGE_BYTES];
    let read =
        rustix::io::pread(&tablespace, &mut page, 0).map_err(|e| named(&system)(e.into()))?;
    if header.state != State::Laid && !has_text(&page[..read]) {
        return Ok(None);
    }
    Ok(Some(Standing {
        flash: header.flash,
        cache: header.owner,
        is_its_own: identity_of(&tablespace, &system)? == Some(header.of),
    }))
}
