//! [`CrashDisk`]: a disk of which only what was synced is sure to be there after a power cut.
//!
//! The files are real, so that whoever goes round the trait reads the truth. Beside that, every operation is remembered,
//! and noted on a clock (a pool's `Sim`), so that the disk's state and the pool's can be taken as of one moment. Faults it
//! produces, all of which the store must survive:
//! * of the writes to a file since its last sync, each page has got any number, in order, on its own;
//! * the length of a file is any that it had since its last sync, but for pages that arrived behind it;
//! * of the names that changed in a directory since its last sync, any first few have changed.
//!
//! Faults it does not produce: synced bytes that are lost, directories that are lost.

use super::Rng;
use forebay_pool::media::Sim;
use forebay_store::disk::{Disk, DiskFile};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

const PAGE: usize = 4096;
/// A note on the clock that a disk operation is done.
pub const DISK_NOTE: u64 = 1 << 63;

/// Something that was done, in order.
enum Event {
    Create(PathBuf),
    Rename(PathBuf, PathBuf),
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

#[derive(Default)]
struct State {
    events: Vec<Event>,
    /// Files by number, by their present path.
    names: BTreeMap<PathBuf, usize>,
    files: usize,
}

struct Inner {
    root: PathBuf,
    clock: Arc<Sim>,
    state: Mutex<State>,
    base: Model,
}

/// See the module.
#[derive(Clone)]
pub struct CrashDisk(Arc<Inner>);

impl Inner {
    /// Does something and remembers it, as one step.
    fn done<T>(
        &self,
        act: impl FnOnce(&mut State) -> io::Result<(T, Option<Event>)>,
    ) -> io::Result<T> {
        let mut state = self.state.lock();
        let (result, event) = act(&mut state)?;
        if let Some(event) = event {
            state.events.push(event);
            self.clock.note(DISK_NOTE);
        }
        Ok(result)
    }

    fn short(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root)
            .unwrap_or_else(|_| panic!("{} is outside the store", path.display()))
            .to_owned()
    }
}

impl CrashDisk {
    /// A disk with what is in `root` now, all of it durable.
    pub fn new(root: &Path, clock: Arc<Sim>) -> Self {
        let base = Model::load(root);
        let state = State {
            names: base.names.clone(),
            files: base.files.len(),
            events: Vec::new(),
        };
        Self(Arc::new(Inner {
            root: root.to_owned(),
            clock,
            state: Mutex::new(state),
            base,
        }))
    }

    /// Writes to `to` what is found on the disk if the power fails after the first `events` operations.
    pub fn image(&self, events: usize, rng: &mut Rng, to: &Path) {
        let state = self.0.state.lock();
        let mut model = self.0.base.clone();
        for event in &state.events[..events] {
            model.apply(event);
        }
        model.crash(rng, to);
    }

    /// Operations so far.
    pub fn events(&self) -> usize {
        self.0.state.lock().events.len()
    }
}

impl Disk for CrashDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.done(|state| {
            let handle = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(path)?;
            let file = state.files;
            state.files += 1;
            let short = self.0.short(path);
            state.names.insert(short.clone(), file);
            let open: Arc<dyn DiskFile> = Arc::new(CrashFile {
                inner: Arc::clone(&self.0),
                file,
                handle,
            });
            Ok((open, Some(Event::Create(short))))
        })
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.0.done(|state| {
            let handle = OpenOptions::new().read(true).write(true).open(path)?;
            let open: Arc<dyn DiskFile> = Arc::new(CrashFile {
                inner: Arc::clone(&self.0),
                file: state.names[&self.0.short(path)],
                handle,
            });
            Ok((open, None))
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names: Vec<_> = fs::read_dir(dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<_>>()?;
        names.sort();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let Ok(short) = dir.strip_prefix(&self.0.root) else {
            return Ok(()); // the directory that the store's own stands in
        };
        let event = Event::SyncDir(short.to_owned());
        self.0.done(|_| Ok(((), Some(event))))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.done(|state| {
            fs::rename(from, to)?;
            let (from, to) = (self.0.short(from), self.0.short(to));
            let file = state.names.remove(&from).unwrap();
            state.names.insert(to.clone(), file);
            Ok(((), Some(Event::Rename(from, to))))
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.done(|state| {
            fs::remove_file(path)?;
            let short = self.0.short(path);
            state.names.remove(&short);
            Ok(((), Some(Event::Remove(short))))
        })
    }
}

struct CrashFile {
    inner: Arc<Inner>,
    file: usize,
    handle: File,
}

impl DiskFile for CrashFile {
    fn read_exact_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        self.handle.read_exact_at(to, offset)
    }

    fn write_all_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        self.inner.done(|_| {
            self.handle.write_all_at(from, offset)?;
            let event = Event::Write {
                file: self.file,
                offset,
                bytes: from.to_vec(),
            };
            Ok(((), Some(event)))
        })
    }

    fn sync(&self) -> io::Result<()> {
        let event = Event::Sync { file: self.file };
        self.inner.done(|_| Ok(((), Some(event))))
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        if self.handle.metadata()?.len() >= bytes {
            return Ok(());
        }
        self.truncate(bytes)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.inner.done(|_| {
            self.handle.set_len(bytes)?;
            let event = Event::Length {
                file: self.file,
                bytes,
            };
            Ok(((), Some(event)))
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.handle.metadata()?.len())
    }
}

/// What is on the medium, and what is only on its way there.
#[derive(Clone, Default)]
struct Model {
    files: Vec<FileModel>,
    /// As a running program sees them.
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    /// By directory, changes since its last sync.
    pending_names: BTreeMap<PathBuf, Vec<(PathBuf, Option<usize>)>>,
}

#[derive(Clone, Default)]
struct FileModel {
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
    fn load(root: &Path) -> Self {
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

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Create(path) => {
                self.files.push(FileModel::default());
                self.rename_entry(path, Some(self.files.len() - 1));
            }
            // One step: whoever finds the new name does not find the old one.
            Event::Rename(from, to) => {
                let file = self.names[from];
                self.names.remove(from);
                self.names.insert(to.clone(), file);
                let dir = to.parent().unwrap_or(Path::new("")).to_owned();
                let pending = self.pending_names.entry(dir).or_default();
                pending.push((to.clone(), Some(file)));
                pending.push((from.clone(), None));
            }
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

    fn crash(mut self, rng: &mut Rng, to: &Path) {
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
