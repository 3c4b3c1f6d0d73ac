//! Complaints that repeat: an error that each write and sync runs into would fill the disk with
//! lines.
//!
//! Of each cause (a file, and what is wrong with it) the first is said, then one a minute at most
//! with how many there were. When there were none for a while, it is said that it has ended. One
//! that came once is said once, and nothing of its end.

use super::complain;
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError, TryLockError},
    time::{Duration, Instant},
};

/// Lines of a cause are so far apart, at least; but for its end.
const APART: Duration = Duration::from_secs(60);
/// A cause that was not met for so long has ended.
const QUIET: Duration = Duration::from_secs(10);
/// Causes that are remembered: of more, each complaint is said.
const CAUSES_MAX: usize = 1024;

static SAID: Mutex<Repeats> = Mutex::new(Repeats::new());

/// Says `what`, unless its short form, `cause`, was said within the last minute.
pub fn complain_repeated(cause: &str, what: &str) {
    let now = Instant::now();
    let lines = match SAID.try_lock() {
        Ok(mut said) => said.met(cause, what, now),
        Err(TryLockError::Poisoned(said)) => said.into_inner().met(cause, what, now),
        // Another thread's turn, or one that a forked child has not got: never waited for.
        Err(TryLockError::WouldBlock) => vec![what.to_owned()],
    };
    lines.iter().for_each(|line| complain(line));
}

/// Says which causes have ended. To be called now and then.
pub fn say_what_ended() {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = said.ended(Instant::now());
    drop(said);
    lines.iter().for_each(|line| complain(line));
}

/// A cause that was met.
struct ComplaintCause {
    begun: Instant,
    met: Instant,
    said: Instant,
    /// The number of times that it was met since it began, and since it was said last.
    times: u64,
    unsaid: u64,
    /// The newest text that was not said.
    newest: String,
    has_ended: bool,
}

/// The complaints by cause.
struct Repeats(BTreeMap<String, ComplaintCause>);

impl Repeats {
    const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The lines to say.
    fn met(&mut self, cause: &str, what: &str, now: Instant) -> Vec<String> {
        let mut lines = self.ended(now);
        let Some(known) = self.0.get_mut(cause) else {
            if self.0.len() < CAUSES_MAX {
                self.0.insert(cause.to_owned(), ComplaintCause::new(now));
            }
            lines.push(what.to_owned());
            return lines;
        };
        if known.has_ended {
            known.begin_again(now);
        }
        known.met = now;
        known.times += 1;
        known.unsaid += 1;
        what.clone_into(&mut known.newest);
        lines.extend(known.due(now));
        lines
    }

    /// Lines about causes that are met no more, or that were met without being said.
    fn ended(&mut self, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, cause) in &mut self.0 {
            let is_quiet = now.duration_since(cause.met) >= QUIET;
            if !is_quiet || cause.has_ended {
                continue;
            }
            // One that began again within the minute was not said yet: so its end is not either.
            let is_said = cause.times > cause.unsaid;
            if is_said && cause.times > 1 {
                let (times, seconds) = (cause.times, QUIET.as_secs());
                let since = now.duration_since(cause.begun).as_secs();
                lines.push(format!(
                    "{name}: not for {seconds} s any more; {times} times in the {since} s before"
                ));
            }
            if is_said {
                cause.has_ended = true;
            } else {
                lines.extend(cause.due(now));
            }
        }
        let is_kept =
            |cause: &ComplaintCause| !cause.has_ended || now.duration_since(cause.said) < APART;
        self.0.retain(|_, cause| is_kept(cause));
        lines
    }
}

impl ComplaintCause {
    /// It was said just now.
    fn new(now: Instant) -> Self {
        Self {
            begun: now,
            met: now,
            said: now,
            times: 1,
            unsaid: 0,
            newest: String::new(),
            has_ended: false,
        }
    }

    fn begin_again(&mut self, now: Instant) {
        self.begun = now;
        self.times = 0;
        self.unsaid = 0;
        self.has_ended = false;
    }

    /// The text met since it was said last, if that is long enough ago.
    fn due(&mut self, now: Instant) -> Option<String> {
        if self.unsaid == 0 || now.duration_since(self.said) < APART {
            return None;
        }
        let (what, unsaid) = (&self.newest, self.unsaid);
        let line = match unsaid {
            1 => what.clone(),
            _ => format!("{what} ({unsaid} times since this was said last)"),
        };
        self.said = now;
        self.unsaid = 0;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Meets a cause every so many milliseconds for so many seconds: the lines.
    fn meet(
        repeats: &mut Repeats,
        cause: &str,
        at: &mut Instant,
        apart_ms: u64,
        s: u64,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..s * 1000 / apart_ms {
            *at += Duration::from_millis(apart_ms);
            lines.extend(repeats.met(cause, &format!("{cause}. Remedy it"), *at));
        }
        lines
    }

    #[test]
    fn an_error_of_each_write_is_said_once_a_minute_and_ends() {
        let (mut repeats, mut at) = (Repeats::new(), Instant::now());
        let lines = meet(&mut repeats, "a: full", &mut at, 1, 150);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[0], "a: full. Remedy it");
        assert!(lines[1].contains("(60000 times since"), "{lines:?}");
        at += QUIET;
        let ended = repeats.ended(at);
        assert_eq!(
            ended,
            ["a: full: not for 10 s any more; 150000 times in the 159 s before"]
        );
        assert!(repeats.ended(at + APART).is_empty());
        assert!(repeats.0.is_empty());
    }

    #[test]
    fn each_cause_is_said_though_another_is() {
        let (mut repeats, at) = (Repeats::new(), Instant::now());
        for cause in ["a: full", "b: full", "a: broken"] {
            assert_eq!(repeats.met(cause, cause, at), [cause]);
            assert!(repeats.met(cause, cause, at).is_empty());
        }
    }

    #[test]
    fn an_error_that_came_once_is_said_once() {
        let (mut repeats, at) = (Repeats::new(), Instant::now());
        assert_eq!(repeats.met("a", "a", at).len(), 1);
        assert!(repeats.ended(at + QUIET).is_empty());
        assert_eq!(repeats.met("a", "a", at + APART).len(), 1);
    }

    #[test]
    fn one_that_comes_and_goes_takes_no_more_lines() {
        let (mut repeats, mut at) = (Repeats::new(), Instant::now());
        let mut lines = Vec::new();
        for _ in 0..10 {
            lines.extend(meet(&mut repeats, "a", &mut at, 500, 1));
            at += Duration::from_secs(11);
            lines.extend(repeats.ended(at));
        }
        // Two minutes: begun, ended, and again in the second.
        assert!(lines.len() <= 6, "{lines:?}");
    }
}
