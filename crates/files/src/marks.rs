//! Marks of directories: the extended attribute `user.forebay.pools` names the pools that may hold
//! records of the directory's files, one path a line.
//!
//! A supervisor adds its pool's path before it absorbs the first file of a directory, and the
//! directory's sync makes that durable. It is taken away at the end of a run that left nothing in
//! the pool. So it outlives a crash, and the user who is about to start a database without Forebay
//! can be told ([`standing`]). A run with another pool leaves a file plain of which records may
//! wait in this one. It is a hint: a file system without extended attributes has none, and what a
//! mark says is looked for in the pool itself.

mod users;
mod write_count;

pub use crate::pending_records::{UnopenedPool, directories, open_with};
pub use users::may_absorb;

use crate::{
    absorbed, directories::each_directory, lane_label::is_files, pending_records, sys, void_marks,
};
use forebay_pool::{LaneCheck, Pool};
use parking_lot::Mutex;
use rustix::{
    fs::{FlockOperation, Mode, OFlags, XattrFlags},
    io::Errno,
};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::File,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use uuid::Uuid;
use write_count::WriteCount;

const NAME: &str = "user.forebay.pools";
/// Longer lists are not read.
const BYTES_MAX: usize = 1 << 14;

/// The directories that a run has marked, by the paths at which they were.
#[derive(Default)]
pub(crate) struct Marks(Mutex<BTreeSet<PathBuf>>);

impl Marks {
    /// Marks a directory, unless it is marked: whenever a file of it is registered, since another
    /// directory may be at its path by now. Its sync makes that durable. Says so once if it cannot
    /// be marked, though its file system has extended attributes.
    pub(crate) fn note(&self, path: &Path, directory: &File, pool: &Path) {
        let is_first = self.0.lock().insert(path.to_owned());
        match change(directory, pool, true) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) if is_first => tell(path, pool, errno),
            Err(_) => {}
        }
    }

    /// Takes the marks away of those of whose files nothing is left in the pool.
    pub(crate) fn take_back(&self, pool: &Pool) {
        for path in std::mem::take(&mut *self.0.lock()) {
            // One that is gone needs none.
            let Ok(directory) = File::open(&path) else {
                continue;
            };
            let is_empty = || state_in(pool, &path) == MarkState::Empty;
            if let Err(errno) = take_out(&directory, pool.path(), is_empty) {
                tell(&path, pool.path(), errno);
            }
        }
    }
}

fn tell(directory: &Path, pool: &Path, errno: Errno) {
    let what = format!(
        "{0} cannot be marked with the pool {1} (the extended attribute {NAME}: {errno}): after a crash, forebay doctor and forebay recover --for will not find the pool by \
         it, but forebay recover --pool {1} will bring its records to the files. If marks of pools that are gone leave no room: forebay recover --for {0} --lift",
        directory.display(),
        pool.display()
    );
    sys::complain_repeated(&what, &what);
}

/// The other pools that a directory is marked with: none if that cannot be read.
pub(crate) fn others(directory: &Path, own: &Path) -> Vec<PathBuf> {
    let marked = File::open(directory)
        .ok()
        .and_then(|it| of_directory(&it).ok());
    let own = own.canonicalize().unwrap_or_else(|_| own.to_owned());
    let mut pools = marked.unwrap_or_default();
    pools.retain(|pool| *pool != own);
    pools
}

/// Takes a pool out of a directory's mark, if it has nothing for the files there. What the file
/// system refuses to take is left as it is, and harmless.
///
/// # Errors
/// It is needed again, and cannot be put back.
fn take_out(directory: &File, pool: &Path, is_empty: impl Fn() -> bool) -> Result<(), Errno> {
    if !is_empty() {
        return Ok(());
    }
    let _ = change(directory, pool, false);
    // A run that begins with a file there meanwhile has its lane, and the file in its table, before
    // it marks, and may have found the mark there.
    if !is_empty() {
        change(directory, pool, true)?;
        rustix::fs::fsync(directory)?;
    }
    Ok(())
}

/// Adds a pool to a directory's mark, or takes it out.
///
/// # Errors
/// What the file system says; `EINVAL` for a path that a mark cannot have, `ENOSPC` where there is
/// no room for it.
fn change(directory: &File, pool: &Path, is_added: bool) -> Result<(), Errno> {
    let pool = match pool.canonicalize() {
        Ok(pool) => pool,
        // It is gone, and was marked by its whole path.
        Err(_) if !is_added => pool.to_owned(),
        Err(_) => return Ok(()),
    };
    // Without the lock, which a program may have: there is nothing to write.
    if of_directory(directory)?.contains(&pool) == is_added {
        return Ok(());
    }
    let locked = lock(directory);
    let done = rewrite(directory, pool, is_added);
    if locked {
        let _ = rustix::fs::flock(directory, FlockOperation::Unlock);
    }
    done
}

fn rewrite(directory: &File, pool: PathBuf, is_added: bool) -> Result<(), Errno> {
    let mut pools = of_directory(directory)?;
    pools.retain(|known| *known != pool);
    if is_added {
        pools.push(pool);
    }
    let lines: Vec<&[u8]> = pools
        .iter()
        .map(|pool| pool.as_os_str().as_bytes())
        .collect();
    let text = lines.join(&b'\n');
    match () {
        () if lines.iter().any(|line| line.contains(&b'\n')) => Err(Errno::INVAL),
        () if text.len() > BYTES_MAX => Err(Errno::NOSPC),
        () if text.is_empty() => rustix::fs::fremovexattr(directory, NAME),
        () => rustix::fs::fsetxattr(directory, NAME, &text, XattrFlags::empty()),
    }
}

