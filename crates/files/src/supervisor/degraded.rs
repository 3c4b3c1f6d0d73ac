//! Runs without effect: nothing is absorbed, or not any more, and the reason. Such a run looks
//! healthy until the power fails or an operator measures, so it is said when the server opens its
//! log, in the status, and at the end.
//!
//! A program that has not got the library tells the supervisor nothing: its environment was cleared
//! (`pg_ctlcluster`, `sudo`), or it is linked statically. It is found by what it has in its memory.

use super::{FileStatus, PlainFile, RunFrontEnd, SupervisorState};
use crate::{policy, processes, sys};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::BTreeSet,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, OnceLock, atomic::Ordering::Acquire},
    thread,
    time::Duration,
};

/// A program is not looked at before: what begins is a child that has yet to become it.
const BEGINS: Duration = Duration::from_secs(2);
/// Looks are further and further apart, up to this.
const LOOKS_APART_MAX: Duration = Duration::from_secs(15);
/// A process between two programs has no library for a moment.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Causes that are said while the run goes on.
const SAID_MAX: usize = 8;

/// The notices so far.
#[derive(Default)]
pub(super) struct DegradedNotices {
    said: Mutex<BTreeSet<String>>,
    /// The last process that was found without the library, for the time when it has ended.
    unreached: Mutex<Option<String>>,
    /// The reason that no agent can be had.
    pub(super) no_agent: OnceLock<String>,
    /// The run ends.
    ends: Condvar,
}

impl DegradedNotices {
    /// Says a cause once.
    fn say(&self, cause: &str, what: &str) {
        let mut said = self.said.lock();
        if said.len() < SAID_MAX && said.insert(cause.to_owned()) {
            sys::complain(&format!("nothing absorbed so far: {what}"));
        }
    }

    /// Wakes the thread that looks at processes.
    pub(super) fn end(&self) {
        drop(self.said.lock());
        self.ends.notify_all();
    }
}

/// A process of the run that has not got the library.
struct UnreachedProcess {
    pid: u32,
    /// The file that it has open to be written to, and a pattern names.
    log: Option<PathBuf>,
}

impl UnreachedProcess {
    /// In words, with what to do. An agent is a remedy where one can be asked for; else this is why
    /// it has none of its own.
    fn told(&self, can_be_agent: bool, unserved: Option<&str>) -> String {
        let program = processes::name_of_process(self.pid);
        let writes = match &self.log {
            Some(log) => format!(" writes to {}, and", log.display()),
            None => String::new(),
        };
        let or = match can_be_agent {
            true => ", or give --front-end notify",
            false => "",
        };
        let why = unserved.map_or_else(String::new, |why| {
            format!(". It has no agent of its own: {why}")
        });
        format!(
            "{program} (process {}){writes} runs without Forebay's library: its environment was \
             cleared on the way (LD_PRELOAD), or it is one that no library can be put before \
             (static, Go, musl). Run the server itself under forebay run{or}{why}",
            self.pid
        )
    }
}

impl SupervisorState {
    /// A file that a pattern names stays plain.
    pub(super) fn say_plain(&self, file: &PlainFile) {
        if !self.has_absorbed() {
            let what = format!(
                "{} stays plain in {} (process {}): {}",
                file.path.display(),
                file.program,
                file.pid,
                file.reason
            );
            self.effect.say(&file.reason, &what);
        }
    }

    fn has_absorbed(&self) -> bool {
        self.running().is_some_and(|run| run.has_absorbed())
    }

    /// The obstacles that keep the run from its purpose, in words.
    pub(super) fn degraded(&self, files: &[FileStatus], plain: &[PlainFile]) -> Vec<String> {
        let unreached = self.look_at_processes();
        let found: Vec<String> = match (plain.first(), unreached) {
            _ if !files.is_empty() => given_up(files, plain),
            (Some(first), _) => vec![format!(
                "nothing is absorbed: {} stays plain: {}",
                first.path.display(),
                first.reason
            )],
            (None, Some(why)) => vec![format!("nothing is absorbed: {why}")],
            (None, None) => Vec::new(),
        };
        // The run's own, which writes; the supervisor's only reads.
        let copies = self.running().and_then(|run| run.pool.degradation());
        let mut all: Vec<String> = copies.into_iter().collect();
        all.extend(found);
        if !files.is_empty() || !plain.is_empty() {
            all.extend(self.writers_without_library());
        }
        all
    }

    /// The front end that sees the calls of its programs, and the reason.
    pub(super) fn front_end(&self) -> (RunFrontEnd, String) {
        let choice = &self.options.front_end;
        match self.effect.no_agent.get() {
            Some(why) => (RunFrontEnd::Nobody, why.clone()),
            None => (choice.front_end, choice.reason.clone()),
        }
    }

