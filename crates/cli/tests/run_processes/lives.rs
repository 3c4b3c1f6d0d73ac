//! Output and files of `programs/processes.c`: a life's steps, its logs, and the records of files
//! that all have.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

/// Bytes of a record of `shared.log` and `slots.log`; the last of them are its hash.
const RECORD: usize = 256;
const HASH: usize = 18;
/// A process, or several one after the other, of those that the crew began.
pub type Life = (usize, u64);

/// What a life said of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub what: String,
    pub log: u32,
    pub returned: i64,
}

/// A log of a life: how often it was renamed, its bytes and their hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub renames: u32,
    pub bytes: usize,
    pub hash: String,
}

pub type Logs = BTreeMap<u32, Content>;

/// A life's steps, and its logs after each.
#[derive(Default)]
pub struct Replay {
    pub steps: Vec<Step>,
    pub logs: Vec<Logs>,
}

pub fn hash(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    format!("{hash:016x}")
}

/// A line of the program: whose, which step, and what of it.
pub fn step(line: &str) -> (Life, u64, Step) {
    let words: Vec<&str> = line.split(' ').collect();
    let [who, life, step, what, log, returned] = words[..] else {
        panic!("{line}");
    };
    let step_of = Step {
        what: what.to_owned(),
        log: log.parse().unwrap(),
        returned: returned.parse().unwrap(),
    };
    let life = (who.parse().unwrap(), life.parse().unwrap());
    (life, step.parse().unwrap(), step_of)
}

/// `12-3-4.5.log`: whose, its number, how often it was renamed.
pub fn log_name(name: &str) -> Option<(Life, u32, u32)> {
    let mut numbers = name.strip_suffix(".log")?.split(['-', '.']);
    let mut next = || numbers.next()?.parse::<u32>().ok();
    let life = (next()? as usize, u64::from(next()?));
    Some((life, next()?, next()?))
}

/// What the calls of a life return and leave without Forebay, for so many steps. In memory: their
/// syncs are not waited for.
pub fn replay(program: &Path, seed: u64, life: Life, steps: u64) -> Replay {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let words = [seed, life.0 as u64, life.1, steps].map(|number| number.to_string());
    let said = Command::new(program)
        .arg("replay")
        .args(words)
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(said.status.success(), "{said:?}");
    let mut replay = Replay::default();
    for line in String::from_utf8(said.stdout).unwrap().lines() {
        let Some(listed) = line.strip_prefix("= ") else {
            replay.steps.push(step(line).2);
            replay.logs.push(Logs::new());
            continue;
        };
        let words: Vec<&str> = listed.split(' ').collect();
        let content = Content {
            renames: log_name(words[2]).unwrap().2,
            bytes: words[3].parse().unwrap(),
            hash: words[4].to_owned(),
        };
        let logs = replay.logs.last_mut().unwrap();
        logs.insert(words[1].parse().unwrap(), content);
    }
    replay
}

/// The records of a file: whose, and of which step; none where there are zeros. Every one is whole.
pub fn records(path: &Path) -> Vec<Option<(Life, u64)>> {
    let bytes = fs::read(path).unwrap();
    let record = |(at, record): (usize, &[u8])| {
        if record.iter().all(|byte| *byte == 0) {
            return None;
        }
        let whole = record.len() == RECORD
            && record[RECORD - HASH..RECORD - 2] == *hash(&record[..RECORD - HASH]).as_bytes()
            && record.ends_with(b">\n");
        let text = String::from_utf8_lossy(record);
        assert!(whole, "{}, record {at}: {text:?}", path.display());
        let numbers: Vec<u64> = text
            .split(' ')
            .take(3)
            .map(|n| n.parse().unwrap())
            .collect();
        Some(((numbers[0] as usize, numbers[1]), numbers[2]))
    };
    bytes.chunks(RECORD).enumerate().map(record).collect()
}
