//! The configuration file.
//!
//! ```toml
//! absorb = ["*.aof"]              # instead of what the profile says
//!
//! [profile.mydb]                  # a new profile, or changes to one that is built in
//! programs = ["mydb-server"]
//! absorb = ["*.wal", "journal/*"]
//! preallocated = ["journal/*"]    # stay plain where they lie on the pool's own disk: they have their size before they are written
//! guard = "pg_replslot"           # where a guard keeps a server without Forebay from starting; "none"
//! refuse_io_uring = true          # making an io_uring fails with ENOSYS; false if it is left out of a new profile
//! ```

use super::{
    error::PolicyError,
    pattern,
    profile::{Profile, built_in},
};
use crate::guard::KINDS;
use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path, sync::LazyLock};

/// A configuration file's contents; the default is an empty one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    absorb: Option<Vec<String>>,
    #[serde(default)]
    profile: BTreeMap<String, ProfileOverride>,
}

/// Its part on one profile. What is absent is left as it is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileOverride {
    programs: Option<Vec<String>>,
    absorb: Option<Vec<String>>,
    preallocated: Option<Vec<String>>,
    refuse_io_uring: Option<bool>,
    guard: Option<String>,
}

/// The profiles of every run.
const BUILT_IN: &str = include_str!("profiles.toml");

/// For a profile without a guard.
const NO_GUARD: &str = "none";

impl PolicyConfig {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`PolicyError::Unreadable`] and [`PolicyError::Config`].
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let text = fs::read_to_string(path).map_err(|source| PolicyError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Reads `text`, which errors say is in `path`.
    ///
    /// # Errors
    /// [`PolicyError::Config`]: not TOML, an unknown key, a pattern that is none, a new profile without patterns.
    pub fn parse(text: &str, path: &Path) -> Result<Self, PolicyError> {
        let wrong = |line, what| PolicyError::Config {
            path: path.to_owned(),
            line,
            what,
        };
        let config: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| {
                1 + text
                    .bytes()
                    .take(span.start)
                    .filter(|&b| b == b'\n')
                    .count()
            });
            wrong(line, error.message().replace('\n', " "))
        })?;
        let known = built_in();
        for (name, profile) in &config.profile {
            if profile.absorb.is_none() && !known.iter().any(|p| p.name == *name) {
                let what = format!(
                    "the new profile {name:?} absorbs nothing; add absorb = [\"…\"] to [profile.{name}]"
                );
                return Err(wrong(0, what));
            }
        }
        let mut guards = config.profile.values().filter_map(|p| p.guard.as_deref());
        if let Some(guard) = guards.find(|name| *name != NO_GUARD && !KINDS.contains(name)) {
            let known = KINDS.join(", ");
            let what = format!("there is no guard {guard:?}; there are {known}, {NO_GUARD}");
            return Err(wrong(0, what));
        }
        let of_profiles = (config.profile.values())
            .flat_map(|profile| [&profile.absorb, &profile.preallocated])
            .flatten();
        for pattern in config.absorb.iter().chain(of_profiles).flatten() {
            pattern::check(pattern)
                .map_err(|what| wrong(0, format!("the pattern {pattern:?} {what}")))?;
        }
        Ok(config)
    }

    /// The patterns that are absorbed whatever the profile says.
    pub(super) fn absorb(&self) -> Option<&[String]> {
        self.absorb.as_deref()
    }

    /// The contents of `profiles.toml`; a test reads it by [`parse`](Self::parse), so it is no
    /// error. It is read once: the command line's help asks for it at every start.
    pub(super) fn built_in() -> &'static Self {
        static PARSED: LazyLock<PolicyConfig> =
            LazyLock::new(|| toml::from_str(BUILT_IN).unwrap_or_default());
        &PARSED
    }

    /// All profiles: those built in as changed here, and those that are new.
    pub(super) fn profiles(&self) -> Vec<Profile> {
        let mut profiles = built_in();
        self.change(&mut profiles);
        profiles
    }

    /// Changes these profiles, and adds those that are new.
    pub(super) fn change(&self, profiles: &mut Vec<Profile>) {
        for (name, change) in &self.profile {
            let at = profiles.iter().position(|p| p.name == *name);
            let at = at.unwrap_or_else(|| {
                profiles.push(Profile {
                    name: name.clone(),
                    ..Profile::default()
                });
                profiles.len() - 1
            });
            let profile = &mut profiles[at];
            if let Some(programs) = &change.programs {
                profile.programs.clone_from(programs);
            }
            if let Some(absorb) = &change.absorb {
                profile.absorb.clone_from(absorb);
            }
            if let Some(preallocated) = &change.preallocated {
                profile.preallocated.clone_from(preallocated);
            }
            if let Some(refuse) = change.refuse_io_uring {
                profile.refuse_io_uring = refuse;
            }
            if let Some(guard) = &change.guard {
                profile.guard = Some(guard.clone()).filter(|guard| guard != NO_GUARD);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, words: &[&str]) {
        let message = PolicyConfig::parse(text, Path::new("forebay.toml"))
            .unwrap_err()
            .to_string();
        for word in words {
            assert!(message.contains(word), "{word:?} is not in: {message}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_by_name_and_line() {
        refused(
            "absorb = []\nabsorbs = []\n",
            &["forebay.toml, line 2", "absorbs"],
        );
        refused(
            "\n\n[profile.redis]\nprogram = [\"x\"]\n",
            &["line 4", "program"],
        );
        refused("[profil.redis]\nabsorb = []\n", &["line 1", "profil"]);
    }

    #[test]
    fn what_is_no_toml_or_of_another_type_is_refused_with_its_line() {
        refused("absorb = [\"*.aof\"\n", &["forebay.toml, line"]);
        refused("# a comment\nabsorb = \"*.aof\"\n", &["line 2"]);
    }

    #[test]
    fn a_profile_or_pattern_that_does_nothing_is_refused() {
        refused(
            "[profile.mine]\nprograms = [\"x\"]\n",
            &["mine", "absorbs nothing"],
        );
        refused("absorb = [\"dir/\"]\n", &["dir/"]);
        refused(
            "[profile.postgres]\nguard = \"PG_VERSION\"\n",
            &["PG_VERSION", "pg_replslot", "none"],
        );
    }

    #[test]
    fn the_profiles_that_are_built_in_are_a_configuration() {
        PolicyConfig::parse(BUILT_IN, Path::new("profiles.toml")).unwrap();
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error_with_its_path() {
        let error = PolicyConfig::read(Path::new("/nowhere/forebay.toml")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/forebay.toml"));
    }
}