    /// The reason that nothing can be absorbed, if no process of the run has the library.
    fn look_at_processes(&self) -> Option<String> {
        if let Some(why) = self.effect.no_agent.get() {
            return Some(format!("no agent can serve the program: {why}"));
        }
        let looks = self.started.elapsed() >= BEGINS && !self.stopping.load(Acquire);
        if looks && !self.has_absorbed() {
            let found = self.none_is_reached();
            *self.effect.unreached.lock() = found;
        }
        let unreached = self.effect.unreached.lock().clone();
        unreached.filter(|_| !self.has_absorbed())
    }

    fn none_is_reached(&self) -> Option<String> {
        let own = descendants();
        let unreached = self.unreached(&own);
        let writer = unreached.iter().position(|process| process.log.is_some());
        let is_all = !own.is_empty() && unreached.len() == own.len();
        let shown = writer.or(is_all.then_some(0))?;
        let can_be_agent = self.options.front_end.can_be_agent;
        Some(
            unreached
                .get(shown)?
                .told(can_be_agent, self.child_agents.unserved()),
        )
    }

    fn writers_without_library(&self) -> Vec<String> {
        let unreached = self.unreached(&descendants());
        let writers = unreached.iter().filter(|process| process.log.is_some());
        let can_be_agent = self.options.front_end.can_be_agent;
        let unserved = self.child_agents.unserved();
        writers.map(|it| it.told(can_be_agent, unserved)).collect()
    }

    /// Those of these processes that have not got the library, also when they are looked at again.
    fn unreached(&self, processes: &[u32]) -> Vec<UnreachedProcess> {
        // Below an agent none has it, and none needs it.
        if self.options.front_end.front_end == RunFrontEnd::Agent {
            return Vec::new();
        }
        // Nor below one of its own.
        let has_agents = !self.child_agents.living().is_empty();
        let is_served = |pid| has_agents && processes::has_more_filters(pid);
        let lacks = |pid: &u32| processes::has_library(*pid) == Some(false) && !is_served(*pid);
        let mut lacking: Vec<u32> = processes.iter().copied().filter(lacks).collect();
        if !lacking.is_empty() {
            thread::sleep(LOOK_AGAIN);
            lacking.retain(lacks);
        }
        // Where the run's own output goes was opened before it, and is not its to absorb.
        let output = processes::standard_streams();
        let log = |pid| {
            let mut written = processes::written_by(pid).into_iter();
            written
                .find(|path| !output.contains(path) && self.is_named(path.as_os_str().as_bytes()))
        };
        let told = lacking.into_iter();
        told.map(|pid| UnreachedProcess { pid, log: log(pid) })
            .collect()
    }

    fn is_named(&self, path: &[u8]) -> bool {
        let mut patterns = self.options.patterns.iter();
        patterns.any(|pattern| policy::matches(pattern.as_bytes(), path))
    }
}

/// The processes below this one, but for agents.
fn descendants() -> Vec<u32> {
    let own = std::process::id();
    let is_programs = |id: &u32| *id != own && !processes::is_this_program(*id);
    let below = processes::all().filter(|id| is_programs(id) && processes::is_descendant(*id));
    below.collect()
}

/// Files that were absorbed, and are plain in a process that lives, for a reason of its own.
fn given_up(files: &[FileStatus], plain: &[PlainFile]) -> Vec<String> {
    let was_absorbed = |at: &PlainFile| {
        let mut same = files.iter().filter(|file| file.path == at.path);
        same.any(|file| file.retired)
    };
    let left = plain.iter().filter(|file| was_absorbed(file));
    let left = left.filter(|file| processes::is_process(file.pid));
    left.map(|file| {
        format!(
            "{} is not absorbed any more by {} (process {}): {}",
            file.path.display(),
            file.program,
            file.pid,
            file.reason
        )
    })
    .collect()
}

/// Looks at the run's processes until something is absorbed, and says which errors have ended,
/// until the run ends.
pub(super) fn run(shared: &Arc<SupervisorState>) {
    let mut apart = BEGINS;
    loop {
        let mut said = shared.effect.said.lock();
        if !shared.stopping.load(Acquire) {
            shared.effect.ends.wait_for(&mut said, apart);
        }
        drop(said);
        if shared.stopping.load(Acquire) {
            return;
        }
        forebay_pool::say_what_ended();
        // That no agent can be had the agent has said.
        if shared.effect.no_agent.get().is_none()
            && let Some(why) = shared.look_at_processes()
        {
            shared.effect.say("library", &why);
        }
        apart = (apart * 2).min(LOOKS_APART_MAX);
    }
}
