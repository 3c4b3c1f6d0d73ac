//! Looks whether the library that a `dlopen` is about to load calls anything that this library
//! hides.
//!
//! It is answered before the load, since what is loaded runs code of its own (constructors) before
//! `dlopen` returns. So the library, and each that it needs and that is not loaded yet, is looked
//! for where the dynamic linker does, and its imports are read. A library that is not found, or is
//! none for this machine, cannot be loaded: then nothing changes. What cannot be understood is
//! taken for one that calls what is hidden.

mod places;

use forebay_files::program::SharedLibrary;
use places::SearchPlaces;
use std::{
    collections::BTreeSet,
    ffi::{CStr, CString, OsStr, c_char},
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Libraries that are looked at for one call, at most: more are taken for ones that call.
const OBJECTS_MAX: usize = 512;
/// The C library in its parts, and the dynamic linker: what they do to files is not theirs.
const SYSTEM: [&[u8]; 6] = [
    b"libc.so",
    b"libpthread.so",
    b"librt.so",
    b"libdl.so",
    b"ld-linux",
    b"linux-vdso",
];

/// A call that loads.
pub(crate) struct DlopenCall<'a> {
    pub(crate) name: &'a CStr,
    /// Whose libraries are searched as its run path says.
    pub(crate) caller: usize,
    /// What is loaded already is not loaded again; none of a namespace of its own.
    pub(crate) is_loaded: Option<fn(*const c_char) -> bool>,
    /// A function of this name is hidden.
    pub(crate) is_hidden: fn(&[u8]) -> bool,
}

impl DlopenCall<'_> {
    /// True if code that it loads calls what this library hides, or may.
    pub(crate) fn calls_hidden(&self) -> bool {
        let mut places = SearchPlaces::of_caller(self.caller);
        let mut left = vec![self.name.to_owned()];
        let mut seen = BTreeSet::new();
        while let Some(name) = left.pop() {
            let is_new = !self.is_there(&name) && seen.insert(name.clone());
            if !is_new {
                continue;
            }
            if seen.len() > OBJECTS_MAX {
                return true;
            }
            let Some(found) = places.find(&name) else {
                return true;
            };
            for path in found {
                match self.look_at(&path) {
                    Ok(Some(object)) => {
                        places.add(&object, &path);
                        left.extend(object.needed);
                    }
                    // It cannot be loaded.
                    Ok(None) => {}
                    Err(HiddenCall) => return true,
                }
            }
        }
        false
    }

    fn is_there(&self, name: &CString) -> bool {
        let file = name.as_bytes().rsplit(|byte| *byte == b'/').next();
        let is_system = |part: &&[u8]| file.is_some_and(|file| file.starts_with(part));
        SYSTEM.iter().any(is_system)
            || self
                .is_loaded
                .is_some_and(|is_loaded| is_loaded(name.as_ptr()))
    }

    fn look_at(&self, path: &Path) -> Result<Option<SharedLibrary>, HiddenCall> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(_) => return Err(HiddenCall),
        };
        match SharedLibrary::read(&file, self.is_hidden) {
            Ok(Some(object)) if object.imports_any => Err(HiddenCall),
            Ok(object) => Ok(object),
            Err(_) => Err(HiddenCall),
        }
    }
}

/// It calls what is hidden, or may.
struct HiddenCall;

/// A path of these bytes.
fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
