//! The model of a disk under the kernel's page cache, and of the journal of an ext4 whose metadata
//! is ordered (`data=ordered`, blocks allocated late).
//!
//! The page cache is real: files of a tmpfs, each with a second name elsewhere (its *keeper*), so
//! that one whose last name is lost can be brought back as the same file. What the model has of a
//! file are the blocks of its disk, which get a page when the kernel writes it back, and what the
//! journal has committed: names, sizes and times, always those of one moment.
//!
//! * A sync of a file writes its pages and commits, `fdatasync` only if the size differs.
//! * At any moment some pages of a file are written back, which gives it their size in the next
//!   commit; and now and then the journal is committed.
//! * After a cut the files are as the last commit says. A page that was overwritten in place is
//!   old or new, or one of those that were written back.
//! * What was cut off, and is written again, has other blocks until that is committed.

use forebay_random::Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

const PAGE: usize = 4096;

pub type Names = BTreeMap<String, u64>;

/// What the journal has of a file.
#[derive(Clone)]
struct Committed {
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: u64,
    attributes: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone)]
struct DiskFile {
    keeper: PathBuf,
    /// What every reader finds.
    cache: Vec<u8>,
    modified: u64,
    attributes: BTreeMap<String, Vec<u8>>,
    /// The blocks that it has by the last commit.
    blocks: Vec<u8>,
    /// Those that it will have by the next one, if it was cut off meanwhile, and from where on they
    /// are others.
    next_blocks: Option<(Vec<u8>, usize)>,
    /// The size that the next commit gives it.
    next_bytes: u64,
    committed: Option<Committed>,
    /// Pages that a failed sync has left clean, though no disk has them.
    lost: BTreeSet<usize>,
}

/// A disk with files, in one directory.
#[derive(Clone)]
pub struct Disk {
    data: PathBuf,
    keepers: PathBuf,
    files: BTreeMap<u64, DiskFile>,
    names: Names,
    committed_names: Names,
    directory: BTreeMap<String, Vec<u8>>,
    committed_directory: BTreeMap<String, Vec<u8>>,
}

/// What a power cut leaves of pages that no sync has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    None,
    Few,
    Half,
    All,
}

impl Survival {
    pub fn any(rng: &mut Rng) -> Self {
        [Self::None, Self::Few, Self::Half, Self::All][rng.below(4) as usize]
    }

    fn survives(self, rng: &mut Rng) -> bool {
        match self {
            Self::None => false,
            Self::Few => rng.below(8) == 0,
            Self::Half => rng.below(2) == 0,
            Self::All => true,
        }
    }
}

impl DiskFile {
    fn pages(&self) -> usize {
        self.cache.len().div_ceil(PAGE)
    }

    fn page(&self, page: usize) -> &[u8] {
        let from = page * PAGE;
        &self.cache[from.min(self.cache.len())..(from + PAGE).min(self.cache.len())]
    }

    /// The kernel writes a page back.
    fn write_back(&mut self, page: usize) {
        if self.lost.contains(&page) {
            return;
        }
        let (from, bytes) = (page * PAGE, self.page(page).to_vec());
        let to = from + bytes.len();
        if let Some((next, cut)) = &mut self.next_blocks {
            next.resize(next.len().max(to), 0);
            next[from..to].copy_from_slice(&bytes);
            if to > *cut {
                self.next_bytes = self.next_bytes.max(to as u64);
                return;
            }
        }
        self.blocks.resize(self.blocks.len().max(to), 0);
        self.blocks[from..to].copy_from_slice(&bytes);
        self.next_bytes = self.next_bytes.max(to as u64);
    }

    fn commit(&mut self) {
        if let Some((next, _)) = self.next_blocks.take() {
            self.blocks = next;
        }
        self.blocks.truncate(self.next_bytes as usize);
        self.committed = Some(Committed {
            bytes: self.next_bytes,
            modified: self.modified,
            attributes: self.attributes.clone(),
        });
    }

    /// What the disk has of it after a cut.
    fn image(&self, survival: Survival, rng: &mut Rng) -> Vec<u8> {
        let bytes = self.committed.as_ref().map_or(0, |it| it.bytes) as usize;
        let mut image = self.blocks.clone();
        image.resize(bytes, 0);
        let in_place = (self.next_blocks.as_ref()).map_or(bytes, |(_, cut)| bytes.min(*cut));
        for page in 0..self.pages() {
            let (from, new) = (page * PAGE, self.page(page));
            let to = (from + new.len()).min(in_place);
            // One that reaches beyond has blocks that no commit knows of yet, or only a part of it.
            if from < to && !self.lost.contains(&page) && survival.survives(rng) {
                image[from..to].copy_from_slice(&new[..to - from]);
            }
        }
        image
    }
}

