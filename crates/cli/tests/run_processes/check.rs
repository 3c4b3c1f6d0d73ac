//! The check after a round: its files are compared with those of the same calls without Forebay.

use super::{
    End, LIVES,
    common::pools_on_disk,
    lives::{Content, Life, Logs, Replay, Step, hash, log_name, records, replay},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Everything that the lives said, and what is left.
pub struct Round<'a> {
    pub end: End,
    pub seed: u64,
    pub dir: &'a Path,
    pub said: BTreeMap<Life, Vec<Step>>,
}

impl Round<'_> {
    /// Fails if anything is missing, or is what no life wrote.
    pub fn check(&self, program: &Path) {
        self.check_shared();
        self.check_slots();
        self.check_lives(program);
    }

    fn what(&self, life: Life) -> String {
        format!("FOREBAY_SEED={}, {:?}, life {life:?}", self.seed, self.end)
    }

    /// Every call returned what it returns without Forebay, and the logs are as without.
    fn check_lives(&self, program: &Path) {
        let mut found: BTreeMap<Life, BTreeMap<u32, Vec<Content>>> = BTreeMap::new();
        for entry in fs::read_dir(self.dir).unwrap() {
            let entry = entry.unwrap();
            let Some((life, number, renames)) = log_name(entry.file_name().to_str().unwrap())
            else {
                continue;
            };
            let bytes = fs::read(entry.path()).unwrap();
            let content = Content {
                renames,
                bytes: bytes.len(),
                hash: hash(&bytes),
            };
            let logs = found.entry(life).or_default();
            logs.entry(number).or_default().push(content);
        }
        for (life, said) in &self.said {
            let replay = replay(program, self.seed, *life, said.len() as u64 + 1);
            let what = self.what(*life);
            for (number, (ours, without)) in said.iter().zip(&replay.steps).enumerate() {
                assert_eq!(ours, without, "{what}, step {number}");
            }
            let found = found.remove(life).unwrap_or_default();
            if self.end.is_power_cut() {
                let is_ordered = self.end == End::PowerCut && !pools_on_disk();
                check_synced(said, &replay, &found, is_ordered, &what);
            } else {
                check_same(said, &replay, &found, &what);
            }
        }
    }

    /// Of the log that all append to: everything synced is there once, each life's records in their
    /// order, and no record is torn.
    fn check_shared(&self) {
        let is_due = |life: &Life, step: u64| {
            let said = self.said.get(life).and_then(|said| said.get(step as usize));
            said.is_some_and(|step| step.what == "shared-synced")
        };
        let records = records(&self.dir.join("shared.log"));
        let due = records
            .iter()
            .rposition(|record| record.is_some_and(|(life, step)| is_due(&life, step)));
        let mut found: BTreeMap<Life, Vec<u64>> = BTreeMap::new();
        for (at, record) in records.into_iter().enumerate() {
            match record {
                Some((life, step)) => found.entry(life).or_default().push(step),
                // What no process had synced yet was only in the kernel's memory, or not committed
                // to a pool on a disk.
                None if self.end.is_power_cut() && due < Some(at) => {}
                None => panic!(
                    "FOREBAY_SEED={}, {:?}: zeros at record {at}, synced up to {due:?}",
                    self.seed, self.end
                ),
            }
        }
        for (life, said) in &self.said {
            let found = found.remove(life).unwrap_or_default();
            let what = self.what(*life);
            assert!(found.is_sorted_by(|a, b| a < b), "{what}: {found:?}");
            let found: BTreeSet<u64> = found.into_iter().collect();
            let must = |step: &Step| match self.end.is_power_cut() {
                true => step.what == "shared-synced",
                false => step.what.starts_with("shared"),
            };
            for (_, number) in said.iter().zip(0..).filter(|(step, _)| must(step)) {
                assert!(
                    found.contains(&number),
                    "{what}: {number} is not in the shared log"
                );
            }
            let last = said.len() as u64;
            assert!(found.iter().all(|step| *step <= last), "{what}: {found:?}");
        }
    }

    /// Of the file in which each has its place: each has what it wrote last.
    fn check_slots(&self) {
        let records = records(&self.dir.join("slots.log"));
        for (life, said) in &self.said {
            let steps = said.iter().zip(0..);
            let synced = steps.filter(|(step, _)| step.what == "slot-synced");
            let Some((_, last)) = synced.last() else {
                continue;
            };
            let place = life.1 as usize * LIVES + life.0;
            let found = records.get(place).copied().flatten();
            let is_right = found.is_some_and(|(whose, step)| {
                whose == *life && step >= last && step <= said.len() as u64
            });
            assert!(
                is_right,
                "{}: {found:?} instead of {last}",
                self.what(*life)
            );
        }
    }
}

