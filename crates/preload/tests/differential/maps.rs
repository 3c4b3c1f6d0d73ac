//! Mappings: written to, read by the program or first by the kernel, and changed in every way in
//! which a mapping can be.

use crate::world::{World, call, hash, size};
use libc::{c_int, c_uint, c_void};
use std::ptr;

pub fn map(world: &mut World) {
    const BYTES: usize = 4096;
    let fd = world.fd();
    let name = world.spelling(&["mmap", "mmap64"]);
    let protection = world
        .rng
        .one_of(&[libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE]);
    let flags = world.rng.one_of(&[
        libc::MAP_PRIVATE,
        libc::MAP_SHARED,
        libc::MAP_SHARED_VALIDATE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        99,
    ]);
    let about = format!("{}, {protection}, {flags:#x}", world.show(fd));
    let pages = call!(
        world, name, about,
        (ptr::null_mut() => *mut c_void, BYTES => usize, protection => c_int, flags => c_int, fd => c_int, 0 => i64)
            -> *mut c_void
    );
    if pages == libc::MAP_FAILED {
        return;
    }
    let readable = if flags & libc::MAP_ANONYMOUS == 0 {
        size(fd).map_or(0, |size| size.min(BYTES as i64) as usize)
    } else {
        BYTES
    };
    let bytes: *mut u8 = pages.cast();
    if protection & libc::PROT_WRITE != 0 && readable > 0 {
        let at = world.rng.below(readable as u64) as usize;
        unsafe { bytes.add(at).write(world.rng.next() as u8) };
    }
    let found = unsafe { std::slice::from_raw_parts(bytes, readable) };
    world.say(&hash(found));
    unsafe { libc::munmap(pages, BYTES) };
}

/// Of so many bytes from the start of the file `from`, as many as a write by `to` does not write
/// over while it reads them: in which order the kernel does that is its own affair, and a library
/// that has to know what was written copies them before.
fn apart(from: c_int, to: c_int, bytes: usize) -> usize {
    let file = |fd| {
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        (unsafe { libc::fstat(fd, &raw mut stat) } == 0).then_some((stat.st_dev, stat.st_ino))
    };
    if file(from).is_none() || file(from) != file(to) {
        return bytes;
    }
    let appends = unsafe { libc::fcntl(to, libc::F_GETFL) } & libc::O_APPEND != 0;
    let at = match appends {
        true => size(to),
        false => Some(unsafe { libc::lseek(to, 0, libc::SEEK_CUR) }),
    };
    match at.and_then(|at| usize::try_from(at).ok()) {
        // Each byte comes to where it is.
        None | Some(0) => bytes,
        Some(at) => bytes.min(at),
    }
}

/// The kernel reads pages that the program has not touched, of the file `from`.
fn send_untouched(world: &mut World, from: c_int, pages: *mut c_void, bytes: usize) {
    let name = world.spelling(&["write", "send", "writev", "sendto", "write", "sendmsg"]);
    let mut ends: [c_int; 2] = [-1; 2];
    unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, ends.as_mut_ptr()) };
    let socket = ends[0];
    let mut part = libc::iovec {
        iov_base: pages,
        iov_len: bytes,
    };
    let parts = &raw mut part;
    let about = "a mapping";
    match name {
        "send" => {
            call!(world, name, about, (socket => c_int, pages => *mut c_void, bytes => usize, 0 => c_int) -> isize);
        }
        "sendto" => {
            let nobody = ptr::null_mut();
            call!(
                world, name, about,
                (socket => c_int, pages => *mut c_void, bytes => usize, 0 => c_int, nobody => *mut c_void, 0 => c_uint) -> isize
            );
        }
        "sendmsg" => {
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = parts;
            message.msg_iovlen = 1;
            let message = &raw const message;
            call!(world, name, about, (socket => c_int, message => *const libc::msghdr, 0 => c_int) -> isize);
        }
        "writev" => {
            call!(world, name, about, (socket => c_int, parts => *mut libc::iovec, 1 => c_int) -> isize);
        }
        _ => {
            let to = world.fd();
            let about = format!("{}, a mapping", world.show(to));
            let bytes = apart(from, to, bytes.min(4096));
            call!(world, name, about, (to => c_int, pages => *mut c_void, bytes => usize) -> isize);
        }
    }
    for end in ends {
        unsafe { libc::close(end) };
    }
}

/// Several pages to be read, some of them first by the kernel, then changed in every way in which a
/// mapping can be.
pub fn map_to_read(world: &mut World) {
    const PAGE: usize = 4096;
    let fd = world.fd();
    let Some(bytes) = size(fd).map(|size| size as usize).filter(|size| *size > 0) else {
        return;
    };
    let flags = world.rng.one_of(&[libc::MAP_PRIVATE, libc::MAP_SHARED]);
    let about = format!("{}, to read, {flags:#x}", world.show(fd));
    let pages = call!(
        world, "mmap", about,
        (ptr::null_mut() => *mut c_void, bytes => usize, libc::PROT_READ => c_int, flags => c_int, fd => c_int, 0 => i64)
            -> *mut c_void
    );
    if pages == libc::MAP_FAILED {
        return;
    }
    if !world.is_complete || world.rng.chance(2) {
        send_untouched(world, fd, pages, bytes);
    }
    // The file may have been written to, also by this, but not be shorter.
    let found = unsafe { std::slice::from_raw_parts(pages.cast::<u8>(), bytes) };
    world.say(&hash(found));
    let flags = world.rng.one_of(&[libc::MS_SYNC, libc::MS_ASYNC, 99]);
    let about = format!("all, {flags}");
    call!(world, "msync", about, (pages => *mut c_void, bytes => usize, flags => c_int) -> c_int);
    match world.rng.below(3) {
        0 => {
            let protection = libc::PROT_READ;
            call!(world, "mprotect", "to read", (pages => *mut c_void, PAGE => usize, protection => c_int) -> c_int);
            world.say(&hash(found));
            call!(world, "munmap", "all", (pages => *mut c_void, bytes => usize) -> c_int);
        }
        1 => {
            let moved = call!(
                world, "mremap", "twice as long",
                (pages => *mut c_void, bytes => usize, 2 * bytes => usize, libc::MREMAP_MAYMOVE => c_int) -> *mut c_void
            );
            let found = unsafe { std::slice::from_raw_parts(moved.cast::<u8>(), bytes) };
            world.say(&hash(found));
            call!(world, "munmap", "all", (moved => *mut c_void, 2 * bytes => usize) -> c_int);
        }
        _ => {
            call!(world, "munmap", "all", (pages => *mut c_void, bytes => usize) -> c_int);
        }
    }
}
