//! Which runs have a flash cache, and how their servers say it is. Each run has a note in the directory of the runs, locked as long as it goes on: one that
//! is not locked was left by a run that was killed, whatever process has its number by now.

use super::status_file;
use crate::failure::Failure;
use forebay_pages::{Moment, Status};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};
use uuid::Uuid;

const ENDING: &str = ".flash";

/// What a run says of itself. Its name is the process's number and the run's.
#[derive(Serialize, Deserialize)]
struct Note {
    begun: Moment,
    flash: OsString,
}

/// The note of this run: it goes with it.
pub struct Noted {
    path: PathBuf,
    run: Uuid,
    /// Has the lock.
    _file: File,
}

impl Noted {
    /// Begins a run with the cache on this flash file.
    pub fn begin(dir: &Path, flash: &Path) -> Result<Self, Failure> {
        let run = Uuid::new_v4();
        let path = dir.join(format!("{}-{run}{ENDING}", std::process::id()));
        let note = Note {
            begun: Moment::now(),
            flash: flash.as_os_str().to_owned(),
        };
        let file = write(&path, &note).map_err(Failure::io("writing", path.display()))?;
        Ok(Self {
            path,
            run,
            _file: file,
        })
    }

    /// Which run this is.
    pub fn run(&self) -> Uuid {
        self.run
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn write(path: &Path, note: &Note) -> io::Result<File> {
    let mut file = File::create_new(path)?;
    // While it is empty no one else does. On a file system without locks nobody's is taken for left behind.
    let _ = file.try_lock();
    file.write_all(&serde_json::to_vec(note)?)?;
    Ok(file)
}

/// What a note says. None if it is still empty; and if its run was killed: then it goes.
fn read(path: &Path) -> Option<Note> {
    let mut file = File::open(path).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    if !bytes.is_empty() && file.try_lock_shared().is_ok() {
        let _ = fs::remove_file(path);
        return None;
    }
    serde_json::from_slice(&bytes).ok()
}

/// The process and the run that a note is of, by its name.
fn named(note: &Path) -> Option<(u32, Uuid)> {
    let name = note.file_name()?.to_str()?.strip_suffix(ENDING)?;
    let (pid, run) = name.split_once('-')?;
    Some((pid.parse().ok()?, run.parse().ok()?))
}

/// The flash caches of runs that go on.
#[derive(Default)]
pub struct Running {
    /// As their servers say they are, by the run's process id.
    pub statuses: BTreeMap<u32, Status>,
    silent: Vec<Silent>,
}

/// A run of which no server says how its cache is.
struct Silent {
    pid: u32,
    flash: PathBuf,
    begun: Moment,
}

impl Running {
    /// Of those with a note in this directory.
    pub fn of(dir: &Path) -> Self {
        let mut running = Self::default();
        let Ok(entries) = fs::read_dir(dir) else {
            return running;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let Some((pid, run)) = named(&path) else {
                continue;
            };
            let Some(Note { begun, flash }) = read(&path) else {
                continue;
            };
            let flash = PathBuf::from(flash);
            match Status::of_run(&status_file(&flash), run).filter(Status::is_current) {
                Some(status) => drop(running.statuses.insert(pid, status)),
                None => running.silent.push(Silent { pid, flash, begun }),
            }
        }
        running.silent.sort_unstable_by_key(|silent| silent.pid);
        running
    }

    /// True if all that say how they are are well, and the others have only just begun.
    pub fn is_well(&self) -> bool {
        self.statuses.values().all(Status::is_well)
            && self.silent.iter().all(|silent| silent.begun.is_recent())
    }

    /// Of each run of which no server says how its cache is, that it is so.
    pub fn silent(&self) -> impl Iterator<Item = String> {
        self.silent.iter().map(|Silent { pid, flash, .. }| {
            format!(
                "forebay {pid}: no server says how it is with the flash cache {0}: it has just been started, it has not got the library, it may not write {0}.status, or it is \
                 stopped, or gone. Unless its log says that page files go through the flash cache, nothing protects them from being torn",
                flash.display()
            )
        })
    }

    /// Everything, a paragraph for each run.
    pub fn paragraphs(&self) -> impl Iterator<Item = String> {
        let said = self.statuses.values();
        let said = said.map(|status| status.lines().join("\n") + "\n");
        said.chain(self.silent().map(|line| line + "\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A directory of runs, and a flash file beside it, of which this is said.
    fn said(status: &Status) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let flash = dir.path().join("cache");
        let bytes = serde_json::to_vec(status).unwrap();
        fs::write(status_file(&flash), bytes).unwrap();
        (dir, flash)
    }

    fn lines(running: &Running) -> String {
        running.paragraphs().collect()
    }

    #[test]
    fn a_run_that_has_just_begun_does_not_fail_because_its_server_says_nothing_yet() {
        // Of the run before, which was well.
        let (dir, flash) = said(&Status {
            pid: std::process::id(),
            said_at: Moment::now(),
            ..Status::default()
        });
        let noted = Noted::begin(dir.path(), &flash).unwrap();
        let running = Running::of(dir.path());
        assert!(running.is_well() && running.statuses.is_empty());
        assert!(lines(&running).contains("it has just been started"));
        drop(noted);
        assert_eq!(lines(&Running::of(dir.path())), "");
    }

    #[test]
    fn what_a_server_says_in_a_run_is_said_of_it() {
        let (dir, flash) = said(&Status::default());
        let noted = Noted::begin(dir.path(), &flash).unwrap();
        let status = Status {
            pid: std::process::id(),
            run: noted.run(),
            said_at: Moment::now(),
            lost_pages: 1,
            ..Status::default()
        };
        fs::write(status_file(&flash), serde_json::to_vec(&status).unwrap()).unwrap();
        let running = Running::of(dir.path());
        assert_eq!(running.statuses[&std::process::id()], status);
        assert!(!running.is_well() && running.silent().count() == 0);
    }

    #[test]
    fn the_note_of_a_run_that_was_killed_goes_and_one_that_is_being_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let [killed, begins] = [Uuid::new_v4(), Uuid::new_v4()].map(|run| {
            dir.path()
                .join(format!("{}-{run}{ENDING}", std::process::id()))
        });
        let note = Note {
            begun: Moment::default(),
            flash: "/fast/cache".into(),
        };
        drop(write(&killed, &note).unwrap());
        fs::write(&begins, "").unwrap();
        // A child that another test starts has the lock as well, until it executes its program.
        let limit = Instant::now() + Duration::from_secs(60);
        while !Running::of(dir.path()).is_well() {
            assert!(Instant::now() < limit);
        }
        assert!(!killed.exists() && begins.exists());
    }
}
