//! A run of a seed: a program below its supervisor, deaths, and the recovery of what they left.

use super::{
    disk::{Disk, Survival},
    machine::{BrokenSyncs, Machine, PLACES, Role, Told},
    oracle::Oracle,
    program::Program,
};
use forebay_pool::PoolOptions;
use forebay_random::Rng;
use serde_json::Value;
use std::{
    fs, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

/// So many ways in which a cut may leave the disk are recovered from.
const IMAGES: u64 = 3;
/// A recovery is cut so often at most.
const CUTS_MAX: u64 = 2;

/// The wishes of a test.
#[derive(Clone, Copy, Default)]
pub struct Wishes {
    /// What is broken: `FOREBAY_BROKEN`.
    pub broken: &'static str,
    /// The program's changes of names are not counted.
    pub is_uncounted: bool,
}

/// What was done.
#[derive(Default, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub runs: u64,
    pub cuts: u64,
    pub kills: u64,
    pub steps: u64,
    pub acknowledged: u64,
    pub replayed: u64,
    pub refused: u64,
    /// Virtual nanoseconds.
    pub time: u64,
    /// Of all that happened, in order.
    pub trace: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.cuts += other.cuts;
        self.kills += other.kills;
        self.steps += other.steps;
        self.acknowledged += other.acknowledged;
        self.replayed += other.replayed;
        self.refused += other.refused;
        self.time += other.time;
        self.trace = forebay_random::mix(self.trace ^ other.trace);
    }
}

/// What became of a seed, or why it failed; and every step.
pub struct Outcome {
    pub done: Result<Tally, String>,
    pub story: Vec<String>,
}

/// The directories of a machine, and its pool.
struct Place {
    home: tempfile::TempDir,
    /// The pool's: one on a disk has to lie on one.
    pool: tempfile::TempDir,
    /// Each failpoint is a step.
    has_steps: bool,
}

impl Place {
    fn new(on_disk: bool, has_steps: bool) -> io::Result<Self> {
        let new = || {
            let place = Path::new(PLACES);
            let name = place.file_name().unwrap_or_default();
            let parent = place.parent().unwrap_or(place);
            tempfile::Builder::new().prefix(name).tempdir_in(parent)
        };
        let home = new()?;
        for directory in ["data", "keepers", "run"] {
            fs::create_dir(home.path().join(directory))?;
        }
        let program = std::env::current_exe()?;
        let pool = match on_disk {
            true => tempfile::tempdir_in(program.parent().unwrap_or(Path::new("/")))?,
            false => new()?,
        };
        let place = Self {
            home,
            pool,
            has_steps,
        };
        let options = PoolOptions::new().size(1 << 20).segment_size(64 << 10);
        let options = match on_disk {
            true => options.on_disk(true),
            false => options.emulated(true),
        };
        drop(options.create(place.pool()).map_err(io::Error::other)?);
        Ok(place)
    }

    fn pool(&self) -> PathBuf {
        self.pool.path().join("pool")
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn errors(&self) -> PathBuf {
        self.home.path().join("errors")
    }

    fn lab(&self) -> Command {
        // target/PROFILE/deps/test → target/PROFILE/examples/lab
        let mut lab = std::env::current_exe().unwrap_or_default();
        lab.pop();
        lab.pop();
        let mut command = Command::new(lab.join("examples/lab"));
        command.env_clear();
        if self.has_steps {
            command.env("FOREBAY_TEST_STEPS", "1");
        }
        command
    }
}

/// A seed's run.
struct Round<'a> {
    place: Place,
    rng: Rng,
    wishes: Wishes,
    tally: Tally,
    story: &'a mut Vec<String>,
}

