//! Writing, reading, seeking, synchronising.

use crate::world::{NOWHERE, World, call, hash};
use libc::{c_int, c_uint, c_void, iovec};
use std::ptr;

/// A buffer to write from: what it points to, how many bytes, and what to keep alive.
struct Buffer {
    pointer: *const c_void,
    bytes: usize,
    about: String,
    owned: Vec<u8>,
}

fn buffer(world: &mut World) -> Buffer {
    let owned = world.bytes();
    let choice = world.rng.below(40);
    let (pointer, bytes, about) = match choice.max(world.least_wrong()) {
        0 => (NOWHERE as *const c_void, owned.len(), "nowhere "),
        1 => (ptr::null(), owned.len(), "null "),
        2 => (owned.as_ptr().cast(), usize::MAX - 5, "too many of "),
        3 => {
            // It ends at the end of memory, and the write goes on.
            let bytes = owned.len().min(PAGE_BYTES);
            let end = edge(&owned[..bytes]);
            (unsafe { end.sub(bytes) }.cast(), bytes + 100, "torn ")
        }
        _ => (owned.as_ptr().cast(), owned.len(), ""),
    };
    Buffer {
        about: format!("{about}{}", hash(&owned)),
        pointer,
        bytes,
        owned,
    }
}

const PAGE_BYTES: usize = 4096;

