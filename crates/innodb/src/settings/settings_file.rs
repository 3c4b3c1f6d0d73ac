//! The file beside a cache that its settings are kept in, `PATH.settings`: the command replaces it,
//! and the process that has the cache looks at it several times a second. docs/flash-tier.md,
//! "Settings".

use super::Settings;
use crate::control_files::{self, SETTINGS, beside, directory_of};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Where they are kept.
#[must_use]
pub fn settings_of(flash: &Path) -> PathBuf {
    beside(flash, SETTINGS)
}

impl Settings {
    /// What is kept for this cache; nothing if there is no file.
    ///
    /// # Errors
    /// What the operating system says; `InvalidData` with the reason.
    pub fn kept(flash: &Path) -> io::Result<Self> {
        Self::parse(control_files::bytes_of(&settings_of(flash)))
    }

    /// The same of what reading the file gave.
    fn parse(read: io::Result<Vec<u8>>) -> io::Result<Self> {
        let kept: Self = control_files::parse(read)?.unwrap_or_default();
        (kept.check()).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        Ok(kept)
    }

    /// Keeps other commands from changing what is kept, until what is returned is gone.
    ///
    /// # Errors
    /// What the operating system says; `WouldBlock` if another one does not end.
    pub fn lock(flash: &Path) -> io::Result<File> {
        const PATIENCE: Duration = Duration::from_secs(5);
        const AGAIN: Duration = Duration::from_millis(10);
        let dir = File::open(directory_of(flash))?;
        let begun = Instant::now();
        loop {
            match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE => thread::sleep(AGAIN),
                locked => return locked.map(|()| dir).map_err(io::Error::from),
            }
        }
    }

    /// Keeps these for this cache, whole or not at all, and durably.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn keep(&self, flash: &Path) -> io::Result<()> {
        control_files::keep(&settings_of(flash), self)
    }
}

/// The file, looked at again and again.
pub(crate) struct WatchedSettings {
    flash: PathBuf,
    /// What it was when it was looked at last.
    bytes: Result<Vec<u8>, io::ErrorKind>,
}

impl WatchedSettings {
    /// Nothing of it was seen yet.
    pub(crate) fn new(flash: &Path) -> Self {
        Self {
            flash: flash.to_owned(),
            bytes: Err(io::ErrorKind::NotFound),
        }
    }

    /// What it says, if it is another than when it was looked at last; why that is not known, once.
    /// A file that is gone says nothing: what it said may have been chosen for safety.
    pub(crate) fn changed(&mut self) -> Option<io::Result<Settings>> {
        let read = control_files::bytes_of(&settings_of(&self.flash));
        let bytes = read.as_ref().map(Vec::clone).map_err(io::Error::kind);
        if bytes == self.bytes {
            return None;
        }
        self.bytes = bytes;
        Some(match read {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Err(gone),
            read => Settings::parse(read),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_flash::WritePolicy;
    use std::fs;

    fn policy(policy: WritePolicy) -> Settings {
        Settings {
            policy: Some(policy),
            ..Settings::default()
        }
    }

    fn home_limit(bytes: u64) -> Settings {
        Settings {
            home_bytes_per_second: Some(bytes),
            ..Settings::default()
        }
    }

    /// As the command does it.
    fn set(flash: &Path, wanted: Settings) {
        let kept = wanted.or(Settings::kept(flash).unwrap());
        kept.keep(flash).unwrap();
    }

    fn set_anew(flash: &Path, wanted: Settings) {
        wanted.keep(flash).unwrap();
    }

    fn seen(watched: &mut WatchedSettings) -> Option<Settings> {
        watched.changed().transpose().unwrap()
    }

    #[test]
    fn what_is_kept_is_read_again_and_a_change_is_seen_once() {
        let dir = tempfile::tempdir().unwrap();
        let flash = dir.path().join("f");
        assert_eq!(Settings::kept(&flash).unwrap(), Settings::default());
        let mut watched = WatchedSettings::new(&flash);
        assert_eq!(seen(&mut watched), None);
        set(&flash, policy(WritePolicy::Around));
        assert_eq!(seen(&mut watched), Some(policy(WritePolicy::Around)));
        assert_eq!(seen(&mut watched), None);
        let both = policy(WritePolicy::Around).or(home_limit(1));
        set(&flash, home_limit(1));
        assert_eq!(Settings::kept(&flash).unwrap(), both);
        assert_eq!(seen(&mut watched), Some(both));
        fs::write(settings_of(&flash), r#"{"policy": "sideways"}"#).unwrap();
        let e = watched.changed().unwrap().unwrap_err();
        assert!(e.to_string().contains("sideways"), "{e}");
        assert!(watched.changed().is_none());
        // What is in force was kept, and stays so.
        set_anew(&flash, policy(WritePolicy::Through));
        assert_eq!(seen(&mut watched), Some(policy(WritePolicy::Through)));
        fs::remove_file(settings_of(&flash)).unwrap();
        let e = watched.changed().unwrap().unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
        assert!(watched.changed().is_none());
    }

    #[test]
    fn settings_that_contradict_each_other_are_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let flash = dir.path().join("f");
        fs::write(settings_of(&flash), r#"{"low": 60, "high": 50}"#).unwrap();
        let e = Settings::kept(&flash).unwrap_err();
        assert!(e.to_string().contains("must not be above"), "{e}");
    }

    #[test]
    fn of_several_commands_at_a_time_each_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let flash = dir.path().join("f");
        let low = Settings {
            low: Some(20),
            ..Settings::default()
        };
        let high = Settings {
            high: Some(90),
            ..Settings::default()
        };
        let each = [low, high, policy(WritePolicy::Through), home_limit(3 << 20)];
        thread::scope(|scope| {
            for wanted in each {
                let flash = &flash;
                scope.spawn(move || {
                    let _alone = Settings::lock(flash).unwrap();
                    let kept = Settings::kept(flash).unwrap();
                    thread::sleep(Duration::from_millis(20));
                    wanted.or(kept).keep(flash).unwrap();
                });
            }
        });
        let kept = Settings::kept(&flash).unwrap();
        for wanted in each {
            assert!(kept.include(&wanted), "{wanted:?}: {kept:?}");
        }
    }
}
