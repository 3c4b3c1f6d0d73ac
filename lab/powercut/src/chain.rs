//! A chain of cycles on one machine's disk and NVDIMM: boot, recover, compare, write, cut, and so
//! on.
//!
//! A *cycle* is a cut and the comparison after it. What a cycle leaves is what the next one begins
//! with, so a store ages, and damage that a comparison does not see may be seen by a later one.

use crate::{
    Failure,
    client::Client,
    cut_moments::{self, Moment, Then},
    cycle::Cycle,
    disk::Survival,
    evidence::Evidence,
    flash::{Counts, Route},
    lab::{Lab, PATIENCE, PoolOn, survival},
    ledger::{Ledger, Verdict},
    machine::{Images, Machine, MachineKind},
    workload::Workload,
};
use forebay_random::Rng;
use std::{
    mem,
    time::{Duration, Instant},
};

/// What the next cut aims at.
#[derive(Clone, Copy)]
struct Aim {
    moment: Option<&'static Moment>,
    times: u64,
    /// What decides when processes die before.
    draw: u64,
}

/// Cycles that were cut and not compared yet, and the state of the chain.
pub struct Chain<'a> {
    lab: &'a Lab,
    workload: &'static Workload,
    seed: u64,
    pool: PoolOn,
    images: Images,
    random: Rng,
    /// The last cut may have left a guard that is laid in part: a flush comes next, and has to lift
    /// it.
    lays: bool,
    ledger: Ledger,
    /// When the cycle before ended.
    cycle_began: Instant,
    /// If it is to be kept.
    evidence: Option<Evidence>,
}

/// Writing goes on for so long after a failpoint was announced, at most.
const AFTER_MS: u64 = 400;
/// A moment that has not come by then does not come.
const MOMENT_MAX: Duration = Duration::from_secs(15);
/// Nothing is acknowledged any more if nothing was for so long.
const STALL: Duration = Duration::from_millis(1500);

impl<'a> Chain<'a> {
    /// Runs `cycles` cycles; `first` is the number of the moment that the first aimed one gets.
    /// `done` is told of each.
    pub fn run(
        lab: &'a Lab,
        workload: &'static Workload,
        (seed, pool): (u64, PoolOn),
        (first, cycles): (u64, u64),
        done: &mut dyn FnMut(Cycle),
    ) -> Result<(), Failure> {
        let dir = lab.home.join(format!("{}-{seed:016x}", workload.name));
        let cycle_began = Instant::now();
        let mut chain = Self {
            lab,
            workload,
            seed,
            pool,
            images: lab.images(pool, workload.flash, &dir)?,
            random: Rng(seed),
            lays: false,
            cycle_began,
            ledger: Ledger::new(seed ^ 0xF0, workload.shape),
            evidence: (lab.keep.as_deref()).map(|keep| Evidence::new(&dir, keep)),
        };
        let ended = chain.cycles(first, cycles, done);
        std::fs::remove_dir_all(&dir)?;
        ended
    }

    fn aim(&mut self, number: u64, first: u64) -> Aim {
        let commits: &[Moment] = match self.pool {
            _ if self.workload.broken.is_some() => &[],
            PoolOn::Legs | PoolOn::LegDisk => cut_moments::LEGS,
            pool if pool.is_disk() => cut_moments::COMMIT,
            _ => &[],
        };
        // Commits come first: there are few of them.
        let all = commits.iter().chain(self.workload.takeover);
        let all = all.chain(self.workload.moments);
        let wanted = |moment: &&Moment| moment.name.contains(&self.lab.moments);
        let moments: Vec<&'static Moment> = all.filter(wanted).collect();
        let aimed = self.lab.can_aim()
            && !moments.is_empty()
            && (self.workload.only_aimed || number % 2 == 1);
        let moment = aimed.then(|| moments[((first + number / 2) % moments.len() as u64) as usize]);
        Aim {
            moment,
            times: moment.map_or(0, |moment| {
                cut_moments::drawn(moment.times, &mut self.random)
            }),
            draw: match moment.is_some_and(|moment| !moment.deaths.is_empty()) {
                true => self.random.next(),
                false => 0,
            },
        }
    }

