//! The table of a [`Crew`](super::crew::Crew): the state of its threads, and the choice of the
//! next: see there.

use super::{
    crew::Job,
    path::Path,
    watch::{Idle, Watch},
};
use crate::format::record::Lsn;

/// More steps than this are no progress.
const STEPS_MAX: usize = 5_000;
/// Steps of a thread since its step before that can be seen by no other that lives, but by a
/// recovery: to stand still here is to stand still there.
const UNSEEN: [&str; 4] = [
    "media:stored",
    "shared:written",
    "shared:turn-voided",
    "bury:voided",
];
/// Waits end by their limit so often in a schedule, or for ever.
const RESCUES_MAX: u32 = 12;

/// A thread's state.
#[derive(Debug)]
pub(super) enum Status {
    Ready,
    /// Sleeps on the word at this address.
    Asleep(usize),
    /// Waits for the mark.
    ForMark {
        lsn: Lsn,
        /// The mark stood there when it looked last, and that brought nothing.
        in_vain: Option<Lsn>,
    },
    /// The owner: for something to do.
    ForWork(Idle),
    Over,
}

/// The limits of schedules.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Switches away from a thread that could go on.
    pub(super) preemptions: u32,
    pub(super) deaths: u32,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Next {
    Go(usize),
    Die,
}

pub(super) struct Table {
    pub(super) path: Path,
    bounds: Bounds,
    /// The members do the same: none begins before the one of the lower number has begun.
    are_alike: bool,
    pub(super) watch: Option<Watch>,
    pub(super) running: Option<usize>,
    pub(super) threads: Vec<(Status, Option<Job>)>,
    /// Threads that died and are not mourned yet: the owner takes them.
    pub(super) graves: Vec<u32>,
    left: Bounds,
    /// The mark's place when each thread waited for it last.
    looked: Vec<Option<Lsn>>,
    rescues: u32,
    trace: Vec<(usize, &'static str)>,
    pub(super) failure: Option<String>,
    pub(super) is_dying: bool,
    pub(super) steps: u64,
}

impl Table {
    pub(super) fn new(threads: usize, are_alike: bool, bounds: Bounds, path: Path) -> Self {
        Self {
            path,
            bounds,
            are_alike,
            watch: None,
            running: None,
            threads: (0..threads).map(|_| (Status::Over, None)).collect(),
            graves: Vec::new(),
            left: bounds,
            looked: vec![None; threads],
            rescues: 0,
            trace: Vec::new(),
            failure: None,
            is_dying: false,
            steps: 0,
        }
    }

    /// A schedule of `jobs` begins.
    pub(super) fn begin(&mut self, watch: Watch, jobs: Vec<Job>) {
        self.path.restart();
        self.left = self.bounds;
        self.looked.fill(None);
        self.rescues = 0;
        self.trace.clear();
        self.graves.clear();
        self.watch = Some(watch);
        let ready = |job| (Status::Ready, Some(job));
        self.threads = jobs.into_iter().map(ready).collect();
    }

    pub(super) fn is_over(&self) -> bool {
        self.unfinished().is_none()
    }

    pub(super) fn unfinished(&self) -> Option<usize> {
        (self.threads.iter()).position(|(status, _)| !matches!(status, Status::Over))
    }

    pub(super) fn others_are_over(&self) -> bool {
        (self.threads.iter().skip(1)).all(|(status, _)| matches!(status, Status::Over))
    }

    pub(super) fn can_go(&self, who: usize) -> bool {
        let Some(watch) = &self.watch else {
            return false;
        };
        let (status, job) = &self.threads[who];
        match status {
            Status::Ready if job.is_some() && self.are_alike && who > 1 => {
                self.threads[who - 1].1.is_none()
            }
            Status::Ready => true,
            Status::Asleep(_) | Status::Over => false,
            Status::ForMark { lsn, in_vain } => watch.is_worth_a_look(*lsn, *in_vain),
            Status::ForWork(idle) => {
                !self.graves.is_empty() || self.others_are_over() || watch.has_work(idle)
            }
        }
    }

