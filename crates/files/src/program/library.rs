//! A shared library in its file: its needs, their search paths, and the symbols that it has and
//! imports.

use super::{u16_at, u32_at, u64_at};
use std::{ffi::CString, fs::File, io, os::unix::fs::FileExt};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
/// Bytes of a table at most: a larger one is not understood.
const TABLE_MAX: u64 = 64 << 20;
const SYMBOL_BYTES: usize = 24;
const STB_LOCAL: u8 = 0;
const STT_OBJECT: u8 = 1;
const HEADER_BYTES: u64 = 56;
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// See the module's head.
pub struct SharedLibrary {
    /// Names of the libraries that it needs.
    pub needed: Vec<CString>,
    /// Lists of directories, separated by colons.
    pub run_paths: Vec<Vec<u8>>,
}

/// A symbol of a library that other libraries may have, too.
#[derive(Clone, Copy, Debug)]
pub struct LibrarySymbol<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The library has it itself: otherwise it imports it.
    pub is_defined: bool,
    /// It is a variable.
    pub is_data: bool,
}

/// A part of the file that is mapped.
struct LoadSegment {
    address: u64,
    offset: u64,
    bytes: u64,
}

fn wrong() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl SharedLibrary {
    /// Reads it, and shows `visit` each symbol. None if it is no library of this machine, which the
    /// dynamic linker refuses.
    ///
    /// # Errors
    /// It cannot be read, or not be understood.
    pub fn read(file: &File, mut visit: impl FnMut(LibrarySymbol<'_>)) -> io::Result<Option<Self>> {
        /// 64 bits, the order of bytes of this machine, and version 1.
        const OURS: &[u8] = b"\x7fELF\x02\x01\x01";
        let mut header = [0; 64];
        let is_ours = match file.read_exact_at(&mut header, 0) {
            Ok(()) => header.starts_with(OURS) && u16_at(&header, 18) == MACHINE,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            // A directory, for instance.
            Err(_) if !file.metadata()?.is_file() => false,
            Err(error) => return Err(error),
        };
        if !is_ours {
            return Ok(None);
        }
        let (segments, dynamic) = segments(file, &header)?;
        let read = |address, bytes| read_mapped(file, &segments, address, bytes);
        let entries: Vec<(u64, u64)> = (dynamic.as_chunks::<16>().0.iter())
            .map(|entry| (u64_at(entry, 0), u64_at(entry, 8)))
            .take_while(|(tag, _)| *tag != 0)
            .collect();
        let value = |wanted| entries.iter().find(|(tag, _)| *tag == wanted);
        let value = |wanted| value(wanted).map(|(_, value)| *value).ok_or_else(wrong);
        let names = read(value(DT_STRTAB)?, value(DT_STRSZ)?)?;
        let text = |at: u64| text_at(&names, at);
        let all = |wanted: u64| entries.iter().filter(move |(tag, _)| *tag == wanted);
        let needed = all(DT_NEEDED)
            .map(|(_, at)| text(*at).and_then(|name| CString::new(name).map_err(|_| wrong())));
        let run_paths = all(DT_RPATH).chain(all(DT_RUNPATH));
        let run_paths = run_paths.map(|(_, at)| text(*at).map(<[u8]>::to_vec));
        let run_paths = run_paths.collect::<io::Result<_>>()?;
        let needed = needed.collect::<io::Result<_>>()?;
        // Linkers put the names behind the symbols, of which no table says how many there are.
        let (symbols, end) = (value(DT_SYMTAB)?, value(DT_STRTAB)?);
        let symbols = read(symbols, end.checked_sub(symbols).ok_or_else(wrong)?)?;
        for symbol in symbols.chunks_exact(SYMBOL_BYTES) {
            let (info, at) = (symbol[4], u32_at(symbol, 0));
            match text(at.into()) {
                Ok(name) if info >> 4 != STB_LOCAL => visit(LibrarySymbol {
                    name,
                    is_defined: u16_at(symbol, 6) != 0,
                    is_data: info & 0xf == STT_OBJECT,
                }),
                _ => {}
            }
        }
        Ok(Some(Self { needed, run_paths }))
    }
}

/// The mapped segments, and the dynamic section.
fn segments(file: &File, header: &[u8]) -> io::Result<(Vec<LoadSegment>, Vec<u8>)> {
    let (table, size, count) = (u64_at(header, 32), u16_at(header, 54), u16_at(header, 56));
    let (mut mapped, mut dynamic) = (Vec::new(), Vec::new());
    if u64::from(size) < HEADER_BYTES {
        return Err(wrong());
    }
    for n in 0..u64::from(count) {
        let mut entry = [0; HEADER_BYTES as usize];
        let at = n
            .checked_mul(size.into())
            .and_then(|at| at.checked_add(table));
        file.read_exact_at(&mut entry, at.ok_or_else(wrong)?)?;
        let segment = LoadSegment {
            address: u64_at(&entry, 16),
            offset: u64_at(&entry, 8),
            bytes: u64_at(&entry, 32),
        };
        match u32_at(&entry, 0) {
            PT_LOAD => mapped.push(segment),
            PT_DYNAMIC => dynamic = read_at(file, segment.offset, segment.bytes)?,
            _ => {}
        }
    }
    Ok((mapped, dynamic))
}

fn read_at(file: &File, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let count = usize::try_from(bytes.min(TABLE_MAX)).map_err(|_| wrong())?;
    if bytes > TABLE_MAX || bytes > file.metadata()?.len() {
        return Err(wrong());
    }
    let mut contents = vec![0; count];
    file.read_exact_at(&mut contents, offset)?;
    Ok(contents)
}

fn read_mapped(
    file: &File,
    segments: &[LoadSegment],
    address: u64,
    bytes: u64,
) -> io::Result<Vec<u8>> {
    let mut segments = segments.iter();
    let within = segments.find_map(|segment| {
        let at = address.checked_sub(segment.address)?;
        let end = at.checked_add(bytes)?;
        (end <= segment.bytes).then(|| segment.offset.checked_add(at))?
    });
    read_at(file, within.ok_or_else(wrong)?, bytes)
}

/// The text that begins there.
fn text_at(names: &[u8], at: u64) -> io::Result<&[u8]> {
    let at = usize::try_from(at).map_err(|_| wrong())?;
    let names = names.get(at..).ok_or_else(wrong)?;
    let end = names.iter().position(|byte| *byte == 0).ok_or_else(wrong)?;
    names.get(..end).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_this_machine_is_understood() {
        let own = std::env::current_exe().unwrap();
        let file = File::open(own).unwrap();
        let mut imports = Vec::new();
        let object = SharedLibrary::read(&file, |symbol| {
            if !symbol.is_defined {
                imports.push(symbol.name.to_vec());
            }
        });
        let object = object.unwrap().unwrap();
        assert!(imports.iter().any(|name| name == b"write"));
        assert!(!imports.iter().any(|name| name == b"no_such_function"));
        assert!(
            object
                .needed
                .iter()
                .any(|name| name.as_c_str() == c"libc.so.6")
        );
    }

    #[test]
    fn what_the_dynamic_linker_refuses_is_no_library() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none.so");
        for contents in [
            "",
            "text",
            "\x7fELF\x01\x01\x01 of 32 bits, and long enough to be a whole header of 64 bytes",
        ] {
            std::fs::write(&path, contents).unwrap();
            let file = File::open(&path).unwrap();
            assert!(SharedLibrary::read(&file, |_| {}).unwrap().is_none());
        }
        let file = File::open(dir.path()).unwrap();
        assert!(SharedLibrary::read(&file, |_| {}).unwrap().is_none());
    }
}
