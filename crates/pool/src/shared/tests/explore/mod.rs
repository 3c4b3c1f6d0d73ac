//! Every interleaving of a shared lane's steps, up to a bound: the lane's own code, with its
//! members and its owner as threads of which one goes on at a time ([`crew`]), and all choices of
//! who does, depth first ([`path`]).
//!
//! Exhaustive are the schedules with so many *preemptions* (a thread that could go on has to stand
//! still; Musuvathi and Qadeer, *Iterative context bounding for systematic testing of multithreaded
//! programs*, PLDI 2007) and so many deaths; switches where a thread waits or is done are free. A
//! death is that of a process between two steps, and the owner buries it when its turn comes.
//!
//! After each schedule every append of a survivor has returned; what the owner drained and what is
//! in the lane is every record that was acknowledged, once, at its address, in order; nothing below
//! the tail is unpublished; and a recovery of what was durable finds all of it: at the end and
//! behind each acknowledgement since the schedule before took another way.
//!
//! The threads see each other's stores at once and in order: what a processor or a compiler makes
//! of weaker orderings is not explored.
//!
//! `FOREBAY_EXPLORE=n` explores with n more preemptions; `FOREBAY_SCHEDULE=4:1,17:2` runs one
//! schedule, as a failure prints it.

mod crew;
mod path;
mod scenarios;
mod table;
mod watch;

use super::{known::*, *};
use crate::media::SimMedia;
use crew::{Alone, Crew, Job};
use parking_lot::Mutex;
use path::Path;
use std::{rc::Rc, sync::Arc, time::Instant};
use table::Bounds;
use watch::{DIFFERS, Idle, Watch};

/// A scenario that is explored.
#[derive(Clone)]
struct Scenario {
    name: &'static str,
    on: On,
    /// Bytes of the records that each member appends.
    members: &'static [&'static [u64]],
    /// Bytes of the records that are there before.
    before: &'static [u64],
    bounds: Bounds,
    segments: u16,
    owner: Owner,
}

/// The owner's work, beside preparing segments and burying.
#[derive(Clone, Copy, Default)]
struct Owner {
    drains: bool,
    seals: u32,
    commits: bool,
}

/// The facts at the end of a schedule: addresses and numbers of records.
#[derive(Default)]
struct Told {
    returned: Mutex<Vec<(u64, u64)>>,
    drained: Mutex<Vec<(u64, u64)>>,
}

/// Runs a member's appends.
fn member(lane: &SharedLane, sim: &SimMedia, told: &Told, number: u32, sizes: &[u64]) {
    let us = &lane.us;
    // The same mapping for all: a futex is known by its address.
    let member = Member::new(Arc::clone(&us.core), Arc::clone(&us.state), number);
    for (turn, bytes) in (0..).zip(sizes) {
        let id = u64::from(number) << 32 | turn;
        let lsn = member.append(7, &[IoSlice::new(&payload(id, *bytes))]);
        let lsn = lsn.unwrap();
        if member.needs_commit() {
            member.commit(lsn + 1).unwrap();
        }
        sim.note(id);
        told.returned.lock().push((lsn, id));
    }
}

/// Runs the owner, as a supervisor does, until all members are gone and buried.
fn own(crew: &Crew, lane: &SharedLane, sim: &SimMedia, told: &Told, owner: Owner) {
    let mut unburied = Vec::new();
    for _ in 0..owner.seals {
        lane.seal().unwrap();
    }
    if owner.commits {
        lane.commit().unwrap();
    }
    loop {
        let turned = lane.turned();
        unburied.extend(crew.graves());
        unburied.retain(|number| !lane.bury(*number));
        if let Some(last) = lane.complete().last().filter(|_| owner.drains) {
            lane.records(|record| {
                if record.header.lsn < last.end {
                    let id = number_of(record.payload);
                    sim.note(DRAINED | id);
                    told.drained.lock().push((record.header.lsn, id));
                }
            });
            lane.release(last.end);
        }
        lane.prepare();
        let stuck = (!unburied.is_empty()).then_some(lane);
        if !crew.wait_for_work(Idle::new(turned, stuck)) {
            return;
        }
    }
}

impl Scenario {
    /// One schedule: why it failed, if it did.
    fn run(&self, crew: &Arc<Crew>, image: &[u8], of: &SimMedia) -> Result<(), String> {
        let sim = Arc::new(of.of_its_kind(image.to_vec()));
        let pool = open(&sim);
        let options = ClaimOptions::new().segments(self.segments);
        let lane = Arc::new(pool.claim_shared(OWNER, &options).unwrap());
        let told = Arc::new(Told::default());
        // Nothing that comes later is cut before this.
        sim.record_anew();
        member(&lane, &sim, &told, 99, self.before);
        let (us, with) = (Arc::clone(crew), (Arc::clone(&lane), Arc::clone(&sim)));
        let (owner, told_owner) = (self.owner, Arc::clone(&told));
        let (its_lane, its_sim) = with.clone();
        let own: Job = Box::new(move || own(&us, &its_lane, &its_sim, &told_owner, owner));
        let members = (1..).zip(self.members).map(|(number, sizes)| {
            let ((lane, sim), told) = (with.clone(), Arc::clone(&told));
            let job: Job = Box::new(move || member(&lane, &sim, &told, number, sizes));
            job
        });
        let watch = Watch {
            lane: Arc::clone(&lane),
            sim: Arc::clone(&sim),
            has_differed: false,
        };
        let failure = crew.run(watch, std::iter::once(own).chain(members).collect());
        drop(with);
        if let Some(why) = failure {
            return Err(why);
        }
        let seed = crew.table().path.seed();
        let judged = catch_unwind(AssertUnwindSafe(|| {
            self.judge(&lane, &told);
            self.judge_cuts(&sim, seed);
        }));
        judged.map_err(|thrown| match thrown.downcast::<String>() {
            Ok(why) => *why,
            Err(_) => "the end is not what it should be".to_owned(),
        })
    }

