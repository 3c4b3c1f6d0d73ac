//! Decides a recovery's plan for a file. It looks, and changes nothing. docs/files-replay.md.
//!
//! | the file | then |
//! |---|---|
//! | holds what the lane says | it is synced; if a sync of it failed, or may have in this boot, the same bytes are written first |
//! | holds something else, and was not changed after the last record | the lane's records are written |
//! | the same, or holds what the lane says, and ends in zeros that no record wrote | and the zeros are cut off, in another boot |
//! | holds something else, in this boot, its mount was there all the time, and no sync of it failed | it is the truth: synced |
//! | was changed later | refused |
//! | is shorter than it was before the first record, and was not cut | refused: it is an older copy |
//! | has behind the size that it had then what no record wrote, and no zeros | refused: it is on a clone of its volume that was used by itself |
//! | is in no directory any more, as the lane says | nothing |
//! | is not found, in this boot, and the mount of a directory of its was there all the time | its file system is synced |
//! | is not found where it was, and was about to lose its last name | nothing |
//! | is not found | refused |

use super::{
    compare,
    find::FoundFile,
    lane_contents::{LoggedFile, LoggedNameLoss},
    options::RecoverOptions,
};
use crate::{
    FilesError,
    directories::open_directory,
    identity,
    image::{FileImage, is_zero},
    lane_label::LabelMark,
    record::slack,
};
use rustix::{fs::OFlags, io::Errno};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    time::Duration,
};

/// The facts that a recovery knows before it looks at the files.
#[derive(Clone, Copy)]
pub(super) struct RecoverySituation<'a> {
    /// The page cache may have everything that was written.
    pub(super) same_boot: bool,
    /// The pool has the last appended records: it is persistent memory, or this is the same boot.
    pub(super) pool_is_whole: bool,
    /// The pool has the committed records, and the page cache of the same boot the others.
    pub(super) on_disk: bool,
    /// The file system that the pool's file is on, if it is emulated.
    pub(super) emulated_on: Option<u64>,
    pub(super) pool: &'a Path,
    pub(super) mark: LabelMark,
    /// It is no recovery that was asked for, but a process of the run that takes the lane over,
    /// while others of its processes may have the files.
    pub(super) takes_over: bool,
    pub(super) options: &'a RecoverOptions,
}

/// The plan for a file.
pub(super) enum FilePlan {
    /// Nothing: why, if that is worth telling.
    Nothing(Option<String>),
    /// Its whole file system is to be synced: it is somewhere in there.
    SyncAll(File, String),
    /// It is right as it is.
    Sync(TargetFile, RewritePlan),
    /// It holds something else, and that is right: why, in words.
    Keep(TargetFile, String),
    /// The lane's records are to be written.
    Write(TargetFile),
    /// The reason that it cannot be recovered, and the remedy.
    Refuse(String),
}

/// The choice to write a file's bytes once more although it has them: a sync that failed may have
/// left them clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RewritePlan {
    No,
    /// If no other process has it open, and it can be written to.
    IfAlone,
    /// Or the lane is refused.
    Must,
}

/// A file that was found.
pub(super) struct TargetFile {
    /// Held, to be opened anew.
    pub(super) seen: OwnedFd,
    /// Open for reading, or else for writing.
    pub(super) file: File,
    pub(super) is_readable: bool,
    pub(super) accessed: (i64, i64),
    pub(super) modified: Duration,
    /// A replay that was cut changed it and did not finish.
    pub(super) is_ours: bool,
    /// The size that it is to get: behind that, it has zeros of no record.
    pub(super) ends_at: Option<u64>,
}

impl TargetFile {
    fn open(seen: OwnedFd) -> Result<Self, Errno> {
        let open = |flags| identity::reopen(seen.as_fd(), flags);
        // Not to be seen by the access time, where that is permitted.
        let read = open(OFlags::RDONLY | OFlags::NOATIME).or_else(|_| open(OFlags::RDONLY));
        let (file, is_readable) = match read {
            Ok(file) => (file, true),
            Err(errno) => (open(OFlags::WRONLY).map_err(|_| errno)?, false),
        };
        let meta = file
            .metadata()
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        let time = |seconds: i64, nanoseconds: i64| {
            let seconds = u64::try_from(seconds).unwrap_or(0);
            Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0))
        };
        let modified = time(meta.mtime(), meta.mtime_nsec());
        Ok(Self {
            seen,
            file,
            is_readable,
            accessed: (meta.atime(), meta.atime_nsec()),
            modified,
            is_ours: false,
            ends_at: None,
        })
    }
}

