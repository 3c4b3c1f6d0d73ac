//! The next definition of a function behind this library, read from the tables of the loaded
//! libraries. It is for `dlsym` itself, which cannot be asked where it is, since this library's own
//! is the one that answers.
//!
//! Neither allocates nor calls what is looked for: an allocator that is put before the C library's
//! asks `dlsym` for that one, and is not there before it has the answer.
#![expect(unsafe_code, reason = "reads the tables that the dynamic linker reads")]

use libc::{Elf64_Phdr, Elf64_Sym, c_int, c_void, dl_phdr_info, size_t};
use std::{
    ffi::CStr,
    ops::Range,
    ptr, slice,
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering},
};

/// A function that one of ours hides.
pub(crate) struct NextDefinition {
    name: &'static CStr,
    /// Null until it was found.
    address: AtomicPtr<c_void>,
}

impl NextDefinition {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its address; null if there is none.
    pub(crate) fn get(&self) -> *mut c_void {
        let found = self.address.load(Ordering::Acquire);
        if !found.is_null() {
            return found;
        }
        let mut search = SymbolSearch {
            name: self.name,
            is_behind_us: false,
            found: ptr::null_mut(),
        };
        // SAFETY: `look` is called with `search`, as long as this call lasts.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        self.address.store(search.found, Ordering::Release);
        search.found
    }
}

/// A library, of which some code is.
pub(crate) struct LoadedLibrary {
    /// Its range of addresses.
    pub(crate) addresses: Range<usize>,
    /// Loaded with the program, and searched after this one.
    pub(crate) is_behind_us: bool,
    tables: Option<SymbolTables>,
}

impl LoadedLibrary {
    /// True if it has a function of this name itself.
    ///
    /// # Safety
    ///
    /// It is still loaded.
    pub(crate) unsafe fn defines(&self, name: &CStr) -> bool {
        // SAFETY: our caller says so.
        let find = |tables: &SymbolTables| unsafe { tables.find(name) };
        self.tables.as_ref().and_then(find).is_some()
    }
}

/// The number of libraries that were loaded with the program; all, as long as that is not known.
static LOADED_FIRST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// All libraries that are loaded now were loaded with the program.
pub(crate) fn note_first() {
    let nowhere = LibraryWalk::to(0);
    LOADED_FIRST.store(nowhere.passed, Ordering::Relaxed);
}

/// The library that this code is in.
pub(crate) fn library_of(code: usize) -> Option<LoadedLibrary> {
    LibraryWalk::to(code).found
}

/// Code of a library, or of the program, which has no name.
pub(crate) struct LibraryCode<'a> {
    /// As it was loaded.
    name: &'a CStr,
    /// Its range of addresses.
    pub(crate) addresses: Range<usize>,
    /// This library's.
    pub(crate) is_ours: bool,
}

impl LibraryCode<'_> {
    /// The library's, without directories.
    pub(crate) fn file_name(&self) -> &[u8] {
        let name = self.name.to_bytes().rsplit(|byte| *byte == b'/').next();
        name.unwrap_or_default()
    }
}

/// Calls `visit` for all code that is loaded and can be read, until that says that it is enough.
pub(crate) fn each_code<V: FnMut(LibraryCode<'_>) -> bool>(mut visit: V) {
    // SAFETY: `show` is called with `visit`, as long as this call lasts.
    unsafe { libc::dl_iterate_phdr(Some(show::<V>), (&raw mut visit).cast()) };
}

unsafe extern "C" fn show<V: FnMut(LibraryCode<'_>) -> bool>(
    info: *mut dl_phdr_info,
    _bytes: size_t,
    visit: *mut c_void,
) -> c_int {
    // SAFETY: the two that `dl_iterate_phdr` was given and gives.
    let (info, visit) = unsafe { (&*info, &mut *visit.cast::<V>()) };
    // SAFETY: it is a library that is loaded; its name is a string.
    let (headers, name) = unsafe { (headers_of(info), CStr::from_ptr(info.dlpi_name)) };
    let base = info.dlpi_addr as usize;
    let is_ours = headers.iter().any(|header| is_ours(base, header));
    let wanted = libc::PF_R | libc::PF_X;
    let mut codes = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & wanted == wanted);
    let is_enough = codes.any(|header| {
        visit(LibraryCode {
            name,
            addresses: segment(base, header),
            is_ours,
        })
    });
    c_int::from(is_enough)
}

