//! A medium's contents after a number of disk operations, and the rest that a power cut leaves of
//! them.

use crate::common::Rng;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

const PAGE: usize = 4096;

/// Something that was done, in order.
pub enum Event {
    Create(PathBuf),
    Rename(PathBuf, PathBuf),
    /// A further name of the file with that number.
    Link(usize, PathBuf),
    Remove(PathBuf),
    SyncDir(PathBuf),
    Write {
        file: usize,
        offset: u64,
        bytes: Vec<u8>,
    },
    Length {
        file: usize,
        bytes: u64,
    },
    Sync {
        file: usize,
    },
}

/// What is on the medium, and what is only on its way there.
#[derive(Clone, Default)]
pub struct Model {
    pub files: Vec<FileModel>,
    /// As a running program sees them.
    pub names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    /// By directory, changes since its last sync.
    pending_names: BTreeMap<PathBuf, Vec<(PathBuf, Option<usize>)>>,
}

#[derive(Clone, Default)]
pub struct FileModel {
    pages: BTreeMap<u64, [u8; PAGE]>,
    length: u64,
    pending: Vec<Pending>,
}

#[derive(Clone)]
enum Pending {
    Write(u64, Vec<u8>),
    Length(u64),
}

impl FileModel {
    fn write(&mut self, offset: u64, bytes: &[u8], arrives: &mut impl FnMut(u64) -> bool) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, within) = (at / PAGE as u64, at as usize % PAGE);
            let now = (PAGE - within).min(bytes.len() - done);
            if arrives(page) {
                let to = self.pages.entry(page).or_insert([0; PAGE]);
                to[within..within + now].copy_from_slice(&bytes[done..done + now]);
                self.length = self.length.max(at + now as u64);
            }
            done += now;
        }
    }

    fn set_length(&mut self, bytes: u64) {
        self.length = bytes;
        self.pages.retain(|page, _| page * (PAGE as u64) < bytes);
        let within = bytes as usize % PAGE;
        if within > 0
            && let Some(page) = self.pages.get_mut(&(bytes / PAGE as u64))
        {
            page[within..].fill(0);
        }
    }

    fn settle(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Write(offset, bytes) => self.write(offset, &bytes, &mut |_| true),
                Pending::Length(bytes) => self.set_length(bytes),
            }
        }
    }

    /// Some of what is pending arrives.
    fn crash(&mut self, rng: &mut Rng) {
        let pending = std::mem::take(&mut self.pending);
        let mode = rng.below(4);
        if mode == 0 {
            return;
        }
        let lengths = pending
            .iter()
            .filter(|p| matches!(p, Pending::Length(_)))
            .count();
        let mut lengths_left = if mode == 1 {
            lengths as u64
        } else {
            rng.below(lengths as u64 + 1)
        };
        // How many writes a page has got: all, none, or any number.
        let mut left: HashMap<u64, u64> = HashMap::new();
        for change in pending {
            match change {
                Pending::Write(offset, bytes) => self.write(offset, &bytes, &mut |page| {
                    let left = left.entry(page).or_insert_with(|| match mode {
                        1 => u64::MAX,
                        _ => [0, u64::MAX, rng.below(5)][rng.below(3) as usize],
                    });
                    *left = left.saturating_sub(1);
                    *left > 0
                }),
                Pending::Length(bytes) if lengths_left > 0 => {
                    lengths_left -= 1;
                    self.set_length(bytes);
                }
                Pending::Length(_) => {}
            }
        }
    }
}

impl Model {
    pub fn load(root: &Path) -> Self {
        let mut model = Self::default();
        let mut dirs = vec![root.to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    if path.file_name().is_some_and(|name| name != "index") {
                        dirs.push(path);
                    }
                    continue;
                }
                let bytes = fs::read(&path).unwrap();
                let mut file = FileModel {
                    length: bytes.len() as u64,
                    ..FileModel::default()
                };
                for (page, chunk) in (0..).zip(bytes.chunks(PAGE)) {
                    if chunk.iter().any(|&b| b != 0) {
                        let to = file.pages.entry(page).or_insert([0; PAGE]);
                        to[..chunk.len()].copy_from_slice(chunk);
                    }
                }
                let short = path.strip_prefix(root).unwrap().to_owned();
                model.names.insert(short, model.files.len());
                model.files.push(file);
            }
        }
        model.durable_names = model.names.clone();
        model
    }

    fn rename_entry(&mut self, path: &Path, file: Option<usize>) {
        match file {
            Some(file) => self.names.insert(path.to_owned(), file),
            None => self.names.remove(path),
        };
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        self.pending_names
            .entry(dir)
            .or_default()
            .push((path.to_owned(), file));
    }

    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Create(path) => {
                self.files.push(FileModel::default());
                self.rename_entry(path, Some(self.files.len() - 1));
            }
            // One step: a reader that finds the new name does not find the old one.
            Event::Rename(from, to) => {
                let file = self.names[from];
                self.names.remove(from);
                self.names.insert(to.clone(), file);
                let dir = to.parent().unwrap_or(Path::new("")).to_owned();
                let pending = self.pending_names.entry(dir).or_default();
                pending.push((to.clone(), Some(file)));
                pending.push((from.clone(), None));
            }
            Event::Link(file, path) => self.rename_entry(path, Some(*file)),
            Event::Remove(path) => self.rename_entry(path, None),
            Event::SyncDir(dir) => {
                for (path, file) in self.pending_names.remove(dir).unwrap_or_default() {
                    match file {
                        Some(file) => self.durable_names.insert(path, file),
                        None => self.durable_names.remove(&path),
                    };
                }
            }
            Event::Write {
                file,
                offset,
                bytes,
            } => self.files[*file]
                .pending
                .push(Pending::Write(*offset, bytes.clone())),
            Event::Length { file, bytes } => {
                self.files[*file].pending.push(Pending::Length(*bytes));
            }
            Event::Sync { file } => self.files[*file].settle(),
        }
    }

    pub fn crash(mut self, rng: &mut Rng, to: &Path) {
        for (_, pending) in std::mem::take(&mut self.pending_names) {
            let arrived = match rng.below(3) {
                0 => 0,
                1 => pending.len(),
                _ => rng.below(pending.len() as u64 + 1) as usize,
            };
            for (path, file) in pending.into_iter().take(arrived) {
                match file {
                    Some(file) => self.durable_names.insert(path, file),
                    None => self.durable_names.remove(&path),
                };
            }
        }
        let mut seen = BTreeSet::new();
        for (path, file) in &self.durable_names {
            let model = &mut self.files[*file];
            if seen.insert(*file) {
                model.crash(rng);
            }
            let path = to.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let image = File::create(&path).unwrap();
            image.set_len(model.length).unwrap();
            for (page, bytes) in &model.pages {
                let at = page * PAGE as u64;
                let now = (model.length.saturating_sub(at) as usize).min(PAGE);
                image.write_all_at(&bytes[..now], at).unwrap();
            }
        }
    }
}
