//! The agent: the process above the program that does its calls on logs.
//!
//! One of its threads waits for a call at a time ([`ReceiverTurn`]). A thread that is started where
//! none is parked takes over, so a call that waits (a full lane, a slow disk) holds no other up for
//! long. Each has a working directory and a file mode mask of its own (`CLONE_FS`), which are the
//! caller's while it acts for that ([`WorkerPlace`](crate::agent_state::WorkerPlace)).

use crate::{
    agent_state::{AgentState, FileLocks},
    caller::AgentStatus,
    calls::TrappedCall,
    guardian,
    launch::{self, ProgramImage},
    listener::CallListener,
    number_window::NumberWindow,
    numbers::NumberTable,
    open_files::may_be_hidden,
    pending::PendingChanges,
    preconditions::{NotServed, check, unshare_directories, window},
    receiver_turn::ReceiverTurn,
    serving_stage::ServingStage,
    slots::{CallSlots, SLOTS},
    spent_numbers::SpentNumbers,
};
use forebay_files::client;
use parking_lot::{Mutex, RwLock};
use rustix::{
    event::Timespec,
    fs::{Mode, OFlags},
    io::Errno,
    process::{Pid, Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Interval of looks for logs that no process has open any more.
const SWEEP: Duration = Duration::from_millis(250);
/// Threads to begin with: one more than waits for a call.
const FIRST_WORKERS: usize = 2;

/// The agent's program, which was started.
pub struct Agent {
    state: Option<Arc<AgentState>>,
}

impl Agent {
    /// Starts the program, and serves its calls. Says why it cannot, and starts it plainly then.
    /// The process must have one thread. The client begins with the environment.
    ///
    /// # Errors
    /// The program cannot be executed.
    pub fn start(program: &ProgramImage, say: impl Fn(NotServed)) -> Result<(Pid, Self), Errno> {
        let say = |why: String| {
            guardian::tell_unserved(&why);
            say(NotServed(why));
        };
        // Without it there is nobody to hand over to, which is found out below.
        let _ = guardian::control();
        let limit = getrlimit(Resource::Nofile);
        let window = match window(u64::MAX) {
            Ok(window) => window,
            Err(why) => {
                say(why);
                return Self::start_plainly(program);
            }
        };
        let child = launch::start(program, Some(window))?;
        let pid = child.pid;
        let current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
        let prepared = check(&child).and_then(|listener| {
            let state = prepare(window, listener, ServingStage::serving())?;
            // At the end: whatever the guardian hears after it is the agent's death.
            guardian::hand_over(&state.listener, &state.slots)?;
            Ok(state)
        });
        match prepared {
            Ok(state) => {
                let state = Arc::new(state);
                start_workers(&state);
                child.go()?;
                Ok((pid, Self::of(state)))
            }
            Err(why) => {
                say(why);
                // With a filter and no listener its calls would fail: it is started anew.
                child.end();
                let _ = setrlimit(Resource::Nofile, limit);
                Self::start_plainly(program)
            }
        }
    }

    /// One that serves.
    pub(crate) fn of(state: Arc<AgentState>) -> Self {
        Self { state: Some(state) }
    }

    fn start_plainly(program: &ProgramImage) -> Result<(Pid, Self), Errno> {
        let child = launch::start(program, None)?;
        let pid = child.pid;
        child.go()?;
        Ok((pid, Self { state: None }))
    }

    /// True if no process has the filter any more: nothing of the program is left. Waits so long
    /// for that.
    #[must_use]
    pub fn is_over(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).unwrap_or_default();
        let Some(state) = &self.state else {
            return true;
        };
        let is_over = state.listener.is_unused(&limit);
        if is_over {
            state.numbers.sweep();
            client::exiting();
        }
        is_over
    }
}

/// All that is needed to serve, but for a guardian, with the means that were found to work.
///
/// # Errors
/// There is no memory, or no descriptor.
pub(crate) fn prepare(
    window: NumberWindow,
    listener: &OwnedFd,
    stage: ServingStage,
) -> Result<AgentState, String> {
    let said = |what: &'static str| move |errno: Errno| format!("{what}: {errno}");
    let slots = CallSlots::new(window).map_err(said("making memory for calls"))?;
    if !stage.is_childs() {
        slots.note_serving();
    }
    let copy = rustix::io::fcntl_dupfd_cloexec(listener, 0).map_err(said("the listener"))?;
    let listener = CallListener::new(copy);
    listener.wake_on_this_cpu();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let status = AgentStatus::read().ok_or("/proc is not mounted: mount it")?;
    let sees_processes = status.sees_all() || !may_be_hidden();
    let is_above = !stage.is_childs();
    let spent = SpentNumbers::new(slots.hidden_flags(), sees_processes, is_above);
    let state = AgentState {
        listener,
        slots,
        numbers: NumberTable::new(window, spent).map_err(said("a descriptor"))?,
        pending: PendingChanges::default(),
        status,
        turn: ReceiverTurn::new(),
        is_watched: AtomicBool::new(false),
        unused: Mutex::new((0..SLOTS).rev().collect()),
        restricted: AtomicBool::new(false),
        openings: RwLock::default(),
        unknown: FileLocks::default(),
        root: rustix::fs::open(c"/", flags, Mode::empty()).map_err(said("opening /"))?,
        said: AtomicBool::new(false),
        said_shared: AtomicBool::new(false),
        stage,
    };
    Ok(state)
}

/// Begins to serve.
pub(crate) fn start_workers(state: &Arc<AgentState>) {
    for _ in 0..FIRST_WORKERS {
        start_worker(state);
    }
    start_watch(state);
    start_sweeper(state);
}

/// Starts a thread, if there is a slot for it.
fn start_worker(state: &Arc<AgentState>) {
    let Some(number) = state.unused.lock().pop() else {
        return;
    };
    let shared = Arc::clone(state);
    let thread = thread::Builder::new().name("calls".into());
    let work = move || {
        // Threads of one process that cannot have directories of their own act for nobody.
        match unshare_directories() {
            Ok(()) => work(&shared, number),
            Err(_) => give_back(&shared, number),
        }
    };
    if thread.spawn(work).is_err() {
        give_back(state, number);
    }
}

/// A thread could not be had. Those that there are go on, and it is tried again.
fn give_back(state: &AgentState, number: usize) {
    state.unused.lock().push(number);
}

fn work(state: &Arc<AgentState>, number: usize) {
    let slot = state.slots.slot(number);
    state.turn.take();
    loop {
        if state.listener.receive(slot.place()).is_err() {
            if state.listener.is_unused(&Timespec::default()) {
                return;
            }
            continue;
        }
        let Some(seen) = slot.call() else { continue };
        let received = state.turn.begin();
        let call = TrappedCall {
            agent: state,
            slot,
            seen,
            received,
        };
        if let Some(answer) = call.serve() {
            forebay_pool::failpoint!("notify:done");
            slot.set_answer(answer);
            forebay_pool::failpoint!("notify:answer");
            state.listener.answer(seen.id, answer);
        }
        if !state.turn.end(received) {
            state.turn.take();
        }
    }
}

/// Has another thread receive what comes after a call that waits.
fn start_watch(state: &Arc<AgentState>) {
    let shared = Arc::clone(state);
    let watch = move || shared.turn.watch(|| start_worker(&shared));
    let started = thread::Builder::new().name("watch".into()).spawn(watch);
    // Without it a call that waits holds others up: the sweeper tries again.
    state.is_watched.store(started.is_ok(), Ordering::SeqCst);
}

/// Looks for logs that no process has any more: closed by an execution, or by a death.
fn start_sweeper(state: &Arc<AgentState>) {
    let shared = Arc::clone(state);
    let sweep = move || loop {
        thread::sleep(SWEEP);
        if !shared.is_watched.load(Ordering::SeqCst) {
            start_watch(&shared);
        }
        shared.numbers.held.look();
        if !shared.numbers.is_empty() {
            shared.numbers.sweep();
        }
    };
    // Without it they are closed at the next open of a log.
    let _ = thread::Builder::new().name("sweep".into()).spawn(sweep);
}