/// The number of libraries that have been loaded, from the beginning on.
pub(crate) fn times_loaded() -> u64 {
    unsafe extern "C" fn first(info: *mut dl_phdr_info, _: size_t, loaded: *mut c_void) -> c_int {
        // SAFETY: the two that `dl_iterate_phdr` was given and gives.
        unsafe { *loaded.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut loaded = 0_u64;
    // SAFETY: `first` is called with `loaded`, as long as this call lasts.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut loaded).cast()) };
    loaded
}

/// A look for the library that some code is in.
struct LibraryWalk {
    code: usize,
    /// Libraries before it.
    passed: usize,
    has_passed_us: bool,
    found: Option<LoadedLibrary>,
}

impl LibraryWalk {
    fn to(code: usize) -> Self {
        let mut walk = Self {
            code,
            passed: 0,
            has_passed_us: false,
            found: None,
        };
        // SAFETY: `step` is called with `walk`, as long as this call lasts.
        unsafe { libc::dl_iterate_phdr(Some(step), (&raw mut walk).cast()) };
        walk
    }
}

unsafe extern "C" fn step(info: *mut dl_phdr_info, _bytes: size_t, walk: *mut c_void) -> c_int {
    // SAFETY: the two that `dl_iterate_phdr` was given and gives.
    let (info, walk) = unsafe { (&*info, &mut *walk.cast::<LibraryWalk>()) };
    // SAFETY: it is a library that is loaded.
    let headers = unsafe { headers_of(info) };
    let base = info.dlpi_addr as usize;
    let segments = || {
        let loaded = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD);
        loaded.map(|header| segment(base, header))
    };
    if !segments().any(|segment| segment.contains(&walk.code)) {
        walk.passed += 1;
        walk.has_passed_us |= headers.iter().any(|header| is_ours(base, header));
        return 0;
    }
    let start = segments().map(|segment| segment.start).min();
    let end = segments().map(|segment| segment.end).max();
    walk.found = Some(LoadedLibrary {
        addresses: start.unwrap_or(0)..end.unwrap_or(0),
        is_behind_us: walk.has_passed_us && walk.passed < LOADED_FIRST.load(Ordering::Relaxed),
        // SAFETY: as above.
        tables: unsafe { SymbolTables::of(base, headers) },
    });
    1
}

/// # Safety
///
/// The library is loaded, and stays.
unsafe fn headers_of(info: &dl_phdr_info) -> &[Elf64_Phdr] {
    // SAFETY: there are as many.
    unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
}

fn segment(base: usize, header: &Elf64_Phdr) -> Range<usize> {
    let start = base.wrapping_add(header.p_vaddr as usize);
    start..start.wrapping_add(header.p_memsz as usize)
}

struct SymbolSearch {
    name: &'static CStr,
    /// The libraries come in the order in which they are searched.
    is_behind_us: bool,
    found: *mut c_void,
}

unsafe extern "C" fn look(info: *mut dl_phdr_info, _bytes: size_t, search: *mut c_void) -> c_int {
    // SAFETY: the two that `dl_iterate_phdr` was given and gives.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<SymbolSearch>()) };
    let base = info.dlpi_addr as usize;
    // SAFETY: it is a library that is loaded.
    let headers = unsafe { headers_of(info) };
    if !search.is_behind_us {
        search.is_behind_us = headers.iter().any(|header| is_ours(base, header));
        return 0;
    }
    // SAFETY: as above.
    let found =
        unsafe { SymbolTables::of(base, headers).and_then(|tables| tables.find(search.name)) };
    search.found = found.unwrap_or(ptr::null_mut());
    c_int::from(!search.found.is_null())
}

/// True if a segment of a library has this code in it.
fn is_ours(base: usize, header: &Elf64_Phdr) -> bool {
    let here = (look as *const ()).addr();
    header.p_type == libc::PT_LOAD && segment(base, header).contains(&here)
}

/// An entry of a dynamic section.
#[repr(C)]
struct DynamicEntry {
    tag: i64,
    value: u64,
}

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

const STT_FUNC: u8 = 2;

/// The symbols that a library defines, by names.
struct SymbolTables {
    base: usize,
    names: *const libc::c_char,
    symbols: *const Elf64_Sym,
    /// Numbers of buckets, first symbol, words of the filter, its shift; the filter; the buckets;
    /// the hashes of the symbols.
    hashes: *const u32,
}

impl SymbolTables {
    /// # Safety
    ///
    /// The headers are those of a loaded library, which lies from `base` on.
    unsafe fn of(base: usize, headers: &[Elf64_Phdr]) -> Option<Self> {
        let mut headers = headers.iter();
        let dynamic = headers.find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let dynamic = base.wrapping_add(dynamic.p_vaddr as usize);
        let mut dynamic: *const DynamicEntry = ptr::with_exposed_provenance(dynamic);
        let (mut names, mut symbols, mut hashes) = (0, 0, 0);
        loop {
            // SAFETY: the section ends with DT_NULL.
            let entry = unsafe { &*dynamic };
            // The dynamic linker has made addresses of them, but in the kernel's own library.
            let address = match entry.value as usize {
                offset if offset < base => base + offset,
                address => address,
            };
            match entry.tag {
                DT_NULL => break,
                DT_STRTAB => names = address,
                DT_SYMTAB => symbols = address,
                DT_GNU_HASH => hashes = address,
                _ => {}
            }
            dynamic = dynamic.wrapping_add(1);
        }
        let is_whole = names != 0 && symbols != 0 && hashes != 0;
        is_whole.then(|| Self {
            base,
            names: ptr::with_exposed_provenance(names),
            symbols: ptr::with_exposed_provenance(symbols),
            hashes: ptr::with_exposed_provenance(hashes),
        })
    }

    /// # Safety
    ///
    /// The library is loaded.
    unsafe fn find(&self, name: &CStr) -> Option<*mut c_void> {
        let hash = hash_of(name);
        // SAFETY: the table has its four numbers, the filter, whose words are of 64 bits, and as
        // many buckets as it says. Behind them is a chain for each bucket that is not empty, up to
        // the hash with the lowest bit set.
        unsafe {
            let [buckets, first, filter] = [0, 1, 2].map(|n| *self.hashes.add(n));
            let bucket = self.hashes.add(4 + 2 * filter as usize);
            let chains = bucket.add(buckets as usize);
            let mut number = *bucket.add(hash.checked_rem(buckets)? as usize);
            if number < first {
                return None;
            }
            loop {
                let found = *chains.add((number - first) as usize);
                let symbol = &*self.symbols.add(number as usize);
                if (found | 1) == (hash | 1) && self.defines(symbol, name) {
                    let address = self.base.wrapping_add(symbol.st_value as usize);
                    return Some(ptr::with_exposed_provenance_mut(address));
                }
                if found & 1 != 0 {
                    return None;
                }
                number += 1;
            }
        }
    }

    /// # Safety
    ///
    /// The symbol is the library's.
    unsafe fn defines(&self, symbol: &Elf64_Sym, name: &CStr) -> bool {
        // SAFETY: a symbol's name is a string among the library's.
        symbol.st_shndx != 0
            && symbol.st_info & 0xf == STT_FUNC
            && unsafe { CStr::from_ptr(self.names.add(symbol.st_name as usize)) } == name
    }
}

/// As `DT_GNU_HASH` has it.
fn hash_of(name: &CStr) -> u32 {
    let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add((*byte).into());
    name.to_bytes().iter().fold(5381, step)
}
