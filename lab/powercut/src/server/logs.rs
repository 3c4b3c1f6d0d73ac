//! A program with log files as simple databases have them: it appends a transaction and calls
//! `fdatasync`, renames a full log, begins the next one under the old name, and unlinks those that
//! a snapshot made needless. It never syncs a directory: on ext4 the sync of a new file makes its
//! name durable as well, and many programs rely on that.
//!
//! A record: length of the payload (4), FNV-1a of it (8), payload. The log ends at the first that
//! is not whole.

use crate::{Change, Engine, Failure};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

/// Bytes of a log at which it is renamed.
const LOG_BYTES: u64 = 48 << 10;
/// Renamed logs at which a snapshot is made.
const LOGS: u64 = 6;
const CURRENT: &str = "current.log";

/// An open directory of logs.
pub struct Logs {
    dir: PathBuf,
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    current: File,
    bytes: u64,
    /// The first log that no snapshot covers, and the number that the current one gets.
    from: u64,
    next: u64,
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

fn encode(changes: &[Change]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (key, value) in changes {
        payload.push(u8::from(value.is_some()));
        for part in std::iter::once(key).chain(value) {
            payload.extend((part.len() as u32).to_le_bytes());
            payload.extend(part);
        }
    }
    let mut record = (payload.len() as u32).to_le_bytes().to_vec();
    record.extend(hash(&payload).to_le_bytes());
    record.extend(payload);
    record
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (part, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(part)
}

fn length(bytes: &mut &[u8]) -> Option<usize> {
    let part = take(bytes, 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(part)).ok()
}

/// The next record's changes; `None` at the end.
fn decode(bytes: &mut &[u8]) -> Option<Vec<Change>> {
    let payload = length(bytes)?;
    let stated = u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?);
    let mut payload = take(bytes, payload)?;
    if payload.is_empty() || hash(payload) != stated {
        return None;
    }
    let mut changes = Vec::new();
    while let Some(&[kind]) = take(&mut payload, 1) {
        let mut part = || {
            let length = length(&mut payload)?;
            take(&mut payload, length).map(<[u8]>::to_vec)
        };
        let key = part()?;
        let value = if kind == 1 { Some(part()?) } else { None };
        changes.push((key, value));
    }
    Some(changes)
}

impl Logs {
    /// Opens the directory: the newest snapshot, and all logs behind it.
    pub fn open(dir: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(dir)?;
        let mut numbers: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            for kind in ["log", "snapshot"] {
                if let Some(number) = name
                    .strip_suffix(kind)
                    .and_then(|stem| stem.trim_end_matches('.').parse().ok())
                {
                    numbers.entry(kind).or_default().push(number);
                }
            }
        }
        let mut pairs = BTreeMap::new();
        let newest = numbers.get("snapshot").and_then(|all| all.iter().max());
        if let Some(newest) = newest {
            read(&dir.join(format!("{newest}.snapshot")), &mut pairs)?;
        }
        let from = newest.copied().unwrap_or(0);
        let mut next = from;
        while dir.join(format!("{next}.log")).exists() {
            read(&dir.join(format!("{next}.log")), &mut pairs)?;
            next += 1;
        }
        if let Some(later) = numbers
            .get("log")
            .into_iter()
            .flatten()
            .find(|number| **number >= next)
        {
            return Err(format!("{later}.log is there, but {next}.log is not").into());
        }
        let path = dir.join(CURRENT);
        let bytes = if path.exists() {
            read(&path, &mut pairs)?
        } else {
            0
        };
        let current = File::options().create(true).append(true).open(&path)?;
        current.set_len(bytes)?;
        Ok(Self {
            dir: dir.to_owned(),
            pairs,
            current,
            bytes,
            from,
            next,
        })
    }

    fn rotate(&mut self) -> Result<(), Failure> {
        fs::rename(
            self.dir.join(CURRENT),
            self.dir.join(format!("{}.log", self.next)),
        )?;
        self.next += 1;
        self.current = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join(CURRENT))?;
        self.bytes = 0;
        if self.next - self.from < LOGS {
            return Ok(());
        }
        let temporary = self.dir.join("snapshot.partial");
        let mut snapshot = File::create(&temporary)?;
        let all: Vec<Change> = self
            .pairs
            .iter()
            .map(|(k, v)| (k.clone(), Some(v.clone())))
            .collect();
        snapshot.write_all(&encode(&all))?;
        snapshot.sync_all()?;
        fs::rename(temporary, self.dir.join(format!("{}.snapshot", self.next)))?;
        // Before anything of what it replaces goes.
        File::open(&self.dir)?.sync_all()?;
        for number in self.from..self.next {
            fs::remove_file(self.dir.join(format!("{number}.log")))?;
        }
        if self.from > 0 {
            fs::remove_file(self.dir.join(format!("{}.snapshot", self.from)))?;
        }
        self.from = self.next;
        Ok(())
    }
}

/// Applies a file's records; the bytes of those that are whole.
fn read(path: &Path, pairs: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Result<u64, Failure> {
    let bytes = fs::read(path).map_err(|e| format!("reading {}: {e}", path.display()))?;
    let mut rest = &bytes[..];
    let mut whole = 0;
    while let Some(changes) = decode(&mut rest) {
        apply(pairs, changes);
        whole = (bytes.len() - rest.len()) as u64;
    }
    Ok(whole)
}

fn apply(pairs: &mut BTreeMap<Vec<u8>, Vec<u8>>, changes: Vec<Change>) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(pairs.insert(key, value)),
            None => drop(pairs.remove(&key)),
        }
    }
}

impl Engine for Logs {
    fn apply(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        if self.bytes >= LOG_BYTES {
            self.rotate()?;
        }
        let record = encode(&changes);
        self.current.write_all(&record)?;
        self.current.sync_data()?;
        self.bytes += record.len() as u64;
        apply(&mut self.pairs, changes);
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.pairs.get(key).cloned())
    }

    fn count(&self) -> Result<u64, Failure> {
        Ok(self.pairs.len() as u64)
    }
}
