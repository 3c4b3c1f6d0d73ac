//! The thread that keeps a writer's legs: it makes changes of the set durable, and brings legs that
//! return up to date.
//!
//! A leg that returns:
//!
//! 1. It has been reachable for a while ([`QUIET`]), so that nothing of before is under way there.
//! 2. It is this pool's, and no newer writer's: otherwise it is not touched.
//! 3. Its superblocks are erased: it is believed by nobody while it is half old and half new.
//! 4. It gets every write from now on.
//! 5. The pool is copied to it, a part at a time, each while nothing writes that part.
//! 6. It joins (`ledger`).

use super::{
    group::{LegGroup, QUIET},
    group_state::GroupState,
    ledger::{LegLedger, WriteNumber},
    link::{LegLink, is_blank},
    superblock::{LEG_DATA, LegRecord},
};
use crate::{MonotonicTime, complain, failpoint, stack::quiet_thread};
use std::{
    io,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Release},
    },
    time::Duration,
};

/// The number of the copy among those that keep others from a range.
pub(super) const COPY: WriteNumber = WriteNumber::MAX;
/// Bytes that are copied at a time.
const COPIED_AT_ONCE: u64 = 1 << 20;
/// Wait for a range before looking if a change of the set is due.
const LOOK: Duration = Duration::from_millis(5);
/// Interval at which a leg that is out is asked if it is back.
const CALL_EVERY: Duration = Duration::from_secs(1);
/// Sleep without anything to do.
const IDLE: Duration = Duration::from_millis(200);

/// Until the group is closed.
pub(super) fn keep(group: &Arc<LegGroup>) {
    let mut called = MonotonicTime::now();
    loop {
        group.wait_for_lease();
        make_changes(group);
        {
            let mut state = group.state.lock();
            if state.stopping || state.over.is_some() {
                break;
            }
            let is_due = (state.ledger.as_mut()).is_some_and(|it| it.due_change().is_some());
            if !is_due {
                group.changed.wait_for(&mut state, IDLE);
            }
        }
        if called.elapsed() >= CALL_EVERY {
            called = MonotonicTime::now();
            call_returning(group);
        }
        let returned = group.state.lock().returned.take();
        if let Some((leg, link)) = returned {
            let is_out = (group.state.lock().ledger.as_ref()).is_some_and(|it| it.is_out(leg));
            match is_out {
                true => bring_up_to_date(group, leg, &link),
                false => link.close(),
            }
        }
    }
    say_closed(group);
}

/// Makes the changes of the set durable that are due.
pub(super) fn make_changes(group: &Arc<LegGroup>) {
    loop {
        let (change, links, own) = {
            let mut state = group.state.lock();
            let Some(ledger) = &mut state.ledger else {
                return;
            };
            let own = *ledger.record();
            let Some(change) = ledger.due_change().cloned() else {
                return;
            };
            // Those that join come first. Their superblocks are erased: one that others call
            // complete while it says nothing itself is missing to a recovery, if this process dies
            // between.
            let (old, joining) = (own.set, change.unwritten.without(own.set));
            let mut links = state.links(joining);
            links.extend(state.links(change.unwritten.both(old)));
            (change, links, own)
        };
        crate::failpoint!("legs:change");
        let last = links.len();
        for (number, (leg, link)) in (1..).zip(links) {
            let record = &change.record;
            match announce(&link, leg, record, &own, None) {
                Ok(None) => {
                    // When the last leg has the record, it counts: what older ones a disk has is
                    // not to be believed by then.
                    if number == last
                        && let Err(e) = group.note_least(record.generation)
                    {
                        return group.end(&format!("its file cannot be written: {e}"));
                    }
                    written(group, record, leg);
                }
                Ok(Some(other)) => return group.end_for(&other),
                Err(e) => {
                    group.leg_failed(leg, &link, &e.to_string());
                    break;
                }
            }
            crate::failpoint!("legs:change-written");
        }
    }
}

