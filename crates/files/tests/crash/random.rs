//! Random calls, and a death at any moment: each file is as its last acknowledged call left it.

use crate::{
    APPEND, OTHER_BOOT, RDWR,
    common::{Lab, Rng, Running, content, seed},
};
use std::{collections::BTreeMap, fs};

/// What the database's files hold, call by acknowledged call.
#[derive(Clone, Default, PartialEq, Eq)]
struct Model {
    /// By name: content.
    files: BTreeMap<String, Vec<u8>>,
}

/// One call of the random test.
#[derive(Clone, Debug)]
enum Call {
    Append(String, u64, usize),
    Write(String, usize, u64, usize),
    Truncate(String, usize),
}

impl Model {
    fn apply(&mut self, call: &Call) {
        match call.clone() {
            Call::Append(name, seed, bytes) => {
                self.files
                    .entry(name)
                    .or_default()
                    .extend(content(seed, bytes));
            }
            Call::Write(name, at, seed, bytes) => {
                let file = self.files.entry(name).or_default();
                file.resize(file.len().max(at + bytes), 0);
                file[at..at + bytes].copy_from_slice(&content(seed, bytes));
            }
            Call::Truncate(name, bytes) => self.files.entry(name).or_default().resize(bytes, 0),
        }
    }
}

fn random_call(rng: &mut Rng, model: &Model) -> Call {
    let names: Vec<&String> = model.files.keys().collect();
    let name = names[rng.below(names.len() as u64) as usize].clone();
    let size = model.files[&name].len() as u64;
    let bytes = |rng: &mut Rng| match rng.below(12) {
        0 => 30_000 + rng.below(60_000) as usize,
        1..4 => 1000 + rng.below(5000) as usize,
        _ => 1 + rng.below(300) as usize,
    };
    match rng.below(20) {
        0 => Call::Truncate(name, rng.below(size + 2000) as usize),
        1..5 => Call::Write(
            name,
            rng.below(size + 100) as usize,
            rng.below(1 << 30),
            bytes(rng),
        ),
        _ => Call::Append(name, rng.below(1 << 30), bytes(rng)),
    }
}

fn perform(run: &mut Running, call: &Call) {
    match call {
        Call::Append(name, seed, bytes) => run.send(&format!("write append-{name} {seed} {bytes}")),
        Call::Write(name, at, seed, bytes) => {
            run.send(&format!("pwrite at-{name} {at} {seed} {bytes}"));
        }
        Call::Truncate(name, bytes) => run.send(&format!("truncate at-{name} {bytes}")),
    }
}

/// Promise (files): A truncation in whose middle everything dies has happened or has not.
/// Promise: as `a_killed_databases_files_are_synced_and_its_lane_goes_back`.
/// Promise: as `after_a_power_cut_everything_acknowledged_is_replayed`.
#[test]
fn random_calls_survive_any_death_at_any_moment() {
    let seed = seed();
    for round in 0..12 {
        let mut rng = Rng(seed.wrapping_add(round * 1_000_003));
        let lab = Lab::new();
        let mut run = lab.run();
        let mut model = Model::default();
        for name in ["a.log", "b.aof", "c.log"] {
            for (prefix, flags) in [("append", APPEND), ("at", RDWR)] {
                assert_eq!(
                    run.open(&format!("{prefix}-{name}"), &lab.data(name), flags),
                    1
                );
            }
            model.files.insert(name.to_owned(), Vec::new());
        }
        let mut pending = None;
        let calls = 50 + rng.below(400);
        for _ in 0..calls {
            let call = random_call(&mut rng, &model);
            perform(&mut run, &call);
            let answer = run.answer().unwrap();
            assert!(answer.starts_with("ok"), "{call:?}: {answer}");
            model.apply(&call);
        }
        // One more, whose answer the test does not wait for.
        let last = random_call(&mut rng, &model);
        perform(&mut run, &last);
        pending.replace(last);
        let power = rng.below(3) != 0;
        run.kill_both();
        let reports = match power {
            true => {
                lab.power_cut();
                lab.recover(Some(OTHER_BOOT), &[])
            }
            false => lab.recover(None, &[]),
        };
        let mut after = model.clone();
        let last = pending.unwrap();
        after.apply(&last);
        for (name, before) in &model.files {
            let found = fs::read(lab.data(name)).unwrap();
            // A large write is several records: any number of them may be there.
            let after = &after.files[name];
            let whole = found == *before || found == *after;
            let part = matches!(last, Call::Append(..) | Call::Write(..))
                && found.len() >= before.len().min(after.len())
                && found.len() <= before.len().max(after.len())
                && (0..found.len())
                    .all(|i| before.get(i) == found.get(i) || after.get(i) == found.get(i));
            assert!(
                whole || part,
                "round {round}: {name} differs: {} bytes, expected {} or {}, last {last:?}; {reports:?}",
                found.len(),
                before.len(),
                after.len()
            );
        }
        assert_eq!(lab.lanes(), 0);
    }
}
