//! The program of a run: calls that the seed chooses, by one process or two.

use forebay_random::Rng;
use std::{collections::VecDeque, path::PathBuf};

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;

/// A log that the program has open, in each process twice: to append, and to write anywhere.
struct OpenLog {
    name: String,
    /// Leads the names of its descriptors.
    handle: String,
    has_other: bool,
}

/// A call, and what is known of it before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// As the database reads it.
    pub line: String,
    /// Done by its other process.
    pub is_others: bool,
    pub what: CallKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Of this handle's log, which this name leads to.
    Open(String, String),
    Sync(String),
    Truncate(String, usize),
    Other,
}

/// What the program does.
pub struct Program {
    data: PathBuf,
    logs: Vec<OpenLog>,
    calls_left: u64,
    /// Calls that were chosen.
    pub done: u64,
    has_other: bool,
    changes_names: bool,
    /// The other process has been told a call, and has not been asked for the answer.
    is_other_busy: bool,
    next: VecDeque<Call>,
    made: u64,
    sizes: u64,
}

impl Program {
    pub fn new(data: PathBuf, rng: &mut Rng) -> Self {
        let mut program = Self {
            data,
            logs: Vec::new(),
            calls_left: 40 + rng.below(80),
            done: 0,
            has_other: rng.chance(2),
            changes_names: rng.chance(2),
            is_other_busy: false,
            next: VecDeque::new(),
            made: 0,
            sizes: rng.one_of(&[200, 3000, 12_000]),
        };
        for _ in 0..1 + rng.below(3) {
            program.open(rng);
        }
        program
    }

    /// The next call.
    pub fn next(&mut self, rng: &mut Rng) -> Option<Call> {
        if self.next.is_empty() {
            self.calls_left = self.calls_left.checked_sub(1)?;
            self.choose(rng);
            self.done += 1;
        }
        self.next.pop_front()
    }

    fn push(&mut self, line: String, what: CallKind) {
        let call = Call {
            line,
            is_others: false,
            what,
        };
        self.next.push_back(call);
    }

    /// By the other process, while this one goes on.
    fn push_others(&mut self, line: &str, what: CallKind) {
        if self.is_other_busy {
            self.push("end other".to_owned(), CallKind::Other);
        }
        self.is_other_busy = true;
        let call = Call {
            line: format!("begin other {line}"),
            is_others: true,
            what,
        };
        self.next.push_back(call);
    }

    fn path(&self, name: &str) -> String {
        self.data.join(name).display().to_string()
    }

    fn open(&mut self, rng: &mut Rng) {
        self.made += 1;
        let name = format!("{}.log", self.made);
        let log = OpenLog {
            handle: self.made.to_string(),
            has_other: self.has_other && rng.chance(2),
            name: name.clone(),
        };
        let path = self.path(&name);
        for (kind, flags) in [("append", APPEND), ("at", RDWR)] {
            let handle = format!("{kind}-{}", log.handle);
            let line = format!("open {handle} {path} {flags}");
            let what = CallKind::Open(handle, name.clone());
            self.push(line.clone(), what.clone());
            if log.has_other {
                self.push_others(&line, what);
            }
        }
        // Or it is written to before its first sync.
        if rng.chance(2) {
            let handle = format!("at-{}", log.handle);
            self.push(format!("sync {handle}"), CallKind::Sync(handle));
        }
        self.logs.push(log);
    }

    fn close(&mut self, log: usize) {
        let log = self.logs.remove(log);
        for kind in ["append", "at"] {
            let line = format!("close {kind}-{}", log.handle);
            self.push(line.clone(), CallKind::Other);
            if log.has_other {
                self.push_others(&line, CallKind::Other);
            }
        }
    }

    fn choose(&mut self, rng: &mut Rng) {
        if self.logs.is_empty() {
            return self.open(rng);
        }
        let log = rng.below(self.logs.len() as u64) as usize;
        if self.changes_names {
            match rng.below(24) {
                0 => return self.open(rng),
                1 => {
                    let path = self.path(&self.logs[log].name);
                    self.push(format!("unlink {path}"), CallKind::Other);
                    return self.close(log);
                }
                2 => return self.rename(log, rng),
                3 => return self.close(log),
                _ => {}
            }
        }
        let (handle, others) = {
            let log = &self.logs[log];
            (log.handle.clone(), log.has_other && rng.chance(2))
        };
        let most = match rng.below(12) {
            0 => 20 * self.sizes,
            _ => self.sizes,
        };
        let bytes = 1 + rng.below(most);
        let seed = rng.below(1 << 30);
        let (line, what) = match rng.below(24) {
            0 => {
                let (handle, bytes) = (format!("at-{handle}"), rng.below(4 * self.sizes));
                let line = format!("truncate {handle} {bytes}");
                (line, CallKind::Truncate(handle, bytes as usize))
            }
            1..5 => {
                let (handle, at) = (format!("at-{handle}"), rng.below(4 * self.sizes));
                let line = format!("pwrite {handle} {at} {seed} {bytes}");
                (line, CallKind::Other)
            }
            5..12 => {
                let handle = format!("at-{handle}");
                (format!("sync {handle}"), CallKind::Sync(handle))
            }
            _ => {
                let handle = format!("append-{handle}");
                (format!("write {handle} {seed} {bytes}"), CallKind::Other)
            }
        };
        match others {
            true => self.push_others(&line, what),
            false => self.push(line, what),
        }
    }

    /// Gives a log another name, which may be another log's.
    fn rename(&mut self, log: usize, rng: &mut Rng) {
        self.made += 1;
        let over = rng.below(self.logs.len() as u64) as usize;
        let is_over = over != log && rng.chance(2);
        let to = match is_over {
            true => self.logs[over].name.clone(),
            false => format!("{}.log", self.made),
        };
        let from = self.path(&self.logs[log].name);
        self.push(format!("rename {from} {}", self.path(&to)), CallKind::Other);
        self.logs[log].name = to;
        if is_over {
            self.close(over);
        }
    }
}
