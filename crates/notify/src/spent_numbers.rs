//! Numbers of closed logs that were to be synced with each write, of which the kernel knows
//! nothing. A process that was forked while such a log was let go of may have it still: its writes
//! are synced by what is noted of the number, so no other log gets it.

use crate::open_files::may_be_open;
use libc::c_int;
use parking_lot::Mutex;
use std::collections::HashSet;

#[derive(Default)]
pub(crate) struct SpentNumbers(Mutex<HashSet<c_int>>);

impl SpentNumbers {
    /// Such a log is let go of.
    pub(crate) fn add(&self, number: c_int) {
        self.0.lock().insert(number);
    }

    /// True if a log may get the number: then no process has anything by it.
    pub(crate) fn is_free(&self, number: c_int) -> bool {
        let mut spent = self.0.lock();
        if spent.contains(&number) {
            if may_be_open(number) {
                return false;
            }
            spent.remove(&number);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    use std::{os::fd::AsRawFd, process::Command};

    #[test]
    fn a_spent_number_is_free_when_no_process_has_it() {
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
        let spent = SpentNumbers::default();
        assert!(spent.is_free(number));
        spent.add(number);
        assert!(!spent.is_free(number));
        kill_process(pid, Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(spent.is_free(number));
    }
}
