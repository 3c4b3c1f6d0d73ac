//! Descriptor numbers of closed `O_DSYNC` logs. The kernel does not know the flag, so no other file
//! may get them: a process that was forked while such a log was let go of may have it still, and
//! its writes are synced by the note of the number. The note is forgotten with the number.

use crate::{open_files::may_be_open, slots::HiddenFlags};
use libc::c_int;
use parking_lot::Mutex;
use std::collections::HashSet;

pub(crate) struct SpentNumbers {
    numbers: Mutex<HashSet<c_int>>,
    hidden: HiddenFlags,
    /// All processes can be looked at: otherwise such a number is never free again.
    sees_processes: bool,
    /// All processes of the program are below this one.
    is_above: bool,
}

impl SpentNumbers {
    pub(crate) fn new(hidden: HiddenFlags, sees_processes: bool, is_above: bool) -> Self {
        Self {
            numbers: Mutex::default(),
            hidden,
            sees_processes,
            is_above,
        }
    }

    /// Such a log is let go of.
    pub(crate) fn add(&self, number: c_int) {
        self.numbers.lock().insert(number);
    }

    /// True if a log may get the number: then no process has anything by it. Who asks has the
    /// number in the agent, so nothing else gets it meanwhile.
    pub(crate) fn is_free(&self, number: c_int) -> bool {
        let mut spent = self.numbers.lock();
        if spent.contains(&number) {
            if !self.sees_processes || may_be_open(number, self.is_above) {
                return false;
            }
            spent.remove(&number);
            self.hidden.set(number, 0);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{number_window::NumberWindow, slots::CallSlots};
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    use std::{os::fd::AsRawFd, process::Command};

    /// Held while a child inherits what it is to have, and no other test's is to.
    static INHERITS: Mutex<()> = Mutex::new(());

    #[test]
    fn a_spent_number_is_free_when_no_process_has_it() {
        let _one = INHERITS.lock();
        const LEAST: c_int = 701;
        let file = std::fs::File::open("/dev/null").unwrap();
        // The child inherits it.
        let inherited = rustix::io::fcntl_dupfd_cloexec(&file, LEAST).unwrap();
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
        let number = inherited.as_raw_fd();
        let mut child = Command::new("sh");
        let mut child = child.args(["-c", "kill -STOP $$"]).spawn().unwrap();
        drop(inherited);
        let pid = Pid::from_child(&child);
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        let window = NumberWindow {
            first: 512,
            end: 1536,
        };
        let hidden = CallSlots::new(window).unwrap().hidden_flags();
        let spent = SpentNumbers::new(hidden, true, true);
        assert!(spent.is_free(number));
        spent.add(number);
        hidden.set(number, libc::O_DSYNC);
        assert!(!spent.is_free(number));
        assert_eq!(hidden.of(number), libc::O_DSYNC);
        kill_process(pid, Signal::KILL).unwrap();
        child.wait().unwrap();
        let unseeing = SpentNumbers::new(hidden, false, true);
        unseeing.add(number);
        assert!(!unseeing.is_free(number));
        assert_eq!(hidden.of(number), libc::O_DSYNC);
        assert!(spent.is_free(number));
        assert_eq!(hidden.of(number), 0);
    }

    #[test]
    fn a_strangers_number_keeps_none_taken() {
        let _one = INHERITS.lock();
        const LEAST: c_int = 741;
        let file = std::fs::File::open("/dev/null").unwrap();
        let inherited = rustix::io::fcntl_dupfd_cloexec(&file, LEAST).unwrap();
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
        let number = inherited.as_raw_fd();
        // It loses its parent, and is not below this process then.
        let mut child = Command::new("sh");
        let child = child.args(["-c", "sleep 60 >&- 2>&- & echo $!"]);
        let said = child.output().unwrap().stdout;
        drop(inherited);
        let pid = String::from_utf8(said).unwrap().trim().parse().unwrap();
        assert!(std::fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_ok());
        assert!(!may_be_open(number, true));
        assert!(may_be_open(number, false));
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
}
