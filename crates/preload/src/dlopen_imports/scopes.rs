//! Compares the names that libraries find with `RTLD_DEEPBIND` and without it, apart from those
//! that this library hides.
//!
//! With the flag they are searched themselves, with what they need, before the program and what was
//! loaded with it; without it, after these. That is the same for a name that only one of the two
//! has, and for one that both have from the same place. What two parts of the C library have is the
//! same. A variable that the program has in place of the C library's (`environ`) is that to the C
//! library itself, which libraries that are loaded deep miss.
#![expect(unsafe_code, reason = "reads the tables of what is loaded")]

use super::SymbolUse;
use crate::{
    linker::{FUNCTIONS, LoadedHandle, find_globally, is_c_librarys},
    next_definition::{NextDefinition, library_of},
    real::hidden,
};
use libc::c_void;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString},
};

/// Symbols that each library has of its own, and nobody looks up.
const OF_EACH: [&[u8]; 5] = [b"_init", b"_fini", b"_edata", b"_end", b"__bss_start"];

/// Symbols that `valkeymodule.h` defines in each module, and in a server that has one inside:
/// variables for functions of the server's, which it sets to the same for all.
const OF_MODULES: [&[u8]; 2] = [b"ValkeyModule_", b"RedisModule_"];

/// True if all `symbols` of libraries that are not loaded yet, and need the `loaded` ones, are
/// found in the same place with the flag and without it.
pub(super) fn are_alike(
    symbols: &BTreeMap<Vec<u8>, SymbolUse>,
    loaded: &BTreeSet<CString>,
) -> bool {
    let loaded = loaded.iter().filter_map(|name| LoadedHandle::of(name));
    let loaded: Vec<LoadedHandle> = loaded.collect();
    symbols.iter().all(|(name, of)| {
        OF_EACH.contains(&name.as_slice())
            || CString::new(name.as_slice()).is_ok_and(|name| is_alike(&name, *of, &loaded))
    })
}

fn is_alike(name: &CStr, of: SymbolUse, loaded: &[LoadedHandle]) -> bool {
    let first = find_globally(name);
    if first.is_null() {
        return true;
    }
    if of.is_defined {
        let is_named = |first: &&[u8]| name.to_bytes().starts_with(first);
        return of.is_data && OF_MODULES.iter().any(is_named);
    }
    let is_ours = is_ours(first) || is_entry(first, name);
    loaded.iter().map(|one| one.find(name)).all(|deep| {
        deep.is_null()
            || deep == first
            || is_ours && is_hidden(deep)
            || is_c_librarys(deep) && (of.is_data || is_c_librarys(first))
    })
}

fn is_ours(address: *mut c_void) -> bool {
    let here = (is_ours as *const ()).addr();
    library_of(address.addr()).is_some_and(|library| library.addresses.contains(&here))
}

/// It is the program's way to a function that it imports, whose address it takes.
fn is_entry(address: *mut c_void, name: &CStr) -> bool {
    // SAFETY: what it has under a name was just found.
    library_of(address.addr()).is_some_and(|library| unsafe { !library.defines(name) })
}

/// It is what a function of ours hides.
fn is_hidden(address: *mut c_void) -> bool {
    let mut all = hidden::ALL.iter().map(|one| one.address());
    all.any(|one| one == address) || FUNCTIONS.map(NextDefinition::get).contains(&address)
}