/// Writes a writer's record to a leg. Another writer's is returned instead if the leg has one that
/// is newer than `known`, which this writer goes on from, or as new and not that: it looks before
/// and after, since the two may write at once, and to one slot. What was `seen` there before is
/// none of these: an announcement, whose writer may have died.
///
/// # Errors
/// The leg does not answer, or has not what was written.
pub(super) fn announce(
    link: &LegLink,
    leg: usize,
    record: &LegRecord,
    known: &LegRecord,
    seen: Option<LegRecord>,
) -> io::Result<Option<LegRecord>> {
    let newest = || Ok::<_, io::Error>(LegRecord::newest(&link.read_start()?, leg));
    let is_another = |found: &LegRecord| {
        let is_new = match found.writer == known.writer {
            true => found.generation > known.generation,
            false => found.generation >= known.generation,
        };
        let is_foreign = found.identity == record.identity && found.writer != record.writer;
        is_foreign && is_new && Some(*found) != seen
    };
    if let Some(found) = newest()?.filter(is_another) {
        return Ok(Some(found));
    }
    link.write_and_wait(record.offset(), &record.encode(leg))?;
    match newest()? {
        Some(found) if found == *record => Ok(None),
        Some(found) if found.writer != record.writer => Ok(Some(found)),
        _ => Err(io::Error::other("it has not what was written to it")),
    }
}

fn written(group: &LegGroup, record: &LegRecord, leg: usize) {
    let mut state = group.state.lock();
    let before = state.ledger.as_ref().map(|it| it.record().set);
    let ledger = state.ledger.as_mut();
    let told = ledger.map_or_else(Vec::new, |it| it.change_written(record.generation, leg));
    let now = state.ledger.as_ref().map(|it| it.record().set);
    let joined = now.zip(before).map(|(now, before)| now.without(before));
    for leg in joined.into_iter().flat_map(|legs| legs.legs()) {
        state.seats[leg].why = None;
    }
    let count = now.map_or(0, |set| set.count());
    group.tell(state, told);
    for leg in joined.into_iter().flat_map(|legs| legs.legs()) {
        let (name, address) = (&group.name, &group.file.legs[leg]);
        let copies = group.file.copies;
        complain(&format!(
            "the pool {name} has its leg {address} back, complete: {count} live, for {copies} copies"
        ));
    }
}

/// Asks legs that are in no set whether they are back, in a thread of its own: a name that is not
/// found, or a server that hangs, keeps no change of the set waiting.
fn call_returning(group: &Arc<LegGroup>) {
    if group.calling.swap(true, AcqRel) {
        return;
    }
    let calling = Arc::clone(group);
    let called = quiet_thread("forebay-call", move || {
        let found = returning(&calling);
        calling.state.lock().returned = found;
        calling.calling.store(false, Release);
        calling.changed.notify_all();
    });
    if called.is_err() {
        group.calling.store(false, Release);
    }
}

/// A leg that is in no set, and has been reachable for a while.
fn returning(group: &LegGroup) -> Option<(usize, Arc<LegLink>)> {
    let out = {
        let mut state = group.state.lock();
        let GroupState { ledger, seats, .. } = &mut *state;
        let ledger = ledger.as_ref()?;
        let is_out = |leg: &usize| ledger.is_out(*leg);
        (0..seats.len()).filter(is_out).collect::<Vec<_>>()
    };
    let needed = group.bytes().saturating_add(LEG_DATA);
    out.into_iter().find_map(|leg| {
        let connected = LegLink::connect(&group.file.legs[leg], group.file.insecure);
        let fit = connected.and_then(|link| match link.export().bytes {
            found if found < needed => Err(io::Error::other(format!(
                "it has {found} bytes, and {needed} are needed"
            ))),
            _ => link.claim().and_then(|()| link.pipeline()).map(|()| link),
        });
        match fit {
            Ok(link) => {
                let mut state = group.state.lock();
                // It is closed by now, if there is no seat.
                let seat = state.seats.get_mut(leg);
                let since = seat.map(|it| *it.reached.get_or_insert_with(MonotonicTime::now));
                drop(state);
                let quiet = failpoint::limit("legs-quiet", QUIET);
                let is_quiet = since.is_some_and(|it| it.elapsed() >= quiet);
                if !is_quiet {
                    link.close();
                }
                is_quiet.then_some((leg, link))
            }
            Err(e) => {
                if let Some(seat) = group.state.lock().seats.get_mut(leg) {
                    (seat.why, seat.reached) = (Some(e.to_string()), None);
                }
                None
            }
        }
    })
}

