//! Making a pool's file for a user, with progress, so that nothing is left of one that is not
//! finished.
//!
//! A large pool takes a while: its bytes are written. A signal that ends this removes the
//! directory first.
//!
//! 1. It is made in a directory of its own beside its place (`.forebay-new-…`).
//! 2. It is given to its owner.
//! 3. It is moved into place, where nothing may be yet, and the directory is synced.

use crate::{failure::Failure, progress, standard_error::complain, users::SystemUser};
use forebay_pool::{Pool, PoolError, PoolOptions};
use nix::sys::signal::{SigSet, Signal};
use rustix::{
    fs::{CWD, RenameFlags},
    io::Errno,
};
use std::{
    fs, io,
    os::unix::fs::fchown,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::Duration,
};

/// Signals that end it.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// Interval of looks at the progress.
const LOOK: Duration = Duration::from_millis(100);
/// It is tried to remove what grows still this often.
const ATTEMPTS: usize = 100;
/// Smaller pools are made at once.
const BYTES_SHOWN: u64 = 256 << 20;

/// Makes a pool: of a device by `options` alone, of a file as above.
///
/// # Errors
/// As [`PoolOptions::create`]; the user who runs this may not give files to `owner`.
pub fn make(
    options: &PoolOptions,
    path: &Path,
    bytes: u64,
    owner: Option<&SystemUser>,
) -> Result<(), Failure> {
    if let Some(owner) = owner.filter(|_| !rustix::process::geteuid().is_root()) {
        let denied = io::ErrorKind::PermissionDenied.into();
        return Err(denied_or(
            denied,
            &format!("giving it to {}", owner.name),
            path,
        ));
    }
    // What is there already is refused, or is a device that is taken as it is.
    if fs::symlink_metadata(path).is_ok() {
        let made = options.create(path)?;
        return owner.map_or(Ok(()), |owner| give(&made, path, owner));
    }
    let interrupted = Interruption::default();
    let made = make_aside(options, path, bytes, owner, &interrupted);
    if made.is_err() && interrupted.begun.load(Acquire) {
        // What failed is what the signal took away, whose thread ends this process.
        loop {
            thread::park();
        }
    }
    made
}

/// Makes a pool's file in a directory of its own, and moves it into place.
fn make_aside(
    options: &PoolOptions,
    path: &Path,
    bytes: u64,
    owner: Option<&SystemUser>,
    interrupted: &Interruption,
) -> Result<(), Failure> {
    let place = match path.parent() {
        Some(place) if !place.as_os_str().is_empty() => place,
        _ => Path::new("."),
    };
    let aside = tempfile::Builder::new()
        .prefix(".forebay-new-")
        .tempdir_in(place)
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => no_place(path, place),
            _ => denied_or(e, "creating the pool", path),
        })?;
    let new = |leg: &&Path| fs::symlink_metadata(leg).is_err();
    let legs = options.disk_legs().filter(new).map(Path::to_owned);
    let legs: Vec<PathBuf> = legs.collect();
    interrupted.remove_then(aside.path().to_owned(), legs.clone())?;
    let made = aside.path().join("pool");
    let created = with_progress(&made, bytes, || options.create(&made));
    let pool = created.map_err(|error| match error.path == made {
        true => PoolError {
            path: path.to_owned(),
            ..error
        },
        // A leg's.
        false => error,
    })?;
    let given = owner.map_or(Ok(()), |owner| {
        give(&pool, path, owner)?;
        (options.disk_legs()).try_for_each(|leg| give_leg(leg, owner))
    });
    drop(pool);
    let failed = || Failure::io("making", path.display());
    let moved = given.and_then(|()| {
        // A signal that comes now finds a pool that may be in place.
        interrupted.is_late.store(true, Relaxed);
        match rustix::fs::renameat_with(CWD, &made, CWD, path, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL) => fs::hard_link(&made, path).map_err(failed()),
            moved => moved.map_err(|errno| failed()(errno.into())),
        }
    });
    if let Err(failure) = moved {
        legs.iter().for_each(|leg| drop(fs::remove_file(leg)));
        return Err(failure);
    }
    drop(aside);
    (fs::File::open(place).and_then(|it| it.sync_all())).map_err(failed())
}

