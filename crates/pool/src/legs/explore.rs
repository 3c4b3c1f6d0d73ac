//! The legs' protocol, explored: a writer, legs and messages in every order, with legs that lose
//! their memory or are cut off, and a recovery in every state that this leads to.
//!
//! The model has the product's own [`LegLedger`] and [`choose`]; a leg is its superblock and the
//! set of writes in its memory. Each control breaks one rule and has to be found out.

use super::{
    complete_legs::{LegAnswer, choose},
    ledger::{LegLedger, next_term},
    mask::LegMask,
    superblock::{LegRecord, TERM},
};
use std::collections::{BTreeSet, HashSet};
use uuid::Uuid;

/// The rule that is broken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BrokenRule {
    Nothing,
    /// A write counts when the first leg has it.
    FirstAcknowledgement,
    /// A change of the set counts before the legs have it.
    ChangeInMemory,
    /// A leg that returns joins without the writes that it missed.
    NoCopy,
    /// A recovery believes any answer.
    NoSilence,
    /// A recovery takes any leg that has the pool.
    AnyGeneration,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct ModelLeg {
    record: Option<LegRecord>,
    /// Writes in its memory, by their bits.
    has: u32,
    /// It answers the writer.
    is_connected: bool,
    /// Written to and not yet there, or there and not acknowledged.
    sent: BTreeSet<u64>,
    arrived: BTreeSet<u64>,
    /// A superblock that was sent, and whether the leg has it.
    change: Option<(LegRecord, bool)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Model {
    ledger: LegLedger,
    legs: Vec<ModelLeg>,
    told: u32,
    begun: u64,
    faults: usize,
}

impl Model {
    fn new(legs: usize) -> Self {
        let old = LegRecord {
            identity: Uuid::from_u128(1),
            writer: Uuid::from_u128(2),
            boot: Uuid::from_u128(3),
            generation: TERM,
            pool_bytes: 1 << 20,
            legs,
            copies: legs,
            set: LegMask::all(legs),
            closed: false,
            announced: false,
        };
        let record = LegRecord {
            writer: Uuid::from_u128(4),
            generation: next_term(old.generation),
            ..old
        };
        let leg = ModelLeg {
            record: Some(old),
            has: 0,
            is_connected: true,
            sent: BTreeSet::new(),
            arrived: BTreeSet::new(),
            change: None,
        };
        Self {
            ledger: LegLedger::begin(record),
            legs: vec![leg; legs],
            told: 0,
            begun: 0,
            faults: 0,
        }
    }

    fn tell(&mut self, writes: Vec<u64>) {
        for write in writes {
            self.told |= 1 << write;
        }
    }

    /// Sends the superblocks that are due.
    fn send_change(&mut self) {
        let Some(change) = self.ledger.due_change().cloned() else {
            return;
        };
        for leg in change.unwritten.legs() {
            let sent = &mut self.legs[leg].change;
            if sent.as_ref().map(|(record, _)| record) != Some(&change.record) {
                *sent = Some((change.record, false));
            }
        }
    }

    /// All states that one event leads to.
    fn next(&self, limits: (u64, usize), broken: BrokenRule) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            next.send_change();
            all.push(next);
        };
        if self.begun < limits.0 {
            add(&|it| {
                let (number, to) = it.ledger.begin_write();
                it.begun = number + 1;
                for leg in to.legs() {
                    it.legs[leg].sent.insert(number);
                }
            });
        }
        for (leg, now) in self.legs.iter().enumerate() {
            for &write in &now.sent {
                add(&|it| it.arrive(leg, write));
            }
            for &write in &now.arrived {
                add(&|it| it.acknowledge(leg, write, broken));
            }
            match now.change {
                Some((record, false)) => add(&|it| {
                    it.legs[leg].change = Some((record, true));
                    if broken != BrokenRule::ChangeInMemory {
                        it.legs[leg].record = Some(record);
                    }
                }),
                Some((record, true)) => add(&|it| {
                    it.legs[leg].change = None;
                    let told = it.ledger.change_written(record.generation, leg);
                    it.tell(told);
                }),
                None => {}
            }
            if now.is_connected && self.faults < limits.1 {
                add(&|it| it.fail(leg, false));
                add(&|it| it.fail(leg, true));
            }
            if !now.is_connected && self.ledger.is_out(leg) && !self.ledger.is_over() {
                add(&|it| it.come_back(leg));
            }
            if self.ledger.is_copying(leg) && self.can_copy(leg).is_some() {
                add(&|it| {
                    let has = it.can_copy(leg).unwrap_or(0);
                    if broken != BrokenRule::NoCopy {
                        it.legs[leg].has |= has;
                    }
                    it.ledger.copied(leg);
                });
            }
        }
        all
    }

    fn arrive(&mut self, leg: usize, write: u64) {
        let leg = &mut self.legs[leg];
        leg.sent.remove(&write);
        leg.arrived.insert(write);
        leg.has |= 1 << write;
    }

    fn acknowledge(&mut self, leg: usize, write: u64, broken: BrokenRule) {
        self.legs[leg].arrived.remove(&write);
        let all = match broken {
            BrokenRule::FirstAcknowledgement => 0..self.legs.len(),
            _ => leg..leg + 1,
        };
        for leg in all {
            let told = self.ledger.acknowledged(write, leg);
            self.tell(told);
        }
    }

    fn fail(&mut self, number: usize, forgets: bool) {
        self.faults += 1;
        let leg = &mut self.legs[number];
        leg.is_connected = false;
        leg.sent.clear();
        leg.arrived.clear();
        leg.change = None;
        if forgets {
            (leg.has, leg.record) = (0, None);
        }
        let told = self.ledger.failed(number);
        self.tell(told);
    }

    fn come_back(&mut self, leg: usize) {
        self.legs[leg].is_connected = true;
        // Before anything else is written to it.
        self.legs[leg].record = None;
        self.ledger.copying(leg);
    }

    /// The memory that a copy brings the leg: a live leg's, once no write from before is under way.
    fn can_copy(&self, leg: usize) -> Option<u32> {
        let from = &self.legs[self.ledger.live().legs().next()?];
        let to = &self.legs[leg];
        let is_open = |write: u64| !self.ledger.is_settled(write);
        let is_sent = |write: u64| to.sent.contains(&write) || to.has & (1 << write) != 0;
        (0..self.begun)
            .all(|write| !is_open(write) || is_sent(write))
            .then_some(from.has)
    }

    /// The writer ends here, and the pool is recovered while any legs are silent.
    fn check(&self, broken: BrokenRule) -> Result<(), String> {
        for silent in 0..1_u8 << self.legs.len() {
            let answer = |(number, leg): (usize, &ModelLeg)| match leg.record {
                _ if silent & (1 << number) != 0 => LegAnswer::Silent,
                Some(record) => LegAnswer::Record(record),
                None => LegAnswer::Empty,
            };
            let answers: Vec<_> = self.legs.iter().enumerate().map(answer).collect();
            let given_up = match broken {
                BrokenRule::NoSilence => (answers.iter().enumerate())
                    .filter(|(_, it)| !matches!(it, LegAnswer::Record(_)))
                    .map(|(leg, _)| leg)
                    .collect(),
                _ => LegMask::NONE,
            };
            let complete = match (broken, choose(&answers, given_up)) {
                (BrokenRule::AnyGeneration, _) => (answers.iter().enumerate())
                    .filter(|(_, it)| matches!(it, LegAnswer::Record(_)))
                    .map(|(leg, _)| leg)
                    .collect(),
                (_, Ok(chosen)) => chosen.complete,
                (_, Err(_)) => continue,
            };
            for leg in complete.legs() {
                let lost = self.told & !self.legs[leg].has;
                if lost != 0 {
                    return Err(format!(
                        "leg {leg} lacks writes {lost:b}, silent {silent:b}: {answers:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Nothing happens any more: everything was told, unless no leg is left.
    fn check_end(&self) {
        if !self.ledger.is_over() {
            assert_eq!(u64::from(self.told.count_ones()), self.begun);
            assert!(self.ledger.is_settled_set());
            assert!(self.legs.iter().all(|leg| leg.is_connected));
        }
    }
}

/// All states: how many, or the first in which something acknowledged is lost.
fn explore(legs: usize, limits: (u64, usize), broken: BrokenRule) -> Result<usize, String> {
    let mut first = Model::new(legs);
    first.send_change();
    let mut known = HashSet::from([first.clone()]);
    let mut to_do = vec![first];
    while let Some(model) = to_do.pop() {
        model.check(broken)?;
        let next = model.next(limits, broken);
        if next.is_empty() {
            model.check_end();
        }
        for model in next {
            if known.insert(model.clone()) {
                to_do.push(model);
            }
        }
    }
    Ok(known.len())
}

/// Promise (pool): No order of a writer's and its legs' events, with legs that lose their memory or
/// are cut off, lets a recovery believe a leg that lacks an acknowledged write.
#[test]
fn no_order_of_events_loses_what_legs_acknowledged() {
    for (legs, limits) in [(2, (2, 2)), (2, (1, 3)), (3, (1, 2))] {
        let states = explore(legs, limits, BrokenRule::Nothing).unwrap();
        println!("{legs} legs, {limits:?} writes and faults: {states} states");
        assert!(states > 1000);
    }
}

#[test]
fn each_broken_rule_of_the_legs_loses_something() {
    for (broken, name) in [
        (BrokenRule::FirstAcknowledgement, "first acknowledgement"),
        (BrokenRule::ChangeInMemory, "change in memory"),
        (BrokenRule::NoCopy, "no copy"),
        (BrokenRule::NoSilence, "no silence"),
        (BrokenRule::AnyGeneration, "any generation"),
    ] {
        let found = explore(2, (2, 2), broken);
        assert!(found.is_err(), "{name} was not found out");
    }
}
