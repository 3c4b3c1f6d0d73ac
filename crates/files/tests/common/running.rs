//! A supervisor and its database, which does calls.

use super::kill;
use forebay_measure::processes::{Watched, kill_group};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command},
    time::Duration,
};

/// `other NAME` is the second process's.
fn whose(handle: &str) -> (&str, &str) {
    handle.rsplit_once(' ').unwrap_or(("", handle))
}

/// A supervisor and its database.
pub struct Running {
    pub supervisor: Child,
    pub(super) input: Option<ChildStdin>,
    pub(super) output: BufReader<ChildStdout>,
    pub database: i32,
}

impl Running {
    /// Does a call: what it returned, or the errno.
    pub fn call(&mut self, line: impl AsRef<str>) -> Result<usize, i32> {
        self.send(&line);
        let answer = self.answer().unwrap();
        let (what, number) = answer.trim().split_once(' ').unwrap();
        match what {
            "ok" => Ok(number.parse().unwrap()),
            _ => Err(number.parse().unwrap()),
        }
    }

    /// Does several calls, which succeed.
    #[track_caller]
    pub fn calls<const N: usize>(&mut self, lines: [&str; N]) {
        for line in lines {
            self.call(line).unwrap();
        }
    }

    pub fn send(&mut self, line: &impl AsRef<str>) {
        let input = self.input.as_mut().unwrap();
        let _ = writeln!(input, "{}", line.as_ref());
    }

    pub fn answer(&mut self) -> Option<String> {
        let mut answer = String::new();
        let read = self.output.read_line(&mut answer);
        (read.is_ok_and(|bytes| bytes > 0) && answer.ends_with('\n')).then_some(answer)
    }

    /// As [`Self::answer`]; none also if there is none for so long.
    pub fn answer_within(&mut self, limit: Duration) -> Option<String> {
        let is_there = !self.output.buffer().is_empty() || {
            let mut fds = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
            let limit = Timespec::try_from(limit).unwrap();
            poll(&mut fds, Some(&limit)).unwrap() > 0
        };
        is_there.then(|| self.answer()).flatten()
    }

    /// Stands still from now on, and can be killed.
    pub fn stop_supervisor(&self) {
        let pid = Pid::from_child(&self.supervisor);
        kill_process(pid, Signal::STOP).unwrap();
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
    }

    /// Sets how many files the supervisor may have open, as its user: another may not.
    pub fn limit_descriptors(&self, count: u64) {
        let process = self.supervisor.id().to_string();
        let owner = fs::metadata(format!("/proc/{process}")).unwrap();
        let mut limit = Command::new("prlimit");
        limit.args(["--pid", &process, &format!("--nofile={count}:")]);
        limit.uid(owner.uid()).gid(owner.gid());
        assert!(limit.status().unwrap().success());
    }

    /// Opens a file: 1 if it is absorbed. It has had its first sync then, so what is written next
    /// is logged.
    pub fn open(&mut self, handle: &str, path: &Path, flags: i32) -> usize {
        let opened = self.open_only(handle, path, flags);
        if opened == 1 {
            let (who, name) = whose(handle);
            let _ = self.call(format!("{who} sync {name}").trim_start());
        }
        opened
    }

    /// The same, and nothing else.
    pub fn open_only(&mut self, handle: &str, path: &Path, flags: i32) -> usize {
        let (who, name) = whose(handle);
        let call = format!("{who} open {name} {} {flags}", path.display());
        self.call(call.trim_start()).unwrap()
    }

    /// The database ends in the normal way: the supervisor's last status.
    pub fn end(mut self) -> Value {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.supervisor.wait().unwrap().success(), "{rest}");
        serde_json::from_str(rest.trim()).unwrap()
    }

    /// The same, where something in the lane cannot be written to its file.
    pub fn end_with_something_left(mut self) {
        drop(self.input.take());
        assert!(!self.supervisor.wait().unwrap().success());
    }

    pub fn kill_database(&mut self) {
        kill(&Watched::of(self.database).unwrap());
    }

    /// The second process of the database, before there is a third one.
    pub fn other(&self) -> Watched {
        let path = format!("/proc/{0}/task/{0}/children", self.database);
        let children = fs::read_to_string(path).unwrap();
        Watched::of(children.trim().parse().unwrap()).unwrap()
    }

    pub fn kill_supervisor(&mut self) {
        self.supervisor.kill().unwrap();
        self.supervisor.wait().unwrap();
    }

    /// Both at once, as a power cut.
    pub fn kill_both(mut self) {
        // One that was killed and holds the pool yet would have its lane in use.
        assert!(kill_group(Pid::from_child(&self.supervisor)));
        self.supervisor.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.input.take());
        kill_group(Pid::from_child(&self.supervisor));
        let _ = self.supervisor.wait();
    }
}
