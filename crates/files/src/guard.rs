//! Startup guard: PostgreSQL without Forebay refuses to start while a pool may hold acknowledged
//! records of its files.
//!
//! PostgreSQL reads `pg_replslot` when it starts, before it writes anything: of a directory there
//! whose `state` it cannot read it says the name, and ends. So the guard is such a directory, and
//! its name the sentence. A server that was cut off looks into all its directories first, and may
//! end sooner, since its last checkpoint is in the pool only. The guard may not be opened, so that
//! such a server names it too. Backups, `pg_basebackup` and `pg_rewind` leave out what
//! `pg_replslot` holds, which is why the guard lies there and not in a file that they copy. The
//! processes of a run do not see it (`readdir` in libforebay.so), if it is of the run's own pool:
//! of that nothing is left, since a run recovers its pool first.
//!
//! Each run lays one of its own, since two may have one data directory: while the first run of a
//! server that is started again drains, the second begins.
//!
//! Laying, before the run absorbs its first file there: (1) a directory `NAME.tmp`, which
//! PostgreSQL removes if it finds it, with `state` in it, synced; (2) renamed to `NAME`; (3) closed
//! to all, `pg_replslot` synced. Lifting: (1) opened to its owner, renamed back; (2) `pg_replslot`
//! synced; (3) removed. So a power cut leaves the guard whole or not at all.
//!
//! It is lifted by the end of its run that left nothing, and by the recovery of its run's lane
//! where the lane names files beside it. A later run of the pool lifts it too, after it laid its
//! own, and so does [`lift`].
//!
//! Root does this in other users' directories: no link is followed, and a guard is held while it is
//! looked into or taken away.

pub use crate::guard_name::name;

use crate::{
    directories::each_directory,
    guard_name::{is_one, of_run},
    identity, sys,
};
use forebay_pool::Pool;
use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, Uid},
    io::Errno,
};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::File,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// The directories, below a program's working directory, in which a guard can be laid.
pub const KINDS: [&str; 1] = ["pg_replslot"];

const STATE: &str = "state";
/// Longer ones are taken for none.
const BYTES_MAX: u64 = 1 << 14;

/// A guard's text.
struct GuardText<'a> {
    /// The lane's owner.
    run: Uuid,
    /// The identity of the directory that it was laid in.
    place: String,
    pool: &'a Path,
}

impl<'a> GuardText<'a> {
    fn encode(&self) -> Vec<u8> {
        let mut text = format!(
            "Acknowledged writes of this data directory may be in the pool of a run of Forebay that was cut off.\n\
             Before the server is started without Forebay: forebay recover --for DATA-DIRECTORY\n\
             run {}\nplace {}\npool ",
            self.run, self.place
        )
        .into_bytes();
        text.extend(self.pool.as_os_str().as_bytes());
        text.push(b'\n');
        text
    }

    fn decode(text: &'a [u8]) -> Option<Self> {
        let mut parts = text.strip_suffix(b"\n")?.splitn(5, |byte| *byte == b'\n');
        let mut word = |name: &str| parts.next()?.strip_prefix(name.as_bytes());
        // Two lines for people.
        word("")?;
        word("")?;
        Some(Self {
            run: str::from_utf8(word("run ")?).ok()?.parse().ok()?,
            place: str::from_utf8(word("place ")?).ok()?.to_owned(),
            pool: Path::new(OsStr::from_bytes(word("pool ")?)),
        })
    }
}

/// A directory's identity, wherever it is.
fn identified(directory: &File) -> String {
    let identity = identity::of(directory.as_fd()).unwrap_or_default();
    identity.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn open_directory(at: impl AsFd, name: impl rustix::path::Arg) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?.into())
}

/// Holds the guard of this name: whatever its name leads to later, this one it is.
fn hold(directory: &File, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Says who may open a guard: with `RWXU` its owner.
fn permit(held: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    rustix::fs::chmod(sys::link_of(held.as_fd()), mode)
}

/// The text of the guard of this name, if it is there.
fn read(directory: &File, name: &OsStr) -> Result<Vec<u8>, Errno> {
    let held = hold(directory, name)?;
    match open_directory(&held, ".") {
        Err(Errno::ACCESS) => {
            permit(&held, Mode::RWXU)?;
            let text = open_directory(&held, ".").and_then(|guard| read_in(&guard));
            permit(&held, Mode::empty())?;
            text
        }
        guard => read_in(&guard?),
    }
}

fn read_in(guard: &File) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let state = File::from(rustix::fs::openat(guard, STATE, flags, Mode::empty())?);
    let mut text = Vec::new();
    let read = state.take(BYTES_MAX).read_to_end(&mut text);
    read.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    Ok(text)
}

