//! The program to be run: where it is, and whether a library can be put before it.

use crate::failure::Failure;
use rustix::fs::Access;
use std::{
    env,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

/// A program and its arguments.
pub struct Program {
    command: Vec<OsString>,
    path: PathBuf,
    /// Where the path leads, through all links.
    real: PathBuf,
}

impl Program {
    /// Finds it as a shell does.
    pub fn find(command: &[OsString]) -> Result<Self, Failure> {
        let typed = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        let path = resolve(typed, &env::var_os("PATH").unwrap_or_default())?;
        Ok(Self {
            command: command.to_owned(),
            real: path.canonicalize().unwrap_or_else(|_| path.clone()),
            path,
        })
    }

    /// As the user called it.
    pub fn typed(&self) -> &OsStr {
        &self.command[0]
    }

    /// What the user gave after it.
    pub fn arguments(&self) -> &[OsString] {
        &self.command[1..]
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its file name.
    pub fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or(self.typed())
    }

    /// Its file name, and that of the file it leads to.
    pub fn names(&self) -> Vec<&OsStr> {
        std::iter::once(self.name())
            .chain(self.real.file_name())
            .collect()
    }

    /// Refuses what would run without our library, and so without its durability being taken over.
    pub fn check(&self) -> Result<(), Failure> {
        check(&self.real, 0)
    }
}

/// The file that `typed` means: itself with a slash, otherwise the first in `search` that can be run.
fn resolve(typed: &OsStr, search: &OsStr) -> Result<PathBuf, Failure> {
    let candidates: Vec<PathBuf> = if typed.as_bytes().contains(&b'/') {
        vec![PathBuf::from(typed)]
    } else {
        env::split_paths(search)
            .map(|dir| dir.join(typed))
            .collect()
    };
    let is_there = |path: &&PathBuf| path.is_file();
    let can_run = |path: &&PathBuf| rustix::fs::access(path.as_path(), Access::EXEC_OK).is_ok();
    if let Some(path) = candidates.iter().filter(is_there).find(can_run) {
        return Ok(path.clone());
    }
    if let Some(path) = candidates.iter().find(|path| path.exists()) {
        let what = if path.is_dir() {
            "is a directory"
        } else {
            "is not executable"
        };
        return Err(Failure::NotRun(126, format!("{} {what}", path.display())));
    }
    let typed = typed.to_string_lossy();
    Err(Failure::NotRun(
        127,
        if typed.contains('/') {
            format!("{typed}: there is no such program")
        } else {
            format!("{typed}: there is no such program in PATH")
        },
    ))
}

/// Scripts whose interpreter is a script, and so on, at most; as the kernel has it.
const SCRIPTS_MAX: usize = 5;

fn check(path: &Path, depth: usize) -> Result<(), Failure> {
    let refuse = |why: String| Err(Failure::NotRun(126, format!("{} {why}", path.display())));
    let failed = || Failure::io("reading", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        // May be run and not read: then it is not checked, and its files stay plain if the library is not loaded.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(failed()(error)),
    };
    let mut start = [0; 256];
    let read = file.read_at(&mut start, 0).map_err(failed())?;
    let start = &start[..read];
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
        return match interpreter(line) {
            Some(interpreter) if depth < SCRIPTS_MAX => check(&interpreter, depth + 1),
            _ => Ok(()),
        };
    }
    if let Some(why) = gains_privileges(&file).map_err(failed())? {
        return refuse(format!(
            "{why}, so the system loads no library into it and nothing of it can be absorbed. Run it as its owner, or run a copy without that"
        ));
    }
    let own = File::open("/proc/self/exe").map_err(Failure::io("reading", "this program"))?;
    match Elf::read(&file, &own) {
        Ok(elf) => elf.check(path),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => refuse(format!("{error}")),
        Err(error) => Err(failed()(error)),
    }
}

/// The program that runs a script with this first line; for `env NAME`, the one called so.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let mut words = line
        .split(|b| b.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
        .map(OsStr::from_bytes);
    let interpreter = Path::new(words.next()?);
    if interpreter.file_name() == Some(OsStr::new("env")) {
        let named = words
            .find(|word| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'='))?;
        return resolve(named, &env::var_os("PATH").unwrap_or_default()).ok();
    }
    Some(interpreter.to_owned())
}

/// Why the program runs with more rights than its caller, if it does.
fn gains_privileges(file: &File) -> io::Result<Option<&'static str>> {
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

/// What the headers of a program say.
struct Elf {
    /// For the same kind of machine as this program.
    ours: bool,
    /// The loader it asks for: none if it is linked statically.
    loader: Option<Vec<u8>>,
    /// Built by Go.
    go: bool,
}

const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

