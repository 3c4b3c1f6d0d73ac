//! Complaints on the process's standard error.
//!
//! A library lives in other people's programs, and these may close their standard error: the file
//! that they open next has its number. What was said then would be bytes in a database. So the
//! library notes what standard error is when it starts, and when the program puts something else
//! there on purpose (`dup2`, `freopen`); to anything else nothing is said.

mod repeated;

pub use repeated::{complain_repeated, say_what_ended};

use rustix::io::Errno;
use std::{
    io::{self, IoSlice},
    os::fd::AsFd,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Device and inode of what standard error was when that was last noted. Two that are not of one
/// moment are no file's: then nothing is said.
static NOTED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static IS_NOTED: AtomicBool = AtomicBool::new(false);

/// Notes the file that has standard error's number now as the process's standard error. From now on
/// nothing is said to any other file of that number.
pub fn note_standard_error() {
    // One that is closed, or may not be looked at, is none.
    let (dev, ino) = look(io::stderr()).unwrap_or_default();
    NOTED[0].store(dev, Relaxed);
    NOTED[1].store(ino, Relaxed);
    IS_NOTED.store(true, Release);
}

/// Says a line of Forebay's, unless standard error is some other file by now. Does not allocate.
pub fn complain(what: &str) {
    let to = io::stderr();
    if IS_NOTED.load(Acquire) {
        let noted = NOTED.each_ref().map(|part| part.load(Relaxed));
        if look(&to).ok() != Some((noted[0], noted[1])) {
            return;
        }
    }
    // If that fails, there is nowhere to say so. Not by the standard library: it would wait for a
    // lock that a killed thread may have had at a fork.
    let line = ["forebay: ", what, "\n"].map(|part| IoSlice::new(part.as_bytes()));
    let _ = rustix::io::writev(&to, &line);
}

fn look(fd: impl AsFd) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}
