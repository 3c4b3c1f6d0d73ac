//! The states in which a death may leave the files: everything that a sync has acknowledged is
//! there, and nothing that was never written.
//!
//! Of each file the oracle has every content that the kernel showed, in order, and which of them
//! the newest acknowledged sync had found; of the directory all names. What is recovered is one of
//! the states since then, byte by byte.

use super::{
    disk::{Disk, Names},
    machine::Role,
    program::{Call, CallKind},
};
use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path};

#[derive(Default)]
struct History {
    versions: Vec<Vec<u8>>,
    /// The first of them that may come back.
    floor: usize,
    /// The size at the last acknowledged sync.
    synced_bytes: usize,
    /// A sync of it has failed, and it may be plain: a later one promises what the kernel does.
    is_given_up: bool,
}

/// A sync that has not returned: of what file, and what states it found.
struct Sync {
    inode: u64,
    version: usize,
    names: usize,
    orders: bool,
}

#[derive(Default)]
pub struct Oracle {
    files: BTreeMap<u64, History>,
    names: Vec<Names>,
    names_floor: usize,
    handles: BTreeMap<(bool, String), u64>,
    pending: BTreeMap<Role, (Call, Option<Sync>)>,
    pub acknowledged: u64,
    /// First syncs fail: what they are of stays plain.
    pub forgives_plain: bool,
}

impl Oracle {
    pub fn new(disk: &Disk) -> Self {
        Self {
            names: vec![disk.names().clone()],
            ..Self::default()
        }
    }

    /// A process begins a call.
    pub fn begins(&mut self, call: &Call) {
        let role = match call.is_others {
            true => Role::Other,
            false => Role::Database,
        };
        let sync = match &call.what {
            CallKind::Sync(handle) => {
                let inode = self.handles.get(&(call.is_others, handle.clone())).copied();
                inode.map(|inode| {
                    let history = self.files.entry(inode).or_default();
                    let bytes = history.versions.last().map_or(0, Vec::len);
                    Sync {
                        inode,
                        version: history.versions.len().saturating_sub(1),
                        names: self.names.len() - 1,
                        orders: bytes > history.synced_bytes,
                    }
                })
            }
            _ => None,
        };
        self.pending.insert(role, (call.clone(), sync));
    }

    /// A process has answered.
    pub fn said(&mut self, role: Role, line: &str, disk: &Disk) {
        let is_done = line.starts_with("ok ");
        let is_answer = is_done || line.starts_with("errno ");
        if !is_answer {
            return;
        }
        let Some((call, sync)) = self.pending.remove(&role) else {
            return;
        };
        if let CallKind::Open(handle, name) = &call.what
            && let Some(inode) = disk.names().get(name).filter(|_| is_done)
        {
            self.handles
                .insert((role == Role::Other, handle.clone()), *inode);
        }
        if let Some(sync) = sync {
            let history = self.files.entry(sync.inode).or_default();
            history.is_given_up |= !is_done && self.forgives_plain;
            if !is_done || history.is_given_up {
                return;
            }
            self.acknowledged += 1;
            history.floor = history.floor.max(sync.version);
            let bytes = history.versions.get(sync.version).map_or(0, Vec::len);
            history.synced_bytes = bytes;
            if sync.orders {
                self.names_floor = self.names_floor.max(sync.names);
            }
        }
    }

    pub fn changed(&mut self, inode: u64, disk: &Disk) {
        let history = self.files.entry(inode).or_default();
        history.versions.push(disk.cache(inode).to_vec());
    }

    pub fn named(&mut self, disk: &Disk) {
        self.names.push(disk.names().clone());
        for inode in disk.numbers() {
            let history = self.files.entry(inode).or_default();
            if history.versions.is_empty() {
                history.versions.push(disk.cache(inode).to_vec());
            }
        }
    }

    /// What the file would be if a truncation had been done that has not returned: a recovery does
    /// it, once it is logged.
    fn truncated(&self, inode: u64, history: &History) -> Option<Vec<u8>> {
        self.pending.iter().find_map(|(role, (call, _))| {
            let CallKind::Truncate(handle, bytes) = &call.what else {
                return None;
            };
            let its = self.handles.get(&(*role == Role::Other, handle.clone()));
            let mut last = history.versions.last()?.clone();
            last.resize(*bytes, 0);
            (its == Some(&inode)).then_some(last)
        })
    }

    /// Why what is there now must not be; `is_cut`: the page cache was lost.
    pub fn judge(&self, data: &Path, is_cut: bool) -> Result<(), String> {
        let mut found = Names::new();
        let entries = fs::read_dir(data).map_err(|e| e.to_string())?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            found.insert(name, entry.metadata().map_err(|e| e.to_string())?.ino());
        }
        let from = match is_cut {
            true => self.names_floor,
            false => self.names.len() - 1,
        };
        if !self.names[from..].contains(&found) {
            return Err(format!(
                "the names are {found:?}, instead of one of {:?}",
                &self.names[from..]
            ));
        }
        for (name, inode) in &found {
            let bytes = fs::read(data.join(name)).map_err(|e| e.to_string())?;
            let history = self.files.get(inode).ok_or("a file of nobody's")?;
            let from = match is_cut {
                true => history.floor,
                false => history.versions.len() - 1,
            };
            let mut versions = history.versions[from..].to_vec();
            versions.extend(self.truncated(*inode, history));
            if let Some(why) = differs(&bytes, &versions) {
                return Err(format!(
                    "{name} (inode {inode}) {why}; it had {} versions since the one that was synced",
                    history.versions.len() - from
                ));
            }
        }
        Ok(())
    }
}

/// Why a content is none between these versions.
fn differs(found: &[u8], versions: &[Vec<u8>]) -> Option<String> {
    let sizes = versions.iter().map(Vec::len);
    let (least, most) = (sizes.clone().min()?, sizes.max()?);
    if found.len() < least || found.len() > most {
        let bytes = found.len();
        return Some(format!("has {bytes} bytes, instead of {least} to {most}"));
    }
    let is_known = |(at, byte): (usize, &u8)| {
        let mut versions = versions.iter();
        versions.any(|version| version.get(at).copied().unwrap_or(0) == *byte)
    };
    let wrong = found.iter().enumerate().find(|found| !is_known(*found));
    wrong.map(|(at, byte)| format!("has {byte:#x} at {at}, where no version has it"))
}
