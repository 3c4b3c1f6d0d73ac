//! Names, lengths, space, times, copies.

use crate::world::{Fd, NOWHERE, World, call};
use libc::{c_char, c_int, c_uint, c_ulong, c_void};
use std::ptr;

/// A length that a file can be compared with.
fn length(world: &mut World) -> i64 {
    world.offset().min(1 << 20)
}

pub fn truncate(world: &mut World) {
    let bytes = length(world);
    let name = world.spelling(&["ftruncate", "truncate", "ftruncate64", "truncate64"]);
    if name.starts_with('f') {
        let fd = world.fd();
        let about = format!("{}, {bytes}", world.show(fd));
        call!(world, name, about, (fd => c_int, bytes => i64) -> c_int);
        world.note_state(fd);
    } else {
        let path = world.path();
        let pointer = world.pointer(&path);
        let about = format!("{bytes}, {}", short(&path));
        call!(world, name, about, (pointer => *const c_char, bytes => i64) -> c_int);
    }
}

fn short(path: &std::ffi::CStr) -> &str {
    let path = path.to_str().unwrap();
    &path[..path.len().min(20)]
}

pub fn allocate(world: &mut World) {
    if world.is_complete && world.rng.chance(2) {
        return;
    }
    let (fd, offset, bytes) = (world.fd(), length(world), length(world));
    let name = world.spelling(&[
        "fallocate",
        "fallocate64",
        "posix_fallocate",
        "posix_fallocate64",
    ]);
    let about = format!("{}, {offset}, {bytes}", world.show(fd));
    if name.starts_with('p') {
        call!(world, name, about, (fd => c_int, offset => i64, bytes => i64) -> c_int);
    } else {
        let mode = world.rng.one_of(&[
            libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_KEEP_SIZE,
            0,
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_ZERO_RANGE,
            1 << 20,
        ]);
        let about = format!("{about}, {mode}");
        call!(world, name, about, (fd => c_int, mode => c_int, offset => i64, bytes => i64) -> c_int);
    }
    world.note_state(fd);
}

pub fn copy(world: &mut World) {
    let (from, to) = (world.fd(), world.fd());
    let bytes = world.rng.below(3000) as usize;
    let mut offset = world.rng.below(500).cast_signed();
    let has_offset = world.rng.chance(2);
    let place = if has_offset {
        &raw mut offset
    } else {
        ptr::null_mut()
    };
    // An agent says `EOPNOTSUPP` before the kernel finds no descriptor.
    if !world.hands_over || world.has_no_numbers && (from < 0 || to < 0) {
        return;
    }
    let name = world.spelling(&["copy_file_range", "sendfile", "sendfile64", "splice"]);
    let about = format!(
        "{} to {}, {bytes}, {has_offset}",
        world.show(from),
        world.show(to)
    );
    match name {
        "copy_file_range" => {
            let to_offset: *mut i64 = ptr::null_mut();
            call!(
                world, name, about,
                (from => c_int, place => *mut i64, to => c_int, to_offset => *mut i64, bytes => usize, 0 => c_uint)
                    -> isize
            );
        }
        "splice" => {
            let mut ends = [0; 2];
            assert_eq!(
                unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) },
                0
            );
            let text = b"through a pipe\n";
            assert_eq!(
                unsafe { libc::write(ends[1], text.as_ptr().cast(), text.len()) },
                text.len() as isize
            );
            let from = ends[0];
            let none: *mut i64 = ptr::null_mut();
            call!(
                world, name, about,
                (from => c_int, none => *mut i64, to => c_int, place => *mut i64, bytes => usize, 0 => c_uint) -> isize
            );
            for end in ends {
                unsafe { libc::close(end) };
            }
        }
        _ => {
            call!(world, name, about, (to => c_int, from => c_int, place => *mut i64, bytes => usize) -> isize);
        }
    }
    world.say(&format!("offset {offset}"));
    world.note_state(from);
    world.note_state(to);
    if world.rng.chance(4) {
        const FICLONE: c_ulong = libc::FICLONE;
        let about = format!("{}, FICLONE, {}", world.show(to), world.show(from));
        call!(world, "ioctl", about, (to => c_int, FICLONE => c_ulong, from => c_int) -> c_int);
    }
    if world.rng.chance(4) {
        // `FS_IOC_UNRESVSP` punches, `FS_IOC_ZERO_RANGE` zeroes, `FS_IOC_RESVSP` makes room.
        let request: c_ulong = world.rng.one_of(&[0x4030_5829, 0x4030_5839, 0x4030_5828]);
        let (start, bytes) = (world.rng.below(3000), world.rng.below(5000));
        // From the file's start on.
        let range: [u64; 6] = [0, start, bytes, 0, 0, 0];
        let about = format!("{}, {request:#x}, {start}, {bytes}", world.show(to));
        let range = range.as_ptr();
        call!(world, "ioctl", about, (to => c_int, request => c_ulong, range => *const u64) -> c_int);
        world.note_state(to);
    }
    let about = format!("{}, FIOCLEX", world.show(to));
    call!(world, "ioctl", about, (to => c_int, libc::FIOCLEX => c_ulong) -> c_int);
}

