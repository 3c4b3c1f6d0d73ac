//! Notes of runs that have a flash cache, and the status that their servers give. Each run has a
//! note in the directory of the runs while its program runs, locked as long as it is there. A note
//! that is not locked was left by a run that was killed, whatever process has its number by now.

use super::unregistered_runs;
use crate::failure::Failure;
use forebay_files::supervisor::RunScope;
use forebay_innodb::{BootTime, CacheStatus, status_of};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};
use uuid::Uuid;

const ENDING: &str = ".flash";

/// A run's note on itself: the last one in its file counts. The file's name is the process's number
/// and the run's.
#[derive(Serialize, Deserialize)]
struct RunNote {
    begun: BootTime,
    flash: OsString,
    /// The program has ended: what of the run goes on may have no server any more.
    has_ended: bool,
}

/// The note of this run: it goes with it.
pub struct NotedRun {
    path: PathBuf,
    note: RunNote,
    /// Has the lock.
    file: File,
}

impl NotedRun {
    /// Begins a run with the cache on this flash file.
    pub fn begin(dir: &Path, flash: &Path, run: Uuid) -> Result<Self, Failure> {
        let path = dir.join(format!("{}-{run}{ENDING}", std::process::id()));
        let note = RunNote {
            begun: BootTime::now(),
            flash: flash.as_os_str().to_owned(),
            has_ended: false,
        };
        let file = write(&path, &note).map_err(Failure::io("writing", path.display()))?;
        Ok(Self { path, note, file })
    }

    /// Says that the program has ended. Where it cannot, the run passes for one that goes on.
    pub fn end(&mut self) {
        self.note.has_ended = true;
        let _ = append(&mut self.file, &self.note);
    }
}

impl Drop for NotedRun {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn write(path: &Path, note: &RunNote) -> io::Result<File> {
    let mut file = File::create_new(path)?;
    // While it is empty no one else does. On a file system without locks no note is taken for left
    // behind.
    let _ = file.try_lock();
    append(&mut file, note)?;
    Ok(file)
}

fn append(file: &mut File, note: &RunNote) -> io::Result<()> {
    file.write_all(&serde_json::to_vec(note)?)
}

/// The contents of a note. None if it is still empty; and if its run was killed: then it goes.
fn read(path: &Path) -> Option<RunNote> {
    let mut file = File::open(path).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    if !bytes.is_empty() && file.try_lock_shared().is_ok() {
        let _ = fs::remove_file(path);
        return None;
    }
    // What is only being appended is no whole one yet.
    let notes = serde_json::Deserializer::from_slice(&bytes).into_iter();
    notes.map_while(Result::ok).last()
}

/// The process and the run that a note is of, by its name.
fn named(note: &Path) -> Option<(u32, Uuid)> {
    let (pid, run) = stem(note)?.split_once('-')?;
    Some((pid.parse().ok()?, run.parse().ok()?))
}

fn stem(note: &Path) -> Option<&str> {
    note.file_name()?.to_str()?.strip_suffix(ENDING)
}

/// The flash caches of runs that go on.
#[derive(Default)]
pub struct RunningCaches {
    /// As their servers say they are, each with the run's process id: runs of two containers may
    /// have the same.
    pub statuses: Vec<(u32, CacheStatus)>,
    silent: Vec<SilentRun>,
    known: BTreeSet<Uuid>,
}

/// A run of which no server says how its cache is.
struct SilentRun {
    pid: u32,
    flash: PathBuf,
    why: SilenceReason,
}

/// The known reason.
enum SilenceReason {
    /// Its program runs, since then.
    Runs(BootTime),
    /// Its program has ended.
    Ends,
}

impl RunningCaches {
    /// Of those with a note in this directory; and of those without one, unless it is this
    /// directory's runs alone that are wanted. A process that has lost its `forebay run` is none if
    /// no server says how its cache is.
    pub fn find(dir: &Path, whose: RunScope) -> Self {
        let mut running = Self::of(dir);
        if whose == RunScope::Directory {
            return running;
        }
        for (run, found) in unregistered_runs::find(whose) {
            if running.known.contains(&run) {
                continue;
            }
            let said = CacheStatus::of_run(&status_of(&found.flash), run);
            if found.is_forebay || said.is_some_and(|said| said.is_current()) {
                let note = RunNote {
                    begun: BootTime::default(),
                    flash: found.flash.into_os_string(),
                    has_ended: false,
                };
                running.add(found.pid, run, note);
            }
        }
        running.sorted()
    }

    /// Of those with a note in this directory.
    pub fn of(dir: &Path) -> Self {
        let mut running = Self::default();
        let Ok(entries) = fs::read_dir(dir) else {
            return running;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if let Some((pid, run)) = named(&path)
                && let Some(note) = read(&path)
            {
                running.add(pid, run, note);
            }
        }
        running.sorted()
    }

    fn sorted(mut self) -> Self {
        let statuses = &mut self.statuses;
        statuses.sort_unstable_by_key(|(pid, status)| (*pid, status.run));
        self.silent.sort_unstable_by_key(|silent| silent.pid);
        self
    }

    fn add(&mut self, pid: u32, run: Uuid, note: RunNote) {
        self.known.insert(run);
        let flash = PathBuf::from(note.flash);
        let said = CacheStatus::of_run(&status_of(&flash), run);
        match said.filter(CacheStatus::is_current) {
            Some(status) => self.statuses.push((pid, status)),
            None => {
                let why = match note.has_ended {
                    true => SilenceReason::Ends,
                    false => SilenceReason::Runs(note.begun),
                };
                self.silent.push(SilentRun { pid, flash, why });
            }
        }
    }

