//! Names, modes, owners and attributes: what is hooked to be counted, and nothing else.

use crate::world::{Fd, World, call};
use libc::{AT_FDCWD, c_char, c_int, c_uint, c_void};
use std::ffi::CStr;

/// Makes something under a name of its own, and takes it away again.
pub fn make(world: &mut World) {
    let name = world.spelling(&[
        "mkdir",
        "mkdirat",
        "symlink",
        "symlinkat",
        "mknod",
        "mknodat",
        "mkfifo",
        "mkfifoat",
        "bind",
    ]);
    let (path, target) = (c"sub/made".as_ptr(), c"there".as_ptr());
    let about = "sub/made";
    let (mode, node) = (0o700, libc::S_IFREG | 0o600);
    match name {
        "mkdir" | "mkfifo" => {
            call!(world, name, about, (path => *const c_char, mode => c_uint) -> c_int);
        }
        "mkdirat" | "mkfifoat" => {
            call!(world, name, about, (AT_FDCWD => c_int, path => *const c_char, mode => c_uint) -> c_int);
        }
        "symlink" => {
            call!(world, name, about, (target => *const c_char, path => *const c_char) -> c_int);
        }
        "symlinkat" => {
            call!(
                world, name, about,
                (target => *const c_char, AT_FDCWD => c_int, path => *const c_char) -> c_int
            );
        }
        "mknod" => {
            call!(world, name, about, (path => *const c_char, node => c_uint, 0 => u64) -> c_int);
        }
        "mknodat" => {
            call!(
                world, name, about,
                (AT_FDCWD => c_int, path => *const c_char, node => c_uint, 0 => u64) -> c_int
            );
        }
        _ => bind(world),
    }
    match name.starts_with("mkdir") {
        true => {
            call!(world, "rmdir", about, (path => *const c_char) -> c_int);
        }
        false => {
            call!(world, "remove", about, (path => *const c_char) -> c_int);
        }
    }
}

fn bind(world: &mut World) {
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) };
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(b"sub/made") {
        *to = *from as c_char;
    }
    let (at, bytes) = (&raw const address, size_of::<libc::sockaddr_un>() as c_uint);
    call!(
        world, "bind", "sub/made",
        (socket => c_int, at.cast() => *const c_void, bytes => c_uint) -> c_int
    );
    unsafe { libc::close(socket) };
}

/// Makes something under a name that the C library chooses.
pub fn make_temporary(world: &mut World) {
    let name = world.spelling(&[
        "mkstemp",
        "mkstemp64",
        "mkostemp",
        "mkostemp64",
        "mkstemps",
        "mkstemps64",
        "mkostemps",
        "mkostemps64",
        "mkdtemp",
    ]);
    let mut template = match name.contains("temps") {
        true => *b"sub/t-XXXXXX.x\0",
        false => *b"sub/tmp-XXXXXX\0",
    };
    let place = template.as_mut_ptr().cast::<c_char>();
    let (flags, suffix) = (libc::O_CLOEXEC, 2);
    let fd = match name {
        "mkdtemp" => {
            call!(world, name, "", (place => *mut c_char) -> *mut c_char);
            Fd(-1)
        }
        "mkstemp" | "mkstemp64" => call!(world, name, "", (place => *mut c_char) -> Fd),
        "mkostemp" | "mkostemp64" => {
            call!(world, name, "", (place => *mut c_char, flags => c_int) -> Fd)
        }
        "mkstemps" | "mkstemps64" => {
            call!(world, name, "", (place => *mut c_char, suffix => c_int) -> Fd)
        }
        _ => call!(world, name, "", (place => *mut c_char, suffix => c_int, flags => c_int) -> Fd),
    };
    unsafe {
        libc::close(fd.0);
        libc::remove(place);
    }
}

/// Changes a file's mode or owner, or tries to.
pub fn attribute(world: &mut World) {
    let name = world.spelling(&[
        "chmod", "lchmod", "fchmod", "fchmodat", "chown", "lchown", "fchown", "fchownat",
    ]);
    let path = world.path();
    let pointer = world.pointer(&path);
    let fd = world.fd();
    let (mode, user) = (world.rng.one_of(&[0o600, 0o640]), c_uint::MAX);
    let about = match name.starts_with('f') && !name.ends_with("at") {
        true => format!("{}, {mode:o}", world.show(fd)),
        false => format!("{}, {mode:o}", shown(&path)),
    };
    match name {
        "chmod" | "lchmod" => {
            call!(world, name, about, (pointer => *const c_char, mode => c_uint) -> c_int);
        }
        "fchmod" => {
            call!(world, name, about, (fd => c_int, mode => c_uint) -> c_int);
        }
        "fchmodat" => {
            call!(
                world, name, about,
                (AT_FDCWD => c_int, pointer => *const c_char, mode => c_uint, 0 => c_int) -> c_int
            );
        }
        "fchown" => {
            call!(world, name, about, (fd => c_int, user => c_uint, user => c_uint) -> c_int);
        }
        "fchownat" => {
            call!(
                world, name, about,
                (AT_FDCWD => c_int, pointer => *const c_char, user => c_uint, user => c_uint, 0 => c_int)
                    -> c_int
            );
        }
        _ => {
            call!(world, name, about, (pointer => *const c_char, user => c_uint, user => c_uint) -> c_int);
        }
    }
}

/// Gives a file an attribute, or takes it away.
pub fn extended(world: &mut World) {
    let name = world.spelling(&[
        "setxattr",
        "lsetxattr",
        "fsetxattr",
        "removexattr",
        "lremovexattr",
        "fremovexattr",
    ]);
    let path = world.path();
    let pointer = world.pointer(&path);
    let fd = world.fd();
    let (attribute, value) = (c"user.changed".as_ptr(), c"1".as_ptr());
    let about = match name.starts_with('f') {
        true => world.show(fd),
        false => shown(&path).to_owned(),
    };
    match name {
        "fsetxattr" => {
            call!(
                world, name, about,
                (fd => c_int, attribute => *const c_char, value => *const c_char, 1 => usize, 0 => c_int)
                    -> c_int
            );
        }
        "fremovexattr" => {
            call!(world, name, about, (fd => c_int, attribute => *const c_char) -> c_int);
        }
        "setxattr" | "lsetxattr" => {
            call!(
                world, name, about,
                (pointer => *const c_char, attribute => *const c_char, value => *const c_char, 1 => usize, 0 => c_int)
                    -> c_int
            );
        }
        _ => {
            call!(world, name, about, (pointer => *const c_char, attribute => *const c_char) -> c_int);
        }
    }
}

fn shown(path: &CStr) -> &str {
    let path = path.to_str().unwrap();
    &path[..path.len().min(20)]
}