impl Disk {
    pub fn new(data: &Path, keepers: &Path) -> Self {
        Self {
            data: data.to_owned(),
            keepers: keepers.to_owned(),
            files: BTreeMap::new(),
            names: Names::new(),
            committed_names: Names::new(),
            directory: BTreeMap::new(),
            committed_directory: BTreeMap::new(),
        }
    }

    pub fn knows(&self, inode: u64) -> bool {
        self.files.contains_key(&inode)
    }

    pub fn has(&self, path: &Path) -> bool {
        path.parent() == Some(&self.data)
    }

    pub fn names(&self) -> &Names {
        &self.names
    }

    pub fn cache(&self, inode: u64) -> &[u8] {
        self.files.get(&inode).map_or(&[], |file| &file.cache)
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.files.keys().copied().collect()
    }

    /// A file is there that was not.
    pub fn add(&mut self, path: &Path, inode: u64, now: u64) -> io::Result<()> {
        let keeper = self.keepers.join(inode.to_string());
        fs::hard_link(path, &keeper)?;
        set_modified(&keeper, now)?;
        let file = DiskFile {
            keeper,
            cache: Vec::new(),
            modified: now,
            attributes: BTreeMap::new(),
            blocks: Vec::new(),
            next_blocks: None,
            next_bytes: 0,
            committed: None,
            lost: BTreeSet::new(),
        };
        self.files.insert(inode, file);
        self.look_at_names()
    }