/// Gives a pool to a user: the file that is open, whatever its path leads to by now.
fn give(pool: &Pool, path: &Path, owner: &SystemUser) -> Result<(), Failure> {
    let change = match pool.descriptor() {
        Some(file) => fchown(file, Some(owner.uid), Some(owner.gid)),
        None => Err(io::Error::from(io::ErrorKind::Unsupported)),
    };
    change.map_err(|e| denied_or(e, &format!("giving it to {}", owner.name), path))
}

/// Gives a leg on this machine's disk to a user.
fn give_leg(leg: &Path, owner: &SystemUser) -> Result<(), Failure> {
    let (user, group) = (Some(owner.uid), Some(owner.gid));
    // Of a device the name may be a link; in its directory only root makes anything.
    std::os::unix::fs::chown(leg, user, group)
        .map_err(|e| denied_or(e, &format!("giving it to {}", owner.name), leg))
}

fn no_place(path: &Path, place: &Path) -> Failure {
    Failure::Failed(format!(
        "{}: the directory {} is not there. Name a pool on persistent memory that is mounted, or with --disk one on a disk, as in: forebay pool create ./forebay.pool \
         --disk --size 128MiB; forebay doctor lists the places on this machine",
        path.display(),
        place.display()
    ))
}

fn denied_or(error: io::Error, doing: &str, path: &Path) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ". Run this as root, and with --owner USER if a database's user is to have it"
        }
        _ => "",
    };
    Failure::Failed(format!("{}: {doing}: {error}{remedy}", path.display()))
}

/// A signal that ends this process while it makes a pool.
#[derive(Clone, Default)]
struct Interruption {
    /// It has come, and the directory is being removed.
    begun: Arc<AtomicBool>,
    /// The pool is made already.
    is_late: Arc<AtomicBool>,
}

impl Interruption {
    /// From now on such a signal removes the directory first, and the legs that are made, and says
    /// so unless the pool is made by then.
    fn remove_then(&self, aside: PathBuf, legs: Vec<PathBuf>) -> Result<(), Failure> {
        let set: SigSet = ENDING.into_iter().collect();
        let failed = |e| Failure::Failed(format!("handling signals: {e}"));
        set.thread_block().map_err(failed)?;
        let told = self.clone();
        let wait = move || {
            if let Ok(signal) = set.wait() {
                told.begun.store(true, Release);
                // While the pool grows, what is removed may be there again.
                let mut attempts = 0..ATTEMPTS;
                while fs::remove_dir_all(&aside).is_err() && attempts.next().is_some() {}
                if !told.is_late.load(Relaxed) {
                    legs.iter().for_each(|leg| drop(fs::remove_file(leg)));
                    complain!("interrupted; nothing is left of the pool");
                }
                std::process::exit(128 + signal as i32);
            }
        };
        let spawned = thread::Builder::new().spawn(wait);
        spawned
            .map(drop)
            .map_err(Failure::io("starting", "a thread"))
    }
}

/// Does `work`, which makes the file `made` grow to so many bytes; on a terminal a bar shows how
/// far it is.
fn with_progress<T>(made: &Path, bytes: u64, work: impl FnOnce() -> T) -> T {
    if bytes < BYTES_SHOWN {
        return work();
    }
    let bar = progress::byte_bar(Some(bytes), "making the pool");
    let is_done = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                bar.set_position(fs::metadata(made).map_or(0, |it| it.len()));
                thread::sleep(LOOK);
            }
        });
        let done = work();
        is_done.store(true, Relaxed);
        done
    });
    bar.finish_and_clear();
    done
}