/// See the module's head, from step 2 on.
fn bring_up_to_date(group: &Arc<LegGroup>, leg: usize, link: &Arc<LegLink>) {
    crate::failpoint!("legs:returning");
    match erase(group, leg, link) {
        Ok(None) => {}
        Ok(Some(newer)) => return group.end_for(&newer),
        Err(e) => {
            let seat = &mut group.state.lock().seats[leg];
            // It is asked again once others were.
            (seat.why, seat.reached) = (Some(e.to_string()), None);
            return link.close();
        }
    }
    {
        let mut state = group.state.lock();
        let seat = &mut state.seats[leg];
        // One that was read from while the pool was opened.
        if let Some(old) = seat.link.replace(Arc::clone(link)) {
            drop(state);
            old.close();
            state = group.state.lock();
        }
        state.seats[leg].why = None;
        if let Some(ledger) = &mut state.ledger {
            ledger.copying(leg);
        }
    }
    let bytes = group.bytes();
    let mut at = 0;
    while at < bytes {
        let part = at..bytes.min(at + COPIED_AT_ONCE);
        if !wait_for(group, leg, &part) {
            return;
        }
        let copied = copy(group, link, &part);
        group.state.lock().not_busy(COPY);
        group.changed.notify_all();
        if let Err(e) = copied {
            return group.leg_failed(leg, link, &e.to_string());
        }
        crate::failpoint!("legs:copied-part");
        at = part.end;
    }
    if let Some(ledger) = &mut group.state.lock().ledger {
        ledger.copied(leg);
    }
}

/// Erases the superblocks of a leg that returns, unless a newer writer has it: that one's record.
///
/// # Errors
/// It holds something else; it cannot be read or written.
fn erase(group: &LegGroup, leg: usize, link: &LegLink) -> io::Result<Option<LegRecord>> {
    let start = link.read_start()?;
    let own = (group.state.lock().ledger.as_ref()).map(|it| *it.record());
    match LegRecord::newest(&start, leg).zip(own) {
        Some((found, _)) if found.identity != group.file.identity => {
            return Err(io::Error::other(format!(
                "it has another pool ({}): give that one an export of its own",
                found.identity
            )));
        }
        Some((found, own)) if found.is_newer_than(&own) => return Ok(Some(found)),
        Some(_) => {}
        None if is_blank(&start) => link.check_unused()?,
        None => {
            return Err(io::Error::other(
                "it holds something else than this pool: if nothing of that is needed, start its server with an empty export, or make its file of zeros anew",
            ));
        }
    }
    if !group.may_write() {
        return Err(io::Error::other(
            "this machine stood still, and asks whether the pool is its own first",
        ));
    }
    link.erase_start()?;
    // Another machine may have written its own meanwhile.
    match is_blank(&link.read_start()?) {
        true => Ok(None),
        false => Err(io::Error::other("another machine writes to it")),
    }
}

/// Returns when nothing writes the part, and keeps others from it. False if the leg failed
/// meanwhile, or the group ends.
fn wait_for(group: &Arc<LegGroup>, leg: usize, part: &std::ops::Range<u64>) -> bool {
    loop {
        // What is under way may be waiting for a leg that failed.
        group.wait_for_lease();
        make_changes(group);
        let mut state = group.state.lock();
        let is_copying = (state.ledger.as_ref()).is_some_and(|it| it.is_copying(leg));
        if !is_copying || state.stopping || state.over.is_some() {
            return false;
        }
        // Neither may another machine have the leg by now.
        if !state.is_busy(part) && group.may_write() {
            state.keep_busy(COPY, part.clone());
            return true;
        }
        group.changed.wait_for(&mut state, LOOK);
    }
}

fn copy(group: &Arc<LegGroup>, to: &LegLink, part: &std::ops::Range<u64>) -> io::Result<()> {
    let bytes = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
    let mut content = vec![0; bytes];
    group.read(part.start, &mut content)?;
    to.write_and_wait(LEG_DATA + part.start, &content)
}

/// Says on the legs that their writer has ended, if nothing of it is under way.
fn say_closed(group: &LegGroup) {
    let (record, own, links) = {
        let state = group.state.lock();
        let ledger = state.ledger.as_ref();
        let is_done = |it: &&LegLedger| it.is_settled_set() && !it.has_writes();
        let Some(ledger) = ledger.filter(is_done).filter(|_| state.over.is_none()) else {
            return;
        };
        let own = *ledger.record();
        let links = state.links(own.set);
        let record = LegRecord {
            generation: own.generation + 1,
            closed: true,
            ..own
        };
        (record, own, links)
    };
    for (leg, link) in links {
        if !group.may_write() || !matches!(announce(&link, leg, &record, &own, None), Ok(None)) {
            return;
        }
    }
}
