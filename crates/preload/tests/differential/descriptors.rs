//! Opening, closing, duplicating, flags, forking.

use crate::world::{Fd, NOWHERE, OWN, World, call};
use libc::{c_char, c_int, c_uint, c_ulong};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

const MODE: c_uint = 0o644;

const OPENING: &[&str] = &[
    "open",
    "open64",
    "__open",
    "__open64",
    "openat",
    "openat64",
    "creat",
    "creat64",
    "__open_2",
    "__open64_2",
    "__openat_2",
    "__openat64_2",
];

pub fn open(world: &mut World) {
    let access = world
        .rng
        .one_of(&[libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR]);
    let mut flags = access;
    for (flag, rarity) in [
        (libc::O_CREAT, 1),
        (libc::O_APPEND, 4),
        (libc::O_TRUNC, 12),
        (libc::O_DSYNC, 8),
        (libc::O_SYNC, 16),
        (libc::O_CLOEXEC, 4),
        (libc::O_EXCL, 30),
        (libc::O_NOFOLLOW, 20),
        (libc::O_DIRECTORY, 50),
        (libc::O_PATH, 50),
    ] {
        if world.rng.chance(rarity) {
            flags |= flag;
        }
    }
    if flags & libc::O_SYNC != 0 {
        // These are opened once more, by a link that must be followed: F_GETFL shows it.
        flags &= !libc::O_NOFOLLOW;
    }
    if flags & libc::O_PATH != 0 {
        flags &= !libc::O_CREAT;
    }
    if flags & libc::O_DIRECTORY != 0 {
        flags &= !(libc::O_CREAT | libc::O_ACCMODE);
    }
    open_with(world, flags);
}

/// Makes a file that can be written to, most probably.
pub fn open_to_write(world: &mut World) {
    let flags = world.rng.one_of(&[0, 0, libc::O_APPEND, libc::O_DSYNC]);
    open_with(world, libc::O_RDWR | libc::O_CREAT | flags);
}

fn open_with(world: &mut World, flags: c_int) {
    let flags = flags & !world.refused_flags();
    let path = world.path();
    let pointer = world.pointer(&path);
    let name = world.spelling(OPENING);
    // These abort without a mode where one is needed.
    let flags = if name.ends_with("_2") {
        flags & !libc::O_CREAT
    } else {
        flags
    };
    let shown = path.to_str().unwrap();
    let about = format!("{}, {flags:#o}", &shown[..shown.len().min(20)]);
    let dir = world
        .rng
        .one_of(&[libc::AT_FDCWD, libc::AT_FDCWD, libc::AT_FDCWD, -5]);
    let fd = match name {
        "creat" | "creat64" => {
            call!(world, name, about, (pointer => *const c_char, MODE => c_uint) -> Fd)
        }
        "__open_2" | "__open64_2" => {
            call!(world, name, about, (pointer => *const c_char, flags => c_int) -> Fd)
        }
        "__openat_2" | "__openat64_2" => {
            call!(world, name, about, (dir => c_int, pointer => *const c_char, flags => c_int) -> Fd)
        }
        "openat" | "openat64" => {
            call!(world, name, about, (dir => c_int, pointer => *const c_char, flags => c_int, MODE => c_uint) -> Fd)
        }
        _ => {
            call!(world, name, about, (pointer => *const c_char, flags => c_int, MODE => c_uint) -> Fd)
        }
    };
    world.note_state(fd.0);
    world.keep(fd.0);
}

pub fn close(world: &mut World) {
    if world.is_complete && world.rng.chance(2) {
        return;
    }
    let fd = world.fd();
    let name = world.spelling(&["close", "__close"]);
    let about = world.show(fd);
    call!(world, name, about, (fd => c_int) -> c_int);
    if world.is_thread() {
        world.forget(fd);
    }
}

const UNSHARE: c_int = libc::CLOSE_RANGE_UNSHARE.cast_signed();

/// The lowest descriptor that is not one of the test's own.
const FIRST: c_uint = 3;