    fn boot(&mut self, aim: Option<Aim>) -> Result<Machine, Failure> {
        let mut parameters = format!("lab.action={}", self.workload.name);
        let moment = aim.and_then(|aim| Some((aim.moment?, aim)));
        if self.workload.flash {
            let draw = self.random.next();
            let then = moment.map(|(moment, _)| moment.then);
            let was_laid = mem::replace(&mut self.lays, then == Some(Then::CutAfterFlush));
            let route = match then {
                Some(Then::Twice) => Route::Warm,
                Some(Then::TwiceFlushing | Then::CutAfterFlush) => Route::Flush,
                _ if was_laid => Route::Flush,
                _ => Route::drawn(draw),
            };
            parameters += &format!(" lab.route={}", route.name());
            if aim.is_some_and(recovers) {
                parameters += " lab.recovering=yes";
            }
        }
        if let Some((moment, aim)) = moment {
            let armed = moment.armed(aim.times, &mut Rng(aim.draw));
            parameters += &format!(" lab.failpoint={armed}");
        }
        if let Some(broken) = self.workload.broken {
            parameters += &format!(" lab.broken={broken}");
        }
        if self.pool == PoolOn::Mirror {
            let gone = ["none", "none", "vdb", "vdc"][self.random.below(4) as usize];
            parameters += &format!(" lab.gone={gone}");
        }
        let failpoints = moment.is_some() || self.workload.broken.is_some();
        let beside = self.workload.beside;
        self.lab
            .boot(beside, &self.images, self.pool, &parameters, failpoints)
    }

    /// Waits for the guest's server, or for a failpoint that is announced before: then there is no
    /// client.
    fn connect(&self, machine: &mut Machine) -> Result<Option<Client>, Failure> {
        let server = machine.server();
        let dialect = self.workload.dialect;
        machine.wait(PATIENCE, |console| {
            if announced(console) {
                return Some(None);
            }
            let connected =
                server.reach(|port| Client::connect(port, dialect, Duration::from_secs(2)));
            connected.ok().map(Some)
        })
    }

    /// A cycle of which nothing is known yet.
    fn cycle(&self, number: u64, aim: Aim) -> Cycle {
        let moment = aim.moment.map(|moment| moment.name);
        Cycle {
            workload: self.workload.name.into(),
            machine: self.lab.machine,
            seed: self.seed,
            number,
            pool: self.pool,
            moment: moment.unwrap_or("at a random moment").into(),
            reached: true,
            cut_after: Vec::new(),
            seconds: 0.0,
            acknowledged: 0,
            unflushed: 0,
            dropped: 0,
            verdict: Verdict::default(),
            unusable: None,
            flash: None,
        }
    }

    fn cycles(
        &mut self,
        first: u64,
        cycles: u64,
        done: &mut dyn FnMut(Cycle),
    ) -> Result<(), Failure> {
        let mut number = 0;
        let mut aim = self.aim(number, first);
        // The last boot is there to compare.
        let mut machine = self.boot((!recovers(aim)).then_some(aim))?;
        let mut client = self.connect(&mut machine)?;
        // The moment came while the server started, and was cut there already.
        let mut came = false;
        loop {
            let mut cycle = self.cycle(number, aim);
            if let Some(evidence) = &mut self.evidence {
                evidence.begin()?;
            }
            let before = self.ledger.acknowledged;
            // Without a client the moment came while the server started.
            if let Some(client) = client.take() {
                let aim = Aim {
                    moment: aim.moment.filter(|_| !came),
                    ..aim
                };
                match self.write(&machine, client, aim) {
                    Ok(reached) => cycle.reached = reached,
                    // It has power, and fails all the same.
                    Err(why) => {
                        cycle.unusable = Some(format!(
                            "{why}; the guest said:\n{}",
                            machine.console().trim_end()
                        ))
                    }
                }
            }
            cycle.acknowledged = self.ledger.acknowledged - before;
            self.cut(machine, &mut cycle)?;
            if cycle.unusable.is_some() {
                return self.told(cycle, done);
            }
            if recovers(aim) {
                self.recover_twice(aim, &mut cycle)?;
            }
            number += 1;
            let more = number < cycles && !crate::ended();
            let next = self.aim(number, first);
            machine = self.boot((more && !recovers(next)).then_some(next))?;
            let judged = self.judge(&mut machine, &mut cycle)?;
            came = judged.is_none();
            client = match judged {
                Some(client) => Some(client),
                // The next failpoint was announced during the recovery: cut there, and compare
                // without it.
                None if cycle.unusable.is_none() => {
                    self.cut(machine, &mut cycle)?;
                    machine = self.boot(None)?;
                    self.judge(&mut machine, &mut cycle)?
                }
                None => None,
            };
            let good = cycle.good();
            self.told(cycle, done)?;
            aim = next;
            if !more || !good || client.is_none() {
                return Ok(());
            }
        }
    }

    /// Cuts two recoveries in a row: the second one finds what the first one left.
    fn recover_twice(&mut self, aim: Aim, cycle: &mut Cycle) -> Result<(), Failure> {
        cycle.reached = false;
        for _ in 0..2 {
            let mut recovering = self.boot(Some(aim))?;
            match self.connect(&mut recovering) {
                Ok(None) => cycle.reached = true,
                Ok(Some(_)) => {}
                Err(why) => cycle.unusable = Some(why.to_string()),
            }
            self.cut(recovering, cycle)?;
        }
        Ok(())
    }

