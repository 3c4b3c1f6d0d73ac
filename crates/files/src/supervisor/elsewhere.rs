//! Other runs on this machine: one that absorbs a file which a process of this run has open lets go of it first.
//! docs/files-protocol.md, "Two runs".
//!
//! Other runs are found by their tables ([`absorbed`](crate::absorbed)), whoever's they are; but only those count whose owner may write to
//! the file: nobody else can keep it from being absorbed.

use crate::{
    absorbed::{self, Key, View},
    sys,
    wire::{self, Answer, Request},
};
use rustix::{fs::Stat, io::Errno};
use std::{os::fd::AsFd, path::Path, thread, time::Duration};
use uuid::Uuid;

/// How long another run may take to answer: its process has [`FOREIGN_WAIT`](super::guest::FOREIGN_WAIT) to let go.
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// Attempts to reach it.
const ATTEMPTS: u32 = 5;

/// What became of asking.
pub(super) enum Elsewhere {
    /// No other run absorbs the file.
    Nobody,
    /// One did, or its lane waits for its recovery.
    LetGo(String),
    /// One does, and cannot be told.
    Unheard(String),
}

/// Asks every other run that absorbs the file, given with the time when it was made, to let go of it, and waits.
pub(super) fn let_go(own: &Path, boot: Uuid, file: (Key, u64), stat: &Stat) -> Elsewhere {
    let Ok(entries) = std::fs::read_dir(absorbed::SHARED_DIR) else {
        return Elsewhere::Nobody;
    };
    let mut found = Elsewhere::Nobody;
    for entry in entries.flatten() {
        let path = entry.path();
        if path == own
            || !entry
                .file_name()
                .to_string_lossy()
                .starts_with(absorbed::PREFIX)
        {
            continue;
        }
        let Some((table, pid)) = absorber(&path, boot, file, stat) else {
            continue;
        };
        let who = format!("process {pid} of another forebay run");
        if table.is_alive() {
            if let Err(errno) = ask(&table.socket(), file.0) {
                return Elsewhere::Unheard(format!(
                    "{who} absorbs it, and its supervisor does not answer: {errno}"
                ));
            }
            found = Elsewhere::LetGo(format!("{who} absorbed it"));
        } else {
            if sys::is_process(pid) {
                // It lets go at its next call; one that does nothing logs nothing.
                thread::sleep(super::guest::FOREIGN_WAIT);
            }
            found = Elsewhere::LetGo(format!(
                "{who}, whose supervisor was killed, absorbed it: forebay recover brings what is in that pool to the file"
            ));
        }
    }
    found
}

/// The table at `path` and the process that absorbs the file by it, if it counts.
fn absorber(path: &Path, boot: Uuid, (key, born): (Key, u64), stat: &Stat) -> Option<(View, u32)> {
    let fd = absorbed::open_table(path).ok()?;
    let owner = rustix::fs::fstat(&fd).ok()?.st_uid;
    if !may_write(owner, stat) {
        return None;
    }
    let table = View::copy_of(fd.as_fd())
        .ok()
        .filter(|table| table.is_of(boot))?;
    let pid = table.holder_of(key, born)?;
    // As it was when it was copied. Of one whose supervisor died meanwhile asking fails.
    Some((table, pid))
}

/// True if the user may write to a file, or may be able to: a group's members, and those of an access list, are not looked up.
pub(super) fn may_write(uid: u32, stat: &Stat) -> bool {
    const OTHERS: u32 = 0o022;
    let us = rustix::process::geteuid().as_raw();
    uid == 0 || uid == us || uid == stat.st_uid || stat.st_mode & OTHERS != 0
}

fn ask(socket_name: &[u8], (dev, ino): Key) -> Result<(), Errno> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let done = ask_once(socket_name, (dev, ino));
        if done.is_ok() || attempt == ATTEMPTS {
            return done;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn ask_once(socket_name: &[u8], (dev, ino): Key) -> Result<(), Errno> {
    let socket = wire::connect(socket_name, Some(ANSWER_WAIT))?;
    wire::send(socket.as_fd(), &Request::OtherRun { dev, ino }, &[])?;
    match wire::receive::<Answer>(socket.as_fd())? {
        (Answer::Done, _) => Ok(()),
        _ => Err(Errno::ACCESS),
    }
}
