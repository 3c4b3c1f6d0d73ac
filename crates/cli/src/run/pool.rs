//! The pool of a run: the user's, or one emulated in memory that is made at first use and kept.

use crate::{failure::Failure, size};
use forebay_bench::scratch::memory_dir;
use forebay_pool::{CreateOptions, Pool, PoolErrorKind};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Where the pool comes from.
pub enum Source {
    /// The user made it.
    At(PathBuf),
    /// The one of this user in memory, of this size.
    Emulated(u64),
}

impl Source {
    /// What the options say; none if there is to be no pool.
    pub fn of(
        pool: Option<&Path>,
        emulated: Option<u64>,
        without: bool,
    ) -> Result<Option<Self>, Failure> {
        match (pool, emulated) {
            (Some(path), _) => Ok(Some(Self::At(path.to_owned()))),
            (None, Some(bytes)) => Ok(Some(Self::Emulated(bytes))),
            (None, None) if without => Ok(None),
            (None, None) => Err(Failure::Usage(
                "which pool? Give one on persistent memory with --pool PATH (forebay pool create makes it, forebay doctor says where), \
                 or try things out with --emulated 64MiB, which survives a process crash, not a power cut; --no-pool runs the program without any"
                    .to_owned(),
            )),
        }
    }

    /// Opens it, making it if it is emulated and not there.
    pub fn open(&self) -> Result<Pool, Failure> {
        match self {
            Self::At(path) => open(path),
            Self::Emulated(bytes) => open_emulated(&emulated_path(), *bytes),
        }
    }
}

/// The pool that `--emulated` means.
pub fn emulated_path() -> PathBuf {
    memory_dir().join(format!(
        "forebay-{}.pool",
        rustix::process::getuid().as_raw()
    ))
}

fn open(path: &Path) -> Result<Pool, Failure> {
    Pool::open(path, false).map_err(|error| match &error.kind {
        PoolErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Failure::Failed(format!(
                "there is no pool {0}. Make it on persistent memory: forebay pool create {0} --size 64MiB; or use --emulated 64MiB \
                 instead of --pool",
                path.display()
            ))
        }
        _ => error.into(),
    })
}

/// Segments of an emulated pool: enough for several processes with two each.
const SEGMENTS: u64 = 16;
const SEGMENT_MIN: u64 = 64 << 10;
const SEGMENT_MAX: u64 = 4 << 20;

fn open_emulated(path: &Path, bytes: u64) -> Result<Pool, Failure> {
    if !path.exists() {
        make_emulated(path, bytes)?;
    }
    let found = fs::metadata(path).map_err(Failure::io("looking at", path.display()))?;
    // Memory that everybody may write to is anybody's.
    if found.uid() != rustix::process::getuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(Failure::Failed(format!(
            "{} belongs to somebody else, or others may write to it, so it is not used; make a pool elsewhere: \
             forebay pool create PATH --emulated, and give it with --pool",
            path.display()
        )));
    }
    if found.len() != bytes {
        return Err(Failure::Failed(format!(
            "the emulated pool {0} is there already and has {1}, not {2}. Use it with --pool {0}; or give it up: \
             forebay recover --pool {0} && rm {0}",
            path.display(),
            size::show(found.len()),
            size::show(bytes)
        )));
    }
    open(path)
}

/// Makes it aside and links it into place, so that nobody sees half of it, and of several who do so at once one wins.
fn make_emulated(path: &Path, bytes: u64) -> Result<(), Failure> {
    let segment_bytes = (bytes / SEGMENTS)
        .next_power_of_two()
        .clamp(SEGMENT_MIN, SEGMENT_MAX);
    let aside = path.with_extension(format!("{}.new", std::process::id()));
    Pool::create(
        &aside,
        CreateOptions {
            bytes,
            segment_bytes,
            emulated: true,
            ..CreateOptions::default()
        },
    )?;
    let linked = fs::hard_link(&aside, path);
    fs::remove_file(&aside).map_err(Failure::io("removing", aside.display()))?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Failure::io("making", path.display())(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_pool_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("emulated.pool");
        let first = open_emulated(&path, 2 << 20).unwrap();
        let uuid = first.superblock().uuid;
        assert!(first.superblock().geometry.segments >= 8);
        drop(first);
        assert_eq!(
            open_emulated(&path, 2 << 20).unwrap().superblock().uuid,
            uuid
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let Err(Failure::Failed(message)) = open_emulated(&path, 4 << 20).map(drop) else {
            panic!("a pool of another size was taken");
        };
        assert!(message.contains("2 MiB, not 4 MiB"), "{message}");
    }

    #[test]
    fn a_file_that_others_may_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("emulated.pool");
        drop(open_emulated(&path, 2 << 20).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(open_emulated(&path, 2 << 20).is_err());
    }
}
