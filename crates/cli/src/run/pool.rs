//! The pool of a run: the user's, or one emulated in memory that is made at first use and kept.

use crate::{
    disk_mounts::{self, DiskMount},
    failure::Failure,
    size,
};
use forebay_pool::{Pool, PoolErrorKind, PoolOptions};
use forebay_probe::disk::memory_dir;
use rustix::fs::OFlags;
use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The source of the pool.
pub enum RunPool {
    /// The user made it.
    At(PathBuf),
    /// The one of this user in memory, of this size.
    Emulated(u64),
}

impl RunPool {
    /// The pool by the options; none if there is to be no pool. If they say nothing, it is a pool
    /// on persistent memory, if there is one for `command`.
    pub fn of(
        pool: Option<&Path>,
        emulated: Option<u64>,
        without: bool,
        command: &[OsString],
    ) -> Result<Option<Self>, Failure> {
        match (pool, emulated) {
            (Some(path), _) => Ok(Some(Self::At(path.to_owned()))),
            (None, Some(bytes)) => Ok(Some(Self::Emulated(bytes))),
            (None, None) if without => Ok(None),
            (None, None) => match on_persistent_memory() {
                Some(path) => Ok(Some(Self::At(path))),
                None => Err(Failure::Usage(format!(
                    "which pool? {}. Make one there (forebay pool create PATH --disk --size 128MiB, as the user who runs this), and give it with --pool PATH; \
                     or try things out with --emulated 64MiB, which survives a process crash, not a power cut; --no-pool runs the program without any",
                    what_a_disk_would_bring(&data_of(command))
                ))),
            },
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

/// Mounted file systems that are named at most.
const PLACES_NAMED: usize = 4;
/// The name of a pool that is looked for where none is named.
const USUAL: &str = "forebay.pool";

/// The first pool of the usual name on persistent memory.
fn on_persistent_memory() -> Option<PathBuf> {
    let mounts = disk_mounts::mounts()
        .into_iter()
        .filter(|mount| mount.is_dax);
    let mut pools = mounts.map(|mount| mount.point.join(USUAL));
    pools.find(|pool| pool.is_file())
}

/// The directory of a command's data: one that it names, or the current one.
fn data_of(command: &[OsString]) -> PathBuf {
    let words = command.iter().skip(1).map(|word| word.to_string_lossy());
    let named = words
        .map(|word| PathBuf::from(word.rsplit('=').next().unwrap_or_default()))
        .find(|path| path.is_dir());
    named.unwrap_or_else(|| PathBuf::from("."))
}

/// In a sentence, how to find out what a pool on a disk of this machine would bring. Nothing is
/// measured: that is written to.
fn what_a_disk_would_bring(data: &Path) -> String {
    let none = "There is no pool on persistent memory here";
    let ask = format!("forebay doctor --dir {}", data.display());
    let own = disk_mounts::mount_of(data).map(|mount| mount.device);
    let is_other = |mount: &DiskMount| !mount.is_dax && Some(mount.device) != own;
    let others = disk_mounts::mounts().into_iter().filter(is_other);
    let others: Vec<String> = others
        .map(|mount| mount.point.display().to_string())
        .take(PLACES_NAMED)
        .collect();
    match others.is_empty() {
        true => format!("{none}; {ask} says whether one on this disk would pay"),
        false => format!(
            "{none}; {ask} --beside DIR says whether one on another disk would pay, DIR being a directory on it (mounted here: {})",
            others.join(", ")
        ),
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
    PoolOptions::new()
        .open(path)
        .map_err(|error| match &error.kind {
            PoolErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Failure::Failed(format!(
                    "there is no pool {}. {}",
                    path.display(),
                    how_to_make(path)
                ))
            }
            _ => error.into(),
        })
}

/// The command that makes a pool there, by what the place is; in sentences.
fn how_to_make(path: &Path) -> String {
    let shown = path.display();
    let place = path.parent().filter(|it| !it.as_os_str().is_empty());
    let place = place.unwrap_or(Path::new("."));
    let to_try = "To try things out, use --emulated 64MiB instead of --pool: that survives a process crash, not a power cut";
    if !place.is_dir() {
        return format!(
            "The directory {} is not there either: name a pool on a file system that is mounted; forebay doctor says where one can lie. {to_try}",
            place.display()
        );
    }
    match disk_mounts::mount_of(place) {
        Some(mount) if mount.is_dax => {
            format!("Make it on this persistent memory: forebay pool create {shown} --size 64MiB")
        }
        Some(_) => format!(
            "Make it on this disk: forebay pool create {shown} --disk --size 128MiB. {to_try}"
        ),
        None => format!(
            "A pool that survives a power cut lies on persistent memory, or on a disk: forebay pool create PATH --disk --size 128MiB, with a PATH on one. {to_try}"
        ),
    }
}

/// Segments of an emulated pool: enough for several processes with two each.
const SEGMENTS: u64 = 16;
const SEGMENT_MIN: u64 = 64 << 10;
const SEGMENT_MAX: u64 = 4 << 20;

/// The pool that `--emulated` means, as it is.
pub fn open_default() -> Result<Pool, Failure> {
    let path = emulated_path();
    match open_own(&path)? {
        Some((pool, _)) => Ok(pool),
        None => Err(Failure::Failed(format!(
            "there is no pool {}, which forebay run --emulated would have made; name another with --pool",
            path.display()
        ))),
    }
}

fn open_emulated(path: &Path, bytes: u64) -> Result<Pool, Failure> {
    if fs::symlink_metadata(path).is_err() {
        make_emulated(path, bytes)?;
    }
    let (pool, found) = open_own(path)?.ok_or_else(|| {
        Failure::Failed(format!("{} is gone again; try once more", path.display()))
    })?;
    if found != bytes {
        return Err(Failure::Failed(format!(
            "the emulated pool {0} is there already and has {1}, not {2}. Use it with --pool {0}; or give it up: \
             forebay recover --pool {0} && rm {0}",
            path.display(),
            size::show(found),
            size::show(bytes)
        )));
    }
    Ok(pool)
}

/// Opens a pool in a directory that every user may write to, with its bytes: a file of this user's,
/// which no other may write to. What is looked at is what is used. None if there is none.
fn open_own(path: &Path) -> Result<Option<(Pool, u64)>, Failure> {
    let open = fs::File::options()
        .read(true)
        .write(true)
        // A link may be another user's, and opening a FIFO waits.
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path);
    let file = match open {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied) => {
            return Err(not_own(path));
        }
        Err(_) if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) => {
            return Err(not_own(path));
        }
        Err(error) => return Err(Failure::io("opening", path.display())(error)),
    };
    let found = file
        .metadata()
        .map_err(Failure::io("looking at", path.display()))?;
    // Memory that other users may write to may hold anything.
    if !found.is_file()
        || found.uid() != rustix::process::geteuid().as_raw()
        || found.mode() & 0o022 != 0
    {
        return Err(not_own(path));
    }
    Ok(Some((
        PoolOptions::new().open_file(path, file)?,
        found.len(),
    )))
}

