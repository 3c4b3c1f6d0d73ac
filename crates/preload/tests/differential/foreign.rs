//! Streams, asynchronous I/O, `io_uring`.

use crate::world::{Fd, NOWHERE, World, call};
use libc::{DIR, FILE, aiocb, c_char, c_int, c_long, c_uint, c_void, dirent64, iocb, sigevent};
use std::{
    ffi::{CStr, CString},
    ptr,
};

/// Libraries that a program may have loaded beside the C library.
#[derive(Clone, Copy)]
pub struct Libraries {
    aio: *mut c_void,
    uring: *mut c_void,
}

// SAFETY: handles of libraries, which stay.
unsafe impl Send for Libraries {}

impl Libraries {
    /// Loads them as a plugin would, for itself alone.
    pub fn load() -> Self {
        let open = |names: [&CStr; 2]| {
            names
                .iter()
                .map(|name| unsafe {
                    libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL)
                })
                .find(|library| !library.is_null())
                .unwrap_or(ptr::null_mut())
        };
        Self {
            aio: open([c"libaio.so.1", c"libaio.so.1t64"]),
            uring: open([c"liburing.so.2", c"liburing.so.1"]),
        }
    }

    /// A function as a program or a plugin would bind it.
    pub fn find(self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        unsafe { libc::dlerror() };
        let mut address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        for library in [self.aio, self.uring] {
            if address.is_null() && !library.is_null() {
                address = unsafe { libc::dlsym(library, name.as_ptr()) };
            }
        }
        address
    }

    /// Whether the function is there without Forebay too.
    fn have(self, name: &str) -> bool {
        let library = if name == "io_submit" {
            self.aio
        } else {
            self.uring
        };
        let name = CString::new(name).unwrap();
        !library.is_null() && !unsafe { libc::dlsym(library, name.as_ptr()) }.is_null()
    }
}

/// Whether a function is one that not every system has.
pub fn may_be_missing(name: &str) -> bool {
    match name {
        "openat2" => !has_openat2(),
        _ => name.starts_with("io_") && !Libraries::load().have(name),
    }
}

/// Whether the C library has it, whatever Forebay has.
pub fn has_openat2() -> bool {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), flags) };
    !library.is_null() && !unsafe { libc::dlsym(library, c"openat2".as_ptr()) }.is_null()
}

const MODES: &[&CStr] = &[
    c"r",
    c"r+",
    c"w",
    c"w+",
    c"a",
    c"a+e",
    c"r,ccs=UTF-8",
    c"wrong",
];

pub fn stream(world: &mut World) {
    let mode = world.rng.one_of(MODES);
    let name = world.spelling(&[
        "fopen",
        "fdopen",
        "fopen64",
        "_IO_fdopen",
        "_IO_fopen",
        "fdopen",
    ]);
    let stream = if name.ends_with("fdopen") {
        // The stream closes its descriptor: it gets one of its own.
        let fd = unsafe { libc::dup(world.fd()) };
        let about = format!("{}, {mode:?}", world.show(fd));
        let stream =
            call!(world, name, about, (fd => c_int, mode.as_ptr() => *const c_char) -> *mut FILE);
        if stream.is_null() && fd >= 0 {
            unsafe { libc::close(fd) };
        }
        stream
    } else {
        let path = world.path();
        let pointer = world.pointer(&path);
        let about = format!("{path:.20?}, {mode:?}");
        call!(world, name, about, (pointer => *const c_char, mode.as_ptr() => *const c_char) -> *mut FILE)
    };
    if stream.is_null() {
        return;
    }
    use_stream(world, stream);
    let stream = if world.rng.once_in(2) {
        let path = world.path();
        let mode = world.rng.one_of(MODES);
        let name = world.spelling(&["freopen", "freopen64"]);
        let about = format!("{path:.20?}, {mode:?}");
        let pointer = world.pointer(&path);
        let pointer = if pointer.addr() == NOWHERE {
            path.as_ptr()
        } else {
            pointer
        };
        call!(
            world, name, about,
            (pointer => *const c_char, mode.as_ptr() => *const c_char, stream => *mut FILE) -> *mut FILE
        )
    } else {
        stream
    };
    if !stream.is_null() {
        use_stream(world, stream);
        let name = world.spelling(&["fclose", "_IO_fclose"]);
        call!(world, name, "it", (stream => *mut FILE) -> c_int);
    }
}

