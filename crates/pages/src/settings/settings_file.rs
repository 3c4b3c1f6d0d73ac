//! The file beside a cache that its settings are kept in, `PATH.settings`: the command replaces it,
//! and the process that has the cache looks at it several times a second. docs/flash-tier.md,
//! "Settings".
//!
//! It has a change for each command that something is left of, the newest last, and each has an id.
//! So a server tells those that are new to it, however many came between two looks, and does what
//! they name: what a command has not named stays as it is in that run.

use super::Settings;
use crate::control_files::{self, SETTINGS, beside, directory_of};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Where they are kept.
#[must_use]
pub fn settings_of(flash: &Path) -> PathBuf {
    beside(flash, SETTINGS)
}

/// What one command has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsChange {
    /// Told from every other one.
    id: Uuid,
    set: Settings,
}

/// What is kept for a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsFile(Vec<SettingsChange>);

/// What changes come to.
fn sum<'a>(changes: impl DoubleEndedIterator<Item = &'a SettingsChange>) -> Settings {
    (changes.rev()).fold(Settings::default(), |newer, change| newer.or(change.set))
}

impl SettingsFile {
    /// What is kept for this cache; nothing if there is no file.
    ///
    /// # Errors
    /// What the operating system says; `InvalidData` with the reason.
    pub fn read(flash: &Path) -> io::Result<Self> {
        Self::parse(control_files::bytes_of(&settings_of(flash)))
    }

    /// The same of what reading the file gave.
    fn parse(read: io::Result<Vec<u8>>) -> io::Result<Self> {
        let kept = match control_files::parse(read)? {
            None => Self::default(),
            Some(changes) => Self(changes),
        };
        (kept.settings().check()).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        Ok(kept)
    }

    /// Keeps other commands from changing it, until what is returned is gone.
    ///
    /// # Errors
    /// What the operating system says; `WouldBlock` if another one does not end.
    pub fn alone(flash: &Path) -> io::Result<File> {
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

    /// What a run begins with where its own command line says nothing.
    #[must_use]
    pub fn settings(&self) -> Settings {
        sum(self.0.iter())
    }

    /// With one more change. One of which newer ones name everything goes.
    ///
    /// # Errors
    /// In words, if they make no sense then.
    pub fn with(self, wanted: Settings) -> Result<Self, String> {
        wanted.or(self.settings()).check()?;
        let mut newer = wanted;
        let mut changes = vec![SettingsChange {
            id: Uuid::new_v4(),
            set: wanted,
        }];
        for change in self.0.into_iter().rev() {
            let all = newer.or(change.set);
            if all != newer {
                changes.push(change);
            }
            newer = all;
        }
        changes.reverse();
        Ok(Self(changes))
    }

    /// Keeps it for this cache, whole or not at all, and durably.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn keep(&self, flash: &Path) -> io::Result<()> {
        control_files::keep(&settings_of(flash), &self.0)
    }

    /// What was named since it was as `seen`.
    fn since(&self, seen: &Self) -> Settings {
        sum(self.0.iter().filter(|change| !seen.0.contains(change)))
    }
}

/// The file, looked at again and again.
pub(crate) struct WatchedSettings {
    flash: PathBuf,
    /// What it was when it was looked at last.
    bytes: Result<Vec<u8>, io::ErrorKind>,
    seen: SettingsFile,
}

impl WatchedSettings {
    /// Nothing of it was seen yet.
    pub(crate) fn new(flash: &Path) -> Self {
        Self {
            flash: flash.to_owned(),
            bytes: Err(io::ErrorKind::NotFound),
            seen: SettingsFile::default(),
        }
    }

