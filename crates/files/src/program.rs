//! Programs, before they are executed: the check that a library can be put before them. Libraries,
//! before they are loaded.

mod agent_fit;
mod go;
mod library;

pub use agent_fit::{is_for_agent, is_for_musl, kind_of};
pub use library::{LibrarySymbol, SharedLibrary};

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt},
    },
    path::Path,
};

/// Scripts whose interpreter is a script, and so on, at most; as the kernel has it.
pub const SCRIPTS_MAX: usize = 5;

/// True if the dynamic linker loads a preloaded library into the program at this path, and its
/// calls on files go by the C library. Of one that cannot be executed at all: true.
#[must_use]
pub fn is_followed(path: &Path) -> bool {
    is_followed_within(path, SCRIPTS_MAX)
}

fn is_followed_within(path: &Path, scripts: usize) -> bool {
    let file = match File::open(path) {
        Ok(file) => file,
        // May be executed and not read.
        Err(error) => return error.kind() != io::ErrorKind::PermissionDenied,
    };
    let mut start = [0; 256];
    let read = file.read_at(&mut start, 0).unwrap_or(0);
    if let Some(line) = start[..read].strip_prefix(b"#!") {
        return words(line).next().is_none_or(|interpreter| {
            scripts > 0 && is_followed_within(Path::new(interpreter), scripts - 1)
        });
    }
    if is_secure() || !matches!(gains_privileges(&file), Ok(None)) {
        return false;
    }
    let elf = File::open("/proc/self/exe").and_then(|own| Elf::read(&file, &own));
    match elf {
        Ok(elf) => elf.ours && elf.link_kind() == LinkKind::Glibc,
        Err(error) => error.kind() == io::ErrorKind::InvalidData,
    }
}

/// True if the program at this path has another dynamic linker than the GNU C library's for this
/// machine: musl's ends it for a library that it cannot load, and that of another machine
/// complains. Of a script its interpreter's.
#[must_use]
pub fn has_other_linker(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..=SCRIPTS_MAX {
        let Ok(file) = File::open(&path) else {
            return false;
        };
        let mut start = [0; 256];
        let read = file.read_at(&mut start, 0).unwrap_or(0);
        match start[..read]
            .strip_prefix(b"#!")
            .map(|line| words(line).next())
        {
            Some(Some(interpreter)) => path = interpreter.into(),
            Some(None) => return false,
            None => {
                let elf = File::open("/proc/self/exe").and_then(|own| Elf::read(&file, &own));
                return elf.is_ok_and(|elf| !elf.ours || elf.is_for_musl());
            }
        }
    }
    false
}

/// True if whatever this process executes is taken for a program that gains privileges: its
/// effective user or group is not its real one.
fn is_secure() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    geteuid() != getuid() || getegid() != getgid()
}

/// The words of a script's first line, behind `#!`.
pub fn words(line: &[u8]) -> impl Iterator<Item = &OsStr> {
    let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
    line.split(|b| b.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
        .map(OsStr::from_bytes)
}

/// The reason that the program runs with more rights than its caller, if it does.
pub fn gains_privileges(file: &File) -> io::Result<Option<&'static str>> {
    const SETUID: u32 = 0o4000;
    const SETGID: u32 = 0o2010;
    let meta = file.metadata()?;
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    if meta.mode() & SETUID != 0 && meta.uid() != uid.as_raw() {
        return Ok(Some("is a setuid program of another user"));
    }
    if meta.mode() & SETGID == SETGID && meta.gid() != gid.as_raw() {
        return Ok(Some("is a setgid program of another group"));
    }
    let mut capabilities = [0_u8; 64];
    let found = rustix::fs::fgetxattr(file, "security.capability", &mut capabilities[..]);
    Ok((found.is_ok() && !uid.is_root()).then_some("has file capabilities"))
}

/// The way a program calls the kernel, as far as its file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// By the GNU C library, before which another library can be put.
    Glibc,
    /// By itself: it is linked statically.
    Static,
    /// By Go's runtime, and it is linked statically.
    StaticGo,
    /// By Go's runtime, beside a C library.
    Go,
    /// By musl.
    Musl,
    /// By a C library that is not known.
    OtherLibrary,
}