pub fn close_range(world: &mut World) {
    let (first, last) = if world.rng.chance(2) {
        (FIRST + world.rng.below(30) as c_uint, c_uint::MAX)
    } else {
        let first = FIRST + world.rng.below(20) as c_uint;
        (first, first + world.rng.below(4) as c_uint)
    };
    match world.spelling(&["close_range", "closefrom", "unshare", "clone"]) {
        // All of them or none: which ones a part has is told by their numbers.
        "closefrom" | "close_range" if world.is_thread() => {
            world.close_all();
            return;
        }
        "closefrom" => {
            call!(world, "closefrom", first.to_string(), (first.cast_signed() => c_int) -> ());
            return;
        }
        "unshare" => {
            let files = world.is_complete && world.rng.chance(8);
            world.is_unshared |= files;
            let flags = if files { libc::CLONE_FILES } else { 0 };
            call!(world, "unshare", flags.to_string(), (flags => c_int) -> c_int);
            return;
        }
        // Without anything to do for the child there is none; what it would have shared counts all
        // the same.
        "clone" => {
            let files = world.is_complete && world.rng.chance(8);
            world.is_unshared |= files;
            let flags = if files { libc::CLONE_FILES } else { 0 };
            let nothing = std::ptr::null_mut::<libc::c_void>();
            call!(
                world, "clone", flags.to_string(),
                (nothing => *mut libc::c_void, nothing => *mut libc::c_void, flags => c_int, nothing => *mut libc::c_void) -> c_int
            );
            return;
        }
        _ => {}
    }
    let flags = world.rng.one_of(&[
        0,
        0,
        0,
        0,
        libc::CLOSE_RANGE_CLOEXEC.cast_signed(),
        libc::CLOSE_RANGE_CLOEXEC.cast_signed(),
        UNSHARE,
        99,
    ]);
    // From then on the C library's asynchronous I/O, with its threads, cannot be tried.
    let flags = if flags == UNSHARE && !world.is_complete {
        0
    } else {
        flags
    };
    world.is_unshared |= flags == UNSHARE;
    let (first, last) = world
        .rng
        .one_of(&[(first, last), (first, last), (last, first)]);
    let about = format!("{first}, {last}, {flags}");
    call!(world, "close_range", about, (first => c_uint, last => c_uint, flags => c_int) -> c_int);
}

pub fn duplicate(world: &mut World) {
    let fd = world.fd();
    let name = world.spelling(&["dup", "fcntl", "fcntl64", "__fcntl"]);
    let about = world.show(fd);
    let copy = if name == "dup" {
        call!(world, name, about, (fd => c_int) -> Fd)
    } else {
        let command = world.rng.one_of(&[libc::F_DUPFD, libc::F_DUPFD_CLOEXEC]);
        let least = world
            .rng
            .one_of(&[0, 0, 20, -1, c_int::MAX, OWN.start, OWN.start]);
        // An agent says `EMFILE` to the largest number, and takes -1; the kernel says `EINVAL`.
        let least = match world.has_no_numbers {
            true => least.clamp(0, OWN.start),
            false => least,
        };
        let about = format!("{about}, {command}, {least}");
        call!(world, name, about, (fd => c_int, command => c_int, least => c_int) -> Fd)
    };
    world.keep(copy.0);
}

pub fn duplicate_over(world: &mut World) {
    if !world.hands_over {
        return;
    }
    let from = world.fd();
    let to = if world.is_thread() {
        world.fd()
    } else {
        let slot = world.fd();
        let any = FIRST.cast_signed() + world.rng.below(25) as c_int;
        let own = world.rng.below(OWN.len() as u64) as c_int + OWN.start;
        world
            .rng
            .one_of(&[slot, slot, any, from, -1, 1 << 20, own, own])
    };
    if world.is_thread() && to < 0 {
        return;
    }
    let name = world.spelling(&["dup2", "__dup2", "dup3"]);
    let about = format!("{}, {}", world.show(from), world.show(to));
    let copy = if name == "dup3" {
        let flags = world.rng.one_of(&[0, 0, libc::O_CLOEXEC, libc::O_APPEND]);
        let about = format!("{about}, {flags:#o}");
        call!(world, name, about, (from => c_int, to => c_int, flags => c_int) -> Fd)
    } else {
        call!(world, name, about, (from => c_int, to => c_int) -> Fd)
    };
    world.note_state(copy.0);
    if !world.is_thread() {
        world.keep(copy.0);
    }
}

pub fn flags(world: &mut World) {
    let fd = world.fd();
    let name = world.spelling(&["fcntl", "fcntl64", "__fcntl"]);
    let (command, argument) = match world.rng.below(6) {
        // Of a number that is another descriptor in another thread more may be shown than it was
        // opened with.
        0 | 1 if !world.is_unshared => (libc::F_GETFL, 0),
        2 => {
            let flags = [
                0,
                libc::O_APPEND,
                libc::O_NONBLOCK,
                libc::O_APPEND | libc::O_DSYNC,
            ];
            (libc::F_SETFL, world.rng.one_of(&flags))
        }
        3 => (libc::F_GETFD, 0),
        4 => (libc::F_SETFD, world.rng.one_of(&[0, libc::FD_CLOEXEC])),
        _ => (999, 0),
    };
    let about = format!("{}, {command}, {argument:#o}", world.show(fd));
    call!(world, name, about, (fd => c_int, command => c_int, argument as c_ulong => c_ulong) -> c_int);
}

