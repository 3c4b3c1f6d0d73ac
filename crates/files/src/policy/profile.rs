//! Profiles: the known databases. Those that are built in stand in `profiles.toml`.

use super::config::PolicyConfig;
use std::ffi::OsStr;

/// A profile: the facts about a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Names of the programs that it is for.
    pub programs: Vec<String>,
    /// Patterns of the files that are absorbed.
    pub absorb: Vec<String>,
    /// Of those the ones that its programs give their size before they write to them. Nothing is to
    /// be synced there but the log's own blocks: on the pool's own disk a commit is the same write,
    /// and the drain a second one.
    pub preallocated: Vec<String>,
    /// Its programs get no `io_uring` and no Linux AIO: making one fails with `ENOSYS`, as on a
    /// kernel without, and they read and write by calls that can be seen.
    pub refuse_io_uring: bool,
    /// The directory, below its programs' working directory, that a [guard](crate::guard) is laid
    /// in.
    pub guard: Option<String>,
}

impl Profile {
    /// True if it is for a program of this name.
    pub(super) fn is_for(&self, program: &OsStr) -> bool {
        self.programs.iter().any(|p| OsStr::new(p) == program)
    }
}

/// The profiles that are built in, by name.
#[must_use]
pub fn built_in() -> Vec<Profile> {
    let mut profiles = Vec::new();
    PolicyConfig::built_in().change(&mut profiles);
    profiles
}
