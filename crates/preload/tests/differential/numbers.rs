//! System calls by their numbers.

use crate::libraries::has_openat2;
use crate::world::{Fd, World, call, size};
use libc::{c_char, c_int, c_long, c_uint};

/// Functions by their numbers.
pub fn system_call(world: &mut World) {
    let (fd, other) = (world.fd(), world.fd());
    let text = b"by number\n".as_ptr();
    let shown = world.show(fd);
    let mut get = [0_u8; 32];
    let get = get.as_mut_ptr();
    let offset = world.rng.below(2000).cast_signed();
    let part = libc::iovec {
        iov_base: text.cast_mut().cast(),
        iov_len: 10,
    };
    let part = &raw const part;
    let choice = world.rng.below(15);
    let about = format!("{choice}, {shown}");
    macro_rules! number {
        ($number:ident $(, $argument:expr => $type:ty)*) => {
            call!(world, "syscall", about, (libc::$number => c_long $(, $argument => $type)*) -> i64)
        };
    }
    match choice {
        0 => number!(SYS_write, fd => c_int, text => *const u8, 10 => usize),
        1 => number!(SYS_pwrite64, fd => c_int, text => *const u8, 10 => usize, offset => i64),
        2 => number!(SYS_writev, fd => c_int, part => *const libc::iovec, 1 => c_int),
        3 => {
            number!(SYS_pwritev2, fd => c_int, part => *const libc::iovec, 1 => c_int, offset => i64, 0 => i64, 0 => c_int)
        }
        4 => number!(SYS_read, fd => c_int, get => *mut u8, 10 => usize),
        5 => number!(SYS_lseek, fd => c_int, offset => i64, 0 => c_int),
        6 => number!(SYS_fdatasync, fd => c_int),
        7 => number!(SYS_ftruncate, fd => c_int, offset => i64),
        8 if !world.is_unshared => {
            number!(SYS_fcntl, fd => c_int, libc::F_GETFL => c_int, 0 => i64)
        }
        9 => {
            number!(SYS_pwritev, fd => c_int, part => *const libc::iovec, 1 => c_int, offset => i64, 0 => i64)
        }
        10 if world.hands_over => {
            number!(SYS_copy_file_range, other => c_int, 0 => usize, fd => c_int, 0 => usize, 40 => usize, 0 => c_uint)
        }
        11 => number!(SYS_close, -1 => c_int),
        12 => number!(SYS_dup3, fd => c_int, fd => c_int, 0 => c_int),
        13 => {
            let path = world.path();
            let how = [(libc::O_CREAT | libc::O_RDWR) as u64, 0o600, 0];
            let fd = if has_openat2() && world.rng.chance(2) {
                let about = "how";
                call!(
                    world, "openat2", about,
                    (libc::AT_FDCWD => c_int, path.as_ptr() => *const c_char, how.as_ptr() => *const u64, 24 => usize) -> Fd
                ).0
            } else {
                call!(
                    world, "syscall", "openat2",
                    (libc::SYS_openat2 => c_long, libc::AT_FDCWD => c_int, path.as_ptr() => *const c_char,
                        how.as_ptr() => *const u64, 24 => usize) -> LongFd
                ).0 as c_int
            };
            world.note_state(fd);
            world.keep(fd);
            0
        }
        _ => {
            let path = world.path();
            let flags = libc::O_CREAT | libc::O_RDWR;
            let fd = call!(
                world, "syscall", "openat",
                (libc::SYS_openat => c_long, libc::AT_FDCWD => c_int, path.as_ptr() => *const c_char,
                    flags => c_int, 0o600 => c_uint) -> LongFd
            );
            world.note_state(fd.0 as c_int);
            world.keep(fd.0 as c_int);
            0
        }
    };
    // The new descriptor may have taken its place, and then its number may be another thread's.
    if world.slots.contains(&fd) && size(fd).is_some() {
        world.note_state(fd);
    }
}

/// A descriptor that `syscall` returns.
#[repr(transparent)]
struct LongFd(i64);

impl crate::world::Shown for LongFd {
    fn shown(&self, world: &World) -> String {
        Fd(self.0 as c_int).shown(world)
    }
}
