//! Streams of the C library, of files, processes and directories, and what is printed to a
//! descriptor.

use crate::world::{NOWHERE, World, call};
use libc::{DIR, FILE, c_char, c_int, dirent64};
use std::ffi::CStr;

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
    let stream = if world.rng.chance(2) {
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

/// `dprintf` with arguments in all places where there can be arguments.
pub fn print(world: &mut World) {
    let fd = world.fd();
    let name = world.spelling(&[
        "dprintf",
        "__dprintf_chk",
        "vdprintf",
        "__vdprintf_chk",
        "backtrace_symbols_fd",
    ]);
    let about = world.show(fd);
    if name == "backtrace_symbols_fd" {
        // Addresses of no function.
        let frames = [NOWHERE, NOWHERE + 1];
        call!(world, name, about, (frames.as_ptr() => *const usize, 2 => c_int, fd => c_int) -> ());
        world.note_state(fd);
        return;
    }
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
    // The arguments of both, behind those that only one has.
    macro_rules! print_by {
        ($function:ident($($first:expr),+)) => {
            unsafe {
                $function(
                    $($first,)+
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
    }
    let printed = if name == "dprintf" {
        let print: unsafe extern "C" fn(c_int, *const c_char, ...) -> c_int =
            unsafe { std::mem::transmute(address) };
        print_by!(print(fd))
    } else {
        let print: unsafe extern "C" fn(c_int, c_int, *const c_char, ...) -> c_int =
            unsafe { std::mem::transmute(address) };
        print_by!(print(fd, 1))
    };
    let errno = crate::world::errno();
    world.note(name, &about, &printed, errno);
    world.note_state(fd);
}