fn use_stream(world: &mut World, stream: *mut FILE) {
    let bytes = world.rng.below(6000) as usize;
    let text = vec![b'x'; bytes];
    let written = unsafe { libc::fwrite(text.as_ptr().cast(), 1, bytes, stream) };
    world.say(&format!("fwrite {written} of {bytes}"));
    let flushed = unsafe { libc::fflush(stream) };
    let fd = unsafe { libc::fileno(stream) };
    world.say(&format!("fflush {flushed}, fileno {}", world.show(fd)));
    world.note_state(fd);
}

/// Streams that are opened without a descriptor or a name.
pub fn stream_of_its_own(world: &mut World) {
    let name = world.spelling(&["tmpfile", "popen", "tmpfile64", "_IO_popen"]);
    let is_piped = name.ends_with("popen");
    let stream = if is_piped {
        let mode = world.rng.one_of(&[c"w", c"we", c"wrong"]);
        let about = format!("{mode:?}");
        let command = c"cat >/dev/null".as_ptr();
        call!(world, name, about, (command => *const c_char, mode.as_ptr() => *const c_char) -> *mut FILE)
    } else {
        call!(world, name, "", () -> *mut FILE)
    };
    if stream.is_null() {
        return;
    }
    use_stream(world, stream);
    let name = if is_piped { "pclose" } else { "fclose" };
    call!(world, name, "it", (stream => *mut FILE) -> c_int);
}

/// A directory is read: its first two entries, whichever these are.
pub fn directory(world: &mut World) {
    let name = world.spelling(&["readdir", "readdir64"]);
    let stream = unsafe { libc::opendir(c".".as_ptr()) };
    if stream.is_null() {
        return;
    }
    for _ in 0..2 {
        call!(world, name, "", (stream => *mut DIR) -> *mut dirent64);
    }
    unsafe { libc::closedir(stream) };
}

/// A child puts itself in the background, and says by its standard output how that went.
pub fn daemon(world: &mut World) {
    let name = world.spelling(&["daemon"]);
    let keep = world.rng.one_of(&[0, 1]);
    let mut pipe = [-1; 2];
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let child = unsafe { libc::fork() };
    if child == 0 {
        world.is_child = true;
        let result = call!(world, name, keep.to_string(), (1 => c_int, keep => c_int) -> c_int);
        let lost = unsafe { libc::write(1, c"".as_ptr().cast(), 0) };
        let said = [result as u8, lost as u8];
        unsafe { libc::write(pipe[1], said.as_ptr().cast(), said.len()) };
        unsafe { libc::_exit(0) };
    }
    unsafe { libc::close(pipe[1]) };
    let mut said = [9_u8; 2];
    let read = unsafe { libc::read(pipe[0], said.as_mut_ptr().cast(), said.len()) };
    unsafe { libc::close(pipe[0]) };
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    world.find(name);
    world.say(&format!("{name} {keep}: {read} {said:?} {status}"));
}

/// `dprintf` with arguments in all places where there can be arguments.
pub fn print(world: &mut World) {
    let fd = world.fd();
    let name = world.spelling(&["dprintf", "__dprintf_chk", "vdprintf", "__vdprintf_chk"]);
    let about = world.show(fd);
    let format = c"%d %s %.3f %ld %x %c %d %d %.1f %d\n";
    let text = c"text";
    if name.contains("vdprintf") {
        // No arguments, so their list is of no interest.
        let (format, mut list) = (c"a line\n".as_ptr(), [0_u64; 8]);
        let list = list.as_mut_ptr();
        if name == "vdprintf" {
            call!(world, name, about, (fd => c_int, format => *const c_char, list => *mut u64) -> c_int);
        } else {
            call!(world, name, about, (fd => c_int, 1 => c_int, format => *const c_char, list => *mut u64) -> c_int);
        }
        world.note_state(fd);
        return;
    }
    let address = world.find(name);
    crate::world::set_errno(crate::world::UNTOUCHED);
    let printed = if name == "dprintf" {
        let print: unsafe extern "C" fn(c_int, *const c_char, ...) -> c_int =
            unsafe { std::mem::transmute(address) };
        unsafe {
            print(
                fd,
                format.as_ptr(),
                1,
                text.as_ptr(),
                2.5_f64,
                -3_i64,
                0x4a,
                53,
                6,
                7,
                8.5_f64,
                9,
            )
        }
    } else {
        let print: unsafe extern "C" fn(c_int, c_int, *const c_char, ...) -> c_int =
            unsafe { std::mem::transmute(address) };
        unsafe {
            print(
                fd,
                1,
                format.as_ptr(),
                1,
                text.as_ptr(),
                2.5_f64,
                -3_i64,
                0x4a,
                53,
                6,
                7,
                8.5_f64,
                9,
            )
        }
    };
    let errno = crate::world::errno();
    world.note(name, &about, &printed, errno);
    world.note_state(fd);
}