pub fn rename(world: &mut World) {
    let (from, to) = (world.path(), world.path());
    let (from_pointer, to_pointer) = (world.pointer(&from), world.pointer(&to));
    let name = world.spelling(&["rename", "renameat", "renameat2"]);
    let about = format!("{}, {}", short(&from), short(&to));
    let dir = libc::AT_FDCWD;
    match name {
        "rename" => {
            call!(world, name, about, (from_pointer => *const c_char, to_pointer => *const c_char) -> c_int);
        }
        "renameat" => {
            call!(
                world, name, about,
                (dir => c_int, from_pointer => *const c_char, dir => c_int, to_pointer => *const c_char) -> c_int
            );
        }
        _ => {
            let flags =
                world
                    .rng
                    .one_of(&[0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE, 1 << 20]);
            let about = format!("{about}, {flags}");
            call!(
                world, name, about,
                (dir => c_int, from_pointer => *const c_char, dir => c_int, to_pointer => *const c_char, flags => c_uint)
                    -> c_int
            );
        }
    }
}

pub fn unlink(world: &mut World) {
    if world.is_complete && !world.rng.chance(3) {
        return;
    }
    let path = world.path();
    let pointer = world.pointer(&path);
    let name = world.spelling(&["unlink", "unlinkat", "remove"]);
    let about = short(&path).to_owned();
    if name == "unlinkat" {
        let flags = world.rng.one_of(&[0, 0, libc::AT_REMOVEDIR, 1]);
        let about = format!("{about}, {flags}");
        call!(
            world, name, about,
            (libc::AT_FDCWD => c_int, pointer => *const c_char, flags => c_int) -> c_int
        );
    } else {
        call!(world, name, about, (pointer => *const c_char) -> c_int);
    }
}

/// A second name.
pub fn link(world: &mut World) {
    let (from, to) = (world.path(), world.path());
    let (from_pointer, to_pointer) = (world.pointer(&from), world.pointer(&to));
    let name = world.spelling(&["link", "linkat"]);
    let about = format!("{}, {}", short(&from), short(&to));
    if name == "link" {
        call!(world, name, about, (from_pointer => *const c_char, to_pointer => *const c_char) -> c_int);
    } else {
        let flags = world
            .rng
            .one_of(&[0, libc::AT_SYMLINK_FOLLOW, libc::AT_EMPTY_PATH, 1]);
        let about = format!("{about}, {flags}");
        let dir = libc::AT_FDCWD;
        call!(
            world, name, about,
            (dir => c_int, from_pointer => *const c_char, dir => c_int, to_pointer => *const c_char, flags => c_int) -> c_int
        );
    }
}

/// A file's times.
pub fn times(world: &mut World) {
    let name = world.spelling(&[
        "futimens",
        "futimes",
        "futimesat",
        "lutimes",
        "utime",
        "utimensat",
        "utimes",
    ]);
    // Now; long ago; or at no time that there is.
    let nowhere = match name {
        "futimens" | "utimensat" => NOWHERE as *const c_void,
        // The C library itself reads what the others are given.
        _ => ptr::null(),
    };
    let past = [[1_000_000_000i64, 5]; 2];
    let times = world
        .rng
        .one_of(&[ptr::null(), past.as_ptr().cast::<c_void>(), nowhere]);
    let about = format!("{}, {}", times.is_null(), times == nowhere);
    if name.starts_with("futimen") || name == "futimes" {
        let fd = world.fd();
        let about = format!("{}, {about}", world.show(fd));
        call!(world, name, about, (fd => c_int, times => *const c_void) -> c_int);
        return;
    }
    let path = world.path();
    let pointer = world.pointer(&path);
    let about = format!("{}, {about}", short(&path));
    let dir = libc::AT_FDCWD;
    match name {
        "futimesat" => {
            call!(world, name, about, (dir => c_int, pointer => *const c_char, times => *const c_void) -> c_int);
        }
        "utimensat" => {
            let flags = world.rng.one_of(&[0, libc::AT_SYMLINK_NOFOLLOW, 1]);
            let about = format!("{about}, {flags}");
            call!(
                world, name, about,
                (dir => c_int, pointer => *const c_char, times => *const c_void, flags => c_int) -> c_int
            );
        }
        _ => {
            call!(world, name, about, (pointer => *const c_char, times => *const c_void) -> c_int);
        }
    }
}

/// Opens for direct I/O, asks for the flags, and changes them. What direct I/O takes and refuses
/// `crates/cli/tests/run_direct.rs` compares.
pub fn open_direct(world: &mut World) {
    // Of a number that is another descriptor in another thread more may be shown than it was opened
    // with.
    if world.is_unshared {
        return;
    }
    let path = world.path();
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_DIRECT | libc::O_DSYNC;
    let about = format!("{}, {flags:#o}", short(&path));
    let fd = call!(
        world, "open", about,
        (path.as_ptr() => *const c_char, flags => c_int, 0o600 => c_uint) -> Fd
    );
    let fd = fd.0;
    call!(world, "fcntl", "F_GETFL", (fd => c_int, libc::F_GETFL => c_int, 0 => c_ulong) -> c_int);
    call!(
        world, "write", "nowhere",
        (fd => c_int, NOWHERE as *const c_void => *const c_void, 4096 => usize) -> isize
    );
    for flags in [libc::O_DIRECT, libc::O_NONBLOCK] {
        let about = format!("F_SETFL, {flags:#o}");
        call!(world, "fcntl", about, (fd => c_int, libc::F_SETFL => c_int, flags as c_ulong => c_ulong) -> c_int);
        call!(world, "fcntl", "F_GETFL", (fd => c_int, libc::F_GETFL => c_int, 0 => c_ulong) -> c_int);
    }
    call!(world, "close", "it", (fd => c_int) -> c_int);
}
