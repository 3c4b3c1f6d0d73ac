//! For the power-cut lab (feature `failpoints`, never in a normal build): moments that announce themselves, and deliberate faults.
//!
//! `FOREBAY_FAILPOINT=NAME=N` announces the failpoint NAME when it is passed the N-th time in a process, by a line on `/dev/console`, and
//! the thread that passed it, and every one that passes it later, stands still for ever; with `NAME=N:go` they go on. `FOREBAY_BROKEN=NAME` breaks what [`fault_enabled!`](crate::broken)
//! names. Nothing here calls the C library for files: it runs inside the library that hooks it.

use rustix::{
    fs::{Mode, OFlags},
    thread::Timespec,
};
use std::sync::{
    OnceLock,
    atomic::{AtomicI64, Ordering::Relaxed},
};

/// What the environment asks for.
struct Armed {
    name: String,
    go_on: bool,
    /// Passes until it is the one; below 1 afterwards.
    left: AtomicI64,
}

fn armed() -> Option<&'static Armed> {
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    ARMED
        .get_or_init(|| {
            let text = std::env::var("FOREBAY_FAILPOINT").ok()?;
            let (name, count) = text.split_once('=')?;
            let (count, go_on) = match count.strip_suffix(":go") {
                Some(count) => (count, true),
                None => (count, false),
            };
            Some(Armed {
                name: name.to_owned(),
                go_on,
                left: AtomicI64::new(count.parse().ok()?),
            })
        })
        .as_ref()
}

/// True if this is the pass that was asked for.
#[must_use]
pub fn hit(name: &str) -> bool {
    armed().is_some_and(|armed| armed.name == name && armed.left.fetch_sub(1, Relaxed) == 1)
}

/// Passes a failpoint.
pub fn pass(name: &str) {
    if hit(name) {
        announce(name);
    } else if armed().is_some_and(|armed| armed.name == name && armed.left.load(Relaxed) < 1) {
        stand_still();
    }
}

/// Says so on the console, and stands still unless it is to go on.
pub fn announce(name: &str) {
    let line = format!("LAB failpoint {name}\n");
    if let Ok(console) = rustix::fs::open(
        "/dev/console",
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        // Without a console nobody waits for it.
        let _ = rustix::io::write(&console, line.as_bytes());
    }
    stand_still();
}

fn stand_still() {
    while !armed().is_some_and(|armed| armed.go_on) {
        let hour = Timespec {
            tv_sec: 3600,
            tv_nsec: 0,
        };
        // A signal may interrupt it.
        let _ = rustix::thread::nanosleep(&hour);
    }
}

/// True if the environment breaks this.
#[must_use]
pub fn is_broken(name: &str) -> bool {
    static BROKEN: OnceLock<Option<String>> = OnceLock::new();
    BROKEN
        .get_or_init(|| std::env::var("FOREBAY_BROKEN").ok())
        .as_deref()
        == Some(name)
}
