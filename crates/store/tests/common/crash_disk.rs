//! [`CrashDisk`]: a disk of which only what was synced is sure to be there after a power cut.
//!
//! The files are real, so that code that goes round the trait reads the truth. Beside that, every
//! operation is remembered, and noted on a clock (a pool's `SimMedia`), so that the disk's state
//! and the pool's can be taken as of one moment. Faults it produces, all of which the store must
//! survive:
//! * of the writes to a file since its last sync, each page has got any number, in order, on its
//!   own;
//! * the length of a file is any that it had since its last sync, but for pages that arrived behind
//!   it;
//! * of the names that changed in a directory since its last sync, any first few have changed.
//!
//! Faults it does not produce: synced bytes that are lost, directories that are lost.

mod model;

use super::Rng;
use forebay_pool::media::SimMedia;
use forebay_store::disk::{Disk, DiskFile};
use model::{Event, Model};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A note on the clock that a disk operation is done.
pub const DISK_NOTE: u64 = 1 << 63;

#[derive(Default)]
struct State {
    events: Vec<Event>,
    /// Files by number, by their present path.
    names: BTreeMap<PathBuf, usize>,
    files: usize,
}

struct Inner {
    root: PathBuf,
    clock: Arc<SimMedia>,
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
    pub fn new(root: &Path, clock: Arc<SimMedia>) -> Self {
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

    /// Writes to `to` what is found on the disk if the power fails after the first `events`
    /// operations.
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

    /// Files that went round the disk, as the index's do, it does not link.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.done(|state| {
            let Some(&file) = state.names.get(&self.0.short(from)) else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            fs::hard_link(from, to)?;
            let to = self.0.short(to);
            state.names.insert(to.clone(), file);
            Ok(((), Some(Event::Link(file, to))))
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