/// A pipe that is none of the descriptors that are used.
fn pipe_out_of_reach() -> [c_int; 2] {
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), 0) }, 0);
    ends.map(|end| {
        let far = unsafe { libc::fcntl(end, libc::F_DUPFD, 300) };
        unsafe { libc::close(end) };
        assert!(far >= 300);
        far
    })
}

/// A child does some of what its parent does, with the same descriptors, and tells what.
pub fn fork(world: &mut World) {
    if world.is_child {
        return;
    }
    let ends = pipe_out_of_reach();
    let name = world.spelling(&["fork", "_Fork"]);
    let address = world.find(name);
    let fork: unsafe extern "C" fn() -> libc::pid_t = unsafe { std::mem::transmute(address) };
    let seed = world.rng.next();
    let child = unsafe { fork() };
    assert!(child >= 0);
    if child == 0 {
        unsafe { libc::alarm(crate::SECONDS_MAX) };
        world.rng.0 = seed;
        let before = world.transcript.len();
        world.run_in_child();
        let mut to_parent = unsafe { File::from_raw_fd(ends[1]) };
        to_parent
            .write_all(&world.transcript.as_bytes()[before..])
            .unwrap();
        unsafe { libc::_exit(0) };
    }
    unsafe { libc::close(ends[1]) };
    let mut told = String::new();
    let mut from_child = unsafe { File::from_raw_fd(ends[0]) };
    from_child.read_to_string(&mut told).unwrap();
    drop(from_child);
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    world.transcript.push_str(&told);
    world.say(&format!("{name}: status {status}"));
}

/// Passes a descriptor through a socket, and writes by the one that comes out.
pub fn pass(world: &mut World) {
    if !world.hands_over {
        return;
    }
    let mut sockets: [c_int; 2] = [-1; 2];
    unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, sockets.as_mut_ptr()) };
    let fd = world.fd();
    let mut byte = [b'x'; 1];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // One header, and room for two descriptors.
    let mut control = [0_u64; 3];
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = &raw mut part;
    message.msg_hdr.msg_iovlen = 1;
    message.msg_hdr.msg_control = control.as_mut_ptr().cast();
    message.msg_hdr.msg_controllen = size_of_val(&control);
    let bytes = unsafe { libc::CMSG_LEN(4) } as usize;
    let header = libc::cmsghdr {
        cmsg_len: world.rng.one_of(&[bytes, bytes, bytes, bytes - 4, 0, 9999]),
        cmsg_level: libc::SOL_SOCKET,
        cmsg_type: libc::SCM_RIGHTS,
    };
    let at = control.as_mut_ptr();
    unsafe {
        at.cast::<libc::cmsghdr>().write(header);
        libc::CMSG_DATA(at.cast()).cast::<c_int>().write(fd);
    }
    let message = &raw mut message;
    let about = format!("{}, {}", world.show(fd), header.cmsg_len);
    let socket = sockets[0];
    let name = world.spelling(&["sendmsg", "sendmmsg"]);
    if name == "sendmsg" {
        let message = world
            .rng
            .one_of(&[message.cast_const().cast(), NOWHERE as *const libc::msghdr]);
        let about = format!("{about}, {}", message.addr() == NOWHERE);
        call!(world, name, about, (socket => c_int, message => *const libc::msghdr, 0 => c_int) -> isize);
    } else {
        let count = world.rng.one_of(&[0, 1]);
        let about = format!("{about}, {count}");
        call!(world, name, about, (socket => c_int, message => *mut libc::mmsghdr, count => c_uint, 0 => c_int) -> c_int);
    }
    let got = unsafe {
        control.fill(0);
        let message = &raw mut (*message).msg_hdr;
        (*message).msg_controllen = size_of_val(&control);
        libc::recvmsg(sockets[1], message, libc::MSG_DONTWAIT)
    };
    let passed = if got > 0 && control[0] >= bytes as u64 {
        unsafe { libc::CMSG_DATA(at.cast()).cast::<c_int>().read() }
    } else {
        -1
    };
    // The library knows nothing of this descriptor, as it would not in another process.
    let text = b"passed on\n";
    let written = unsafe { libc::syscall(libc::SYS_write, passed, text.as_ptr(), text.len()) };
    world.say(&format!("received {got}, wrote {written}"));
    for fd in [passed, sockets[0], sockets[1]] {
        unsafe { libc::close(fd) };
    }
    world.note_state(fd);
}
