//! Media on files: fsdax files and devdax devices ([`open_dax`]), plain files ([`open_emulated`]).

use super::{
    Media, PoolPersistence,
    locks::LockedFile,
    mapping::{MappingKind, PoolAccess, SharedMapping},
};
use crate::error::{PoolError, PoolErrorKind};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, IoSlice, Write},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// The kind of file at a pool's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// A regular file of so many bytes.
    File(u64),
    /// A devdax character device of so many bytes.
    DevDax(u64),
}

impl MediaKind {
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
    file: LockedFile,
    mapping: SharedMapping,
    survives: PoolPersistence,
    kind: &'static str,
}

fn open(path: &Path) -> Result<File, PoolError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| PoolError::io(path, "opening the pool", e))
}

/// Maps persistent memory at `path`: a file on a DAX file system, or a devdax device.
///
/// # Errors
/// [`PoolErrorKind::NotPersistentMemory`] where `MAP_SYNC` is refused: the error says on which file
/// system the path lies and what to do. I/O errors.
pub fn open_dax(path: &Path) -> Result<FileMedia, PoolError> {
    map_file(path, open(path)?, PoolAccess::ReadWrite, |_| false)
}

/// Maps `file` as [`open_dax`] does, or if it is no persistent memory, and `fallback` says of the
/// error that this will do, as [`open_emulated`] does.
pub(crate) fn map_file(
    path: &Path,
    file: File,
    access: PoolAccess,
    fallback: impl FnOnce(&PoolError) -> bool,
) -> Result<FileMedia, PoolError> {
    let (kind, (mapping, found)) = match map(path, &file, MappingKind::Sync, access) {
        Ok(mapped) => (MappingKind::Sync, mapped),
        Err(refused) if fallback(&refused) => {
            let kind = MappingKind::Shared;
            (kind, map(path, &file, kind, access)?)
        }
        Err(refused) => return Err(refused),
    };
    Ok(FileMedia::new(path, file, mapping, kind, found))
}

/// Maps an ordinary file or tmpfs as an emulated pool.
///
/// # Errors
/// I/O errors.
pub fn open_emulated(path: &Path) -> Result<FileMedia, PoolError> {
    map_emulated(path, open(path)?)
}

/// The same of a file that is open already, for reading and writing, and is called `path`.
///
/// # Errors
/// I/O errors.
pub fn map_emulated(path: &Path, file: File) -> Result<FileMedia, PoolError> {
    let kind = MappingKind::Shared;
    let (mapping, found) = map(path, &file, kind, PoolAccess::ReadWrite)?;
    Ok(FileMedia::new(path, file, mapping, kind, found))
}

/// Makes an empty file so many bytes long, durably: real zeros rather than unwritten extents, so
/// that no later store may need an allocation.
///
/// # Errors
/// What the operating system says.
pub fn write_zeros(mut file: &File, bytes: u64) -> io::Result<()> {
    let chunk = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(chunk.len() as u64);
        file.write_all(&chunk[..usize::try_from(now).unwrap_or(0)])?;
        left -= now;
    }
    file.sync_all()
}

fn map(
    path: &Path,
    file: &File,
    kind: MappingKind,
    access: PoolAccess,
) -> Result<(SharedMapping, MediaKind), PoolError> {
    let found = MediaKind::of(path, file)?;
    let bytes = usize::try_from(found.bytes()).unwrap_or(usize::MAX);
    if bytes == 0 {
        return Err(PoolError::new(path, PoolErrorKind::Empty));
    }
    let mapping = SharedMapping::new(file, bytes, kind, access).map_err(|e| {
        match (kind, e.raw_os_error()) {
            (MappingKind::Shared, _) => PoolError::io(path, "mapping the pool", e),
            // Kernels say EOPNOTSUPP; file systems that predate MAP_SHARED_VALIDATE say EINVAL.
            (MappingKind::Sync, Some(libc::EOPNOTSUPP | libc::EINVAL)) => PoolError::new(
                path,
                PoolErrorKind::NotPersistentMemory {
                    file_system: file_system_of(file),
                },
            ),
            (MappingKind::Sync, _) => PoolError::io(path, "mapping the pool with MAP_SYNC", e),
        }
    })?;
    Ok((mapping, found))
}

impl FileMedia {
    fn new(
        path: &Path,
        file: File,
        mapping: SharedMapping,
        kind: MappingKind,
        found: MediaKind,
    ) -> Self {
        let (survives, kind) = match (kind, found) {
            (MappingKind::Sync, MediaKind::File(_)) => {
                (PoolPersistence::PowerCut, "persistent memory, fsdax file")
            }
            (MappingKind::Sync, MediaKind::DevDax(_)) => (
                PoolPersistence::PowerCut,
                "persistent memory, devdax device",
            ),
            (MappingKind::Shared, _) => (
                PoolPersistence::ProcessCrash,
                "emulated in an ordinary file",
            ),
        };
        Self {
            path: path.to_owned(),
            file: LockedFile::new(file),
            mapping,
            survives,
            kind,
        }
    }
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

#[expect(unsafe_code, reason = "implements the trait's unsafe methods")]
impl Media for FileMedia {
    crate::forward_media!(mapping mapping);
    crate::forward_media!(locks file);

    fn durability(&self) -> PoolPersistence {
        self.survives
    }

    fn describe(&self) -> String {
        format!("{} {}", self.kind, self.path.display())
    }

    unsafe fn stream(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.mapping.stream(offset, parts, skip) };
    }
}
