//! Looks whether the library that a `dlopen` is about to load calls anything that this library
//! hides.
//!
//! It is answered before the load, since what is loaded runs code of its own (constructors) before
//! `dlopen` returns. So the library, and each that it needs and that is not loaded yet, is looked
//! for where the dynamic linker does, and its symbols are read. A library that is not found, or is
//! none for this machine, cannot be loaded: then nothing changes. What cannot be understood is
//! taken for one that calls what is hidden.

mod places;
mod scopes;

use forebay_files::program::{LibrarySymbol, SharedLibrary};
use places::SearchPlaces;
use std::{
    collections::{BTreeMap, BTreeSet},
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
    /// An address in the library whose run path says where to search.
    pub(crate) caller: usize,
    /// Asks for libraries that are loaded already, and are not loaded again; none of a namespace of
    /// its own.
    pub(crate) is_loaded: Option<fn(*const c_char) -> bool>,
    /// A function of this name is hidden.
    pub(crate) is_hidden: fn(&[u8]) -> bool,
}

/// The effect of a load with `RTLD_DEEPBIND`, or into another namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadEffect {
    /// Nothing that it loads calls a function that this library hides.
    CallsNothing,
    /// It does, and without that flag it would find the hidden functions, and all else alike.
    MissesHooks,
    /// It does, or may, and finds other things with the flag than without it.
    Differs,
}

/// The uses of a name by the libraries that would be loaded: they have it, or import it.
#[derive(Clone, Copy, Debug, Default)]
struct SymbolUse {
    /// One of them has it itself.
    is_defined: bool,
    /// One of them imports it.
    is_imported: bool,
    /// It is a variable to all of them that import it.
    is_data: bool,
}

/// The libraries that a load would bring.
#[derive(Default)]
struct NewLibraries {
    symbols: BTreeMap<Vec<u8>, SymbolUse>,
    /// Libraries that they need and that are loaded already.
    loaded: BTreeSet<CString>,
}

impl NewLibraries {
    fn add(&mut self, symbol: LibrarySymbol<'_>) {
        let is_new = !self.symbols.contains_key(symbol.name);
        let of = self.symbols.entry(symbol.name.to_vec()).or_default();
        of.is_defined |= symbol.is_defined;
        of.is_imported |= !symbol.is_defined;
        of.is_data = symbol.is_data && (is_new || of.is_data);
    }
}

impl DlopenCall<'_> {
    /// The effect on the calls of the code that it loads.
    pub(crate) fn effect(&self) -> LoadEffect {
        let Ok(new) = self.new_libraries() else {
            return LoadEffect::Differs;
        };
        let mut symbols = new.symbols.iter();
        if !symbols.any(|(name, of)| of.is_imported && (self.is_hidden)(name)) {
            return LoadEffect::CallsNothing;
        }
        match scopes::are_alike(&new.symbols, &new.loaded) {
            true => LoadEffect::MissesHooks,
            false => LoadEffect::Differs,
        }
    }

    fn new_libraries(&self) -> Result<NewLibraries, NotUnderstood> {
        let mut places = SearchPlaces::of_caller(self.caller);
        let mut left = vec![self.name.to_owned()];
        let mut seen = BTreeSet::new();
        let mut new = NewLibraries::default();
        while let Some(name) = left.pop() {
            if self.is_there(&name) {
                new.loaded.insert(name);
                continue;
            }
            if !seen.insert(name.clone()) {
                continue;
            }
            if seen.len() > OBJECTS_MAX {
                return Err(NotUnderstood);
            }
            for path in places.find(&name).ok_or(NotUnderstood)? {
                // Otherwise it cannot be loaded.
                if let Some(object) = look_at(&path, &mut new)? {
                    places.add(&object, &path);
                    left.extend(object.needed);
                }
            }
        }
        Ok(new)
    }

    fn is_there(&self, name: &CString) -> bool {
        let file = name.as_bytes().rsplit(|byte| *byte == b'/').next();
        let is_system = |part: &&[u8]| file.is_some_and(|file| file.starts_with(part));
        SYSTEM.iter().any(is_system)
            || self
                .is_loaded
                .is_some_and(|is_loaded| is_loaded(name.as_ptr()))
    }
}

fn look_at(path: &Path, new: &mut NewLibraries) -> Result<Option<SharedLibrary>, NotUnderstood> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(_) => return Err(NotUnderstood),
    };
    SharedLibrary::read(&file, |symbol| new.add(symbol)).map_err(|_| NotUnderstood)
}

/// Its calls cannot be told.
struct NotUnderstood;

/// A path of these bytes.
fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
