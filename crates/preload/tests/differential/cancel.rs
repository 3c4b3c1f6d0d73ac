//! `pthread_cancel` goes through the library as through the C library: out of a call that waits,
//! and at the next cancellation point of a thread that writes or synchronises.

use crate::world::{Fd, World, call};
use libc::{c_char, c_int, c_uint, c_void};
use std::{
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

type Read = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize) -> isize;
type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, usize) -> isize;
type Sync = unsafe extern "C-unwind" fn(c_int) -> c_int;
type Routine = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// The functions' addresses: the threads must have nothing to drop, and look for nothing.
static READ: AtomicUsize = AtomicUsize::new(0);
static WRITE: AtomicUsize = AtomicUsize::new(0);
static SYNC: AtomicUsize = AtomicUsize::new(0);

/// How often the writing thread has written.
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C-unwind" fn read_forever(fd: *mut c_void) -> *mut c_void {
    let read: Read = unsafe { std::mem::transmute(READ.load(Ordering::Relaxed)) };
    let mut byte = 0_u8;
    loop {
        unsafe { read(fd.addr() as c_int, (&raw mut byte).cast(), 1) };
    }
}

unsafe extern "C-unwind" fn write_forever(fd: *mut c_void) -> *mut c_void {
    let write: Write = unsafe { std::mem::transmute(WRITE.load(Ordering::Relaxed)) };
    loop {
        // Nothing, so that how often does not matter.
        unsafe { write(fd.addr() as c_int, b"".as_ptr().cast(), 0) };
        WRITTEN.fetch_add(1, Ordering::Relaxed);
    }
}

unsafe extern "C-unwind" fn sync_forever(fd: *mut c_void) -> *mut c_void {
    let sync: Sync = unsafe { std::mem::transmute(SYNC.load(Ordering::Relaxed)) };
    loop {
        unsafe { sync(fd.addr() as c_int) };
    }
}

pub fn run(world: &mut World) {
    READ.store(world.find("read").addr(), Ordering::Relaxed);
    WRITE.store(world.find("write").addr(), Ordering::Relaxed);
    SYNC.store(world.find("fdatasync").addr(), Ordering::Relaxed);
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), 0) }, 0);
    let file = call!(
        world, "open", "cancelled.log",
        (c"cancelled.log".as_ptr() => *const c_char, libc::O_RDWR | libc::O_CREAT => c_int, 0o600 => c_uint) -> Fd
    );
    let file = file.0;
    cancel(world, "a read of a pipe", read_forever, ends[0]);
    cancel(world, "writes to a pipe", write_forever, ends[1]);
    cancel(world, "writes to a file", write_forever, file);
    cancel(world, "syncs of a file", sync_forever, file);
    for fd in [ends[0], ends[1], file] {
        unsafe { libc::close(fd) };
    }
}

fn cancel(world: &mut World, what: &str, routine: Routine, fd: c_int) {
    let routine: extern "C" fn(*mut c_void) -> *mut c_void =
        unsafe { std::mem::transmute(routine) };
    let mut thread = 0;
    let argument = ptr::without_provenance_mut(fd as usize);
    let result = unsafe { libc::pthread_create(&raw mut thread, ptr::null(), routine, argument) };
    assert_eq!(result, 0);
    std::thread::sleep(std::time::Duration::from_millis(3));
    let cancelled = unsafe { pthread_cancel(thread) };
    let mut value = ptr::null_mut();
    let joined = unsafe { libc::pthread_join(thread, &raw mut value) };
    let value = value.addr().cast_signed();
    world.say(&format!(
        "{what}: cancelled {cancelled}, joined {joined}, {value}"
    ));
}