/// The logs are as after the last step that was said, or after the next.
fn check_same(said: &[Step], replay: &Replay, found: &BTreeMap<u32, Vec<Content>>, what: &str) {
    let found: BTreeMap<u32, Content> = found
        .iter()
        .map(|(number, contents)| {
            assert_eq!(contents.len(), 1, "{what}: {contents:?}");
            (*number, contents[0].clone())
        })
        .collect();
    let before = match said.len() {
        0 => Logs::new(),
        steps => replay.logs[steps - 1].clone(),
    };
    let after = replay.logs.get(said.len());
    assert!(
        found == before || Some(&found) == after,
        "{what}, after {} steps and {:?}:\n{found:?}, instead of\n{before:?}\nor, after {:?},\n{after:?}",
        said.len(),
        said.last(),
        replay.steps.get(said.len()),
    );
}

/// Each log is as after its last sync that was said, or some later step, whatever name it has: its
/// directory is not synced. One that was synced is there, unless it was unlinked since. What is not
/// synced since is there as well, up to some step, if it is in the pool at once: `is_ordered`.
/// Otherwise, before a log's first sync, and of a call that has not returned, any part may be
/// there.
fn check_synced(
    said: &[Step],
    replay: &Replay,
    found: &BTreeMap<u32, Vec<Content>>,
    is_ordered: bool,
    what: &str,
) {
    let numbers: BTreeSet<u32> = replay
        .logs
        .iter()
        .flat_map(|logs| logs.keys().copied())
        .collect();
    for number in numbers {
        let mut syncs = said.iter().enumerate().filter(|(_, step)| {
            step.log == number && ["synced", "written-synced"].contains(&step.what.as_str())
        });
        let synced = syncs.next_back().map(|(at, _)| at);
        let states = replay.logs.iter().skip(synced.unwrap_or(0));
        let states: Vec<Option<&Content>> = states.map(|logs| logs.get(&number)).collect();
        let hashes: Vec<_> = states
            .iter()
            .map(|state| state.map(|state| &state.hash))
            .collect();
        let is_changing = |hashes: &[_]| hashes.windows(2).any(|two| two[0] != two[1]);
        let is_open = match is_ordered {
            true => synced.is_none() || is_changing(&hashes[hashes.len().saturating_sub(2)..]),
            false => synced.is_none() || is_changing(&hashes),
        };
        let contents = found.get(&number).map_or(&[][..], Vec::as_slice);
        let may_be_gone = synced.is_none() || states.contains(&None);
        assert!(
            !contents.is_empty() || may_be_gone,
            "{what}, log {number}: gone, though it was synced in step {synced:?} of {}",
            said.len()
        );
        for content in contents {
            let same =
                |state: &&Content| (state.bytes, &state.hash) == (content.bytes, &content.hash);
            assert!(
                is_open || states.iter().flatten().any(same),
                "{what}, log {number}, synced in step {synced:?} of {}: {content:?}, instead of one of\n{states:?}",
                said.len()
            );
            let mut all = replay.logs.iter().filter_map(|logs| logs.get(&number));
            let is_known = all.any(|state| state.renames == content.renames);
            assert!(is_known, "{what}, log {number}: {content:?}");
        }
    }
}
