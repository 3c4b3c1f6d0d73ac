//! The file beside a cache that its settings are kept in, `PATH.settings`. The command replaces it,
//! and the process that has the cache reads it when it begins and when a command says so.
//! docs/flash-tier.md, "Settings".

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

/// The file in which they are kept.
#[must_use]
pub fn settings_of(flash: &Path) -> PathBuf {
    beside(flash, SETTINGS)
}

impl Settings {
    /// The settings kept for this cache; empty ones if there is no file.
    ///
    /// # Errors
    /// What the operating system says; `InvalidData` with the reason.
    pub fn kept(flash: &Path) -> io::Result<Self> {
        Self::read(flash).map(Option::unwrap_or_default)
    }

    /// The same; none if there is no file.
    pub(crate) fn read(flash: &Path) -> io::Result<Option<Self>> {
        let kept: Option<Self> = control_files::read(&settings_of(flash))?;
        match kept.map_or(Ok(()), |kept| kept.check()) {
            Ok(()) => Ok(kept),
            Err(why) => Err(io::Error::new(io::ErrorKind::InvalidData, why)),
        }
    }

    /// Keeps other commands from changing the kept settings, until the returned lock is gone.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::fixtures::flash_place;
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

    #[test]
    fn settings_that_contradict_each_other_are_not_taken() {
        let (_dir, flash) = flash_place();
        fs::write(settings_of(&flash), r#"{"low": 60, "high": 50}"#).unwrap();
        let e = Settings::kept(&flash).unwrap_err();
        assert!(e.to_string().contains("must not be above"), "{e}");
    }

    #[test]
    fn of_several_commands_at_a_time_each_is_kept() {
        let (_dir, flash) = flash_place();
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