impl LinkKind {
    /// Its kind, of a program.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Glibc => "is linked to the GNU C library",
            Self::Static => "is linked statically",
            Self::StaticGo => "is a statically linked Go program",
            Self::Go => "is a Go program, which calls the kernel without the C library",
            Self::Musl => "is linked to the musl C library",
            Self::OtherLibrary => "is linked to another C library than GNU's",
        }
    }
}

/// The contents of a program's headers.
pub struct Elf {
    /// For the same kind of machine as this program.
    pub ours: bool,
    /// The loader it asks for: none if it is linked statically.
    pub loader: Option<Vec<u8>>,
    /// Built by Go.
    pub go: bool,
}

const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

impl Elf {
    /// Reads `file`, and compares it with `own`. `InvalidData` for what no kernel runs.
    pub fn read(file: &File, own: &File) -> io::Result<Self> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let mut header = [0; 64];
        let mut own_header = [0; 64];
        own.read_exact_at(&mut own_header, 0)?;
        if file.read_exact_at(&mut header, 0).is_err() || !header.starts_with(b"\x7fELF") {
            return Err(wrong(
                "is neither a program nor a script that names its interpreter (#!)",
            ));
        }
        // Class, byte order, and the machine.
        let ours = header[4..6] == own_header[4..6] && header[18..20] == own_header[18..20];
        let mut elf = Self {
            ours,
            loader: None,
            go: false,
        };
        if !ours {
            return Ok(elf);
        }
        let table = u64_at(&header, 32);
        let (size, count) = (u16_at(&header, 54), u16_at(&header, 56));
        for n in 0..u64::from(count) {
            let mut entry = [0; 56];
            file.read_exact_at(&mut entry, table + n * u64::from(size))
                .map_err(|_| wrong("is a damaged program: its headers lie outside of it"))?;
            let (offset, bytes) = (u64_at(&entry, 8), u64_at(&entry, 32));
            let contents = || -> io::Result<Vec<u8>> {
                let mut contents = vec![0; usize::try_from(bytes.min(4096)).unwrap_or(0)];
                file.read_exact_at(&mut contents, offset)
                    .map_err(|_| wrong("is a damaged program: its headers lie outside of it"))?;
                Ok(contents)
            };
            match u32_at(&entry, 0) {
                PT_INTERP => elf.loader = Some(contents()?),
                // A note of the name "Go" (4 bytes with its end) and type 4, the build id.
                PT_NOTE => {
                    let note = contents()?;
                    elf.go |= note.windows(8).any(|w| w == b"\x04\0\0\0Go\0\0")
                        && note.starts_with(b"\x04\0\0\0");
                }
                _ => {}
            }
        }
        // A build id can be left out.
        elf.go = elf.go || go::has_section(file, &header);
        Ok(elf)
    }

    /// The way it calls the kernel.
    #[must_use]
    pub fn link_kind(&self) -> LinkKind {
        /// First part of the names of the GNU C library's loaders, whatever directory they are in.
        const GNU: [&[u8]; 4] = [b"ld-linux", b"ld-lsb", b"ld-2.", b"ld.so"];
        let Some(loader) = &self.loader else {
            return match self.go {
                true => LinkKind::StaticGo,
                false => LinkKind::Static,
            };
        };
        let name = loader.rsplit(|byte| *byte == b'/').next();
        match name.unwrap_or_default() {
            _ if self.is_for_musl() => LinkKind::Musl,
            _ if self.go => LinkKind::Go,
            name if GNU.iter().any(|begin| name.starts_with(begin)) => LinkKind::Glibc,
            _ => LinkKind::OtherLibrary,
        }
    }

    /// Its loader is musl's: ours is a library for glibc.
    #[must_use]
    pub fn is_for_musl(&self) -> bool {
        let loader = self.loader.as_deref().unwrap_or_default();
        loader.windows(7).any(|w| w == b"ld-musl")
    }
}

/// A number in the order of this machine.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

/// A number in the order of this machine.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A number in the order of this machine.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let (low, high) = (
        u64::from(u32_at(bytes, at)),
        u64::from(u32_at(bytes, at + 4)),
    );
    if cfg!(target_endian = "little") {
        low | high << 32
    } else {
        high | low << 32
    }
}
