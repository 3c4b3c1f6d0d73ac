//! The dynamic linker's search places for a library: its answer about the caller (`dlinfo`), the
//! run paths of the libraries that are loaded on the way, and its cache.
#![expect(unsafe_code, reason = "asks the dynamic linker")]

use super::path_of;
use forebay_files::program::SharedLibrary;
use libc::{c_char, c_int, c_uint, c_void};
use std::{
    collections::BTreeSet,
    ffi::CStr,
    fs,
    path::{Path, PathBuf},
    ptr,
};

/// The dynamic linker's list of libraries in directories that it knows.
const CACHE: &str = "/etc/ld.so.cache";
/// Below each directory there may be one for each kind of processor.
const BY_PROCESSOR: &str = "glibc-hwcaps";
const SERINFO: c_int = 4;
const SERINFO_BYTES: c_int = 5;
const LINK_MAP: c_int = 2;

/// `Dl_serinfo`, whose paths follow.
#[repr(C)]
struct SearchInfo {
    bytes: usize,
    paths: c_uint,
}

/// `Dl_serpath`.
#[repr(C)]
struct SearchPath {
    name: *const c_char,
    flags: c_uint,
}

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
    fn dlinfo(handle: *mut c_void, request: c_int, info: *mut c_void) -> c_int;
}

/// Directories, in no order: of several libraries of one name each is looked at.
pub(super) struct SearchPlaces {
    directories: BTreeSet<PathBuf>,
    /// Of the caller.
    origin: PathBuf,
    /// There are more, which are not known.
    are_more: bool,
}

impl SearchPlaces {
    pub(super) fn of_caller(caller: usize) -> Self {
        let mut info = libc::Dl_info {
            dli_fname: ptr::null(),
            dli_fbase: ptr::null_mut(),
            dli_sname: ptr::null(),
            dli_saddr: ptr::null_mut(),
        };
        let mut library = ptr::null_mut();
        let address = ptr::without_provenance(caller);
        // SAFETY: any address can be asked about; the two places are ours.
        let found = unsafe { dladdr1(address, &raw mut info, &raw mut library, LINK_MAP) };
        let is_known = found != 0 && !library.is_null() && !info.dli_fname.is_null();
        // SAFETY: the library is loaded, since its code calls us.
        let directories = is_known.then(|| unsafe { searched(library) }).flatten();
        let origin = is_known.then(|| {
            // SAFETY: as above: it has its name.
            let name = unsafe { CStr::from_ptr(info.dli_fname) };
            path_of(name.to_bytes())
        });
        Self {
            are_more: directories.is_none(),
            directories: directories.unwrap_or_default(),
            origin: origin.map(directory_of).unwrap_or_default(),
        }
    }

    /// Adds the places that the file of the library at `path` names for its own needs.
    pub(super) fn add(&mut self, object: &SharedLibrary, path: &Path) {
        let own = directory_of(path.to_owned());
        let listed = object.run_paths.iter();
        for one in listed.flat_map(|list| list.split(|b| *b == b':')) {
            match with_origin(one, &own) {
                Some(directory) => self.directories.extend([path_of(&directory)]),
                None => self.are_more = true,
            }
        }
    }

    /// Files that may be meant; none if that cannot be told.
    pub(super) fn find(&self, name: &CStr) -> Option<Vec<PathBuf>> {
        let name = with_origin(name.to_bytes(), &self.origin)?;
        if name.contains(&b'/') {
            return Some(vec![path_of(&name)]);
        }
        if self.are_more {
            return None;
        }
        let file = path_of(&name);
        let mut found = Vec::new();
        for directory in &self.directories {
            found.push(directory.join(&file));
            let kinds = fs::read_dir(directory.join(BY_PROCESSOR));
            let kinds = kinds.into_iter().flatten().flatten();
            found.extend(kinds.map(|kind| kind.path().join(&file)));
        }
        found.extend(in_cache(&name));
        Some(found)
    }
}

fn directory_of(file: PathBuf) -> PathBuf {
    let real = file.canonicalize().unwrap_or(file);
    real.parent().map(Path::to_owned).unwrap_or_default()
}

/// With the directory of who uses it in the place of its variable; none if there is another
/// variable.
fn with_origin(text: &[u8], origin: &Path) -> Option<Vec<u8>> {
    if !text.contains(&b'$') {
        return Some(text.to_vec());
    }
    let (text, origin) = (std::str::from_utf8(text).ok()?, origin.to_str()?);
    let text = text.replace("${ORIGIN}", origin);
    let text = text.replace("$ORIGIN", origin);
    (!text.contains('$')).then(|| text.into_bytes())
}

/// The paths of libraries of this name in the dynamic linker's cache: it keeps them as strings.
fn in_cache(name: &[u8]) -> Vec<PathBuf> {
    let cache = fs::read(CACHE).unwrap_or_default();
    let strings = cache.split(|byte| *byte == 0);
    let paths = strings.filter(|path| path.starts_with(b"/"));
    let named = paths.filter(|path| path.rsplit(|byte| *byte == b'/').next() == Some(name));
    named.map(path_of).collect()
}

/// The dynamic linker's directories for a library's own loads; none if it does not name them.
///
/// # Safety
///
/// It is a library that stays loaded meanwhile.
unsafe fn searched(library: *mut c_void) -> Option<BTreeSet<PathBuf>> {
    let mut size = SearchInfo { bytes: 0, paths: 0 };
    // SAFETY: our caller says so; the place is a `Dl_serinfo` without paths.
    if unsafe { dlinfo(library, SERINFO_BYTES, (&raw mut size).cast()) } != 0 {
        return None;
    }
    let mut space = vec![0_u64; size.bytes.div_ceil(size_of::<u64>())];
    let info: *mut SearchInfo = space.as_mut_ptr().cast();
    let mut found = BTreeSet::new();
    // SAFETY: there is as much room as the dynamic linker wants, aligned; it fills in as many paths
    // as it says, whose names are strings in that room.
    unsafe {
        info.write(size);
        if dlinfo(library, SERINFO, info.cast()) != 0 {
            return None;
        }
        let paths: *const SearchPath = info.add(1).cast();
        for at in 0..(*info).paths as usize {
            let name = (*paths.add(at)).name;
            if !name.is_null() {
                found.insert(path_of(CStr::from_ptr(name).to_bytes()));
            }
        }
    }
    Some(found)
}

const _: () = assert!(size_of::<SearchInfo>() == 16 && size_of::<SearchPath>() == 16);
