//! Moments that announce themselves, for the power-cut lab, and that tests wait or die at.
//!
//! `NAME=N` announces the failpoint NAME when it is passed the N-th time in a process, by a line on
//! `/dev/console`. The thread that passed it, and every one that passes it later, stands still for
//! ever; with `NAME=N:go` they go on. With `NAME=N:die` the process is killed there, and nothing is
//! announced: so a member dies for others to go on without it, and so does each one that comes in
//! its place. With `NAME=N:500ms` the thread waits for so long, and nothing is announced either.
//! With `@OTHER` behind it, passes count once the process has passed OTHER. Nothing here calls the
//! C library for files: it runs inside the library that hooks it.

use super::settings;
use crate::steps;
use rustix::{
    fs::{Mode, OFlags},
    process::Signal,
    thread::{NanosleepRelativeResult, Timespec},
};
use std::{
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    time::Duration,
};

/// The action at the pass that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArmedAction {
    StandStill,
    GoOn,
    Die,
    Wait(Duration),
}

/// A failpoint that the environment asks for.
#[derive(Debug)]
pub(super) struct ArmedFailpoint {
    name: String,
    then: ArmedAction,
    /// Its passes count once this one was passed.
    after: Option<String>,
    counts: AtomicBool,
    /// Passes until it is the one; below 1 afterwards.
    left: AtomicI64,
}

impl ArmedFailpoint {
    /// `NAME=N`, with `:go`, `:die` or `:500ms` and with `@OTHER` behind it or without.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (text, after) = match text.split_once('@') {
            Some((text, after)) => (text, Some(after.to_owned())),
            None => (text, None),
        };
        let (name, count) = text.split_once('=')?;
        let (count, then) = match count.split_once(':') {
            Some((count, "go")) => (count, ArmedAction::GoOn),
            Some((count, "die")) => (count, ArmedAction::Die),
            Some((count, wait)) => {
                let ms = wait.strip_suffix("ms")?.parse().ok()?;
                (count, ArmedAction::Wait(Duration::from_millis(ms)))
            }
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

/// True if this is the pass that was asked for: a step that the caller breaks off there ends with
/// [`announce`].
#[must_use]
pub fn hit(name: &str) -> bool {
    // Each is to count it.
    (settings().armed.iter()).fold(false, |due, armed| armed.is_due(name) | due)
}

/// Passes a failpoint.
pub fn pass(name: &'static str) {
    steps::pass(name);
    if settings().is_traced {
        // Who traces this thread sees by this call where it is.
        let _ = rustix::fs::access(name, rustix::fs::Access::EXISTS);
    }
    let armed = &settings().armed;
    if armed.is_empty() {
        return;
    }
    let mut due = None;
    for armed in armed {
        if armed.is_due(name) {
            due = Some(armed.then);
        }
    }
    if let Some(then) = due {
        act(name, then);
    } else if let Some(armed) = armed.iter().find(|armed| armed.is_over(name)) {
        stay(armed.then);
    }
}

/// Says so on the console, and stands still unless it is to go on; or dies.
pub fn announce(name: &str) {
    let over = settings().armed.iter().find(|armed| armed.is_over(name));
    act(name, over.map_or(ArmedAction::GoOn, |armed| armed.then));
}

fn act(name: &str, then: ArmedAction) {
    match then {
        ArmedAction::Wait(time) => sleep(time),
        ArmedAction::Die => {
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
        }
        ArmedAction::StandStill | ArmedAction::GoOn => say(name),
    }
    stay(then);
}

/// Says on the console that the moment has come. Without one no lab waits for the line.
fn say(name: &str) {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(console) = rustix::fs::open("/dev/console", flags, Mode::empty()) {
        let _ = rustix::io::write(&console, format!("LAB failpoint {name}\n").as_bytes());
    }
}

/// Stands still where that is what was asked for, and where the process is about to die.
fn stay(then: ArmedAction) {
    if matches!(then, ArmedAction::StandStill | ArmedAction::Die) {
        loop {
            sleep(Duration::from_secs(3600));
        }
    }
}

/// Sleeps for so long, whatever signals come.
fn sleep(time: Duration) {
    let Ok(mut left) = Timespec::try_from(time) else {
        return;
    };
    while let NanosleepRelativeResult::Interrupted(rest) = rustix::thread::nanosleep(&left) {
        left = rest;
    }
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
        assert_eq!(
            ArmedFailpoint::parse("a=1:500ms").unwrap().then,
            ArmedAction::Wait(Duration::from_millis(500))
        );
        for wrong in ["", "a", "a=", "a=1:away", "a=1:5"] {
            assert!(ArmedFailpoint::parse(wrong).is_none(), "{wrong}");
        }
    }
}