    /// What was named since it was looked at last; why that is not known, once.
    pub(crate) fn changed(&mut self) -> Option<io::Result<Settings>> {
        let read = control_files::bytes_of(&settings_of(&self.flash));
        let bytes = read.as_ref().map(Vec::clone).map_err(io::Error::kind);
        if bytes == self.bytes {
            return None;
        }
        self.bytes = bytes;
        let now = match SettingsFile::parse(read) {
            Ok(now) => now,
            Err(e) => return Some(Err(e)),
        };
        let named = now.since(&self.seen);
        self.seen = now;
        (named != Settings::default()).then_some(Ok(named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PolicyName;
    use std::fs;

    fn policy(policy: PolicyName) -> Settings {
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
        let kept = SettingsFile::read(flash).unwrap().with(wanted).unwrap();
        kept.keep(flash).unwrap();
    }

    fn named(watched: &mut WatchedSettings) -> Option<Settings> {
        watched.changed().transpose().unwrap()
    }

    #[test]
    fn what_is_kept_is_read_again_and_a_change_is_seen_once() {
        let dir = tempfile::tempdir().unwrap();
        let flash = dir.path().join("f");
        assert_eq!(SettingsFile::read(&flash).unwrap(), SettingsFile::default());
        let mut watched = WatchedSettings::new(&flash);
        assert_eq!(named(&mut watched), None);
        set(&flash, policy(PolicyName::Around));
        assert_eq!(named(&mut watched), Some(policy(PolicyName::Around)));
        assert_eq!(named(&mut watched), None);
        let both = policy(PolicyName::Around).or(home_limit(1));
        set(&flash, home_limit(1));
        assert_eq!(SettingsFile::read(&flash).unwrap().settings(), both);
        fs::write(
            settings_of(&flash),
            r#"[{"id": "00000000-0000-0000-0000-000000000000", "set": {"policy": "sideways"}}]"#,
        )
        .unwrap();
        let e = watched.changed().unwrap().unwrap_err();
        assert!(e.to_string().contains("sideways"), "{e}");
        assert!(watched.changed().is_none());
    }

    #[test]
    fn a_server_follows_all_commands_since_its_last_look_and_of_each_what_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let flash = dir.path().join("f");
        set(&flash, policy(PolicyName::Back));
        let mut watched = WatchedSettings::new(&flash);
        // It starts between two of them.
        assert_eq!(named(&mut watched), Some(policy(PolicyName::Back)));
        set(&flash, home_limit(1));
        assert_eq!(named(&mut watched), Some(home_limit(1)));
        set(&flash, policy(PolicyName::Off));
        set(&flash, home_limit(2));
        let both = policy(PolicyName::Off).or(home_limit(2));
        assert_eq!(named(&mut watched), Some(both));
        // The run's command line may have said something else than is kept.
        set(&flash, policy(PolicyName::Off));
        assert_eq!(named(&mut watched), Some(policy(PolicyName::Off)));
    }

    #[test]
    fn a_change_of_which_newer_ones_name_everything_is_kept_no_longer() {
        let mut kept = SettingsFile::default();
        for bytes in 0..10 {
            let both = policy(PolicyName::Back).or(home_limit(bytes));
            kept = kept.with(both).unwrap().with(home_limit(bytes)).unwrap();
        }
        assert_eq!(kept.0.len(), 2, "{kept:?}");
        assert_eq!(kept.settings(), policy(PolicyName::Back).or(home_limit(9)));
        let kept = kept.with(policy(PolicyName::Off)).unwrap();
        assert_eq!(kept.0.len(), 2, "{kept:?}");
        assert_eq!(kept.settings(), policy(PolicyName::Off).or(home_limit(9)));
    }

    #[test]
    fn a_change_that_contradicts_what_is_kept_is_none() {
        let low = Settings {
            low: Some(60),
            ..Settings::default()
        };
        let high = Settings {
            high: Some(50),
            ..Settings::default()
        };
        let e = SettingsFile::default()
            .with(low)
            .unwrap()
            .with(high)
            .unwrap_err();
        assert!(e.contains("must not be above"), "{e}");
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
        let each = [low, high, policy(PolicyName::Through), home_limit(3 << 20)];
        thread::scope(|scope| {
            for wanted in each {
                let flash = &flash;
                scope.spawn(move || {
                    let _alone = SettingsFile::alone(flash).unwrap();
                    let kept = SettingsFile::read(flash).unwrap();
                    thread::sleep(Duration::from_millis(20));
                    kept.with(wanted).unwrap().keep(flash).unwrap();
                });
            }
        });
        let kept = SettingsFile::read(&flash).unwrap().settings();
        for wanted in each {
            assert!(kept.include(&wanted), "{wanted:?}: {kept:?}");
        }
    }
}
