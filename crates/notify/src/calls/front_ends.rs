//! The choice of the front end for the logs of a process below a child's agent
//! ([`ServingStage`](crate::serving_stage::ServingStage)).

use super::{CallOutcome, GO_ON, TrappedCall, done};
use crate::listener::CallAnswer;
use forebay_files::{AGENT_QUESTION, client};
use rustix::io::Errno;
use std::fs;

impl TrappedCall<'_> {
    /// A dormant agent's answer.
    pub(super) fn answer_dormant(&self) -> Option<CallAnswer> {
        if !self.agent.stage.is_dormant() {
            return None;
        }
        let is_question = self.seen.number == libc::SYS_prctl && self.int(0) == AGENT_QUESTION;
        Some(match is_question {
            true => CallAnswer::Done(0),
            false => CallAnswer::GoOn,
        })
    }

    /// The library begins in a process of the program: true if it is to do nothing.
    pub(super) fn answer_library(&self) -> CallOutcome {
        done(Ok((!self.agent.stage.lie_dormant()).into()))
    }

    /// A ring, or a context of asynchronous I/O, by which logs would be written to unseen. A
    /// child's program that has opened none keeps it, and its logs are plain.
    pub(super) fn make_ring(&self) -> CallOutcome {
        if client::refuses_io_uring() || !self.agent.stage.lie_dormant() {
            return Err(Errno::NOSYS);
        }
        forebay_pool::complain(&format!(
            "{} (process {}) writes by io_uring or Linux AIO, which no agent follows: its logs are plain",
            self.program(),
            self.seen.thread
        ));
        GO_ON
    }

    /// The program opens a log: false if the agent is to do nothing.
    pub(super) fn serves(&self) -> bool {
        let (serves, is_new) = self.agent.stage.serve();
        if serves {
            // Before anything is absorbed: the guardian makes that plain when the agent dies.
            self.agent.slots.note_serving();
        }
        if is_new {
            forebay_pool::complain(&format!(
                "an agent does the system calls on logs of {} (process {}), and of the programs that it executes (experimental: docs/notify.md lists the writes that it can lose)",
                self.program(),
                self.seen.thread
            ));
        }
        serves
    }

    /// The name of the caller's program.
    fn program(&self) -> String {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.seen.thread));
        name.unwrap_or_default().trim_end().to_owned()
    }
}