    /// Names were changed.
    pub fn look_at_names(&mut self) -> io::Result<()> {
        self.names.clear();
        for entry in fs::read_dir(&self.data)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            self.names.insert(name, entry.metadata()?.ino());
        }
        Ok(())
    }

    /// The file has `bytes` at `at`, and the size that it has: when `now` is.
    pub fn written(&mut self, inode: u64, at: u64, bytes: &[u8], now: u64) -> io::Result<()> {
        let Some(file) = self.files.get_mut(&inode) else {
            return Ok(());
        };
        let size = fs::metadata(&file.keeper)?.len() as usize;
        if size < file.cache.len() {
            let cut = size.min(file.next_blocks.as_ref().map_or(size, |(_, cut)| *cut));
            let mut next = match file.next_blocks.take() {
                Some((next, _)) => next,
                None => file.blocks.clone(),
            };
            next.truncate(size);
            file.next_blocks = Some((next, cut));
            file.next_bytes = file.next_bytes.min(size as u64);
        }
        let is_truncation = bytes.is_empty();
        file.cache.resize(size, 0);
        if is_truncation {
            file.next_bytes = size as u64;
        }
        let from = at as usize;
        file.cache[from..from + bytes.len()].copy_from_slice(bytes);
        let pages = from / PAGE..(from + bytes.len()).div_ceil(PAGE);
        file.lost.retain(|page| !pages.contains(page));
        file.modified = now;
        set_modified(&file.keeper, now)
    }

    /// A program set the file's times.
    pub fn touched(&mut self, inode: u64, now: Option<u64>) -> io::Result<()> {
        let Some(file) = self.files.get_mut(&inode) else {
            return Ok(());
        };
        if let Some(now) = now {
            set_modified(&file.keeper, now)?;
        }
        let found = fs::metadata(&file.keeper)?;
        file.modified = (found.mtime() * 1_000_000_000 + found.mtime_nsec()).cast_unsigned();
        Ok(())
    }

    /// Attributes were changed, of a file or of the directory.
    pub fn look_at_attributes(&mut self) -> io::Result<()> {
        self.directory = attributes(&self.data)?;
        for file in self.files.values_mut() {
            file.attributes = attributes(&file.keeper)?;
        }
        Ok(())
    }

    /// A sync of a file ends that began when it had `before`: all of that is on the disk.
    pub fn synced(&mut self, inode: u64, before: &[u8], data_only: bool, rng: &mut Rng) {
        let Some(file) = self.files.get_mut(&inode) else {
            return;
        };
        for page in 0..file.pages() {
            let then = before.get(page * PAGE..).unwrap_or_default();
            let same = file.page(page) == &then[..then.len().min(PAGE)];
            let was_there = page * PAGE < before.len();
            // What was written meanwhile it may have taken along. A page is as it is now, or later
            // than it was.
            if was_there || same || rng.below(2) == 0 {
                file.write_back(page);
            }
        }
        file.next_bytes = (file.next_bytes).max(before.len().min(file.cache.len()) as u64);
        let is_known = (file.committed.as_ref()).is_some_and(|it| it.bytes == file.next_bytes);
        if !data_only || !is_known || file.next_blocks.is_some() {
            self.commit();
        }
    }

    /// A sync fails: the kernel takes the file's pages for clean from now on.
    pub fn lose_unsynced(&mut self, inode: u64) {
        let Some(file) = self.files.get_mut(&inode) else {
            return;
        };
        for page in 0..file.pages() {
            let blocks = file
                .next_blocks
                .as_ref()
                .map_or(&file.blocks, |(next, _)| next);
            let on_disk = blocks.get(page * PAGE..).unwrap_or_default();
            if !on_disk.starts_with(file.page(page)) {
                file.lost.insert(page);
            }
        }
    }

    /// The size that the kernel says.
    pub fn size(&self, inode: u64) -> io::Result<u64> {
        let file = self.files.get(&inode).ok_or(io::ErrorKind::NotFound)?;
        Ok(fs::metadata(&file.keeper)?.len())
    }

    /// All pages of a file are written back, and no one waits for the disk.
    pub fn write_back(&mut self, inode: u64) {
        let Some(file) = self.files.get_mut(&inode) else {
            return;
        };
        (0..file.pages()).for_each(|page| file.write_back(page));
    }

    /// Some pages of some file are written back.
    pub fn write_some_back(&mut self, rng: &mut Rng) {
        let which = rng.below(self.files.len() as u64) as usize;
        let Some(file) = self.files.values_mut().nth(which) else {
            return;
        };
        for page in 0..file.pages() {
            if rng.below(2) == 0 {
                file.write_back(page);
            }
        }
    }

    /// Everything is synced.
    pub fn sync_all(&mut self) {
        for file in self.files.values_mut() {
            (0..file.pages()).for_each(|page| file.write_back(page));
        }
        self.commit();
    }

    /// The journal is committed.
    pub fn commit(&mut self) {
        self.files.values_mut().for_each(DiskFile::commit);
        self.committed_names.clone_from(&self.names);
        self.committed_directory.clone_from(&self.directory);
    }

    /// True if the model's files are what the kernel has.
    pub fn differs(&self) -> Option<String> {
        let differs = |file: &&DiskFile| fs::read(&file.keeper).is_ok_and(|it| it != file.cache);
        let file = self.files.values().find(differs)?;
        Some(format!("the model's {} is another", file.keeper.display()))
    }

    /// The power fails: the files are as they are on the disk.
    pub fn cut(&mut self, survival: Survival, rng: &mut Rng) -> io::Result<()> {
        for entry in fs::read_dir(&self.data)? {
            fs::remove_file(entry?.path())?;
        }
        let linked: BTreeSet<u64> = self.committed_names.values().copied().collect();
        for inode in &linked {
            let Some(file) = self.files.get_mut(inode) else {
                continue;
            };
            let image = file.image(survival, rng);
            let known = file.committed.clone();
            let known = known.ok_or_else(|| io::Error::other("a name of no file"))?;
            let open = fs::File::options().write(true).open(&file.keeper)?;
            open.set_len(0)?;
            open.write_all_at(&image, 0)?;
            drop(open);
            set_modified(&file.keeper, known.modified)?;
            put_attributes(&file.keeper, &known.attributes)?;
            file.blocks.clone_from(&image);
            file.cache = image;
            (file.modified, file.next_bytes) = (known.modified, known.bytes);
            file.attributes = known.attributes;
            file.next_blocks = None;
            file.lost.clear();
        }
        for (name, inode) in &self.committed_names {
            if let Some(file) = self.files.get(inode) {
                fs::hard_link(&file.keeper, self.data.join(name))?;
            }
        }
        put_attributes(&self.data, &self.committed_directory)?;
        self.directory.clone_from(&self.committed_directory);
        self.names.clone_from(&self.committed_names);
        Ok(())
    }
}

fn set_modified(path: &Path, time: u64) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: (time / 1_000_000_000).cast_signed(),
            tv_nsec: (time % 1_000_000_000).cast_signed(),
        },
    };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}

fn attributes(path: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut names = vec![0; 4096];
    let got = match rustix::fs::listxattr(&path, &mut names[..]) {
        // A tmpfs has none before Linux 6.6.
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        found => found?,
    };
    let names = names[..got].split(|byte| *byte == 0);
    let mut found = BTreeMap::new();
    for name in names.filter(|name| name.starts_with(b"user.")) {
        let name = String::from_utf8_lossy(name).into_owned();
        let mut value = vec![0; 4096];
        let got = rustix::fs::getxattr(&path, name.as_str(), &mut value[..])?;
        value.truncate(got);
        found.insert(name, value);
    }
    Ok(found)
}

fn put_attributes(path: &Path, then: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    let now = attributes(path)?;
    for name in now.keys().filter(|name| !then.contains_key(*name)) {
        rustix::fs::removexattr(path, name.as_str())?;
    }
    for (name, value) in then {
        rustix::fs::setxattr(path, name.as_str(), value, rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}
