//! Media on files: fsdax files and devdax devices ([`open_dax`]), plain files ([`open_emulated`]).

use super::{
    Media, Survives,
    held::HeldLocks,
    mapping::{Kind, Lock, Mapping, lock_byte},
};
use crate::error::{PoolError, PoolErrorKind};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, IoSlice},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// What kind of file lies at a pool's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A regular file of so many bytes.
    File(u64),
    /// A devdax character device of so many bytes.
    DevDax(u64),
}

impl Found {
    /// Bytes of the file or device.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::File(bytes) | Self::DevDax(bytes) => bytes,
        }
    }

    /// Looks at `file`.
    fn of(path: &Path, file: &File) -> Result<Self, PoolError> {
        let meta = file
            .metadata()
            .map_err(|e| PoolError::io(path, "looking at the file", e))?;
        if meta.file_type().is_file() {
            return Ok(Self::File(meta.len()));
        }
        if meta.file_type().is_char_device() {
            let rdev = meta.rdev();
            let (major, minor) = (libc::major(rdev), libc::minor(rdev));
            let sys = format!("/sys/dev/char/{major}:{minor}/size");
            let size = fs::read_to_string(&sys)
                .ok()
                .and_then(|text| text.trim().parse().ok());
            if let Some(bytes) = size {
                return Ok(Self::DevDax(bytes));
            }
        }
        Err(PoolError::new(path, PoolErrorKind::NotAFile))
    }
}

/// A file or device mapped into memory.
pub struct FileMedia {
    path: PathBuf,
    file: File,
    mapping: Mapping,
    survives: Survives,
    kind: &'static str,
    held: HeldLocks,
}

fn open(path: &Path) -> Result<(File, Found), PoolError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| PoolError::io(path, "opening the pool", e))?;
    let found = Found::of(path, &file)?;
    if found.bytes() == 0 {
        return Err(PoolError::new(path, PoolErrorKind::Empty));
    }
    Ok((file, found))
}

/// Maps persistent memory at `path`: a file on a DAX file system, or a devdax device.
///
/// # Errors
/// [`PoolErrorKind::NotPersistentMemory`] where `MAP_SYNC` is refused: the error says on which file system
/// the path lies and what to do. I/O errors.
pub fn open_dax(path: &Path) -> Result<FileMedia, PoolError> {
    let (file, found) = open(path)?;
    let bytes = usize::try_from(found.bytes()).unwrap_or(usize::MAX);
    let mapping = Mapping::new(&file, bytes, Kind::Sync).map_err(|e| {
        match e.raw_os_error() {
            // Kernels say EOPNOTSUPP; file systems that predate MAP_SHARED_VALIDATE say EINVAL.
            Some(libc::EOPNOTSUPP | libc::EINVAL) => PoolError::new(
                path,
                PoolErrorKind::NotPersistentMemory {
                    file_system: file_system_of(&file),
                },
            ),
            _ => PoolError::io(path, "mapping the pool with MAP_SYNC", e),
        }
    })?;
    Ok(FileMedia {
        path: path.to_owned(),
        file,
        mapping,
        survives: Survives::PowerCut,
        held: HeldLocks::default(),
        kind: match found {
            Found::File(_) => "persistent memory, fsdax file",
            Found::DevDax(_) => "persistent memory, devdax device",
        },
    })
}

/// Maps an ordinary file or tmpfs as an emulated pool.
///
/// # Errors
/// I/O errors.
pub fn open_emulated(path: &Path) -> Result<FileMedia, PoolError> {
    let (file, found) = open(path)?;
    let bytes = usize::try_from(found.bytes()).unwrap_or(usize::MAX);
    let mapping = Mapping::new(&file, bytes, Kind::Shared)
        .map_err(|e| PoolError::io(path, "mapping the pool", e))?;
    Ok(FileMedia {
        path: path.to_owned(),
        file,
        mapping,
        survives: Survives::ProcessCrash,
        held: HeldLocks::default(),
        kind: "emulated in an ordinary file",
    })
}

/// The name of the file system that holds `file`, as `/proc/self/mountinfo` has it.
fn file_system_of(file: &File) -> String {
    let Ok(meta) = file.metadata() else {
        return "an unknown file system".to_owned();
    };
    let device = format!("{}:{}", libc::major(meta.dev()), libc::minor(meta.dev()));
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else {
        return "an unknown file system".to_owned();
    };
    // mountinfo: id parent MAJ:MIN root mount-point options … - type source super-options
    mounts
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let fields: Vec<&str> = left.split(' ').collect();
            let kind = right.split(' ').next()?;
            (*fields.get(2)? == device).then(|| format!("{kind} mounted at {}", fields[4]))
        })
        .next()
        .unwrap_or_else(|| format!("device {device}"))
}

#[expect(unsafe_code, reason = "implements the trait's unsafe slice")]
impl Media for FileMedia {
    fn bytes(&self) -> u64 {
        self.mapping.bytes() as u64
    }

    fn survives(&self) -> Survives {
        self.survives
    }

    fn describe(&self) -> String {
        format!("{} {}", self.kind, self.path.display())
    }

    fn stream(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize) {
        self.mapping.stream(offset, parts, skip);
    }

    fn fence(&self) {
        self.mapping.fence();
    }

    fn load(&self, offset: u64, to: &mut [u8]) {
        self.mapping.load(offset, to);
    }

    unsafe fn slice(&self, offset: u64, bytes: usize) -> &[u8] {
        // SAFETY: the caller's promise is the same.
        unsafe { self.mapping.slice(offset, bytes) }
    }

    fn lock(&self, lock: u32, wait: bool) -> io::Result<()> {
        self.held.take(lock, wait)?;
        let command = if wait { Lock::Wait } else { Lock::Try };
        lock_byte(&self.file, lock, command).inspect_err(|_| self.held.give(lock))
    }

    fn unlock(&self, lock: u32) {
        // Releasing a lock we hold cannot fail; if it did, closing the file drops it anyway.
        let _ = lock_byte(&self.file, lock, Lock::Release);
        self.held.give(lock);
    }
}