/// Locks a directory: another supervisor may be at its mark too, and would write over ours. A
/// program that has the lock is not waited for for long.
fn lock(directory: &File) -> bool {
    const ATTEMPTS: u32 = 50;
    const AGAIN: Duration = Duration::from_millis(5);
    (0..ATTEMPTS).any(|attempt| {
        if attempt > 0 {
            thread::sleep(AGAIN);
        }
        rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

fn of_directory(directory: &File) -> Result<Vec<PathBuf>, Errno> {
    let mut text = vec![0; BYTES_MAX];
    let bytes = match rustix::fs::fgetxattr(directory, NAME, &mut text[..]) {
        Ok(bytes) => bytes,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno),
    };
    let lines = text[..bytes].split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    Ok(lines
        .map(|line| PathBuf::from(OsString::from_vec(line.to_vec())))
        .collect())
}

/// The state of a directory's mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum MarkState {
    /// The pool holds nothing of a run that may have files there.
    Empty,
    /// A run is using it that may have files there.
    InUse,
    /// A run that ended left so many writes in it: those that a recovery speaks of.
    Holds {
        /// Their number, with truncations.
        records: u64,
    },
    /// A run whose pool's disk failed left so many writes in it, and went on without it: the files
    /// are newer.
    Older {
        /// Their number.
        records: u64,
    },
    /// It is not there, or cannot be looked at: its records are not known.
    Unknown {
        /// The reason.
        why: String,
    },
}

/// A directory that is marked, and one of its pools.
#[derive(Clone, Debug, Serialize)]
pub struct MarkedDirectory {
    /// The directory.
    #[serde(serialize_with = "crate::readable")]
    pub directory: PathBuf,
    /// The pool.
    #[serde(serialize_with = "crate::readable")]
    pub pool: PathBuf,
    /// Its state.
    #[serde(flatten)]
    pub state: MarkState,
}

impl MarkedDirectory {
    /// True if a database may be started here without Forebay.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        matches!(self.state, MarkState::Empty | MarkState::Older { .. })
    }
}

/// All marks of a directory and those below it, on whatever file systems they are. Of a link to a
/// directory only that directory.
///
/// # Errors
/// I/O errors: of a directory that cannot be read it is not known whether it is marked.
pub fn standing(directory: &Path) -> std::io::Result<Vec<MarkedDirectory>> {
    let mut found = Vec::new();
    each_directory(directory, |directory, path| {
        for pool in of_directory(directory)? {
            found.push(MarkedDirectory {
                state: state(&pool, path),
                directory: path.to_owned(),
                pool,
            });
        }
        Ok(())
    })?;
    found.sort_by(|a, b| (&a.directory, &a.pool).cmp(&(&b.directory, &b.pool)));
    Ok(found)
}

/// False if a directory's file system has no extended attributes: then no mark says which pools
/// earlier runs there had.
#[must_use]
pub fn are_possible(directory: &Path) -> bool {
    let read = File::open(directory).map(|it| rustix::fs::fgetxattr(&it, NAME, &mut [0; 0][..]));
    !matches!(read, Ok(Err(Errno::OPNOTSUPP)))
}

/// Takes a pool out of a directory's mark, if the pool holds nothing for the files there.
///
/// # Errors
/// I/O errors.
pub fn clear(directory: &Path, pool: &Path) -> std::io::Result<()> {
    let open = File::open(directory)?;
    take_out(&open, pool, || state(pool, directory) == MarkState::Empty)?;
    Ok(())
}

/// Takes a pool out of a directory's mark, whatever it may hold, and the tables away of dead runs
/// that had it: a run with another pool need not heed it.
///
/// # Errors
/// I/O errors.
pub fn give_up(directory: &Path, pool: &Path) -> std::io::Result<()> {
    let _ = change(&File::open(directory)?, pool, false);
    absorbed::give_up(pool);
    Ok(())
}

fn state(pool: &Path, directory: &Path) -> MarkState {
    match pending_records::open(pool) {
        Ok(pool) => state_in(&pool, directory),
        Err(why) => MarkState::Unknown { why },
    }
}

fn state_in(pool: &Pool, directory: &Path) -> MarkState {
    let [mut held, mut older] = [None; 2];
    for lane in pool.lanes().iter().filter(|lane| is_files(&lane.label)) {
        let mut writes = WriteCount::default();
        let check = pool.look_into_lane(lane.lane, |record| {
            writes.add(record.header.kind, record.payload);
        });
        match check {
            // Perhaps by another database that shares the pool.
            LaneCheck::InUse => match may_absorb(pool, lane.lane, &[directory]) {
                Ok(true) => return MarkState::InUse,
                Ok(false) => {}
                Err(e) => return MarkState::Unknown { why: e.to_string() },
            },
            LaneCheck::Whole { records: 0, .. } => {}
            LaneCheck::Whole { .. } => {
                let count = match is_void(directory, lane.owner) {
                    true => &mut older,
                    false => &mut held,
                };
                *count = Some(count.unwrap_or(0) + writes.total());
            }
            LaneCheck::Damaged(e) => return MarkState::Unknown { why: e.to_string() },
        }
    }
    match (held, older) {
        (None, None) => MarkState::Empty,
        (None, Some(records)) => MarkState::Older { records },
        (Some(records), _) => MarkState::Holds { records },
    }
}

/// True if a file of the directory says that nothing of the owner's lane is needed, which then
/// holds for all files of that lane.
fn is_void(directory: &Path, owner: Uuid) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    // Opened in the ordinary way, it could be made plain.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    files.any(|entry| {
        rustix::fs::open(entry.path(), flags, Mode::empty())
            .and_then(|file| void_marks::is_marked(file, owner))
            .is_ok_and(|is_void| is_void)
    })
}

#[cfg(test)]
mod tests;
