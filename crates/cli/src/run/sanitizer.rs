//! Programs that are built with AddressSanitizer: its runtime ends a program before which another
//! library is loaded, unless it is told that this is meant.
//!
//! It can be: of a function that both have, Forebay's calls the runtime's, which checks the
//! arguments and calls the C library's.

use super::program::RunProgram;
use crate::standard_error::complain;
use forebay_files::program::{u16_at, u32_at, u64_at};
use std::{
    env,
    ffi::OsString,
    fs::File,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::Path,
};

const VARIABLE: &str = "ASAN_OPTIONS";
const OPTION: &str = "verify_asan_link_order";

/// The runtimes of GCC and of Clang.
const RUNTIMES: [&[u8]; 2] = [b"libasan.so", b"libclang_rt.asan"];

/// The variable that the program needs in its environment; says so.
pub fn environment(program: &RunProgram) -> Option<(OsString, OsString)> {
    if !is_sanitized(program.path()) {
        return None;
    }
    let mut options = env::var_os(VARIABLE).unwrap_or_default();
    let is_set = |options: &OsString| {
        let mut words = options.as_bytes().windows(OPTION.len());
        words.any(|word| word == OPTION.as_bytes())
    };
    if is_set(&options) {
        return None;
    }
    complain!(
        "forebay: {} is built with AddressSanitizer, whose runtime is not the first library then: it gets {OPTION}=0 in {VARIABLE}",
        program.name().to_string_lossy()
    );
    if !options.is_empty() {
        options.push(":");
    }
    options.push(format!("{OPTION}=0"));
    Some((VARIABLE.into(), options))
}

/// True if a program asks for a runtime of AddressSanitizer. What cannot be read does not.
fn is_sanitized(path: &Path) -> bool {
    let names = File::open(path).ok().and_then(|file| names(&file));
    names.is_some_and(|names| {
        let mut names = names.split(|byte| *byte == 0);
        names.any(|name| RUNTIMES.iter().any(|runtime| name.starts_with(runtime)))
    })
}

/// The names in a program's dynamic section: of the libraries that it needs, and of symbols.
fn names(file: &File) -> Option<Vec<u8>> {
    const BYTES_MAX: u64 = 64 << 20;
    let read = |offset: u64, bytes: u64| {
        let mut contents = vec![0; usize::try_from(bytes.min(BYTES_MAX)).ok()?];
        file.read_exact_at(&mut contents, offset).ok()?;
        Some(contents)
    };
    let header = read(0, 64)?;
    // Of 64 bits: others are refused.
    if !header.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let (size, count) = (u16_at(&header, 54), u16_at(&header, 56));
    if size < 56 {
        return None;
    }
    let table = read(u64_at(&header, 32), u64::from(size) * u64::from(count))?;
    let segments = || table.chunks_exact(size.into());
    let of_kind = |kind| segments().filter(move |entry| u32_at(entry, 0) == kind);
    const LOADED: u32 = 1;
    const DYNAMIC: u32 = 2;
    let dynamic = of_kind(DYNAMIC).next()?;
    let dynamic = read(u64_at(dynamic, 8), u64_at(dynamic, 32))?;
    let value = |tag: u64| {
        let mut entries = dynamic.chunks_exact(16);
        entries
            .find(|entry| u64_at(entry, 0) == tag)
            .map(|entry| u64_at(entry, 8))
    };
    const STRINGS: u64 = 5;
    const STRINGS_BYTES: u64 = 10;
    let (at, bytes) = (value(STRINGS)?, value(STRINGS_BYTES)?);
    // It is an address; the file has what is loaded there elsewhere.
    let offset = of_kind(LOADED).find_map(|entry| {
        let inside = at.checked_sub(u64_at(entry, 16))?;
        (inside < u64_at(entry, 32)).then(|| u64_at(entry, 8).checked_add(inside))?
    });
    read(offset?, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_that_a_program_needs_are_among_its_names() {
        let own = File::open("/proc/self/exe").unwrap();
        let names = names(&own).unwrap();
        let mut names = names.split(|byte| *byte == 0);
        assert!(names.any(|name| name == b"libc.so.6"));
        assert!(!is_sanitized(Path::new("/proc/self/exe")));
        assert!(!is_sanitized(Path::new("/no/such/program")));
    }
}