    /// None if all is over.
    pub(super) fn next(&mut self, stays: Option<usize>) -> Result<Option<Next>, String> {
        if self.watch.as_ref().is_some_and(|watch| !watch.is_sound()) {
            return Err("mark and tail are where they may not be".to_owned());
        }
        let mut options = Vec::with_capacity(8);
        options.extend(stays.map(Next::Go));
        let is_unseen = (self.trace.last()).is_some_and(|(_, step)| UNSEEN.contains(step));
        if stays.is_none() || self.left.preemptions > 0 && !is_unseen {
            let others = (0..self.threads.len()).filter(|who| Some(*who) != stays);
            options.extend(others.filter(|who| self.can_go(*who)).map(Next::Go));
        }
        if stays.is_some_and(|who| who > 0) && self.left.deaths > 0 {
            options.push(Next::Die);
        }
        if options.is_empty() {
            if self.is_over() {
                return Ok(None);
            }
            self.end_by_limit()?;
            return self.next(stays);
        }
        // From here on it is another schedule than the one before.
        let choice = self.path.choose(options.len());
        if options.len() > 1
            && self.path.is_new()
            && let Some(watch) = &mut self.watch
        {
            watch.differs();
        }
        let next = options[choice];
        match (next, stays) {
            (Next::Die, _) => self.left.deaths -= 1,
            (Next::Go(to), Some(from)) if to != from => self.left.preemptions -= 1,
            _ => {}
        }
        Ok(Some(next))
    }

    /// None can go on: sleepers look by themselves after some time.
    pub(super) fn end_by_limit(&mut self) -> Result<(), String> {
        let may = self.left.deaths < self.bounds.deaths && self.rescues < RESCUES_MAX;
        let mut some = false;
        for (status, _) in &mut self.threads {
            if may && matches!(status, Status::Asleep(_)) {
                *status = Status::Ready;
                some = true;
            }
        }
        self.rescues += 1;
        if some {
            return Ok(());
        }
        let waits = |(who, (status, _)): (usize, &(Status, Option<Job>))| match status {
            Status::Over => None,
            _ => Some(format!("{} {status:?}", name(who))),
        };
        let waiting: Vec<_> = self.threads.iter().enumerate().filter_map(waits).collect();
        Err(format!("none goes on: {}", waiting.join(", ")))
    }

    /// `who` waits for the mark, and not for ever looks at one that does not move: others have to
    /// go on then.
    pub(super) fn wait_for_mark(&mut self, who: usize, lsn: Lsn) {
        self.note(who, "waits for the mark");
        let mark = self.watch.as_ref().map(Watch::mark);
        let last = std::mem::replace(&mut self.looked[who], mark);
        let in_vain = mark.filter(|_| last == mark);
        self.threads[who].0 = Status::ForMark { lsn, in_vain };
    }

    pub(super) fn note(&mut self, who: usize, what: &'static str) {
        self.trace.push((who, what));
        if self.trace.len() > STEPS_MAX {
            self.fail("it goes on without an end");
        }
    }

    /// The first reason counts.
    pub(super) fn fail(&mut self, why: &str) {
        self.failure.get_or_insert_with(|| why.to_owned());
    }

    /// The last events.
    pub(super) fn story(&self) -> String {
        let mut story = String::new();
        let mut last = usize::MAX;
        for (who, step) in &self.trace[self.trace.len().saturating_sub(120)..] {
            if *who != last {
                story += &format!("\n  {}:", name(*who));
                last = *who;
            }
            story += &format!(" {step}");
        }
        story
    }
}

pub(super) fn name(who: usize) -> String {
    match who {
        0 => "owner".to_owned(),
        _ => format!("member {who}"),
    }
}
