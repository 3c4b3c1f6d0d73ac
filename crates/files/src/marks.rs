//! Which pools may hold what belongs into the files of a directory: an extended attribute of the directory, `user.forebay.pools`, one path a line.
//!
//! A supervisor adds its pool's path before it absorbs the first file of a directory, and the directory's sync makes that durable. It is taken away at the end of a
//! run that left nothing in the pool. So it outlives a crash, and the user who is about to start a database without Forebay can be told
//! ([`standing`]), and a run with another pool leaves a file plain of which records may wait in this one. It is a hint: a file system without extended attributes
//! has none, and what a mark says is looked for in the pool itself.

use crate::{absorbed, directories::each_directory, replay, void};
use forebay_pool::{LaneCheck, PoolOptions};
use parking_lot::Mutex;
use rustix::{
    fs::{FlockOperation, Mode, OFlags, XattrFlags},
    io::Errno,
};
use serde::Serialize;
use std::{
    ffi::OsString,
    fs::File,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use uuid::Uuid;

const NAME: &str = "user.forebay.pools";
/// Longer lists are taken for none.
const BYTES_MAX: usize = 1 << 14;

/// The directories that a run has marked.
#[derive(Default)]
pub(crate) struct Marks(Mutex<Vec<PathBuf>>);

impl Marks {
    /// Marks a directory, the first time that it is named. Its sync makes that durable.
    pub(crate) fn note(&self, path: &Path, directory: &File, pool: &Path) {
        let mut marked = self.0.lock();
        if !marked.iter().any(|known| known == path) {
            change(directory, pool, true);
            marked.push(path.to_owned());
        }
    }

    /// Takes all marks away.
    pub(crate) fn take_back(&self, pool: &Path) {
        for path in self.0.lock().drain(..) {
            if let Ok(directory) = File::open(path) {
                change(&directory, pool, false);
            }
        }
    }
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

/// Adds a pool to a directory's mark, or takes it out. What the file system refuses is left as it is.
fn change(directory: &File, pool: &Path, is_added: bool) {
    let pool = match pool.canonicalize() {
        Ok(pool) => pool,
        // It is gone, and was marked by its whole path.
        Err(_) if !is_added => pool.to_owned(),
        Err(_) => return,
    };
    let locked = lock(directory);
    let before = of_directory(directory).unwrap_or_default();
    let mut pools = before.clone();
    pools.retain(|known| *known != pool);
    if is_added && !pool.as_os_str().as_bytes().contains(&b'\n') {
        pools.push(pool);
    }
    let lines: Vec<&[u8]> = pools
        .iter()
        .map(|pool| pool.as_os_str().as_bytes())
        .collect();
    let text = lines.join(&b'\n');
    let _ = match () {
        () if pools == before => Ok(()),
        () if pools.is_empty() => rustix::fs::fremovexattr(directory, NAME),
        () if text.len() > BYTES_MAX => Err(Errno::NOSPC),
        () => rustix::fs::fsetxattr(directory, NAME, &text, XattrFlags::empty()),
    };
    if locked {
        let _ = rustix::fs::flock(directory, FlockOperation::Unlock);
    }
}

/// Locks a directory: another supervisor may be at its mark too, and would write over ours. A program that has the lock is not waited for for long.
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

/// What a directory's mark comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// The pool holds nothing of a run.
    Empty,
    /// A run is using it.
    InUse,
    /// A run that ended left so many records in it.
    Holds {
        /// Their number.
        records: u64,
    },
    /// A run whose pool's disk failed left so many records in it, and went on without it: the files are newer.
    Older {
        /// Their number.
        records: u64,
    },
    /// It is not there, or cannot be looked at: what it may hold is not known.
    Unknown {
        /// Why.
        why: String,
    },
}

/// A directory that is marked, and one of its pools.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// The directory.
    pub directory: PathBuf,
    /// The pool.
    pub pool: PathBuf,
    /// What it comes to.
    #[serde(flatten)]
    pub state: State,
}

impl Standing {
    /// True if a database may be started here without Forebay.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        matches!(self.state, State::Empty | State::Older { .. })
    }
}

/// All marks of a directory and those below it, on whatever file systems they are. Of a link to a directory only that directory.
///
/// # Errors
/// I/O errors: of a directory that cannot be read it is not known whether it is marked.
pub fn standing(directory: &Path) -> std::io::Result<Vec<Standing>> {
    let mut found = Vec::new();
    each_directory(directory, |directory, path| {
        for pool in of_directory(directory)? {
            found.push(Standing {
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

/// Takes a pool out of a directory's mark, if the pool holds nothing of a run.
///
/// # Errors
/// I/O errors.
pub fn clear(directory: &Path, pool: &Path) -> std::io::Result<()> {
    let open = File::open(directory)?;
    if state(pool, directory) == State::Empty {
        change(&open, pool, false);
        // A run that began meanwhile has its lane before it marks.
        if state(pool, directory) != State::Empty {
            change(&open, pool, true);
        }
    }
    Ok(())
}

/// Takes a pool out of a directory's mark, whatever it may hold, and the tables away of dead runs that had it: a run with another pool need not heed it.
///
/// # Errors
/// I/O errors.
pub fn give_up(directory: &Path, pool: &Path) -> std::io::Result<()> {
    change(&File::open(directory)?, pool, false);
    absorbed::give_up(pool);
    Ok(())
}

fn state(pool: &Path, directory: &Path) -> State {
    // It is only looked at: where it lies now is no matter.
    let pool = match PoolOptions::new().emulated(true).open(pool) {
        Ok(pool) => pool,
        Err(e) => return State::Unknown { why: e.to_string() },
    };
    let [mut records, mut older] = [0; 2];
    for lane in pool
        .lanes()
        .iter()
        .filter(|lane| replay::is_files(&lane.label))
    {
        match pool.check_lane(lane.lane) {
            LaneCheck::InUse => return State::InUse,
            LaneCheck::Whole { records: 0, .. } => {}
            LaneCheck::Whole { records: more, .. } if is_void(directory, lane.owner) => {
                older += more
            }
            LaneCheck::Whole { records: more, .. } => records += more,
            LaneCheck::Damaged(e) => return State::Unknown { why: e.to_string() },
        }
    }
    match (records, older) {
        (0, 0) => State::Empty,
        (0, records) => State::Older { records },
        (records, _) => State::Holds { records },
    }
}

/// True if a file of the directory says that nothing of the owner's lane is needed, which then holds for all files of that lane.
fn is_void(directory: &Path, owner: Uuid) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    // Opened in the ordinary way, it could be made plain.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    files.any(|entry| {
        rustix::fs::open(entry.path(), flags, Mode::empty())
            .and_then(|file| void::is_marked(file, owner))
            .is_ok_and(|is_void| is_void)
    })
}