/// POSIX AIO, waited for. Not where the C library's threads are not there, or have other descriptors.
pub fn asynchronous(world: &mut World) {
    if world.is_child || world.is_unshared {
        return;
    }
    let fd = world.fd();
    let text = b"asynchronously\n";
    let mut block: aiocb = unsafe { std::mem::zeroed() };
    block.aio_fildes = fd;
    block.aio_buf = text.as_ptr().cast_mut().cast();
    block.aio_nbytes = text.len();
    block.aio_offset = world.rng.below(3000).cast_signed();
    block.aio_lio_opcode = world
        .rng
        .one_of(&[libc::LIO_WRITE, libc::LIO_READ, libc::LIO_NOP]);
    let mut target = [0_u8; 64];
    if block.aio_lio_opcode == libc::LIO_READ {
        block.aio_buf = target.as_mut_ptr().cast();
    }
    let block = &raw mut block;
    let name = world.spelling(&[
        "aio_write",
        "lio_listio",
        "aio_fsync",
        "aio_write64",
        "lio_listio64",
        "aio_fsync64",
    ]);
    let about = world.show(fd);
    match name {
        "aio_write" | "aio_write64" => {
            unsafe { (*block).aio_buf = text.as_ptr().cast_mut().cast() };
            call!(world, name, about, (block => *mut aiocb) -> c_int);
        }
        "aio_fsync" | "aio_fsync64" => {
            let operation = world.rng.one_of(&[libc::O_DSYNC, libc::O_SYNC, 99]);
            let about = format!("{operation:#o}, {about}");
            let result =
                call!(world, name, about, (operation => c_int, block => *mut aiocb) -> c_int);
            if result < 0 {
                return;
            }
        }
        _ => {
            let list = [ptr::null_mut(), block];
            let about = format!("{about}, {}", unsafe { (*block).aio_lio_opcode });
            call!(
                world, name, about,
                (libc::LIO_WAIT => c_int, list.as_ptr() => *const *mut aiocb, 2 => c_int, ptr::null_mut() => *mut sigevent)
                    -> c_int
            );
        }
    }
    while unsafe { libc::aio_error(block) } == libc::EINPROGRESS {
        unsafe { libc::aio_suspend([block.cast_const()].as_ptr(), 1, ptr::null()) };
    }
    let name = world.spelling(&["aio_error", "aio_error64"]);
    call!(world, name, about, (block => *mut aiocb) -> c_int);
    let name = world.spelling(&["aio_return", "aio_return64"]);
    call!(world, name, about, (block => *mut aiocb) -> isize);
    world.note_state(fd);
}

/// Set where there are no rings and no Linux AIO: on an emulated device, which could not charge them.
pub const NO_RINGS: &str = "FOREBAY_TEST_NO_RINGS";

fn has_rings() -> bool {
    std::env::var_os(NO_RINGS).is_none()
}