/// The name that a guard has until it is renamed.
fn aside(name: &OsStr) -> OsString {
    let mut aside = name.to_owned();
    aside.push(".tmp");
    aside
}

/// The names of all guards of a pool in the directory.
fn names(directory: &File, pool: Uuid) -> Result<Vec<OsString>, Errno> {
    let leads = name(pool);
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if is_one(name) && name.as_bytes().starts_with(leads.as_bytes()) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// The run that laid the guard of this name, if it says that.
fn run_of(directory: &File, name: &OsStr) -> Option<Uuid> {
    let text = read(directory, name).ok()?;
    Some(GuardText::decode(&text)?.run)
}

/// Lays the guard of a run in the directory, then takes those away of runs of the pool that have no
/// lane any more.
pub(crate) fn lay(directory: &File, pool: &Pool, run: Uuid) -> Result<(), Errno> {
    let own = of_run(pool.uuid(), run);
    let own = OsStr::new(&own);
    if run_of(directory, own) != Some(run) {
        make(directory, own, pool, run)?;
    }
    for other in names(directory, pool.uuid())? {
        let is_needed = || run_of(directory, &other).is_some_and(|run| has_lane(pool, run));
        if other != own && !is_needed() {
            // One that cannot be taken away by this process can be by a recovery.
            let _ = take(directory, &other);
        }
    }
    Ok(())
}

/// Makes the guard of a run.
fn make(directory: &File, name: &OsStr, pool: &Pool, run: Uuid) -> Result<(), Errno> {
    let aside = aside(name);
    remove(directory, &aside)?;
    let mode = Mode::RWXU;
    rustix::fs::mkdirat(directory, &aside, mode)?;
    let guard = open_directory(directory, &aside)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let own = Mode::RUSR | Mode::WUSR;
    let mut state = File::from(rustix::fs::openat(&guard, STATE, flags, own)?);
    let path = pool.path().canonicalize();
    let text = GuardText {
        run,
        place: identified(directory),
        pool: path.as_deref().unwrap_or(pool.path()),
    };
    let stat = rustix::fs::fstat(directory)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        for file in [&guard, &state] {
            rustix::fs::fchown(file, Some(user), Some(group))?;
        }
    }
    let written = state.write_all(&text.encode());
    written.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    rustix::fs::fsync(&state)?;
    rustix::fs::fsync(&guard)?;
    rustix::fs::renameat(directory, &aside, directory, name)?;
    rustix::fs::fchmod(&guard, Mode::empty())?;
    rustix::fs::fsync(&guard)?;
    rustix::fs::fsync(directory)?;
    Ok(())
}

/// Takes a guard away.
fn take(directory: &File, name: &OsStr) -> Result<(), Errno> {
    let aside = aside(name);
    remove(directory, &aside)?;
    let held = hold(directory, name)?;
    permit(&held, Mode::RWXU)?;
    rustix::fs::renameat(directory, name, directory, &aside)?;
    rustix::fs::fsync(directory)?;
    remove_held(directory, &aside, &held)
}

