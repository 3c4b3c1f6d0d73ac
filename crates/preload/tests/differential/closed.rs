//! A file that was closed is closed: no process has it open, locked, or leased any more that would
//! not have without Forebay.

use crate::{SEED, TRANSCRIPT, assert_same, plain, run_worker, under_forebay};
use std::{
    env,
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::{
        fd::AsRawFd,
        unix::fs::{OpenOptionsExt, PermissionsExt},
    },
    process::Command,
};

/// How often: what is wrong may be so for a moment only.
const TIMES: usize = 20;

fn log(name: &str) -> io::Result<File> {
    File::options().create(true).append(true).open(name)
}

/// What became of a call, for the transcript.
fn shown(result: io::Result<i32>) -> String {
    match result {
        Ok(number) => number.to_string(),
        Err(error) => format!("errno {:?}", error.raw_os_error()),
    }
}

fn returned(result: i32) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Writes a script, synced, and executes it at once.
fn execute(name: &str) -> io::Result<i32> {
    let mut file = log(name)?;
    file.set_permissions(fs::Permissions::from_mode(0o700))?;
    file.write_all(b"#!/bin/sh\nexit 7\n")?;
    file.sync_data()?;
    drop(file);
    let status = Command::new(format!("./{name}")).status()?;
    Ok(status.code().unwrap_or(-1))
}

/// Locks a file that was locked when it was closed.
fn lock(name: &str, lock: impl Fn(&File) -> io::Result<i32>) -> io::Result<i32> {
    let mut file = log(name)?;
    lock(&file)?;
    file.write_all(b"locked")?;
    file.sync_data()?;
    drop(file);
    lock(&log(name)?)
}

fn flock(file: &File) -> io::Result<i32> {
    returned(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })
}

fn lock_description(file: &File) -> io::Result<i32> {
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::F_WRLCK as libc::c_short;
    returned(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut range) })
}

/// Opens a file again that was written, synced and closed, by a call that must not wait.
fn open_without_waiting(name: &str, options: &OpenOptions) -> io::Result<i32> {
    let mut file = log(name)?;
    file.write_all(b"written")?;
    file.sync_data()?;
    drop(file);
    options.open(name).map(|_| 0)
}

/// Not a test: what the others run, in a process of its own.
#[test]
fn closing_worker() {
    let Ok(kind) = env::var(SEED) else {
        return;
    };
    let mut transcript = String::new();
    for n in 0..TIMES {
        let name = format!("{n}.log");
        let mut nonblocking = OpenOptions::new();
        nonblocking.custom_flags(libc::O_NONBLOCK);
        let results = match kind.as_str() {
            "0" => [execute(&name), execute(&format!("again-{n}.log"))],
            "1" => [lock(&name, flock), lock(&name, lock_description)],
            _ => [
                open_without_waiting(&name, nonblocking.read(true)),
                open_without_waiting(&name, nonblocking.write(true)),
            ],
        };
        for result in results {
            writeln!(transcript, "{name}: {}", shown(result)).unwrap();
        }
    }
    fs::write(env::var(TRANSCRIPT).unwrap(), transcript).unwrap();
}

fn is_the_same(kind: u64) {
    let expected = run_worker("closed::closing_worker", kind, plain);
    assert!(!expected.transcript.is_empty());
    let found = run_worker("closed::closing_worker", kind, under_forebay);
    assert_same(kind, &expected, &found);
}

#[test]
fn a_file_that_was_written_and_closed_is_executed_at_once() {
    is_the_same(0);
}

#[test]
fn locks_of_an_open_file_go_with_its_last_descriptor() {
    is_the_same(1);
}

#[test]
fn a_file_that_was_closed_is_opened_again_without_waiting() {
    is_the_same(2);
}