/// Held while a seed is run: its random numbers name sockets, which are all machines'.
fn alone(seed: u64) -> io::Result<UnixListener> {
    let name = format!("forebay-simulation-{seed}");
    let address = SocketAddr::from_abstract_name(name)?;
    loop {
        match UnixListener::bind_addr(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// Runs a seed.
pub fn run(seed: u64, wishes: Wishes) -> Outcome {
    let mut story = Vec::new();
    let done = run_alone(seed, wishes, &mut story);
    Outcome { done, story }
}

fn run_alone(seed: u64, wishes: Wishes, story: &mut Vec<String>) -> Result<Tally, String> {
    let text = |e: io::Error| e.to_string();
    let _alone = alone(seed).map_err(text)?;
    let mut rng = Rng(seed);
    let (on_disk, has_steps) = (rng.chance(2), rng.chance(2));
    let kind = if on_disk { "on a disk" } else { "in memory" };
    story.push(format!("a pool {kind}"));
    let mut round = Round {
        place: Place::new(on_disk, has_steps).map_err(text)?,
        rng,
        wishes,
        tally: Tally::default(),
        story,
    };
    let done = round.whole();
    let errors = fs::read_to_string(round.place.errors()).unwrap_or_default();
    let home = round.place.home.path().to_string_lossy().into_owned();
    let errors = errors.lines().map(|line| line.replace(&home, "@"));
    round.story.extend(errors);
    done.map(|()| round.tally)
}

impl Round<'_> {
    fn whole(&mut self) -> Result<(), String> {
        let text = |e: io::Error| e.to_string();
        self.tally.runs = 1;
        let disk = Disk::new(&self.place.data(), &self.place.home.path().join("keepers"));
        let seed = self.rng.next();
        let mut machine = Machine::new(disk, &self.place.data(), seed).map_err(text)?;
        machine.patience = self.rng.one_of(&[1, 2, 5, 30]);
        let mut oracle = Oracle::new(&machine.disk);
        let done = self.work(&mut machine, &mut oracle);
        let is_cut = !self.rng.chance(5);
        let torn = if is_cut {
            machine.tear(&self.place.pool())
        } else {
            Ok(())
        };
        let killed = torn.and(machine.kill_all());
        self.learn(&mut machine);
        let is_over = done?;
        killed.map_err(text)?;
        if let Some(why) = machine.disk.differs() {
            return Err(why);
        }
        self.tally.acknowledged = oracle.acknowledged;
        if is_over {
            return oracle.judge(&self.place.data(), false);
        }
        if !is_cut {
            self.tally.kills += 1;
            self.recover(machine.disk.clone(), None)?;
            return oracle.judge(&self.place.data(), false);
        }
        let pool = fs::read(self.place.pool()).map_err(text)?;
        for image in 0..IMAGES {
            fs::write(self.place.pool(), &pool).map_err(text)?;
            let mut disk = machine.disk.clone();
            let survival = Survival::any(&mut self.rng);
            self.story.push(format!(
                "CUT, image {image}: of the pages {survival:?} survive"
            ));
            disk.cut(survival, &mut self.rng).map_err(text)?;
            self.tally.cuts += 1;
            self.recover(disk, Some(survival))?;
            oracle.judge(&self.place.data(), true)?;
        }
        Ok(())
    }

    fn learn(&mut self, machine: &mut Machine) {
        self.tally.steps += machine.steps;
        self.tally.time += machine.now;
        for step in machine.story.drain(..) {
            for byte in step.bytes() {
                self.tally.trace =
                    (self.tally.trace ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
            }
            self.story.push(step);
        }
    }

    /// The program, until something dies. True if it came to its end.
    fn work(&mut self, machine: &mut Machine, oracle: &mut Oracle) -> Result<bool, String> {
        let text = |e: io::Error| e.to_string();
        let mut program = Program::new(self.place.data(), &mut self.rng);
        // So many steps after that many calls; or never.
        let dies = (!self.rng.chance(12)).then(|| (self.rng.below(50), self.rng.below(120)));
        let mut left_to_die = None;
        let kills = match self.rng.below(5) {
            0 => Some((self.rng.below(600), Role::Other)),
            1 => Some((self.rng.below(600), Role::Supervisor)),
            _ => None,
        };
        if self.rng.chance(6) {
            machine.broken_syncs = BrokenSyncs {
                left: 1 + self.rng.below(2),
                errno: self.rng.one_of(&[libc::EIO, libc::ENOSPC]),
                are_first: self.rng.chance(2),
            };
            oracle.forgives_plain = machine.broken_syncs.are_first;
        }
        let mut command = self.place.lab();
        command.arg("run").arg(self.place.pool());
        command.arg(self.place.home.path().join("run")).arg("*.log");
        if !self.wishes.is_uncounted {
            command.env("LAB_COUNTS_CHANGES", "1");
        }
        if !self.wishes.broken.is_empty() {
            command.env("FOREBAY_BROKEN", self.wishes.broken);
        }
        machine
            .start(&mut command, &self.place.errors())
            .map_err(text)?;
        loop {
            if left_to_die == Some(0) {
                return Ok(false);
            }
            left_to_die = left_to_die.map(|left| left - 1);
            if let Some((_, role)) = kills.filter(|(step, _)| *step + 400 == machine.steps) {
                machine.kill(role).map_err(text)?;
                self.tally.kills += 1;
            }
            match machine.step().map_err(text)? {
                Told::Asks => match program.next(&mut self.rng) {
                    Some(call) => {
                        oracle.begins(&call);
                        machine.say(Some(&call.line)).map_err(text)?;
                    }
                    None => machine.say(None).map_err(text)?,
                },
                Told::Said(role, line) => oracle.said(role, &line, &machine.disk),
                Told::Changed(inode) => oracle.changed(inode, &machine.disk),
                Told::Named => oracle.named(&machine.disk),
                Told::Over => return Ok(true),
                Told::Nothing => {}
            }
            if let Some((calls, steps)) = dies
                && left_to_die.is_none()
                && program.done >= calls
            {
                left_to_die = Some(steps);
            }
        }
    }

    /// Recovers what was left, and cuts that now and then.
    fn recover(&mut self, mut disk: Disk, cut: Option<Survival>) -> Result<(), String> {
        let text = |e: io::Error| e.to_string();
        let mut cuts_left = match cut {
            Some(_) => self.rng.below(CUTS_MAX + 1),
            None => 0,
        };
        let mut boot = cut.map(|_| 1);
        let mut options: &[&str] = &[];
        loop {
            let seed = self.rng.next();
            let mut machine = Machine::new(disk, &self.place.data(), seed).map_err(text)?;
            let mut command = self.place.lab();
            command.arg("recover").arg(self.place.pool()).args(options);
            if let Some(boot) = boot {
                command.env(
                    "FOREBAY_TEST_BOOT_ID",
                    format!("00000000-0000-0000-0000-{boot:012}"),
                );
                command.env("FOREBAY_TEST_POOL_SURVIVED", "1");
            }
            let steps = (cuts_left > 0).then(|| self.rng.below(60));
            let done = recovered(&mut machine, &mut command, &self.place.errors(), steps);
            let torn = if steps.is_some() {
                machine.tear(&self.place.pool())
            } else {
                Ok(())
            };
            let killed = torn.and(machine.kill_all());
            self.learn(&mut machine);
            let said = done.map_err(text)?;
            killed.map_err(text)?;
            disk = machine.disk;
            if let Some(said) = said {
                self.story.extend(reports(&said));
                if said.contains("\"outcome\":\"refused\"") && options.is_empty() {
                    self.tally.refused += 1;
                    options = &["--force"];
                    continue;
                }
                self.tally.replayed += u64::from(said.contains("\"outcome\":\"replayed\""));
                return self.is_whole(&said);
            }
            let survival = Survival::any(&mut self.rng);
            self.story.push(format!(
                "CUT in the recovery: of the pages {survival:?} survive"
            ));
            disk.cut(survival, &mut self.rng).map_err(text)?;
            self.tally.cuts += 1;
            cuts_left -= 1;
            boot = boot.map(|boot| boot + 1);
        }
    }

    fn is_whole(&self, said: &str) -> Result<(), String> {
        let pool = PoolOptions::new().open(self.place.pool());
        match pool.map(|pool| pool.lanes().len()) {
            Ok(0) => Ok(()),
            Ok(lanes) => Err(format!("{lanes} lanes are left: {said}")),
            Err(why) => Err(format!("the pool cannot be opened: {why}")),
        }
    }
}

/// A recovery's reports, a file a line.
fn reports(said: &str) -> Vec<String> {
    let lanes: Vec<Value> = serde_json::from_str(said).unwrap_or_default();
    let files = lanes.iter().flat_map(|lane| {
        let files = lane["files"].as_array().into_iter().flatten();
        files.map(move |file| (&lane["outcome"], file))
    });
    let line = |(outcome, file): (&Value, &Value)| {
        let path = file["path"].as_str().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        let refused = file["refused"].as_str().map(|why| why.replace(path, name));
        let why = refused.unwrap_or_default();
        format!("{outcome}: {name}, {} records. {why}", file["records"])
    };
    files.map(line).collect()
}

/// Runs a recovery for so many steps: what it said, if it came to its end.
fn recovered(
    machine: &mut Machine,
    command: &mut Command,
    errors: &Path,
    steps: Option<u64>,
) -> io::Result<Option<String>> {
    let mut said = String::new();
    machine.start(command, errors)?;
    loop {
        if steps.is_some_and(|steps| machine.steps >= steps) {
            return Ok(None);
        }
        match machine.step()? {
            Told::Said(_, line) => said.push_str(&line),
            Told::Over if said.is_empty() => return Err(io::Error::other("no report")),
            Told::Over => return Ok(Some(said)),
            _ => {}
        }
    }
}