/// Removes what is not, or no longer, a guard.
fn remove(directory: &File, aside: &OsStr) -> Result<(), Errno> {
    match hold(directory, aside) {
        Ok(held) => remove_held(directory, aside, &held),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn remove_held(directory: &File, aside: &OsStr, held: &OwnedFd) -> Result<(), Errno> {
    match rustix::fs::unlinkat(held, STATE, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    rustix::fs::unlinkat(directory, aside, AtFlags::REMOVEDIR)
}

fn has_lane(pool: &Pool, run: Uuid) -> bool {
    pool.lanes().iter().any(|lane| lane.owner == run)
}

/// The guards that a supervisor has laid.
#[derive(Default)]
pub(crate) struct LaidGuards(parking_lot::Mutex<Vec<(PathBuf, File)>>);

impl LaidGuards {
    /// Lays a guard in the directory `kind` of the process's working directory, the first time that
    /// it is asked for. A program that has none there is not guarded. Says so if it has, and no
    /// guard can be laid.
    pub(crate) fn note(&self, kind: &str, pid: u32, pool: &Pool, run: Uuid) {
        let link = format!("/proc/{pid}/cwd");
        let Ok(at) = std::fs::read_link(&link).map(|cwd| cwd.join(kind)) else {
            return;
        };
        let mut laid = self.0.lock();
        if laid.iter().any(|(known, _)| *known == at) {
            return;
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let opened =
            rustix::fs::open(link, flags, Mode::empty()).and_then(|cwd| open_directory(cwd, kind));
        let directory = match opened {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return,
            Err(errno) => return tell(&at, errno),
        };
        if let Err(errno) = lay(&directory, pool, run) {
            tell(&at, errno);
        }
        laid.push((at, directory));
    }

    /// Takes them away: the files have everything.
    pub(crate) fn lift(&self, pool: &Pool, run: Uuid) {
        for (_, directory) in &*self.0.lock() {
            let _ = lift_of(directory, pool.uuid(), run);
        }
    }

    /// Lays them again: they have not.
    pub(crate) fn lay_again(&self, pool: &Pool, run: Uuid) {
        for (at, directory) in &*self.0.lock() {
            if let Err(errno) = lay(directory, pool, run) {
                tell(at, errno);
            }
        }
    }
}

fn tell(at: &Path, errno: Errno) {
    let what = format!(
        "no guard can be laid in {} ({errno}): after a power cut a server that is started without Forebay will not notice that the pool holds \
         acknowledged writes. Ask forebay doctor first",
        at.display()
    );
    sys::complain_repeated(&what, &what);
}

/// Takes the guard of a run away, if it is there.
fn lift_of(directory: &File, pool: Uuid, run: Uuid) -> Result<(), Errno> {
    let own = of_run(pool, run);
    let own = OsStr::new(&own);
    match run_of(directory, own) {
        Some(found) if found == run => take(directory, own),
        _ => Ok(()),
    }
}

/// Takes away the guards of a run whose lane is recovered, beside the directories that had its
/// files.
pub(crate) fn lift_beside(parents: &BTreeSet<PathBuf>, pool: Uuid, run: Uuid) {
    let near = parents
        .iter()
        .flat_map(|parent| [Some(parent.as_path()), parent.parent()]);
    for at in near.flatten() {
        for kind in KINDS {
            // Another recovery, by the data directory, does what this one cannot.
            if let Ok(directory) = open_directory(rustix::fs::CWD, at.join(kind)) {
                let _ = lift_of(&directory, pool, run);
            }
        }
    }
}

/// A guard that was found.
#[derive(Clone, Debug, Serialize)]
pub struct DirectoryGuard {
    /// The directory that it lies in.
    #[serde(serialize_with = "crate::readable")]
    pub directory: PathBuf,
    /// Its name there.
    pub name: String,
    /// The pool; none if it does not say that.
    #[serde(serialize_with = "readable_if_any")]
    pub pool: Option<PathBuf>,
    /// False if it came with a copy of the data directory: the pool has records of the original
    /// only, none for the copy.
    pub is_its_own: bool,
    #[serde(skip)]
    run: Option<Uuid>,
}

fn readable_if_any<S: serde::Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => crate::readable(path, to),
        None => to.serialize_none(),
    }
}

impl DirectoryGuard {
    /// True if the pool has a lane of the run that it is of.
    #[must_use]
    pub fn is_needed(&self, pool: &Pool) -> bool {
        self.run.is_none_or(|run| has_lane(pool, run))
    }
}

/// All guards in a directory and below it.
///
/// # Errors
/// I/O errors.
pub fn below(data: &Path) -> std::io::Result<Vec<DirectoryGuard>> {
    let mut found = Vec::new();
    each_directory(data, |directory, path| {
        if !KINDS.iter().any(|kind| path.ends_with(kind)) {
            return Ok(());
        }
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_guard = is_one(&name) && entry.file_type()?.is_dir();
            let Some(shown) = name.to_str().filter(|_| is_guard) else {
                continue;
            };
            let text = read(directory, &name).unwrap_or_default();
            let text = GuardText::decode(&text);
            found.push(DirectoryGuard {
                directory: path.to_owned(),
                name: shown.to_owned(),
                pool: text.as_ref().map(|text| text.pool.to_owned()),
                is_its_own: text
                    .as_ref()
                    .is_some_and(|text| text.place == identified(directory)),
                run: text.map(|text| text.run),
            });
        }
        Ok(())
    })?;
    Ok(found)
}

/// Takes a guard away that is needed no longer.
///
/// # Errors
/// I/O errors.
pub fn lift(guard: &DirectoryGuard) -> std::io::Result<()> {
    let directory = open_directory(rustix::fs::CWD, &guard.directory)?;
    Ok(take(&directory, OsStr::new(&guard.name))?)
}

#[cfg(test)]
mod tests;