impl RecoverySituation<'_> {
    /// The plan for the file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn decide(
        &self,
        file: &LoggedFile<'_>,
        found: FoundFile,
    ) -> Result<FilePlan, FilesError> {
        let seen = match found {
            FoundFile::Here(seen) => seen,
            FoundFile::Unlinked => return Ok(FilePlan::Nothing(None)),
            FoundFile::Missing(obstacle) => return Ok(self.missing(file, obstacle)),
        };
        let mount = identity::mount(seen.as_fd());
        let target = match TargetFile::open(seen) {
            Ok(target) => TargetFile {
                is_ours: self.mark.made(target.modified),
                ..target
            },
            Err(errno) => return Ok(self.unopened(file, mount, errno)),
        };
        let path = file.path().display();
        if self.takes_over && target.is_ours {
            return Ok(FilePlan::Refuse(format!(
                "{path} was being recovered when that was cut: end the program, then `forebay recover` goes on with it"
            )));
        }
        let reading = FilesError::io(format!("reading {path}"));
        let look = || -> io::Result<(bool, Option<u64>)> {
            let is_in = target.is_readable && FileImage::of(&file.changes).is_in(&target.file)?;
            Ok((is_in, self.zeros_from(file, &target)?))
        };
        let (is_in, ends_at) = look().map_err(reading)?;
        let target = TargetFile { ends_at, ..target };
        if is_in && ends_at.is_some() {
            return Ok(FilePlan::Write(target));
        }
        if is_in {
            let again = match self.mark {
                // The sync may have failed in this boot, though the lane is of an earlier one: a
                // recovery's.
                mark if mark.failed() || mark == LabelMark::Denied => RewritePlan::Must,
                mark if self.same_boot || matches!(mark, LabelMark::Replay(_)) => {
                    RewritePlan::IfAlone
                }
                _ => RewritePlan::No,
            };
            return Ok(FilePlan::Sync(target, again));
        }
        Ok(self.differs(file, mount, target))
    }

    /// The end that the file is to have, if it has nothing but zeros behind that. Of an append that
    /// no record has, and no sync acknowledged, the file system may have committed the size and not
    /// the bytes, and programs refuse a log that ends in zeros.
    fn zeros_from(&self, file: &LoggedFile<'_>, target: &TargetFile) -> io::Result<Option<u64>> {
        let is_later = file.changed_later(target.modified, slack(self.on_disk));
        // A pool that lost records does not know of a synced append, which may be one of zeros.
        let is_known = self.pool_is_whole && target.is_readable && !file.is_touched;
        if self.same_boot || !is_known || (is_later.is_some() && !target.is_ours) {
            return Ok(None);
        }
        let size = target.file.metadata()?.len();
        match file.size().filter(|known| *known < size) {
            Some(known) if is_zero(&target.file, known..size)? => Ok(Some(known)),
            _ => Ok(None),
        }
    }

    /// The file holds something else than the lane says.
    fn differs(&self, file: &LoggedFile<'_>, mount: Option<u64>, target: TargetFile) -> FilePlan {
        let path = file.path().display();
        if self.options.force {
            return FilePlan::Write(target);
        }
        // Unmounted and mounted again, the file is what the disk had of it, as after a power cut.
        // It was not, for sure, if the mount is the same one; another one, of another mount
        // namespace, may be of the same file system, which cannot be told.
        let is_same_mount = mount.is_some() && mount == file.mount;
        let is_other_mount = matches!((file.mount, mount), (Some(then), Some(now)) if then != now);
        let lost_with_it = !is_same_mount
            && self.emulated_on.is_some()
            && self.emulated_on == identity::file_system(target.file.as_fd()).ok();
        if !self.pool_is_whole || lost_with_it {
            return FilePlan::Refuse(self.may_be_older(file));
        }
        let is_ours = target.is_ours;
        let later = file
            .changed_later(target.modified, slack(self.on_disk))
            .filter(|_| !is_ours);
        let was_there = self.same_boot && is_same_mount;
        if self.takes_over {
            // A member had written what it did not come to log, or a process has gone on past the
            // lane: the file is the truth. Where the kernel does not say that the file was there
            // all the time, what was acknowledged is in the lane, and may be written if no process
            // has it open.
            let may_decide = !self.mark.failed() && target.is_readable;
            return match may_decide.then_some(()) {
                Some(()) if was_there => self.keep(file, target),
                Some(()) if file.mount.is_none() && self.same_boot && later.is_none() => {
                    FilePlan::Write(target)
                }
                _ => FilePlan::Refuse(format!(
                    "{path} holds something else than the pool says, and was changed since or is not where it was: end the program, then \
                     `forebay recover` decides"
                )),
            };
        }
        let has_failed = self.mark.failed() && self.same_boot && !is_other_mount;
        let has_newer =
            (has_failed || was_there) && !is_ours && !self.may_be_lost(file, &target, later);
        if has_newer && has_failed {
            return FilePlan::Refuse(failed(
                file,
                "it holds something else than the pool says: if that is right",
            ));
        }
        if has_newer {
            // Also what was not committed, and what went past the client.
            return self.keep(file, target);
        }
        let Some(later) = later else {
            if !is_ours && let Some(why) = self.is_clone(file, &target) {
                return FilePlan::Refuse(why);
            }
            let size = target.file.metadata().map(|meta| meta.len());
            let had = size.ok().and_then(|size| file.is_cut_from(size));
            return had.map_or(FilePlan::Write(target), |had| {
                FilePlan::Refuse(format!(
                    "{path} is an older copy: it had {had} bytes before the pool's first write. Put the newest one back and recover again; or \
                     `forebay recover --discard` drops the pool's writes, `forebay recover --force` writes them to this one"
                ))
            });
        };
        FilePlan::Refuse(format!(
            "{path} was changed {:.1} s after its last record in the pool, perhaps by a database started without recovery. Keep the file: `forebay recover --discard`. \
             Write the pool's records: `forebay recover --force`",
            later.as_secs_f64()
        ))
    }

    /// True if what the file lacks may have been dropped by the kernel, which told that to the
    /// supervisor, or to one that was killed then, and no other program has changed it.
    fn may_be_lost(
        &self,
        file: &LoggedFile<'_>,
        target: &TargetFile,
        later: Option<Duration>,
    ) -> bool {
        (self.mark == LabelMark::Syncing || self.mark.failed())
            && later.is_none()
            && target.is_readable
            && compare::may_be_lost(file, &target.file)
    }

    /// The plan to keep the file's bytes as the truth.
    fn keep(&self, file: &LoggedFile<'_>, target: TargetFile) -> FilePlan {
        let why = compare::kept(file, &target.file, target.is_readable, self.on_disk);
        FilePlan::Keep(target, why)
    }

    /// In words, if the file is on a clone of its volume that was used by itself, or that cannot be
    /// told.
    fn is_clone(&self, file: &LoggedFile<'_>, target: &TargetFile) -> Option<String> {
        if !target.is_readable {
            return None;
        }
        // What was not committed, or was under way, is in the kernel and not in the lane.
        let may_be_ahead = self.on_disk || target.modified >= file.last();
        match compare::foreign(file, &target.file, may_be_ahead) {
            Ok(at) => at.map(|at| compare::is_clone(file, at)),
            Err(e) => Some(format!(
                "{} cannot be read: {e}. Remedy that, then recover again",
                file.path().display()
            )),
        }
    }

    /// The pool may have lost records, and the file may have what they said.
    fn may_be_older(&self, file: &LoggedFile<'_>) -> String {
        let pool = self.pool.display();
        format!(
            "{} differs from the pool's records, and the pool is emulated: its records may be older than the file, since the machine (or their disk) went down with both. \
             Nothing is written. `forebay recover --pool {pool} --discard` gives up the pool's {} writes, {} bytes, as \
             a database without Forebay and with `appendfsync no` would have; `forebay recover --pool {pool} --force` writes them over the file's bytes",
            file.path().display(),
            file.changes.len(),
            file.bytes()
        )
    }

    /// The file is there, and cannot be opened.
    fn unopened(&self, file: &LoggedFile<'_>, mount: Option<u64>, errno: Errno) -> FilePlan {
        let path = file.path().display();
        if file.changes.is_empty() {
            return FilePlan::Nothing(None);
        }
        if self.kept_all(file, mount)
            && let Some(directory) = file
                .parents()
                .into_iter()
                .find_map(|p| open_directory(p).ok())
        {
            let why =
                format!("{path} cannot be opened ({errno}): its whole file system was synced");
            return FilePlan::SyncAll(directory, why);
        }
        FilePlan::Refuse(match errno {
            Errno::NOKEY => locked(file),
            _ => format!(
                "{path} cannot be opened: {errno}. Run the recovery as a user who may, or let this one (chmod u+rw)"
            ),
        })
    }

    /// True if the kernel has everything that was written to files of this mount.
    fn kept_all(&self, file: &LoggedFile<'_>, mount: Option<u64>) -> bool {
        self.same_boot && !self.mark.failed() && mount.is_some() && mount == file.mount
    }

    fn missing(&self, file: &LoggedFile<'_>, obstacle: Option<Errno>) -> FilePlan {
        let path = file.path().display();
        let removed = (file.gone == LoggedNameLoss::Maybe).then(|| {
            format!("{path} is not there: the program was about to remove it or to replace it")
        });
        if file.gone == LoggedNameLoss::Yes || file.changes.is_empty() {
            return FilePlan::Nothing(removed);
        }
        let opened = |parent| {
            let open = open_directory(parent).ok()?;
            let mount = identity::mount(open.as_fd());
            Some((open, mount))
        };
        let mut parents: Vec<_> = file.parents().into_iter().filter_map(opened).collect();
        let held = |(_, mount): &(File, Option<u64>)| self.kept_all(file, *mount);
        if let Some(at) = parents.iter().position(held) {
            let (open, _) = parents.swap_remove(at);
            let why = format!(
                "{path} is not there any more: its whole file system was synced, wherever in it the file is now"
            );
            return FilePlan::SyncAll(open, why);
        }
        // Only where it was it is seen to be gone: its file system may not be mounted, and its
        // directory be elsewhere. In another boot mounts have other numbers.
        let was_in =
            |mount: Option<u64>| !self.same_boot || file.mount.is_none() || mount == file.mount;
        if removed.is_some() && parents.iter().any(|(_, mount)| was_in(*mount)) {
            return FilePlan::Nothing(removed);
        }
        // Its name cannot be read, and nothing says that it is gone.
        if obstacle == Some(Errno::NOKEY) {
            return FilePlan::Refuse(locked(file));
        }
        if self.options.force {
            let why = format!(
                "{path} is missing: its {} writes, {} bytes, are GIVEN UP, as asked for",
                file.changes.len(),
                file.bytes()
            );
            return FilePlan::Nothing(Some(why));
        }
        let obstacle = obstacle.map_or_else(String::new, |errno| format!(" ({errno})"));
        FilePlan::Refuse(format!(
            "{path} is missing, or another file has its name{obstacle}. Put it back, or mount its file system, and recover again (as root it is found \
             in other places of its mount too); or go on without it by `forebay recover --force`"
        ))
    }
}

/// In an encrypted directory, without its key.
fn locked(file: &LoggedFile<'_>) -> String {
    format!(
        "{} is in an encrypted directory whose key is not there. Unlock it (fscrypt unlock DIRECTORY), and recover again",
        file.path().display()
    )
}

/// A sync of the file failed, and it cannot be written again because of `why`.
pub(super) fn failed(file: &LoggedFile<'_>, why: &str) -> String {
    format!(
        "a sync of {} failed, so its last writes have to be written again, but {why}, `forebay recover --discard` drops the \
         pool's writes; if the pool's are, `forebay recover --force` writes them",
        file.path().display()
    )
}