/// The end of a page with `bytes` at its end and no memory after it. The page is leaked.
fn edge(bytes: &[u8]) -> *const u8 {
    unsafe {
        let pages: *mut u8 = libc::mmap(
            ptr::null_mut(),
            2 * PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
        .cast();
        let end = pages.add(PAGE_BYTES);
        assert_eq!(libc::mprotect(end.cast(), PAGE_BYTES, libc::PROT_NONE), 0);
        end.sub(bytes.len())
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        end
    }
}

pub fn write(world: &mut World) {
    let (fd, buffer) = (world.fd(), buffer(world));
    let name = world.spelling(&["write", "__write"]);
    let about = format!("{}, {}", world.show(fd), buffer.about);
    call!(world, name, about, (fd => c_int, buffer.pointer => *const c_void, buffer.bytes => usize) -> isize);
    world.note_state(fd);
}

pub fn pwrite(world: &mut World) {
    let (fd, buffer, offset) = (world.fd(), buffer(world), world.offset());
    let name = world.spelling(&["pwrite", "pwrite64", "__pwrite64"]);
    let about = format!("{}, {}, {offset}", world.show(fd), buffer.about);
    call!(
        world, name, about,
        (fd => c_int, buffer.pointer => *const c_void, buffer.bytes => usize, offset => i64) -> isize
    );
    world.note_state(fd);
}

/// Several buffers: the pointer to pass, how many, and what to keep alive.
struct Parts {
    pointer: *const iovec,
    count: c_int,
    about: String,
    _owned: (Vec<u8>, Vec<Buffer>),
}

fn parts(world: &mut World) -> Parts {
    let wanted = match world.rng.below(8) {
        0 => 0,
        1 => world.rng.below(1024),
        _ => world.rng.below(12),
    };
    let mut buffers: Vec<Buffer> = Vec::new();
    for n in 0..wanted {
        let mut next = buffer(world);
        if n >= 8 {
            // Never more than there is: what follows in memory is not the same in two runs.
            next.bytes = next.owned.len().min(16);
        }
        buffers.push(next);
    }
    // One byte more than needed, so that they may begin at an odd address.
    let shift = usize::from(world.rng.chance(24));
    let mut owned = vec![0_u8; (buffers.len() + 1) * size_of::<iovec>() + 16];
    let aligned = owned.as_ptr().align_offset(align_of::<iovec>());
    let first: *mut iovec = unsafe { owned.as_mut_ptr().add(aligned + shift) }.cast();
    for (n, buffer) in buffers.iter().enumerate() {
        let part = iovec {
            iov_base: buffer.pointer.cast_mut(),
            iov_len: buffer.bytes,
        };
        unsafe { first.add(n).write_unaligned(part) };
    }
    let (pointer, count, about) = match world.rng.below(30) {
        0 => (first.cast_const(), -1, "negative "),
        1 => (first.cast_const(), 1025, "too many "),
        2 => (ptr::null(), buffers.len() as c_int, "null "),
        3 => (NOWHERE as *const iovec, buffers.len() as c_int, "nowhere "),
        _ => (first.cast_const(), buffers.len() as c_int, ""),
    };
    let first = buffers.first().map_or("", |first| &first.about);
    Parts {
        about: format!("{about}{} parts, {first}", buffers.len()),
        pointer,
        count,
        _owned: (owned, buffers),
    }
}

pub fn writev(world: &mut World) {
    let (fd, parts) = (world.fd(), parts(world));
    let about = format!("{}, {}", world.show(fd), parts.about);
    call!(world, "writev", about, (fd => c_int, parts.pointer => *const iovec, parts.count => c_int) -> isize);
    world.note_state(fd);
}

pub fn pwritev(world: &mut World) {
    let (fd, parts, offset) = (world.fd(), parts(world), world.offset());
    let name = world.spelling(&["pwritev", "pwritev64"]);
    let about = format!("{}, {}, {offset}", world.show(fd), parts.about);
    call!(
        world, name, about,
        (fd => c_int, parts.pointer => *const iovec, parts.count => c_int, offset => i64) -> isize
    );
    world.note_state(fd);
}

pub fn pwritev2(world: &mut World) {
    let (fd, parts) = (world.fd(), parts(world));
    let offset = if world.rng.chance(2) {
        -1
    } else {
        world.offset()
    };
    let flags = world.rng.one_of(&[
        0,
        0,
        libc::RWF_DSYNC,
        libc::RWF_SYNC,
        libc::RWF_APPEND,
        libc::RWF_APPEND | libc::RWF_DSYNC,
        1 << 30,
    ]);
    let name = world.spelling(&["pwritev2", "pwritev64v2"]);
    let about = format!("{}, {}, {offset}, {flags:#x}", world.show(fd), parts.about);
    call!(
        world, name, about,
        (fd => c_int, parts.pointer => *const iovec, parts.count => c_int, offset => i64, flags => c_int) -> isize
    );
    world.note_state(fd);
}

pub fn read(world: &mut World) {
    let fd = world.fd();
    let mut bytes = vec![0_u8; world.rng.below(5000) as usize];
    let room = bytes.len();
    let pointer = if world.rng.chance(20) {
        NOWHERE as *mut c_void
    } else {
        bytes.as_mut_ptr().cast()
    };
    let part = iovec {
        iov_base: pointer,
        iov_len: room,
    };
    let about = format!("{}, {room}", world.show(fd));
    let name = world.spelling(&[
        "read",
        "__read",
        "__read_chk",
        "readv",
        "preadv2",
        "preadv64v2",
    ]);
    let found = match name {
        "__read_chk" => {
            call!(world, name, about, (fd => c_int, pointer => *mut c_void, room => usize, room => usize) -> isize)
        }
        "readv" => {
            call!(world, name, about, (fd => c_int, &raw const part => *const iovec, 1 => c_int) -> isize)
        }
        "preadv2" | "preadv64v2" => call!(
            world, name, about,
            (fd => c_int, &raw const part => *const iovec, 1 => c_int, -1 => i64, 0 => c_int) -> isize
        ),
        _ => {
            call!(world, name, about, (fd => c_int, pointer => *mut c_void, room => usize) -> isize)
        }
    };
    if let Ok(found) = usize::try_from(found) {
        world.say(&hash(&bytes[..found]));
    }
    world.note_state(fd);
}

pub fn pread(world: &mut World) {
    let (fd, offset) = (world.fd(), world.offset());
    let mut bytes = vec![0_u8; world.rng.below(5000) as usize];
    let room = bytes.len();
    let pointer: *mut c_void = bytes.as_mut_ptr().cast();
    let part = iovec {
        iov_base: pointer,
        iov_len: room,
    };
    let about = format!("{}, {room}, {offset}", world.show(fd));
    let name = world.spelling(&[
        "pread",
        "pread64",
        "__pread64",
        "__pread_chk",
        "__pread64_chk",
        "preadv",
        "preadv64",
    ]);
    let found = match name {
        "__pread_chk" | "__pread64_chk" => call!(
            world, name, about,
            (fd => c_int, pointer => *mut c_void, room => usize, offset => i64, room => usize) -> isize
        ),
        "preadv" | "preadv64" => call!(
            world, name, about,
            (fd => c_int, &raw const part => *const iovec, 1 => c_int, offset => i64) -> isize
        ),
        _ => {
            call!(world, name, about, (fd => c_int, pointer => *mut c_void, room => usize, offset => i64) -> isize)
        }
    };
    if let Ok(found) = usize::try_from(found) {
        world.say(&hash(&bytes[..found]));
    }
}

pub fn advise(world: &mut World) {
    let (fd, offset) = (world.fd(), world.offset());
    let advice = world
        .rng
        .one_of(&[libc::POSIX_FADV_DONTNEED, libc::POSIX_FADV_RANDOM, 99]);
    let name = world.spelling(&["posix_fadvise", "posix_fadvise64"]);
    let about = format!("{}, {offset}, {advice}", world.show(fd));
    call!(world, name, about, (fd => c_int, offset => i64, 4096 => i64, advice => c_int) -> c_int);
}

pub fn seek(world: &mut World) {
    let (fd, offset) = (world.fd(), world.offset());
    let whence = world.rng.one_of(&[
        libc::SEEK_SET,
        libc::SEEK_SET,
        libc::SEEK_CUR,
        libc::SEEK_END,
        99,
    ]);
    // Never so far that a write there would make a file too long to compare.
    let offset = if offset > 1 << 20 { -7 } else { offset };
    let name = world.spelling(&["lseek", "lseek64", "__lseek"]);
    let about = format!("{}, {offset}, {whence}", world.show(fd));
    call!(world, name, about, (fd => c_int, offset => i64, whence => c_int) -> i64);
}

pub fn synchronise(world: &mut World) {
    let fd = world.fd();
    // Of the whole machine: that takes its time.
    if world.rng.below(40) == 0 {
        call!(world, "sync", "", () -> ());
    }
    let name = world.spelling(&[
        "fsync",
        "fdatasync",
        "sync_file_range",
        "fsync",
        "fdatasync",
        "syncfs",
    ]);
    let about = world.show(fd);
    if name == "sync_file_range" {
        let (offset, bytes) = (world.offset(), world.offset());
        let flags = world.rng.one_of(&[0, 2, 2, 7, 7, 8, c_uint::MAX]);
        let about = format!("{about}, {offset}, {bytes}, {flags:#x}");
        call!(world, name, about, (fd => c_int, offset => i64, bytes => i64, flags => c_uint) -> c_int);
    } else {
        call!(world, name, about, (fd => c_int) -> c_int);
    }
}