    fn judge(&self, lane: &SharedLane, told: &Told) {
        let mut found = std::mem::take(&mut *told.drained.lock());
        lane.records(|record| found.push((record.header.lsn, number_of(record.payload))));
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "order: {found:x?}");
        let ids: BTreeSet<u64> = found.iter().map(|(_, id)| *id).collect();
        assert_eq!(ids.len(), found.len(), "one twice: {found:x?}");
        let returned = told.returned.lock();
        for record in &*returned {
            assert!(found.contains(record), "lost: {record:x?} of {found:x?}");
        }
        let (tail, mark) = (lane.usage().tail, lane.member().published());
        assert_eq!(tail, mark, "something is not published");
        let all: usize = self.members.iter().map(|sizes| sizes.len()).sum();
        let missing = self.before.len() + all - returned.len();
        let of_the_dead = self.members.iter().map(|sizes| sizes.len()).max();
        let dead = self.bounds.deaths as usize;
        assert!(
            missing <= dead * of_the_dead.unwrap_or(0),
            "some are missing"
        );
        assert!(
            found.len() <= returned.len() + dead,
            "more than was appended"
        );
    }

    /// Recovers what was durable behind every acknowledgement since the schedule was another one
    /// than the last, and at the end.
    fn judge_cuts(&self, sim: &SimMedia, seed: u64) {
        let images = sim.crash_images();
        let mut moment = images.start();
        let differs = |point| images.notes_before(point).any(|note| note == DIFFERS);
        let always = !differs(images.points() - 1);
        let (mut known, mut notes) = (Known::default(), 0);
        let some = seed % images.points() as u64;
        loop {
            let point = moment.point();
            let new: Vec<u64> = images.notes_before(point).skip(notes).collect();
            notes += new.len();
            let is_new = always || differs(point);
            let acknowledged = new.iter().any(|note| *note != DIFFERS);
            known.learn(new.into_iter().filter(|note| *note != DIFFERS));
            let recover = |image| {
                let sim = Arc::new(sim.of_its_kind(image));
                sim.stop_recording();
                known.judge(&claim(&open(&sim)).1);
            };
            let is_last = point + 1 == images.points();
            if is_new && (acknowledged || is_last) {
                recover(moment.image(|| false));
            }
            if is_last || point as u64 == some {
                let mut bits = seed;
                recover(moment.image(|| {
                    bits = bits.rotate_left(7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    is_last || bits >> 63 == 1
                }));
            }
            if !moment.step() {
                return;
            }
        }
    }

    fn explore(mut self) {
        quietly();
        if let Ok(more) = std::env::var("FOREBAY_EXPLORE") {
            self.bounds.preemptions += more.parse::<u32>().unwrap();
        }
        let given = std::env::var("FOREBAY_SCHEDULE").ok();
        let path = given.as_deref().map_or_else(Path::default, Path::given);
        let are_alike = self.members.windows(2).all(|two| two[0] == two[1]);
        let crew = Crew::new(1 + self.members.len(), are_alike, self.bounds, path);
        // This thread is alone, and waits for nothing.
        steps::schedule(Some(Rc::new(Alone)));
        let of = match self.on {
            On::Memory => new_pool_on(SimMedia::new(32 << 10), 32 << 10, 4096),
            On::Disk => new_pool_on(SimMedia::disk(vec![0; 48 << 10]), 48 << 10, 8192),
        };
        let image = of.image();
        let (begun, mut schedules) = (Instant::now(), 0_u64);
        loop {
            schedules += 1;
            if let Err(why) = self.run(&crew, &image, &of) {
                let table = crew.table();
                let (name, schedule) = (self.name, table.path.text());
                let story = table.story();
                panic!("{name}: {why}\nFOREBAY_SCHEDULE={schedule}{story}");
            }
            if given.is_some() || !crew.table().path.advance() {
                break;
            }
        }
        steps::schedule(None);
        let (steps, seconds) = (crew.table().steps, begun.elapsed().as_secs_f64());
        let Bounds {
            preemptions,
            deaths,
        } = self.bounds;
        eprintln!(
            "{}: {schedules} schedules of {steps} steps, {preemptions} preemptions, {deaths} deaths, {seconds:.1} s",
            self.name
        );
    }
}
