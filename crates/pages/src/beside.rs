//! Small files beside a flash file, in JSON: what the command and the process that has the cache tell one another. Either may be another user's.

use serde::{Serialize, de::DeserializeOwned};
use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// Where the file with this ending is.
pub(crate) fn beside(flash: &Path, ending: &str) -> PathBuf {
    let mut path = flash.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// What a file's name ends with while it is written.
const NEW: &str = ".new";

/// The files beside `flash`, whose name is whole, that have one of these endings, and what was to take their places when who wrote it was killed.
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

/// What it says; none if it is not there.
///
/// # Errors
/// What the operating system says; `InvalidData` if it says something else.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    parse(fs::read(path))
}

/// As [`read`], of what reading gave.
pub(crate) fn parse<T: DeserializeOwned>(read: io::Result<Vec<u8>>) -> io::Result<Option<T>> {
    match read {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Replaces it, whole or not at all, and durably.
///
/// # Errors
/// What the operating system says.
pub(crate) fn keep(path: &Path, what: &impl Serialize) -> io::Result<()> {
    replace(path, &serde_json::to_vec(what)?, File::sync_all)?;
    File::open(directory_of(path))?.sync_all()
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
    // Of no other process, or thread, that does the same. And a new file: the directory may be that of a user who has made a link of any name in it.
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
    fn what_several_processes_keep_at_a_time_is_what_one_of_them_said() {
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
    fn a_link_that_another_user_made_leads_to_nothing_that_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("f.settings"), dir.path().join("other"));
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, beside(&path, ".new")).unwrap();
        keep(&path, &7).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        assert_eq!(read::<u32>(&path).unwrap(), Some(7));
    }
}