/// libaio's way, through the library and by number.
pub fn submit(world: &mut World) {
    if !has_rings() || world.is_child || world.is_complete && !world.rng.once_in(2) {
        return;
    }
    const IOCB_CMD_PWRITE: u16 = 1;
    const IOCB_CMD_FSYNC: u16 = 2;
    let mut context: c_long = 0;
    if unsafe { libc::syscall(libc::SYS_io_setup, 4, &raw mut context) } < 0 {
        world.say("no io_setup");
        return;
    }
    let fd = world.fd();
    let text = b"submitted\n";
    let mut block: iocb = unsafe { std::mem::zeroed() };
    block.aio_fildes = fd.cast_unsigned();
    block.aio_lio_opcode = world
        .rng
        .one_of(&[IOCB_CMD_PWRITE, IOCB_CMD_PWRITE, IOCB_CMD_FSYNC]);
    if block.aio_lio_opcode == IOCB_CMD_PWRITE {
        block.aio_buf = text.as_ptr().expose_provenance() as u64;
        block.aio_nbytes = text.len() as u64;
        block.aio_offset = world.rng.below(3000).cast_signed();
    }
    let list = [
        &raw mut block,
        world.rng.one_of(&[ptr::null_mut(), NOWHERE as *mut iocb]),
    ];
    let count: c_long = world.rng.one_of(&[1, 1, 2, -1]);
    let list = list.as_ptr();
    let about = format!("{}, {}, {count}", world.show(fd), block.aio_lio_opcode);
    let name = world.spelling(&["io_submit", "syscall"]);
    let submitted = if name == "syscall" {
        let number = libc::SYS_io_submit;
        call!(world, name, about, (number => c_long, context => c_long, count => c_long, list => *const *mut iocb) -> i64)
    } else if world.foreign.have(name) {
        i64::from(
            call!(world, name, about, (context => c_long, count => c_long, list => *const *mut iocb) -> c_int),
        )
    } else {
        0
    };
    if submitted > 0 {
        let mut event = [0_u64; 4];
        let got = loop {
            let got = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    context,
                    1_i64,
                    1_i64,
                    event.as_mut_ptr(),
                    ptr::null::<c_void>(),
                )
            };
            // The kernel may say so without a signal.
            if got >= 0 || crate::world::errno() != libc::EINTR {
                break got;
            }
        };
        world.say(&format!(
            "{got} events, returned {}",
            event[2].cast_signed()
        ));
    }
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
    world.note_state(fd);
}

/// The calls that change whose process it is, to what it is already.
pub fn become_the_same(world: &mut World) {
    let (uid, effective) = unsafe { (libc::getuid(), libc::geteuid()) };
    let kept = libc::uid_t::MAX;
    match world.spelling(&["setuid", "seteuid", "setreuid", "setresuid"]) {
        "setuid" => {
            call!(world, "setuid", "", (uid => libc::uid_t) -> c_int);
        }
        "seteuid" => {
            call!(world, "seteuid", "", (effective => libc::uid_t) -> c_int);
        }
        "setreuid" => {
            call!(world, "setreuid", "", (uid => libc::uid_t, kept => libc::uid_t) -> c_int);
        }
        _ => {
            call!(world, "setresuid", "", (kept => libc::uid_t, effective => libc::uid_t, kept => libc::uid_t) -> c_int);
        }
    }
}

/// An `io_uring`, made in each way and closed again.
pub fn ring(world: &mut World) {
    if !has_rings() {
        return;
    }
    let mut parameters = [0_u8; 256];
    let mut ring = [0_u64; 64];
    let (parameters, ring) = (parameters.as_mut_ptr(), ring.as_mut_ptr());
    let name = world.spelling(&[
        "syscall",
        "io_uring_queue_init",
        "io_uring_queue_init_params",
        "io_uring_setup",
    ]);
    if name == "syscall" {
        let number = libc::SYS_io_uring_setup;
        let fd = call!(world, name, "io_uring_setup", (number => c_long, 4 => c_uint, parameters => *mut u8) -> i64);
        unsafe { libc::close(fd as c_int) };
    }
    for name in [
        "io_uring_setup",
        "io_uring_queue_init",
        "io_uring_queue_init_params",
    ] {
        if !world.foreign.have(name) {
            continue;
        }
        unsafe { parameters.write_bytes(0, 256) };
        match name {
            "io_uring_setup" => {
                let fd = call!(world, name, "", (4 => c_uint, parameters => *mut u8) -> Fd);
                unsafe { libc::close(fd.0) };
                continue;
            }
            "io_uring_queue_init" => {
                call!(world, name, "", (4 => c_uint, ring => *mut u64, 0 => c_uint) -> c_int);
            }
            _ => {
                call!(world, name, "", (4 => c_uint, ring => *mut u64, parameters => *mut u8) -> c_int);
            }
        }
        // It stays: what it has open is part of the comparison of descriptors.
    }
}
