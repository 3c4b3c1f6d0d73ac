//! [`LegGroup`]: the legs of a pool as one medium: writes go to every live one, reads come from one
//! that is complete. docs/legs.md.
//!
//! A group is opened for reading. [`LegGroup::take_over`] makes it the writer, with a thread that
//! *keeps* it (`rejoin`), and one that looks whether it is that still (`heartbeat`). All that is
//! decided is in the [`LegLedger`]; this carries it out.
//!
//! A range of bytes is written by one write at a time: a leg may do two in any order. The copy to a
//! leg that returns is one of them.
//!
//! Locks: `state` alone. Nothing is sent, and nobody is called, while it is held.

use super::{
    complete_legs::{ChosenLegs, LegAnswer, choose},
    group_state::{GroupState, LegSeat, OnWritten},
    heartbeat,
    inquiry::{ask_all, boot_id, check_empty, next_record, refusal},
    lease::{TAKEOVER, WriterLease},
    ledger::{LegLedger, WriteNumber},
    link::LegLink,
    mask::LegMask,
    pool_file::LegsFile,
    rejoin,
    superblock::{LEG_DATA, LegRecord},
};
use crate::{
    complain, failpoint,
    stack::{OnPanic, quiet_thread},
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::HashMap,
    fs::File,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use uuid::Uuid;

/// Time that a leg is left alone once it can be reached again: requests that were under way are
/// over then.
pub(super) const QUIET: Duration = Duration::from_secs(1);
/// The number of times that it is told.
const ANNOUNCED_MAX: usize = 3;

/// See the module's head.
pub(crate) struct LegGroup {
    pub(super) file: LegsFile,
    pub(super) name: String,
    given_up: LegMask,
    pub(super) state: Mutex<GroupState>,
    /// Something of the state changed that others wait for.
    pub(super) changed: Condvar,
    /// Told at the group's end: the heartbeat sleeps on it.
    pub(super) beaten: Condvar,
    /// Fewer legs are live than there are to be copies.
    degraded: AtomicBool,
    /// For how long it is the writer at least.
    pub(super) lease: OnceLock<WriterLease>,
    /// The pool's file, of one with a leg on a disk: where the least generation that counts is
    /// noted.
    pub(super) note: OnceLock<File>,
    /// A thread asks legs that are out whether they are back.
    pub(super) calling: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The legs that are believed.
fn chosen_of(
    file: &LegsFile,
    (answers, seats): (&[LegAnswer], &[LegSeat]),
    given_up: LegMask,
) -> io::Result<ChosenLegs> {
    let chosen = choose(answers, given_up).map_err(|e| refusal(file, seats, &e))?;
    match file.least {
        Some(least) if chosen.record.generation < least => {
            let legs = chosen.complete.legs().map(|leg| file.legs[leg].to_string());
            Err(io::Error::other(format!(
                "{} was left out before the others were lost (generation {}, and {least} is the least that counts): its records are older than the files. The files count: \
                 make a new pool",
                legs.collect::<Vec<_>>().join(", "),
                chosen.record.generation
            )))
        }
        _ => Ok(chosen),
    }
}

/// True if so many copies are too few, or all of them are lost with this machine.
fn lacks_copies(file: &LegsFile, live: LegMask) -> bool {
    let is_elsewhere = |leg: usize| !file.legs[leg].is_disk();
    live.count() < file.copies || !live.legs().any(is_elsewhere)
}

impl LegGroup {
    /// Opens the pool of `file`, which is called `name`, for reading. The legs of `given_up` are
    /// lost for good, the user says.
    ///
    /// # Errors
    /// No leg can be believed.
    pub(crate) fn open(name: &str, file: LegsFile, given_up: LegMask) -> io::Result<Arc<Self>> {
        let (answers, seats) = ask_all(&file);
        let chosen = chosen_of(&file, (&answers, &seats), given_up)?;
        Ok(Self::new(name, file, given_up, (chosen, seats)))
    }

    fn new(
        name: &str,
        file: LegsFile,
        given_up: LegMask,
        (chosen, seats): (ChosenLegs, Vec<LegSeat>),
    ) -> Arc<Self> {
        let is_degraded = lacks_copies(&file, chosen.complete);
        Arc::new(Self {
            name: name.to_owned(),
            given_up,
            state: Mutex::new(GroupState {
                seats,
                chosen,
                ledger: None,
                waiting: HashMap::new(),
                held: Vec::new(),
                busy: HashMap::new(),
                over: None,
                stopping: false,
                returned: None,
            }),
            changed: Condvar::new(),
            beaten: Condvar::new(),
            degraded: AtomicBool::new(is_degraded),
            lease: OnceLock::new(),
            note: OnceLock::new(),
            calling: AtomicBool::new(false),
            threads: Mutex::default(),
            file,
        })
    }

    /// Makes a pool on all legs of `file`, whose content is given up with `force`.
    ///
    /// # Errors
    /// A leg cannot be reached, is too small, or holds something.
    pub(crate) fn create(name: &str, file: LegsFile, force: bool) -> io::Result<Arc<Self>> {
        let bytes = file.bytes;
        let mut seats = Vec::new();
        for leg in &file.legs {
            let at_leg = |e: io::Error| io::Error::new(e.kind(), format!("leg {leg}: {e}"));
            let link = LegLink::connect(leg, file.insecure).map_err(at_leg)?;
            check_empty(&link, bytes, force).map_err(at_leg)?;
            // A newer record of the pool that was there would count.
            link.erase_start().map_err(at_leg)?;
            seats.push(LegSeat {
                link: Some(link),
                ..LegSeat::default()
            });
        }
        let count = file.legs.len();
        let record = LegRecord {
            identity: file.identity,
            writer: Uuid::new_v4(),
            boot: boot_id(),
            generation: 0,
            pool_bytes: bytes,
            legs: count,
            copies: file.copies,
            set: LegMask::all(count),
            closed: true,
            announced: false,
        };
        let complete = record.set;
        let group = Self::new(
            name,
            file,
            LegMask::NONE,
            (ChosenLegs { record, complete }, seats),
        );
        group.begin()?;
        Ok(group)
    }

    /// Bytes of the pool.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().chosen.record.pool_bytes
    }

    /// The legs that the user says are lost.
    pub(crate) fn given_up(&self) -> Vec<String> {
        let named = self.given_up.legs();
        named.map(|leg| self.file.legs[leg].to_string()).collect()
    }

    /// True if fewer legs have the acknowledged bytes than there are to be copies.
    pub(crate) fn is_degraded(&self) -> bool {
        self.degraded.load(Acquire)
    }

    /// True if this process writes the pool.
    pub(crate) fn is_writer(&self) -> bool {
        let state = self.state.lock();
        state.ledger.is_some() && state.over.is_none()
    }

    /// Becomes the pool's writer: every other one finds out that it is none any more. What was read
    /// before is to be read again.
    ///
    /// # Errors
    /// As [`open`](Self::open); the legs cannot be written to.
    pub(crate) fn take_over(self: &Arc<Self>) -> io::Result<()> {
        let (mut answers, mut seats) = ask_all(&self.file);
        let choose_now = |answers: &[LegAnswer], seats: &[LegSeat]| {
            chosen_of(&self.file, (answers, seats), self.given_up)
        };
        let mut chosen = choose_now(&answers, &seats)?;
        if !chosen.record.closed && chosen.record.boot == boot_id() {
            // It is dead, since the file's lock is free; what it sent may be under way still.
            thread::sleep(failpoint::limit("legs-quiet", QUIET));
            (answers, seats) = ask_all(&self.file);
            chosen = choose_now(&answers, &seats)?;
        } else if !chosen.record.closed {
            // Its writer may be alive. It is told first, and has time to stop; what it wrote until
            // then counts. If it wrote a record since, it has not stopped.
            let mut announced = false;
            for _ in 0..ANNOUNCED_MAX {
                let record = self.announce(&chosen, &seats)?;
                let told = chosen.complete;
                if record.is_some() {
                    thread::sleep(failpoint::limit("legs-takeover", TAKEOVER));
                }
                (answers, seats) = ask_all(&self.file);
                chosen = choose_now(&answers, &seats)?;
                let Some(record) = record else { continue };
                let is_ours = |leg: usize| match &answers[leg] {
                    LegAnswer::Record(_) => seats[leg]
                        .newest
                        .is_some_and(|it| it.writer == record.writer),
                    // It is left out, or refused, by `choose`.
                    LegAnswer::Silent | LegAnswer::Empty => true,
                };
                announced = told.legs().all(is_ours);
                if announced {
                    break;
                }
            }
            if !announced {
                return Err(io::Error::other(
                    "another machine writes to it all the time: stop the programs there, and forebay run with them",
                ));
            }
        }
        {
            let mut state = self.state.lock();
            state.chosen = chosen;
            state.seats = seats;
        }
        self.begin()
    }

    /// Announces a generation of this writer's on the complete legs: none if their writer wrote
    /// one, too, since `chosen` was read.
    fn announce(&self, chosen: &ChosenLegs, seats: &[LegSeat]) -> io::Result<Option<LegRecord>> {
        let next = next_record(chosen, seats);
        let record = LegRecord {
            // To the slot that has not what counts.
            generation: next.generation + (chosen.record.generation + 1) % 2,
            announced: true,
            ..next
        };
        for leg in chosen.complete.legs() {
            let link = seats[leg]
                .link
                .as_ref()
                .ok_or(io::ErrorKind::NotConnected)?;
            let seen = seats[leg].newest;
            if rejoin::announce(link, leg, &record, &chosen.record, seen)?.is_some() {
                return Ok(None);
            }
        }
        Ok(Some(record))
    }

    /// Writes this writer's first generation, and starts what keeps the legs.
    fn begin(self: &Arc<Self>) -> io::Result<()> {
        self.lease.get_or_init(WriterLease::begin);
        {
            let mut state = self.state.lock();
            for link in state.seats.iter().filter_map(|seat| seat.link.as_ref()) {
                link.pipeline()?;
            }
            let record = next_record(&state.chosen, &state.seats);
            state.ledger = Some(LegLedger::begin(record));
        }
        rejoin::make_changes(self);
        if let Some(why) = &self.state.lock().over {
            return Err(io::Error::other(why.to_string()));
        }
        // Without either of them it is no writer.
        self.start("forebay-beat", heartbeat::beat)
            .and_then(|()| self.start("forebay-legs", rejoin::keep))
            .inspect_err(|e| self.end(&format!("there is no thread for it: {e}")))
    }

    /// Has a thread do the `work`; the group ends if that panics.
    fn start(self: &Arc<Self>, name: &str, work: fn(&Arc<Self>)) -> io::Result<()> {
        let group = Arc::clone(self);
        let started = quiet_thread(name, move || {
            let _ends = OnPanic(|| group.end("a fault in forebay: its thread ended"));
            work(&group);
        })?;
        self.threads.lock().push(started);
        Ok(())
    }

    /// Reads the bytes at `offset` in the pool from a leg that is complete.
    ///
    /// # Errors
    /// None of them has it any more.
    pub(crate) fn read(self: &Arc<Self>, offset: u64, to: &mut [u8]) -> io::Result<()> {
        loop {
            let found = {
                let state = self.state.lock();
                let complete = match &state.ledger {
                    Some(ledger) => ledger.live(),
                    None => state.chosen.complete,
                };
                state.links(complete).into_iter().next()
            };
            let Some((leg, link)) = found else {
                return Err(io::Error::other(
                    "no leg that has the pool answers any more",
                ));
            };
            match link.read(LEG_DATA + offset, to) {
                Ok(()) => return Ok(()),
                Err(e) => self.leg_failed(leg, &link, &e.to_string()),
            }
        }
    }

    /// The same for bytes that the writer goes on from, and makes all complete legs equal there.
    /// The last writer's latest writes may be on one of them only, and were not acknowledged then:
    /// what this one builds on them is to be found on each.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_equal(self: &Arc<Self>, offset: u64, to: &mut [u8]) -> io::Result<()> {
        loop {
            self.wait_for_lease();
            self.read(offset, to)?;
            if self.make_equal(offset, to) {
                return Ok(());
            }
        }
    }

    /// Has all live legs hold these bytes there. False if another machine may have taken the pool
    /// over since they were read: they may be old.
    fn make_equal(self: &Arc<Self>, offset: u64, bytes: &[u8]) -> bool {
        let others = {
            let state = self.state.lock();
            let ledger = state.ledger.as_ref().filter(|_| state.over.is_none());
            state.links(ledger.map_or(LegMask::NONE, LegLedger::live))
        };
        let mut theirs = vec![0; bytes.len()];
        for (leg, link) in others {
            let made_equal = match link.read(LEG_DATA + offset, &mut theirs) {
                Ok(()) if theirs == bytes => Ok(()),
                Ok(()) if !self.may_write() => return false,
                Ok(()) => link.write_and_wait(LEG_DATA + offset, bytes),
                Err(e) => Err(e),
            };
            if let Err(e) = made_equal {
                self.leg_failed(leg, &link, &e.to_string());
            }
        }
        true
    }

    /// Writes whole pages to every leg that is to have them; `then` is called when they are on
    /// every live one.
    pub(crate) fn write(self: &Arc<Self>, offset: u64, bytes: &[u8], then: OnWritten) {
        let range = offset..offset + bytes.len() as u64;
        let begun = {
            let mut state = self.state.lock();
            while state.over.is_none() && (state.is_busy(&range) || !self.may_write()) {
                self.changed.wait(&mut state);
            }
            state.begin_write(range, then)
        };
        let (number, links) = match begun {
            Ok(begun) => begun,
            Err((then, why)) => return then(Err(why)),
        };
        failpoint::pass("legs:write-begun");
        for (leg, link) in links {
            let (group, same) = (Arc::clone(self), Arc::clone(&link));
            let answered = move |answer: io::Result<()>| match answer {
                Ok(()) => group.acknowledged(number, leg),
                Err(e) => group.leg_failed(leg, &same, &e.to_string()),
            };
            link.write(LEG_DATA + offset, bytes, answered);
        }
    }

    fn acknowledged(&self, number: WriteNumber, leg: usize) {
        let mut state = self.state.lock();
        let all = match crate::fault_enabled!("legs-ack-first") {
            true => 0..self.file.legs.len(),
            false => leg..leg + 1,
        };
        let ledger = state.ledger.as_mut();
        let told = ledger.map_or_else(Vec::new, |ledger| {
            all.flat_map(|leg| ledger.acknowledged(number, leg))
                .collect()
        });
        self.tell(state, told);
    }

    /// True unless another machine may have taken the pool over by now: the heartbeat is to look
    /// first. Who only reads has no such limit.
    pub(super) fn may_write(&self) -> bool {
        self.lease.get().is_none_or(WriterLease::is_good)
    }

    /// Waits until it may write, or the pool is another machine's.
    pub(super) fn wait_for_lease(&self) {
        let mut state = self.state.lock();
        while state.over.is_none() && !state.stopping && !self.may_write() {
            self.changed.wait(&mut state);
        }
    }

    /// Tells those whose writes count now, unless it has to be looked first whether they do. The
    /// state is unlocked first.
    pub(super) fn tell(&self, mut state: MutexGuard<'_, GroupState>, mut told: Vec<WriteNumber>) {
        told.splice(..0, state.held.drain(..));
        if !told.is_empty() && !self.may_write() {
            state.held = std::mem::take(&mut told);
            self.beaten.notify_all();
        }
        let is_degraded =
            (state.ledger.as_ref()).is_some_and(|it| lacks_copies(&self.file, it.live()));
        // Before anybody is told.
        self.degraded.store(is_degraded, Release);
        let told: Vec<_> = (told.iter())
            .filter_map(|number| state.waiting.remove(number))
            .collect();
        state.forget_settled();
        drop(state);
        self.changed.notify_all();
        for then in told {
            then(Ok(()));
        }
    }

    /// A leg fails by this link, unless it has another by now.
    pub(super) fn leg_failed(&self, leg: usize, link: &Arc<LegLink>, why: &str) {
        let mut state = self.state.lock();
        // The group may be closed by now.
        let Some(seat) = state.seats.get_mut(leg) else {
            return;
        };
        if !seat.link.as_ref().is_some_and(|it| Arc::ptr_eq(it, link)) {
            return;
        }
        seat.link = None;
        seat.why = Some(why.to_owned());
        seat.reached = None;
        let Some(ledger) = &mut state.ledger else {
            drop(state);
            return link.die(why);
        };
        let was_live = ledger.live().has(leg);
        let told = ledger.failed(leg);
        let (left, is_over) = (ledger.live(), ledger.is_over());
        self.tell(state, told);
        link.die(why);
        if was_live {
            self.say_lost(leg, why, left);
        }
        if is_over {
            self.end("no leg is left that has it");
        }
    }

    fn say_lost(&self, leg: usize, why: &str, left: LegMask) {
        let (name, address, copies) = (&self.name, &self.file.legs[leg], self.file.copies);
        let outcome = match left.count() {
            0 => "It was the last one, so nothing is absorbed any more".to_owned(),
            left if left < copies => format!(
                "{left} of {copies} copies left, so every sync is a real one until it is back and complete"
            ),
            _ if lacks_copies(&self.file, left) => {
                "The copy that is left is on this machine, so every sync is a real one until another machine has one".to_owned()
            }
            left => format!("{left} copies left"),
        };
        complain(&format!(
            "the pool {name} lost its leg {address}: {why}. {outcome}"
        ));
    }

    /// The pool's file, where the least generation that counts is noted from now on, if a leg is on
    /// a disk.
    ///
    /// # Errors
    /// There are too many open files.
    pub(crate) fn note_in(&self, file: &File) -> io::Result<()> {
        if self.file.least.is_some() {
            let again = file.try_clone()?;
            self.note.get_or_init(|| again);
        }
        Ok(())
    }

    /// Has no record below this generation count from now on. Without a leg on a disk the loss of
    /// power takes all of them.
    ///
    /// # Errors
    /// The pool's file cannot be written.
    pub(super) fn note_least(&self, generation: u64) -> io::Result<()> {
        self.note
            .get()
            .map_or(Ok(()), |file| LegsFile::note_least(file, generation))
    }

    /// Another writer's record was found.
    pub(super) fn end_for(&self, newer: &LegRecord) {
        let why = format!(
            "another machine took it over (generation {}): nothing is written to it any more from here",
            newer.generation
        );
        complain(&format!("the pool {}: {why}", self.name));
        self.end(&why);
    }

    /// Nothing is written any more; waiters are told the reason.
    pub(super) fn end(&self, why: &str) {
        let waiting = {
            let mut state = self.state.lock();
            state.over.get_or_insert_with(|| why.into());
            self.beaten.notify_all();
            state.busy.clear();
            std::mem::take(&mut state.waiting)
        };
        self.changed.notify_all();
        for then in waiting.into_values() {
            then(Err(io::Error::other(why.to_owned())));
        }
    }

    /// The writer ends: a later one has nothing to wait for.
    pub(crate) fn close(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
        self.beaten.notify_all();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
        let returned = self.state.lock().returned.take();
        if let Some((_, link)) = returned {
            link.close();
        }
        let seats = std::mem::take(&mut self.state.lock().seats);
        for link in seats.into_iter().filter_map(|seat| seat.link) {
            link.close();
        }
    }

    /// Its legs in words.
    pub(crate) fn describe(&self) -> String {
        let state = self.state.lock();
        let (record, complete) = match &state.ledger {
            Some(ledger) => (ledger.record(), ledger.live()),
            None => (&state.chosen.record, state.chosen.complete),
        };
        let word = |(leg, seat): (usize, &LegSeat)| {
            let address = &self.file.legs[leg];
            match (&seat.why, complete.has(leg)) {
                (_, true) => format!("{address} (complete)"),
                (Some(why), _) => format!("{address} (OUT: {why})"),
                (None, _) => format!("{address} (being brought up to date)"),
            }
        };
        let legs: Vec<String> = state.seats.iter().enumerate().map(word).collect();
        if let Some(why) = &state.over {
            return format!("legs {}; over: {why}", legs.join(", "));
        }
        let copies = self.file.copies;
        format!(
            "legs {}; {copies} copies, generation {}",
            legs.join(", "),
            record.generation
        )
    }
}
