//! Small files beside a flash file, in JSON, by which the command and the process that has the
//! cache leave notes for one another. Either may be another user's.

use forebay_pool::failpoint;
use rustix::fs::OFlags;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// Ending of the name of a cache's [status](crate::CacheStatus).
pub(crate) const STATUS: &str = ".status";
/// Of its settings.
pub(crate) const SETTINGS: &str = ".settings";
/// Of a resize that is begun.
pub(crate) const RESIZE: &str = ".resize";
/// Of its control socket.
pub(crate) const CONTROL: &str = ".control";

/// The path of a cache's status: the process that has it writes it there.
#[must_use]
pub fn status_of(flash: &Path) -> PathBuf {
    beside(flash, STATUS)
}

/// The path of the file with this ending.
pub(crate) fn beside(flash: &Path, ending: &str) -> PathBuf {
    let mut path = flash.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// The path of the socket of the cache on this flash file.
pub(crate) fn socket_of(flash: &Path) -> PathBuf {
    beside(flash, CONTROL)
}

/// The ending of a file's name while it is written.
pub(crate) const NEW: &str = ".new";

/// The files beside `flash`, whose name is whole, that have one of these endings, and those that
/// were to take their places when their writer was killed.
///
/// # Errors
/// What the operating system says.
pub(crate) fn all(flash: &Path, endings: &[&str]) -> io::Result<Vec<PathBuf>> {
    let own = flash.file_name().unwrap_or_default().as_encoded_bytes();
    let is_beside = |name: &OsStr| {
        let ending = name.as_encoded_bytes().strip_prefix(own);
        let ending = ending.and_then(|ending| str::from_utf8(ending).ok());
        ending.is_some_and(|ending| {
            let mut asides = endings.iter().filter_map(|of| ending.strip_prefix(of));
            asides.any(|aside| aside.is_empty() || aside.starts_with('.') && aside.ends_with(NEW))
        })
    };
    let mut found = Vec::new();
    for entry in flash.parent().unwrap_or(Path::new("/")).read_dir()? {
        let entry = entry?;
        if is_beside(&entry.file_name()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// The directory of the file at `path`.
pub(crate) fn directory_of(path: &Path) -> &Path {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}

/// Its contents; none if it is not there.
///
/// # Errors
/// What the operating system says; `InvalidData` if it says something else.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match bytes_of(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The file's bytes. A pipe, or a device, that another user put there makes no one wait.
///
/// # Errors
/// What the operating system says; `InvalidInput` if it is no file, or longer than any that is kept
/// there.
pub(crate) fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    const MOST: u64 = 1 << 20;
    let mut options = OpenOptions::new();
    let no_wait = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.read(true).custom_flags(no_wait).open(path)?;
    let mut bytes = Vec::new();
    let kind = file.metadata()?.file_type();
    // Of a directory the operating system says that it is one.
    if (kind.is_file() || kind.is_dir())
        && file.take(MOST + 1).read_to_end(&mut bytes)? as u64 <= MOST
    {
        return Ok(bytes);
    }
    let what = "it is no regular file, or longer than any that is kept there: remove it";
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Replaces it, whole or not at all, and durably.
///
/// # Errors
/// What the operating system says.
pub(crate) fn keep(path: &Path, what: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(what)?;
    // What cannot be made durable has no name in the first place.
    let dir = File::open(directory_of(path))?;
    replace(path, &bytes, File::sync_all)?;
    sync_names(&dir)
}

/// Makes durable which names there are in a directory.
///
/// # Errors
/// What the operating system says.
pub(crate) fn sync_names(dir: &File) -> io::Result<()> {
    if let Some(errno) = failpoint::error("control-names") {
        return Err(errno.into());
    }
    dir.sync_all()
}

/// Replaces it by a file with these bytes, whole or not at all, once `settle` is done with that.
///
/// # Errors
/// What the operating system says.
pub(crate) fn replace(
    path: &Path,
    bytes: &[u8],
    settle: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    // Of no other process, or thread, that does the same. And a new file: the directory may be that
    // of a user who has made a link of any name in it.
    let aside = beside(path, &format!(".{}{NEW}", Uuid::new_v4()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let mut file = options.mode(0o644).open(&aside)?;
    // For a process of another user, also where this one's mask would keep it from that.
    let readable = file.set_permissions(fs::Permissions::from_mode(0o644));
    let written = readable
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| settle(&file));
    let replaced = written.and_then(|()| fs::rename(&aside, path));
    replaced.inspect_err(|_| drop(fs::remove_file(&aside)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_file_kept_by_several_processes_has_what_one_of_them_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.settings");
        let said: Vec<String> = (0..8usize).map(|n| "said ".repeat(n * 1000)).collect();
        thread::scope(|scope| {
            for said in &said {
                scope.spawn(|| (0..10).for_each(|_| keep(&path, said).unwrap()));
            }
        });
        let found: String = read(&path).unwrap().unwrap();
        assert!(said.contains(&found));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_or_endless_file_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.resize");
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        read::<u32>(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        read::<u32>(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        fs::write(&path, vec![b' '; 2 << 20]).unwrap();
        read::<u32>(&path).unwrap_err();
    }

    #[test]
    fn nothing_is_written_by_a_link_that_another_user_made() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("f.settings"), dir.path().join("other"));
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, beside(&path, ".new")).unwrap();
        keep(&path, &7).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        assert_eq!(read::<u32>(&path).unwrap(), Some(7));
    }
}