impl Elf {
    /// Reads `file`, and compares it with `own`. `InvalidData` for what no kernel runs.
    fn read(file: &File, own: &File) -> io::Result<Self> {
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
        Ok(elf)
    }

    fn check(&self, path: &Path) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::NotRun(126, format!("{} {why}", path.display())));
        if !self.ours {
            return refuse(
                "is a program for another kind of machine than forebay, so forebay's library cannot be loaded into it",
            );
        }
        let Some(loader) = &self.loader else {
            return refuse(if self.go {
                "is a statically linked Go program: it calls the kernel without the C library, so nothing of it can be absorbed. Run it without forebay"
            } else {
                "is linked statically, so no library can be put before it and nothing of it can be absorbed. Run it without forebay, or link it dynamically"
            });
        };
        if loader.windows(7).any(|w| w == b"ld-musl") {
            return refuse(
                "is linked to the musl C library; forebay's library is for glibc. Run a build for glibc",
            );
        }
        if self.go {
            eprintln!(
                "forebay: warning: {} is a Go program: what it writes without the C library stays as it is, not absorbed",
                path.display()
            );
        }
        Ok(())
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn script(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[track_caller]
    fn status(done: Result<PathBuf, Failure>) -> u8 {
        match done {
            Err(Failure::NotRun(status, _)) => status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("1"), dir.path().join("2"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&two).unwrap();
        script(&one, "db", "", 0o644);
        let real = script(&two, "db", "", 0o755);
        let search = env::join_paths([&one, &two]).unwrap();
        // What cannot be run is passed over, and is the reason only if nothing else is there.
        if !rustix::process::getuid().is_root()
            || rustix::fs::access(one.join("db"), Access::EXEC_OK).is_err()
        {
            assert_eq!(resolve(OsStr::new("db"), &search).unwrap(), real);
        }
        let first = env::join_paths([&one]).unwrap();
        assert_eq!(status(resolve(OsStr::new("db"), &first)), 126);
        assert_eq!(status(resolve(OsStr::new("no-such-db"), &search)), 127);
        assert_eq!(status(resolve(OsStr::new("./no/such"), &search)), 127);
        assert_eq!(status(resolve(one.as_os_str(), &search)), 126);
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let good = script(dir.path(), "good", "#!/bin/sh\n", 0o755);
        check(&good, 0).unwrap();
        let env = script(dir.path(), "env", "#!/usr/bin/env -S LANG=C sh -e\n", 0o755);
        check(&env, 0).unwrap();
        let of_script = script(
            dir.path(),
            "nested",
            &format!("#!{} -x\n", good.display()),
            0o755,
        );
        check(&of_script, 0).unwrap();
        let text = script(dir.path(), "text", "hello\n", 0o755);
        let Err(Failure::NotRun(126, message)) = check(&text, 0) else {
            panic!("a text was taken for a program");
        };
        assert!(
            message.contains("neither a program nor a script"),
            "{message}"
        );
    }

    #[test]
    fn a_program_without_a_loader_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        // Our own program, with its request for a loader made a plain note.
        let mut bytes = fs::read("/proc/self/exe").unwrap();
        let (table, size, count) = (u64_at(&bytes, 32), u16_at(&bytes, 54), u16_at(&bytes, 56));
        for n in 0..u64::from(count) {
            let at = usize::try_from(table + n * u64::from(size)).unwrap();
            if u32_at(&bytes, at) == PT_INTERP {
                bytes[at..at + 4].copy_from_slice(&0_u32.to_ne_bytes());
            }
        }
        let path = dir.path().join("static");
        fs::write(&path, &bytes).unwrap();
        let Err(Failure::NotRun(126, message)) = check(&path, 0) else {
            panic!("a static program was taken");
        };
        assert!(message.contains("linked statically"), "{message}");
        bytes[18..20].copy_from_slice(&[0xff, 0x7f]);
        fs::write(&path, &bytes).unwrap();
        let Err(Failure::NotRun(126, message)) = check(&path, 0) else {
            panic!("a program for another machine was taken");
        };
        assert!(message.contains("another kind of machine"), "{message}");
        check(Path::new("/proc/self/exe"), 0).unwrap();
    }

    #[test]
    fn a_setuid_program_of_somebody_else_is_refused() {
        if !rustix::process::getuid().is_root() {
            println!("skipped: only root can give a file to another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("su");
        fs::copy("/proc/self/exe", &path).unwrap();
        std::os::unix::fs::chown(&path, Some(1), Some(1)).unwrap();
        check(&path, 0).unwrap();
        for (mode, word) in [(0o4755, "setuid"), (0o2755, "setgid")] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let Err(Failure::NotRun(126, message)) = check(&path, 0) else {
                panic!("a {word} program was taken");
            };
            assert!(message.contains(word), "{message}");
        }
    }
}
