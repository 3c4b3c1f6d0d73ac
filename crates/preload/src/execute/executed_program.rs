//! A program that is to be executed, as the caller names it.
#![expect(unsafe_code, reason = "reads the strings that a C function is given")]

use forebay_files::program;
use libc::{c_char, c_int};
use std::{
    ffi::{CStr, OsStr},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
};

/// A program that is to be executed.
pub(super) enum ExecutedProgram {
    Path(*const c_char),
    /// Searched for, if there is no slash in it.
    Named(*const c_char),
    /// Below a directory; without a path, the open file itself.
    Below(c_int, *const c_char),
    Shell,
    /// Its environment is not known.
    Unknown,
}

impl ExecutedProgram {
    /// As the caller named it.
    pub(super) fn file(&self) -> *const c_char {
        match *self {
            Self::Path(file) | Self::Named(file) | Self::Below(_, file) => file,
            Self::Shell | Self::Unknown => ptr::null(),
        }
    }

    /// True if its dynamic linker is one that this library cannot be given to.
    pub(super) fn has_other_linker(&self) -> bool {
        let has = |path: &Path| program::has_other_linker(path);
        match *self {
            Self::Path(path) => text(path).is_some_and(|path| has(Path::new(path))),
            Self::Named(name) => match text(name) {
                Some(name) if !name.as_bytes().contains(&b'/') => {
                    let found = in_search_path(name).find(|path| path.is_file());
                    found.is_some_and(|path| has(&path))
                }
                name => name.is_some_and(|name| has(Path::new(name))),
            },
            Self::Below(dir, path) => match text(path) {
                Some(path) if Path::new(path).is_absolute() || dir == libc::AT_FDCWD => {
                    has(Path::new(path))
                }
                path => {
                    let below = PathBuf::from(format!("/proc/self/fd/{dir}"));
                    match path.filter(|path| !path.is_empty()) {
                        Some(path) => has(&below.join(path)),
                        None => has(&below),
                    }
                }
            },
            Self::Shell | Self::Unknown => false,
        }
    }

    /// True if it is followed. One that is not found is not executed.
    pub(super) fn is_followed(&self) -> bool {
        let followed =
            |path: Option<&OsStr>| path.is_none_or(|path| program::is_followed(Path::new(path)));
        match *self {
            Self::Path(path) => followed(text(path)),
            Self::Named(name) => match text(name) {
                Some(name) if !name.as_bytes().contains(&b'/') => searched(name),
                name => followed(name),
            },
            Self::Below(dir, path) => {
                let below = format!("/proc/self/fd/{dir}");
                match text(path) {
                    Some(path) if Path::new(path).is_absolute() || dir == libc::AT_FDCWD => {
                        followed(Some(path))
                    }
                    Some(path) if !path.is_empty() => {
                        program::is_followed(&Path::new(&below).join(path))
                    }
                    _ => program::is_followed(Path::new(&below)),
                }
            }
            Self::Shell => program::is_followed(Path::new("/bin/sh")),
            Self::Unknown => false,
        }
    }
}

pub(super) fn text<'a>(of: *const c_char) -> Option<&'a OsStr> {
    // SAFETY: our caller gives a string, or nothing, and does not change it meanwhile.
    (!of.is_null()).then(|| OsStr::from_bytes(unsafe { CStr::from_ptr(of) }.to_bytes()))
}

/// True if every program of this name that may be meant is followed.
fn searched(name: &OsStr) -> bool {
    in_search_path(name).all(|path| program::is_followed(&path))
}

pub(super) fn in_search_path(name: &OsStr) -> impl Iterator<Item = PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let dirs: Vec<PathBuf> = std::env::split_paths(&search).collect();
    dirs.into_iter().map(move |dir| dir.join(name))
}