fn not_own(path: &Path) -> Failure {
    Failure::Failed(format!(
        "{} is not a file of this user, or others may write to it, so it is not used: another user could have forebay write anything. Remove it \
         if it is yours; or make a pool elsewhere: forebay pool create PATH --emulated, and give it with --pool",
        path.display()
    ))
}

/// Makes it aside and links it into place, so that no process sees half of it, and of several that
/// make it at once one wins. What one leaves that is killed is in no other's way.
fn make_emulated(path: &Path, bytes: u64) -> Result<(), Failure> {
    let segment_bytes = (bytes / SEGMENTS)
        .next_power_of_two()
        .clamp(SEGMENT_MIN, SEGMENT_MAX);
    let failed = || Failure::io("making", path.display());
    let aside = tempfile::Builder::new()
        .prefix("forebay-new-")
        .tempdir_in(path.parent().unwrap_or(Path::new("/")))
        .map_err(failed())?;
    let made = aside.path().join("pool");
    PoolOptions::new()
        .size(bytes)
        .segment_size(segment_bytes)
        .emulated(true)
        .create(&made)?;
    match fs::hard_link(&made, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed()(error)),
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
        let uuid = first.uuid();
        assert!(first.geometry().segments >= 8);
        drop(first);
        assert_eq!(open_emulated(&path, 2 << 20).unwrap().uuid(), uuid);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let Err(Failure::Failed(message)) = open_emulated(&path, 4 << 20).map(drop) else {
            panic!("a pool of another size was taken");
        };
        assert!(message.contains("2 MiB, not 4 MiB"), "{message}");
    }

    #[test]
    fn half_a_pool_of_a_killed_process_with_this_pid_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("emulated.pool");
        let left = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(left, "half a pool").unwrap();
        open_emulated(&path, 2 << 20).unwrap();
    }

    /// Promise (rights): A run uses a default pool in `/dev/shm` only if the open file is this
    /// user's regular file, no link, and closed to others.
    #[test]
    fn what_another_user_may_have_planted_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("emulated.pool"), dir.path().join("other"));
        drop(open_emulated(&elsewhere, 2 << 20).unwrap());
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let refused = |path: &Path| match open_own(path).map(drop) {
            Err(Failure::Failed(message)) => assert!(message.contains("not used"), "{message}"),
            _ => panic!("{} was used", path.display()),
        };
        refused(&path);
        assert!(open_emulated(&path, 2 << 20).is_err());
        let fifo = dir.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        refused(&fifo);
        refused(dir.path());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&elsewhere, Some(65_534), None).unwrap();
            refused(&elsewhere);
        }
        assert!(open_own(&dir.path().join("nothing")).unwrap().is_none());
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
