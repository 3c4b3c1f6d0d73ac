//! A file of a client: how it begins to be absorbed, loses its name, and is let go of. docs/files-protocol.md, "Absorbing a file".

use super::{
    Shared,
    elsewhere::{self, Elsewhere},
    guest::{Guest, GuestFile},
    watch::Watched,
};
use crate::{absorbed::Key, identity, sys, wire::Answer};
use forebay_device::clock;
use rustix::{
    fs::{AtFlags, Mode, OFlags, Stat},
    io::Errno,
};
use std::{
    ffi::OsString,
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Whether a file that is closed is still watched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Watching {
    Ends,
    GoesOn,
}

/// Why a file is not absorbed.
enum Refusal {
    /// It stays plain.
    Plain(String),
    /// It may not even be written to.
    Unheard(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Plain(why)
    }
}

impl Guest {
    /// Really syncs a file and its directory, and says whether it is absorbed from then on.
    pub(super) fn register(
        &self,
        shared: &Shared,
        number: u32,
        path: Vec<u8>,
        fds: Vec<OwnedFd>,
    ) -> Answer {
        let path = PathBuf::from(OsString::from_vec(path));
        let done = <[OwnedFd; 1]>::try_from(fds)
            .map_err(|_| Refusal::Plain("no descriptor".to_owned()))
            .and_then(|[file]| self.absorb(shared, number, &path, file));
        match done {
            Ok(()) => Answer::Absorb,
            Err(Refusal::Plain(reason)) => {
                let bytes = path.into_os_string().into_vec();
                shared.stays_plain(self.pid, bytes, reason.clone());
                Answer::Refused { reason }
            }
            Err(Refusal::Unheard(reason)) => {
                sys::complain(&format!(
                    "{} cannot be opened for writing: {reason}",
                    path.display()
                ));
                Answer::Unheard { reason }
            }
        }
    }

    /// 1. Make it this client's, for all to see, unless it is another's; and watch it.
    /// 2. Who opened it before is seen now, by the kernel; who opens it from now on finds it in the table, or is seen by the watch.
    /// 3. Ask other runs: of two that do so at once at least one sees the other.
    /// 4. Sync it.
    fn absorb(
        &self,
        shared: &Shared,
        number: u32,
        path: &Path,
        theirs: OwnedFd,
    ) -> Result<(), Refusal> {
        let stat = rustix::fs::fstat(&theirs).map_err(|e| e.to_string())?;
        let key = (stat.st_dev, stat.st_ino);
        let born = sys::born(theirs.as_fd());
        self.reserve(shared, number, path, stat, born)?;
        // Before it is watched, or the supervisor would be seen itself.
        let own = open_own(&theirs, UNCOUNTED).ok();
        let watched = shared.watch.add(theirs.as_fd(), key);
        let done = watched
            .map_err(|errno| {
                Refusal::Plain(format!(
                    "who else opens it cannot be watched (fanotify or inotify: {errno})"
                ))
            })
            .and_then(|watched| {
                self.follow(shared, number, path, (&theirs, own), (&stat, born), watched)
            });
        if done.is_err() {
            if let Ok(watched) = &watched {
                shared.watch.remove(watched, theirs.as_fd());
            }
            self.forget(shared, number, true);
            shared.changed.notify_all();
        }
        done
    }

    /// Makes the file this client's, unless it is another's.
    fn reserve(
        &self,
        shared: &Shared,
        number: u32,
        path: &Path,
        stat: Stat,
        born: u64,
    ) -> Result<(), Refusal> {
        let key = (stat.st_dev, stat.st_ino);
        // While no other client can: of two that ask at a time, the second finds the first.
        let (guests, found) = shared.let_go(key, Some(self));
        if found {
            return Err("another process of this run writes to it".to_owned().into());
        }
        if shared.table.is_held(key) {
            return Err(
                "records of a process that ended wait in the pool for forebay recover"
                    .to_owned()
                    .into(),
            );
        }
        let mut files = self.files.lock();
        let place = files
            .get_mut(number as usize)
            .ok_or_else(|| "its number is too large".to_owned())?;
        if !shared.table.publish(self.holder, self.pid, key, born) {
            return Err("this run absorbs too many files already".to_owned().into());
        }
        let counts = &self.page.files[number as usize];
        counts.writes.store(0, Relaxed);
        counts.bytes.store(0, Relaxed);
        counts.syncs.store(0, Relaxed);
        counts.end.store(0, Relaxed);
        counts.retire.store(0, Relaxed);
        *place = Some(Arc::new(GuestFile {
            path: path.to_owned(),
            key: Some(key),
            identities: Vec::new(),
            stat,
            file: None,
            unlinked_from: None,
            watched: Watched::Not,
        }));
        drop(guests);
        Ok(())
    }

    /// Looks who else has it open, opens it for the supervisor, and syncs it.
    fn follow(
        &self,
        shared: &Shared,
        number: u32,
        path: &Path,
        (theirs, uncounted): (&OwnedFd, Option<File>),
        (stat, born): (&Stat, u64),
        watched: Watched,
    ) -> Result<(), Refusal> {
        let key = (stat.st_dev, stat.st_ino);
        let alone = sys::alone(theirs.as_fd());
        match elsewhere::let_go(shared, (key, born), stat) {
            Elsewhere::Nobody => {}
            Elsewhere::LetGo(why) => return Err(why.into()),
            Elsewhere::Unheard(why) => return Err(Refusal::Unheard(why)),
        }
        match alone {
            Ok(true) => {}
            Ok(false) => {
                return Err("it is open elsewhere, perhaps to be written to"
                    .to_owned()
                    .into());
            }
            Err(errno) => {
                return Err(format!(
                    "whether it is open elsewhere cannot be told (a lease: {errno}; the file must belong to forebay's user)"
                )
                .into());
            }
        }
        let own = match uncounted {
            Some(own) => own,
            None => open_own(theirs, OFlags::RDONLY)
                .map_err(|errno| format!("it cannot be opened for reading: {errno}"))?,
        };
        let file = Arc::new(own);
        let known = Arc::new(GuestFile {
            path: path.to_owned(),
            key: Some(key),
            stat: *stat,
            watched,
            identities: identity::all_of(file.as_fd()),
            file: Some(file),
            unlinked_from: None,
        });
        if let Some(place) = self.files.lock().get_mut(number as usize) {
            *place = Some(Arc::clone(&known));
        }
        sync_first(shared, &known)?;
        Ok(())
    }

    /// The status of the file, if it is this client's.
    pub(super) fn stat_of(&self, key: Key) -> Option<Stat> {
        let files = self.files.lock();
        let found = files.iter().flatten().find(|file| file.key == Some(key))?;
        let now = found
            .file
            .as_ref()
            .and_then(|file| rustix::fs::fstat(file).ok());
        Some(now.unwrap_or(found.stat))
    }

    /// From now on the directory that had the file's last name is synced instead of it, if that can be.
    pub(super) fn unlinked(&self, number: u32, path: &Path) {
        let directory = path.parent().and_then(|path| open_directory(path).ok());
        self.change(number, |known| {
            // It may have got another name since, or the number another file.
            let file = known.file.as_ref()?;
            is_nameless(file).then_some(())?;
            Some(GuestFile {
                unlinked_from: Some(Arc::new(directory?)),
                ..known.clone()
            })
        });
    }

    /// Gives up the descriptor of a file that has no name and that the program has closed: its space is free then.
    pub(super) fn release(&self, shared: &Shared, number: u32) {
        self.change(number, |known| {
            is_nameless(known.file.as_ref()?).then_some(())?;
            if let Some(file) = &known.file {
                shared.watch.remove(&known.watched, file.as_fd());
            }
            if let Some(key) = known.key {
                shared.table.withdraw(self.holder, key);
            }
            Some(GuestFile {
                key: None,
                file: None,
                watched: Watched::Not,
                ..known.clone()
            })
        });
    }

    fn change(&self, number: u32, change: impl FnOnce(&GuestFile) -> Option<GuestFile>) {
        let mut files = self.files.lock();
        if let Some(Some(known)) = files.get_mut(number as usize)
            && let Some(changed) = change(known)
        {
            *known = Arc::new(changed);
        }
    }

    /// Lets go of a file, which is plain from now on or closed.
    pub(super) fn forget(&self, shared: &Shared, number: u32, retired: bool) {
        if let Some(key) = self
            .close(shared, number, retired, Watching::Ends)
            .and_then(|file| file.key)
        {
            shared.table.withdraw(self.holder, key);
        }
    }

    /// Closes a file; the table has it still.
    pub(super) fn close(
        &self,
        shared: &Shared,
        number: u32,
        retired: bool,
        watching: Watching,
    ) -> Option<Arc<GuestFile>> {
        let mut files = self.files.lock();
        let place = files.get_mut(number as usize)?;
        // Before another client can register it, and watch it anew.
        if watching == Watching::Ends
            && let Some(known) = place
            && let Some(file) = &known.file
        {
            shared.watch.remove(&known.watched, file.as_fd());
        }
        let file = place.take()?;
        drop(files);
        self.page.recovered(number as usize);
        let counts = &self.page.files[number as usize];
        let counts =
            [&counts.writes, &counts.bytes, &counts.syncs].map(|count| count.load(Relaxed));
        // One that was refused is not in it.
        if file.file.is_some() || file.key.is_none() {
            let mut forgotten = self.forgotten.lock();
            match forgotten.iter_mut().find(|(path, ..)| *path == file.path) {
                Some((_, sums, is_retired)) => {
                    sums.iter_mut()
                        .zip(counts)
                        .for_each(|(sum, count)| *sum += count);
                    *is_retired = retired;
                }
                None => forgotten.push((file.path.clone(), counts, retired)),
            }
        }
        Some(file)
    }
}

/// Neither for reading nor for writing: enough to sync by, and the kernel counts it neither among the readers nor among the writers of the
/// file. So it hinders no lease.
const UNCOUNTED: OFlags = OFlags::from_bits_retain(libc::O_ACCMODE.unsigned_abs());

/// Opens what is open as `theirs` anew, for the supervisor.
fn open_own(theirs: &OwnedFd, access: OFlags) -> Result<File, Errno> {
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(sys::link_of(theirs.as_fd()), flags, Mode::empty())?.into())
}

fn is_nameless(file: &File) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0)
}

/// Opens a directory, whatever the path may lead to.
fn open_directory(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Before anything of a file is logged.
fn sync_first(shared: &Shared, known: &GuestFile) -> Result<(), String> {
    let file = known.file.as_ref().ok_or("it is closed")?;
    forebay_pool::failpoint!("files:register");
    if !forebay_pool::broken!("no-registration-sync") {
        let begun = clock::now_ns();
        file.sync_all().map_err(|e| format!("syncing it: {e}"))?;
        shared.charge_sync(file, false, begun);
        if let (Some(parent), Some(name)) = (known.path.parent(), known.path.file_name()) {
            let directory =
                open_directory(parent).map_err(|e| format!("opening its directory: {e}"))?;
            let found = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
            if found.map(|stat| Some((stat.st_dev, stat.st_ino))) != Ok(known.key) {
                return Err("its name is not in the directory where it was".to_owned());
            }
            let begun = clock::now_ns();
            directory
                .sync_all()
                .map_err(|e| format!("syncing its directory: {e}"))?;
            shared.charge_sync(&directory, false, begun);
        }
    }
    forebay_pool::failpoint!("files:registered");
    shared.snapshot(&known.path, file);
    Ok(())
}
