//! Asynchronous I/O: POSIX AIO, libaio's, `io_uring`.

use crate::world::{Fd, NOWHERE, World, call};
use libc::{aiocb, c_int, c_long, c_uint, c_void, iocb, sigevent};
use std::ptr;

/// POSIX AIO, waited for. Not where the C library's threads are not there, or have other
/// descriptors.
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

/// Set where there are no rings and no Linux AIO: on an emulated device, which could not charge
/// them.
pub const NO_RINGS: &str = "FOREBAY_TEST_NO_RINGS";

fn has_rings() -> bool {
    std::env::var_os(NO_RINGS).is_none()
}

/// libaio's way, through the library and by number.
pub fn submit(world: &mut World) {
    if !has_rings() || world.is_child || world.is_complete && !world.rng.chance(2) {
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
    } else if world.libraries.have(name) {
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
        if !world.libraries.have(name) {
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
