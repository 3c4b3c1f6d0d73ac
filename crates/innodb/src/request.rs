//! Another size of a cache that a server runs with: a file beside it, `PATH.resize`, which the
//! command writes and the process that has the cache looks for several times a second. How far it
//! is, and how it ended, that process says in its status. docs/flash-tier.md, "Another size".

use crate::{
    control_files::{self, RESIZE, beside, status_of},
    setup::{CacheFiles, CacheLocation, CacheOccupancy},
    status::{CacheStatus, ResizeProgress},
};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeRequest {
    /// Told from every other one.
    pub id: Uuid,
    /// How large the cache is to be.
    pub bytes: u64,
}

/// What a resize did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResizeResult {
    /// Pages written to the files, because their slots went.
    pub pages: u64,
    /// What is in it now.
    pub now: CacheOccupancy,
    /// False if the caller stopped it: it has the size that it had.
    pub complete: bool,
}

/// Where it is.
pub(crate) fn request_of(flash: &Path) -> PathBuf {
    beside(flash, RESIZE)
}

impl ResizeRequest {
    /// What is asked for of this cache, if anything is.
    pub(crate) fn read(flash: &Path) -> io::Result<Option<Self>> {
        control_files::read(&request_of(flash))
    }

    /// True until it is taken back.
    pub(crate) fn stands(&self, flash: &Path) -> bool {
        !matches!(Self::read(flash), Ok(other) if other != Some(*self))
    }

    /// Takes it back, by `remove`. Another one, which took its place meanwhile, stays.
    pub(crate) fn withdraw<E>(
        &self,
        flash: &Path,
        remove: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        match self.stands(flash) {
            true => remove(),
            false => Ok(()),
        }
    }
}

