//! Tells if a program that is about to be executed can have an agent.

use super::{Elf, LinkKind, SCRIPTS_MAX, gains_privileges, is_secure, words};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::{
    ffi::OsStr,
    fs::File,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
};

/// The way the program at this path calls the kernel; of a script its interpreter. None if that
/// cannot be told, or if it cannot be executed.
#[must_use]
pub fn kind_of(path: &Path) -> Option<LinkKind> {
    let (elf, _) = program_at(path)?;
    Some(elf.link_kind())
}

/// True if the program at this path, or its interpreter, has musl's loader.
#[must_use]
pub fn is_for_musl(path: &Path) -> bool {
    kind_of(path) == Some(LinkKind::Musl)
}

/// True if the program at this path is one that the library does not fit, and an agent may: it
/// gains no rights, all that the kernel needs to execute it is there, and it is there by this path
/// for another process, too.
#[must_use]
pub fn is_for_agent(path: &Path) -> bool {
    if is_of_process(path) {
        return false;
    }
    let Some((elf, file)) = program_at(path) else {
        return false;
    };
    let loader = elf
        .loader
        .as_deref()
        .map(|it| it.split(|byte| *byte == 0).next());
    let has_loader = loader.is_none_or(|loader| {
        let loader = loader.unwrap_or_default();
        is_executable(Path::new(OsStr::from_bytes(loader)))
    });
    elf.link_kind() != LinkKind::Glibc
        && has_loader
        && !is_secure()
        && matches!(gains_privileges(&file), Ok(None))
}

/// True of a path that may lead to a descriptor, which another program of the process has not.
fn is_of_process(path: &Path) -> bool {
    let places = [
        "/proc",
        "/dev/fd",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/stderr",
    ];
    places.iter().any(|place| path.starts_with(place))
}

/// The program that the kernel would execute for this path, if it is one for this machine.
fn program_at(path: &Path) -> Option<(Elf, File)> {
    let mut path: PathBuf = path.to_owned();
    for _ in 0..=SCRIPTS_MAX {
        let file = File::open(&path).ok()?;
        if !is_executable(&path) {
            return None;
        }
        let mut start = [0; 256];
        let read = file.read_at(&mut start, 0).ok()?;
        if let Some(line) = start[..read].strip_prefix(b"#!") {
            path = words(line).next()?.into();
            continue;
        }
        let own = File::open("/proc/self/exe").ok()?;
        let elf = Elf::read(&file, &own).ok()?;
        return elf.ours.then_some((elf, file));
    }
    None
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn only_what_can_be_executed_is_for_an_agent() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let make = |name: &str, bytes: &[u8], mode: u32| {
            fs::write(at(name), bytes).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
            is_for_agent(&at(name))
        };
        let own = fs::read("/proc/self/exe").unwrap();
        assert!(!make("glibc", &own, 0o755));
        // Without a request for a loader, as program headers of 56 bytes have it.
        let mut bytes = own;
        for at in (64..64 + 56 * 16).step_by(56) {
            if bytes[at..at + 4] == 3_u32.to_ne_bytes() {
                bytes[at..at + 4].copy_from_slice(&0_u32.to_ne_bytes());
            }
        }
        assert!(make("static", &bytes, 0o755));
        assert!(!make("unexecutable", &bytes, 0o644));
        let script = |name: &str| format!("#!{} -x\n", at(name).display());
        assert!(make("script", script("static").as_bytes(), 0o755));
        assert!(!make("broken", script("none").as_bytes(), 0o755));
        assert!(!make("text", b"hello\n", 0o755));
        assert!(!is_for_agent(&at("none")) && !is_for_agent(dir.path()));
    }

    #[test]
    fn what_a_descriptor_leads_to_is_for_no_agent() {
        let of_process = |path: &str| is_of_process(Path::new(path));
        assert!(of_process("/proc/self/fd/7") && of_process("/dev/fd/7"));
        assert!(!of_process("/dev/shm/etcd") && !of_process("/processes/etcd"));
    }
}
