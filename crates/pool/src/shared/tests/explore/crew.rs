//! Threads of which one goes on at a time. At each step the one that runs chooses, by the [`Path`],
//! who goes on: itself, another that can, or none of it any more because it dies there.
//!
//! A thread that waits is no choice until what it waits for is there: a sleeper is until it is
//! woken, as by a futex; one that looks now and then at the mark is until looking is worth while;
//! the owner is until it has work. So a lost wakeup is a schedule in which none can go on. Waits
//! that end by their own limit do so only there, and only after a death (`ends_by_limit`): the
//! protocol promises that no thread needs the limit otherwise.

use super::{
    path::Path,
    table::{Bounds, Next, Status, Table, name},
    watch::{Idle, Watch},
};
use crate::{
    format::record::Lsn,
    steps::{self, Scheduler},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    rc::Rc,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread::{self, Thread},
};

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Thrown in a thread that dies, or whose schedule is over.
pub(super) struct Gone;

/// The threads; number 0 is the owner's, which does not die. Others have the numbers of their
/// members.
pub(super) struct Crew {
    table: Mutex<Table>,
    handles: OnceLock<Vec<Thread>>,
    main: Thread,
}

impl Crew {
    pub(super) fn new(threads: usize, are_alike: bool, bounds: Bounds, path: Path) -> Arc<Self> {
        let table = Table::new(threads, are_alike, bounds, path);
        let crew = Arc::new(Self {
            table: Mutex::new(table),
            handles: OnceLock::new(),
            main: thread::current(),
        });
        let handle = |me: usize| {
            let crew = Arc::clone(&crew);
            // They end with the program.
            thread::spawn(move || crew.work(me)).thread().clone()
        };
        let _ = crew.handles.set((0..threads).map(handle).collect());
        crew
    }

    /// One schedule of `jobs`, a thread each: the reason if it failed.
    pub(super) fn run(&self, watch: Watch, jobs: Vec<Job>) -> Option<String> {
        let mut table = self.table.lock();
        table.begin(watch, jobs);
        self.switch(table, None);
        loop {
            let mut table = self.table.lock();
            if table.is_over() {
                table.watch = None;
                return table.failure.take();
            }
            drop(table);
            thread::park();
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// The owner: the members that have died since it asked last.
    pub(super) fn graves(&self) -> Vec<u32> {
        std::mem::take(&mut self.table.lock().graves)
    }

    /// The owner: waits for work. False if all others are gone, and nothing is left to bury.
    pub(super) fn wait_for_work(&self, idle: Idle) -> bool {
        let mut table = self.table.lock();
        let is_stuck = idle.is_stuck();
        table.note(0, "waits for work");
        table.threads[0].0 = Status::ForWork(idle);
        self.switch_and_wait(table, 0);
        let table = self.table.lock();
        is_stuck || !table.graves.is_empty() || !table.others_are_over()
    }

    fn work(self: Arc<Self>, me: usize) {
        loop {
            self.wait_until(|table| table.running == Some(me) && table.threads[me].1.is_some());
            let job = self.table.lock().threads[me].1.take();
            let aboard = Aboard(Arc::clone(&self), me);
            steps::schedule(Some(Rc::new(aboard)));
            let done = catch_unwind(AssertUnwindSafe(|| job.map(|job| job())));
            steps::schedule(None);
            let mut table = self.table.lock();
            table.threads[me].0 = Status::Over;
            if let Err(thrown) = done {
                if !thrown.is::<Gone>() {
                    table.fail(&format!("{} panicked", name(me)));
                } else if table.is_dying {
                    table.is_dying = false;
                    table.graves.push(me as u32);
                }
            }
            self.switch(table, None);
        }
    }

    fn wait_until(&self, ready: impl Fn(&Table) -> bool) {
        while !ready(&self.table.lock()) {
            thread::park();
        }
    }

    /// Chooses the thread that goes on from all that can, `stays` first if it can stay.
    fn switch(&self, mut table: MutexGuard<'_, Table>, stays: Option<usize>) -> Next {
        let next = match table.failure {
            // All that are left end, one after the other.
            Some(_) => table.unfinished().map(Next::Go),
            None => match table.next(stays) {
                Ok(next) => next,
                Err(why) => {
                    table.fail(&why);
                    table.unfinished().map(Next::Go)
                }
            },
        };
        match next {
            Some(Next::Go(to)) if stays != Some(to) => {
                table.running = Some(to);
                table.threads[to].0 = Status::Ready;
                drop(table);
                self.handles.wait()[to].unpark();
            }
            Some(_) => {}
            None => {
                table.running = None;
                self.main.unpark();
            }
        }
        next.unwrap_or(Next::Die)
    }

    fn switch_and_wait(&self, table: MutexGuard<'_, Table>, me: usize) {
        self.switch(table, None);
        self.wait_until(|table| table.running == Some(me));
        if self.table.lock().failure.is_some() {
            resume_unwind(Box::new(Gone));
        }
    }
}

/// One of the crew, as its own thread sees it.
struct Aboard(Arc<Crew>, usize);

impl Scheduler for Aboard {
    fn pass(&self, step: &'static str) {
        let Self(crew, me) = self;
        let mut table = crew.table.lock();
        if table.failure.is_some() {
            // What is unwound passes steps, too.
            return match thread::panicking() {
                true => {}
                false => {
                    drop(table);
                    resume_unwind(Box::new(Gone))
                }
            };
        }
        table.steps += 1;
        table.note(*me, step);
        if table.failure.is_some() {
            drop(table);
            resume_unwind(Box::new(Gone));
        }
        match crew.switch(table, Some(*me)) {
            Next::Go(to) if to == *me => {}
            Next::Go(_) => {
                crew.wait_until(|table| table.running == Some(*me));
                if crew.table.lock().failure.is_some() {
                    resume_unwind(Box::new(Gone));
                }
            }
            Next::Die => {
                let mut table = crew.table.lock();
                table.is_dying = true;
                table.note(*me, "dies");
                drop(table);
                resume_unwind(Box::new(Gone));
            }
        }
    }

    fn sleep(&self, word: &AtomicU32, seen: u32) {
        let Self(crew, me) = self;
        let mut table = crew.table.lock();
        if word.load(SeqCst) != seen {
            return;
        }
        table.note(*me, "sleeps");
        table.threads[*me].0 = Status::Asleep(std::ptr::from_ref(word).addr());
        crew.switch_and_wait(table, *me);
    }

    fn wake(&self, word: &AtomicU32, all: bool) {
        let mut table = self.0.table.lock();
        let word = std::ptr::from_ref(word).addr();
        for (status, _) in &mut table.threads {
            if matches!(status, Status::Asleep(at) if *at == word) {
                *status = Status::Ready;
                if !all {
                    return;
                }
            }
        }
    }

    fn wait_for_mark(&self, lsn: Lsn) {
        let Self(crew, me) = self;
        let mut table = crew.table.lock();
        table.wait_for_mark(*me, lsn);
        crew.switch_and_wait(table, *me);
    }
}

/// The only thread there is.
pub(super) struct Alone;

impl Scheduler for Alone {
    fn pass(&self, _: &'static str) {}
    fn sleep(&self, _: &AtomicU32, _: u32) {}
    fn wake(&self, _: &AtomicU32, _: bool) {}
    fn wait_for_mark(&self, _: Lsn) {}
}
