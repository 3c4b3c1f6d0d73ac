//! Whether a data directory is guarded, for who looks at it from outside: root, too, at other users' directories.

use super::{GUARD_FILE, State, has_text, read_header};
use crate::{PAGE_BYTES, identity};
use rustix::{
    fd::AsRawFd,
    fs::{FileType, Mode, OFlags},
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

/// Where the guard of a data directory is: beside what its system tablespace is, which may be a link.
pub(crate) fn beside_system(dir: &Path) -> io::Result<PathBuf> {
    match dir.join("ibdata1").canonicalize() {
        Ok(system) => Ok(system.parent().unwrap_or(Path::new("/")).to_owned()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(dir.to_owned()),
        Err(e) => Err(e),
    }
}

/// Opens a file to be read. None if there is none: what else is called so, a link or a pipe, is not opened, since that may do something already.
fn open_file(path: &Path) -> io::Result<Option<File>> {
    let looks = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = match rustix::fs::open(path, looks, Mode::empty()) {
        Ok(held) => held,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&held)?.st_mode);
    if kind != FileType::RegularFile {
        return Ok(None);
    }
    let link = format!("/proc/self/fd/{}", held.as_raw_fd());
    let reads = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(Some(rustix::fs::open(link, reads, Mode::empty())?.into()))
}

/// The guard in a data directory, if there is one.
///
/// # Errors
/// What the operating system says.
pub fn standing(dir: &Path) -> io::Result<Option<Standing>> {
    let dir = &beside_system(dir)?;
    let Some(file) = open_file(&dir.join(GUARD_FILE))? else {
        return Ok(None);
    };
    let Some(header) = read_header(&file)? else {
        return Ok(None);
    };
    let Some(tablespace) = open_file(&dir.join("ibdata1"))? else {
        let what = format!("{GUARD_FILE} is there, and no ibdata1 that it guards");
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    };
    let mut page = vec![0; PAGE_BYTES];
    let read = rustix::io::pread(&tablespace, &mut page, 0)?;
    if header.state != State::Laid && !has_text(&page[..read]) {
        return Ok(None);
    }
    let of = identity::of(&tablespace)?.map(|known| known.identity);
    Ok(Some(Standing {
        flash: header.flash,
        cache: header.owner,
        is_its_own: of == Some(header.of),
    }))
}