    /// A cycle is over.
    fn told(&mut self, mut cycle: Cycle, done: &mut dyn FnMut(Cycle)) -> Result<(), Failure> {
        let ended = Instant::now();
        let began = mem::replace(&mut self.cycle_began, ended);
        cycle.seconds = (ended - began).as_secs_f64();
        if let Some(evidence) = self.evidence.as_ref().filter(|_| !cycle.good()) {
            let kept = evidence.keep(&cycle.line())?;
            eprintln!("what its cuts left is in {}", kept.display());
        }
        done(cycle);
        Ok(())
    }

    /// Compares. The client, unless a failpoint was announced before there was one.
    fn judge(
        &mut self,
        machine: &mut Machine,
        cycle: &mut Cycle,
    ) -> Result<Option<Client>, Failure> {
        let mut client = match self.connect(machine) {
            Ok(Some(client)) => client,
            Ok(None) => return Ok(None),
            Err(why) => {
                cycle.unusable.get_or_insert(why.to_string());
                return Ok(None);
            }
        };
        match client.read_all(self.ledger.keys()) {
            Ok(found) => cycle.verdict = self.ledger.compare(&found),
            // It came meanwhile, and what was asked for waits behind it.
            Err(_) if announced(&machine.console()) => return Ok(None),
            Err(why) => {
                let said = machine.console();
                cycle.unusable = Some(format!("{why}; the guest said:\n{}", said.trim_end()));
            }
        }
        Ok(Some(client))
    }

    fn cut(&mut self, machine: Machine, cycle: &mut Cycle) -> Result<(), Failure> {
        cycle.cut_after.push(machine.age());
        if self.workload.flash && cycle.flash.is_none() {
            cycle.flash = Counts::last(&machine.console());
        }
        let console = machine.console();
        let draw = self.random.next();
        let tears = self.workload.tears;
        let survivals = |disk: u64| match tears {
            true => Survival { per_mille: 500 },
            false => survival(draw >> (8 * disk)),
        };
        let cut = machine.cut(self.random.next(), survivals)?;
        if let Some(evidence) = &mut self.evidence {
            evidence.cut(&self.images, &console)?;
        }
        cycle.unflushed += cut.unflushed;
        cycle.dropped += cut.dropped;
        Ok(())
    }

    /// Writes until it is time to cut. True if that is the moment aimed at.
    fn write(&mut self, machine: &Machine, mut client: Client, aim: Aim) -> Result<bool, String> {
        let wait = Duration::from_millis(10);
        // Its queue is to turn.
        let longer = match self.workload.flash || self.workload.tears {
            true => 4,
            false => 1,
        };
        let random = Duration::from_millis(300 + self.random.below(4000)) * longer;
        // What is not emulated does as much in less.
        let random = match self.lab.machine {
            MachineKind::Emulated => random,
            MachineKind::Namespace => random / 4,
        };
        let dies = aim.moment.is_some_and(|moment| !moment.deaths.is_empty());
        let moment_max = MOMENT_MAX * longer * if dies { 2 } else { 1 };
        let after = Duration::from_millis(self.random.below(AFTER_MS));
        let aimed = aim.moment.filter(|_| !recovers(aim));
        let begun = Instant::now();
        let mut acknowledged = Instant::now();
        let mut seen: Option<Instant> = None;
        loop {
            match client.step(&mut self.ledger, wait) {
                Ok(true) => acknowledged = Instant::now(),
                Ok(false) => {}
                Err(why) => return Err(format!("writing: {why}")),
            }
            let Some(moment) = aimed else {
                if begun.elapsed() >= random {
                    return Ok(true);
                }
                continue;
            };
            if seen.is_none() && announced(&machine.console()) {
                seen = Some(Instant::now());
            }
            let over = match (seen, moment.then) {
                (None, _) => begun.elapsed() >= moment_max,
                (Some(_), Then::Stall) => {
                    acknowledged.elapsed() >= STALL || begun.elapsed() >= 2 * moment_max
                }
                (Some(seen), _) => seen.elapsed() >= after,
            };
            if over {
                if seen.is_none() {
                    let said = machine.console();
                    eprintln!(
                        "{}: {}, time {}, did not come; the guest said:\n{}",
                        self.workload.name,
                        moment.name,
                        aim.times,
                        said.trim_end()
                    );
                }
                return Ok(seen.is_some());
            }
        }
    }
}

/// True if the aim is at the recovery after the cut.
fn recovers(aim: Aim) -> bool {
    aim.moment
        .is_some_and(|moment| matches!(moment.then, Then::Twice | Then::TwiceFlushing))
}

/// True if a failpoint was.
fn announced(console: &str) -> bool {
    console.contains("LAB failpoint")
}
