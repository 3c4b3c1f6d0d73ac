//! For the power-cut lab (feature `failpoints`, never in a normal build): moments that announce
//! themselves, and deliberate faults.
//!
//! `FOREBAY_FAILPOINT=NAME=N` announces the failpoint NAME when it is passed the N-th time in a
//! process, by a line on `/dev/console`, and the thread that passed it, and every one that passes
//! it later, stands still for ever; with `NAME=N:go` they go on. With `NAME=N:die` the process is
//! killed there, and nothing is announced: so a member dies for others to go on without it, and so
//! does each one that comes in its place. With `@OTHER` behind it, passes count once the process
//! has passed OTHER. Several are separated by commas. `FOREBAY_BROKEN=NAME` breaks what
//! [`fault_enabled!`](crate::broken) names. Nothing here calls the C library for files: it runs
//! inside the library that hooks it.

use rustix::{
    fs::{Mode, OFlags},
    process::Signal,
    thread::Timespec,
};
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

/// What happens at the pass that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArmedAction {
    StandStill,
    GoOn,
    Die,
}

/// A failpoint that the environment asks for.
#[derive(Debug)]
struct ArmedFailpoint {
    name: String,
    then: ArmedAction,
    /// Its passes count once this one was passed.
    after: Option<String>,
    counts: AtomicBool,
    /// Passes until it is the one; below 1 afterwards.
    left: AtomicI64,
}

impl ArmedFailpoint {
    /// `NAME=N`, with `:go` or `:die` and with `@OTHER` behind it or without.
    fn parse(text: &str) -> Option<Self> {
        let (text, after) = match text.split_once('@') {
            Some((text, after)) => (text, Some(after.to_owned())),
            None => (text, None),
        };
        let (name, count) = text.split_once('=')?;
        let (count, then) = match count.split_once(':') {
            Some((count, "go")) => (count, ArmedAction::GoOn),
            Some((count, "die")) => (count, ArmedAction::Die),
            Some(_) => return None,
            None => (count, ArmedAction::StandStill),
        };
        Some(Self {
            name: name.to_owned(),
            then,
            counts: AtomicBool::new(after.is_none()),
            after,
            left: AtomicI64::new(count.parse().ok()?),
        })
    }

    /// A failpoint is passed: true if this is the pass that was asked for.
    fn is_due(&self, name: &str) -> bool {
        if self.after.as_deref() == Some(name) {
            self.counts.store(true, Relaxed);
        }
        self.name == name && self.counts.load(Relaxed) && self.left.fetch_sub(1, Relaxed) == 1
    }

    fn is_over(&self, name: &str) -> bool {
        self.name == name && self.left.load(Relaxed) < 1
    }
}

fn armed() -> &'static [ArmedFailpoint] {
    static ARMED: OnceLock<Vec<ArmedFailpoint>> = OnceLock::new();
    ARMED.get_or_init(|| {
        let text = std::env::var("FOREBAY_FAILPOINT").unwrap_or_default();
        text.split(',').filter_map(ArmedFailpoint::parse).collect()
    })
}

/// True if this is the pass that was asked for: what the caller breaks off there ends with
/// [`announce`].
#[must_use]
pub fn hit(name: &str) -> bool {
    // Each is to count it.
    let due = armed().iter().filter(|armed| armed.is_due(name)).count();
    due > 0
}

/// Passes a failpoint.
pub fn pass(name: &str) {
    if hit(name) {
        announce(name);
    } else if let Some(armed) = armed().iter().find(|armed| armed.is_over(name)) {
        stand_still(armed.then);
    }
}

/// Says so on the console, and stands still unless it is to go on; or dies.
pub fn announce(name: &str) {
    let over = armed().iter().find(|armed| armed.is_over(name));
    let then = over.map_or(ArmedAction::GoOn, |armed| armed.then);
    let line = match then {
        // Not what the lab waits for.
        ArmedAction::Die => format!("LAB death at {name}\n"),
        _ => format!("LAB failpoint {name}\n"),
    };
    if let Ok(console) = rustix::fs::open(
        "/dev/console",
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        // Without a console no lab waits for the line.
        let _ = rustix::io::write(&console, line.as_bytes());
    }
    if then == ArmedAction::Die {
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    }
    stand_still(then);
}

fn stand_still(then: ArmedAction) {
    if then == ArmedAction::GoOn {
        return;
    }
    loop {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_failpoint_says_when_it_counts_and_what_happens_there() {
        let armed = ArmedFailpoint::parse("shared:reserved=2:die").unwrap();
        assert_eq!(armed.then, ArmedAction::Die);
        let due = ["shared:reserved", "shared:written", "shared:reserved"];
        assert_eq!(due.map(|name| armed.is_due(name)), [false, false, true]);
        assert!(armed.is_over("shared:reserved") && !armed.is_due("shared:reserved"));

        let armed = ArmedFailpoint::parse("prepare:next=1@bury:filled").unwrap();
        assert_eq!(armed.then, ArmedAction::StandStill);
        let due = ["prepare:next", "bury:filled", "prepare:next"];
        assert_eq!(due.map(|name| armed.is_due(name)), [false, false, true]);

        assert_eq!(
            ArmedFailpoint::parse("a=1:go").unwrap().then,
            ArmedAction::GoOn
        );
        for wrong in ["", "a", "a=", "a=1:away"] {
            assert!(ArmedFailpoint::parse(wrong).is_none(), "{wrong}");
        }
    }
}