/// Takes back what is asked for, whatever it is.
pub(crate) fn take_back(flash: &Path) -> io::Result<()> {
    match fs::remove_file(request_of(flash)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// How long the process that has the cache may say nothing.
const PATIENCE: Duration = Duration::from_secs(15);

/// Has the process that has the cache on this flash file give it `bytes` bytes, waits until it has,
/// and says how far it is.
///
/// # Errors
/// What it says, in words. If it says nothing for fifteen seconds the request is taken back, and
/// what becomes of it is not known.
pub fn resize_running(
    flash: &Path,
    bytes: u64,
    progress: impl FnMut(&ResizeProgress),
) -> Result<ResizeResult, String> {
    let place = CacheLocation::of(flash).map_err(|e| e.to_string())?;
    let held = CacheFiles::of(&place).map_err(|e| e.to_string())?;
    ask(&held, bytes, PATIENCE, progress)
}

fn ask(
    held: &CacheFiles<'_>,
    bytes: u64,
    patience: Duration,
    mut progress: impl FnMut(&ResizeProgress),
) -> Result<ResizeResult, String> {
    const AGAIN: Duration = Duration::from_millis(50);
    let request = ResizeRequest {
        id: Uuid::new_v4(),
        bytes,
    };
    let flash = held.place().flash();
    let (path, status) = (request_of(flash), status_of(flash));
    (held.keep_beside(&path, &request)).map_err(|e| e.to_string())?;
    let withdraw = || request.withdraw(flash, || held.remove_beside(&path));
    let mut heard = Instant::now();
    let mut said = None;
    while heard.elapsed() < patience {
        thread::sleep(AGAIN);
        let Ok(now) = CacheStatus::read(&status) else {
            continue;
        };
        if let Some(answer) = now.resized.filter(|answer| answer.id == request.id) {
            // The command removes what it made: the server's user may have no right to. Where that
            // fails, each start does it once more.
            let _ = withdraw();
            return match answer.error {
                Some(error) => Err(error),
                None => Ok(ResizeResult {
                    pages: answer.pages,
                    now: CacheOccupancy {
                        pages: answer.kept,
                        dirty: answer.dirty,
                        slots: answer.slots,
                        ..CacheOccupancy::default()
                    },
                    complete: true,
                }),
            };
        }
        let mark = fs::metadata(&status).and_then(|meta| meta.modified()).ok();
        if let Some(resizing) = now.resizing.filter(|resizing| resizing.id == request.id) {
            progress(&resizing);
            if said != mark {
                heard = Instant::now();
                said = mark;
            }
        }
    }
    withdraw().map_err(|e| e.to_string())?;
    Err(format!(
        "the flash cache {} is in use by another process, which has not said for {} seconds in {} that it gives it another size: it is no server with this version of \
         Forebay, it may not write that file, or it takes long. Nothing is asked for any more; whether it has another size now, or will have, is not known: \
         forebay flash status, and that process's log, say how large it is. Repeat it then, or stop that process first",
        flash.display(),
        patience.as_secs(),
        status.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        setup::{create, fixtures::Two},
        status::ResizeAnswer,
    };
    use tempfile::TempDir;

    /// A directory with a cache, its flash file and its status.
    fn made() -> (TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (flash, status) = (dir.path().join("f"), dir.path().join("f.status"));
        create(&flash, 8 << 20).unwrap();
        (dir, flash, status)
    }

    /// Asks a process that says nothing.
    fn ask_in_vain(held: &CacheFiles<'_>) -> String {
        ask(held, 99, Duration::from_millis(100), |_| {}).unwrap_err()
    }

    fn answered(id: Uuid, error: Option<&str>) -> CacheStatus {
        CacheStatus {
            resized: Some(ResizeAnswer {
                id,
                slots: 7,
                error: error.map(str::to_owned),
                ..ResizeAnswer::default()
            }),
            ..CacheStatus::default()
        }
    }

    /// What is asked for, once it is.
    fn asked(flash: &Path) -> ResizeRequest {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(asked) = ResizeRequest::read(flash).unwrap() {
                return asked;
            }
            thread::yield_now();
        }
        panic!("nothing is asked for");
    }

    #[test]
    fn a_request_is_answered_by_the_cache_and_for_itself_alone() {
        let (_dir, flash, status) = made();
        assert_eq!(ResizeRequest::read(&flash).unwrap(), None);
        for error in [None, Some("it is too small")] {
            answered(Uuid::new_v4(), None).write(&status).unwrap();
            let resized = thread::scope(|scope| {
                scope.spawn(|| {
                    let asked = asked(&flash);
                    assert!(asked.bytes == 99 && asked.stands(&flash));
                    answered(asked.id, error).write(&status).unwrap();
                    // Unless who has asked did it before.
                    asked.withdraw(&flash, || take_back(&flash)).unwrap();
                    assert!(!asked.stands(&flash));
                });
                resize_running(&flash, 99, |_| {})
            });
            match error {
                None => assert_eq!(resized.unwrap().now.slots, 7),
                Some(error) => assert_eq!(resized.unwrap_err(), error),
            }
        }
    }

    #[test]
    fn an_answered_request_is_withdrawn_if_its_answerer_cannot() {
        let (_dir, flash, status) = made();
        for error in [None, Some("it is too small")] {
            let resized = thread::scope(|scope| {
                scope.spawn(|| answered(asked(&flash).id, error).write(&status).unwrap());
                resize_running(&flash, 99, |_| {})
            });
            assert_eq!(resized.is_err(), error.is_some());
            assert_eq!(ResizeRequest::read(&flash).unwrap(), None);
        }
    }

    #[test]
    fn of_a_process_that_says_nothing_it_is_not_said_what_it_did() {
        let (_dir, flash, _) = made();
        let place = CacheLocation::of(&flash).unwrap();
        let said = ask_in_vain(&CacheFiles::of(&place).unwrap());
        assert!(
            said.contains("is not known") && !said.contains("not changed"),
            "{said}"
        );
        assert_eq!(ResizeRequest::read(&flash).unwrap(), None);
    }

    /// Promise: as `what_has_the_name_of_a_cache_s_file_by_then_is_left`.
    #[test]
    fn a_request_is_in_the_held_directory_wherever_its_path_leads() {
        let dirs = Two::new();
        let at = |name| dirs.at(name);
        create(&at("x/f"), 8 << 20).unwrap();
        fs::write(at("other/f.resize"), "kept").unwrap();
        let place = CacheLocation::of(&at("x/f")).unwrap();
        let held = CacheFiles::of(&place).unwrap();
        dirs.swap();
        let said = ask_in_vain(&held);
        assert!(said.contains("is not known"), "{said}");
        assert_eq!(fs::read_to_string(at("other/f.resize")).unwrap(), "kept");
        assert!(!at("y/f.resize").exists());
    }

    #[test]
    fn what_is_no_request_is_said_to_be_none() {
        let dir = tempfile::tempdir().unwrap();
        let flash = dir.path().join("f");
        fs::write(request_of(&flash), "{\"bytes\": 7}").unwrap();
        assert!(ResizeRequest::read(&flash).is_err());
    }
}
