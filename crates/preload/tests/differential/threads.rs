//! Several threads at a time: each with files of its own, whose transcripts are compared, then all
//! with the same files, of which is compared what does not depend on their order.

use crate::world::{Fd, World, call};
use forebay_random::Rng;
use libc::{c_char, c_int, c_uint, c_void};
use std::thread;

const THREADS: u64 = 4;
const STEPS: u64 = 60;

/// Records are all of this size, so that those in any order can be sorted.
const RECORD_BYTES: usize = 48;
const RECORDS: usize = 100;

/// The file that threads append to, each through its own descriptor.
const APPENDED: &str = "appended.log";
/// The file that threads write to at the one position of one descriptor.
const AT_POSITION: &str = "at-position.log";
/// The file of which each thread has its own places.
const PLACES: &str = "places.log";

/// A file's bytes, sorted by records if its threads wrote them in any order.
pub fn in_any_order(name: &str, bytes: Vec<u8>) -> Vec<u8> {
    if ![APPENDED, AT_POSITION].contains(&name) {
        return bytes;
    }
    let mut records: Vec<&[u8]> = bytes.chunks(RECORD_BYTES).collect();
    records.sort_unstable();
    records.concat()
}

pub fn run(world: &mut World) {
    let worlds: Vec<World> = (0..THREADS).map(|n| world.for_thread(n)).collect();
    let done: Vec<World> = thread::scope(|scope| {
        let threads: Vec<_> = worlds
            .into_iter()
            .map(|mut world| {
                scope.spawn(move || {
                    world.run_among_others(STEPS);
                    world
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for (n, done) in done.into_iter().enumerate() {
        world.say(&format!("thread {n}"));
        world.transcript.push_str(&done.transcript);
        world.called.extend(done.called);
    }
    // From now on numbers of descriptors depend on what the threads left open.
    world.is_beside_others = true;
    share_files(world);
}

fn share_files(world: &mut World) {
    let position = open(world, AT_POSITION, 0);
    let places = open(world, PLACES, 0);
    let appending: Vec<c_int> = (0..THREADS)
        .map(|_| open(world, APPENDED, libc::O_APPEND))
        .collect();
    let worlds: Vec<World> = (0..THREADS).map(|n| world.for_thread(n)).collect();
    thread::scope(|scope| {
        for (n, mut world) in worlds.into_iter().enumerate() {
            let append = appending[n];
            scope.spawn(move || {
                for step in 0..RECORDS {
                    let record = record(n, step);
                    let bytes = (record.as_ptr().cast::<c_void>(), RECORD_BYTES);
                    let at = ((step * THREADS as usize + n) * RECORD_BYTES) as i64;
                    for fd in [append, position] {
                        call!(world, "write", "", (fd => c_int, bytes.0 => *const c_void, bytes.1 => usize) -> isize);
                    }
                    call!(
                        world, "pwrite", "",
                        (places => c_int, bytes.0 => *const c_void, bytes.1 => usize, at => i64) -> isize
                    );
                    if world.rng.chance(40) {
                        call!(world, "fdatasync", "", (places => c_int) -> c_int);
                    }
                }
            });
        }
    });
    for fd in appending.into_iter().chain([position, places]) {
        unsafe { libc::close(fd) };
    }
}

fn open(world: &mut World, name: &str, flags: c_int) -> c_int {
    let path = std::ffi::CString::new(name).unwrap();
    let flags = libc::O_RDWR | libc::O_CREAT | flags;
    call!(
        world, "open", name,
        (path.as_ptr() => *const c_char, flags => c_int, 0o600 => c_uint) -> Fd
    )
    .0
}

fn record(thread: usize, step: usize) -> Vec<u8> {
    let mut rng = Rng((thread * RECORDS + step) as u64);
    (0..RECORD_BYTES).map(|_| rng.next() as u8).collect()
}