    /// True if all that say how they are are well, and of the others none has to say it.
    pub fn is_well(&self) -> bool {
        let said = self.statuses.iter().all(|(_, status)| status.is_well());
        said && self.silent.iter().all(SilentRun::is_well)
    }

    /// Of each run of which no server says how its cache is, that it is so.
    pub fn silent(&self) -> impl Iterator<Item = String> {
        self.silent.iter().map(SilentRun::line)
    }

    /// Everything, a paragraph for each run.
    pub fn paragraphs(&self) -> impl Iterator<Item = String> {
        let said = self.statuses.iter();
        let said = said.map(|(_, status)| status.lines().join("\n") + "\n");
        said.chain(self.silent().map(|line| line + "\n"))
    }
}

impl SilentRun {
    /// True of a run whose server need not have said it yet, or no longer. What was said in it less
    /// than ten seconds ago is no silence.
    fn is_well(&self) -> bool {
        match self.why {
            SilenceReason::Runs(begun) => begun.is_recent(),
            SilenceReason::Ends => true,
        }
    }

    fn line(&self) -> String {
        let (pid, flash) = (self.pid, self.flash.display());
        match self.why {
            SilenceReason::Runs(_) => format!(
                "forebay {pid}: no server says how it is with the flash cache {flash}: it has just been started, it has not got the library, it may not write {flash}.status, or it \
                 is stopped, or gone. Unless its log says that page files go through the flash cache, nothing protects them from being torn"
            ),
            SilenceReason::Ends => format!(
                "forebay {pid}: its program has ended, and no server says any more how it is with the flash cache {flash}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A directory of runs, and a flash file beside it, of which this is said.
    fn said(status: &CacheStatus) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let flash = dir.path().join("cache");
        let bytes = serde_json::to_vec(status).unwrap();
        fs::write(status_of(&flash), bytes).unwrap();
        (dir, flash)
    }

    /// Has a server of this run say that it has lost a page.
    fn fails(flash: &Path, run: Uuid) -> CacheStatus {
        let status = CacheStatus {
            pid: std::process::id(),
            run,
            said_at: BootTime::now(),
            lost_pages: 1,
            ..CacheStatus::default()
        };
        let bytes = serde_json::to_vec(&status).unwrap();
        fs::write(status_of(flash), bytes).unwrap();
        status
    }

    /// A run that has begun with the boot.
    fn long_begun(dir: &Path, flash: &Path, run: Uuid) -> NotedRun {
        let mut noted = NotedRun::begin(dir, flash, run).unwrap();
        noted.note.begun = BootTime::default();
        append(&mut noted.file, &noted.note).unwrap();
        noted
    }

    fn lines(running: &RunningCaches) -> String {
        running.paragraphs().collect()
    }

    #[test]
    fn a_run_just_begun_is_well_though_its_server_says_nothing_yet() {
        // Of the run before, which was well.
        let (dir, flash) = said(&CacheStatus {
            pid: std::process::id(),
            said_at: BootTime::now(),
            ..CacheStatus::default()
        });
        let noted = NotedRun::begin(dir.path(), &flash, Uuid::new_v4()).unwrap();
        let running = RunningCaches::of(dir.path());
        assert!(running.is_well() && running.statuses.is_empty());
        assert!(lines(&running).contains("it has just been started"));
        drop(noted);
        assert_eq!(lines(&RunningCaches::of(dir.path())), "");
    }

    #[test]
    fn what_a_server_says_in_a_run_is_said_of_it() {
        let (dir, flash) = said(&CacheStatus::default());
        let run = Uuid::new_v4();
        let _noted = NotedRun::begin(dir.path(), &flash, run).unwrap();
        let status = fails(&flash, run);
        let running = RunningCaches::of(dir.path());
        assert_eq!(running.statuses, [(std::process::id(), status)]);
        assert!(!running.is_well() && running.silent().count() == 0);
    }

    #[test]
    fn an_ended_run_fails_only_if_a_server_says_its_cache_does() {
        let (dir, flash) = said(&CacheStatus::default());
        let run = Uuid::new_v4();
        let mut noted = long_begun(dir.path(), &flash, run);
        assert!(!RunningCaches::of(dir.path()).is_well());
        noted.end();
        let running = RunningCaches::of(dir.path());
        assert!(running.is_well() && running.statuses.is_empty());
        let lines = lines(&running);
        assert!(lines.contains("its program has ended"), "{lines}");
        assert!(!lines.contains("torn"), "{lines}");
        // A server may go on after what started it.
        fails(&flash, run);
        assert!(!RunningCaches::of(dir.path()).is_well());
    }

    #[test]
    fn a_killed_runs_note_goes_and_one_being_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let [killed, begins] = [Uuid::new_v4(), Uuid::new_v4()].map(|run| {
            dir.path()
                .join(format!("{}-{run}{ENDING}", std::process::id()))
        });
        let note = RunNote {
            begun: BootTime::default(),
            flash: "/fast/cache".into(),
            has_ended: false,
        };
        drop(write(&killed, &note).unwrap());
        fs::write(&begins, "").unwrap();
        // A child that another test starts has the lock as well, until it executes its program.
        let limit = Instant::now() + Duration::from_secs(60);
        while !RunningCaches::of(dir.path()).is_well() {
            assert!(Instant::now() < limit);
        }
        assert!(!killed.exists() && begins.exists());
    }
}
