//! The policy that chooses absorbed files: profiles by program, a configuration file over them, and
//! patterns.
//!
//! A pattern is one of fnmatch(3) (`*`, `?`, `[a-z]`, `\`), where `*` and `?` do not match a slash.
//! It is compared with as many of a path's last names as it has itself: `*.aof` with the file's
//! name wherever it lies, `pg_wal/*` with whatever lies in a directory `pg_wal`. A pattern that
//! begins with a slash is compared with the whole path. [`matches`] decides.
//!
//! Precedence: a profile is chosen by name, or else by the program's name, from those built in
//! (`profiles.toml`) and those of the configuration file, which may also change what is built in. A
//! program that none names has the profile [`ANY`], unless the user gives patterns. `absorb` at the
//! top of the file replaces the profile's patterns; patterns of the command line are added.

mod config;
mod error;
mod pattern;
mod profile;

pub use config::PolicyConfig;
pub use error::PolicyError;
pub use pattern::matches;
pub use profile::{Profile, built_in};

use std::ffi::OsStr;

/// The profile of patterns that the user gives without naming any.
pub const GENERIC: &str = "generic";

/// The profile of a program that no other one names.
pub const ANY: &str = "any";

/// The files that one run absorbs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsorbPolicy {
    /// The profile's name, or [`GENERIC`].
    pub profile: String,
    /// Patterns, each once, for [`matches`].
    pub patterns: Vec<String>,
    /// Patterns of files that have their size before they are written: they stay plain where they
    /// lie on the disk of the pool.
    pub preallocated: Vec<String>,
    /// Making an `io_uring` fails with `ENOSYS`.
    pub refuse_io_uring: bool,
    /// The directory, below the working directory, in which a [guard](crate::guard) is laid, if
    /// any.
    pub guard: Option<String>,
}

/// Patterns for people: equal sets of characters that follow each other are counted.
#[must_use]
pub fn patterns_in_short(patterns: &[String]) -> String {
    let shown: Vec<String> = patterns.iter().map(|p| in_short(p)).collect();
    shown.join(" ")
}

fn in_short(pattern: &str) -> String {
    let mut shown = String::new();
    let mut left = pattern;
    while let Some(open) = left.find('[') {
        let (before, rest) = left.split_at(open);
        let set = rest.find(']').map_or(rest, |close| &rest[..=close]);
        let times = (rest.len() - rest.trim_start_matches(set).len()) / set.len();
        shown.push_str(before);
        shown.push_str(set);
        if times > 1 {
            shown.push_str(&format!("×{times}"));
        }
        left = &rest[times * set.len()..];
    }
    shown + left
}

/// The user's wishes, and the program that they are about.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRequest<'a> {
    /// The program's names, the likeliest first: as it was called, and as the file is called that
    /// this leads to.
    pub programs: &'a [&'a OsStr],
    /// The profile that the user names.
    pub profile: Option<&'a str>,
    /// The configuration.
    pub config: &'a PolicyConfig,
    /// Patterns that the user adds.
    pub absorb: &'a [String],
}

/// Chooses the files to absorb.
///
/// # Errors
/// [`PolicyError::UnknownProfile`]; without patterns to absorb [`PolicyError::NoPatterns`];
/// [`PolicyError::Pattern`].
pub fn choose(request: PolicyRequest<'_>) -> Result<AbsorbPolicy, PolicyError> {
    let profiles = request.config.profiles();
    let named = |name: &str| profiles.iter().find(|p| p.name == name);
    let profile = match request.profile {
        Some(GENERIC) => None,
        Some(name) => Some(named(name).ok_or_else(|| PolicyError::UnknownProfile {
            name: name.to_owned(),
            known: profiles.iter().map(|p| p.name.clone()).collect(),
        })?),
        None => (request.programs.iter())
            .find_map(|program| profiles.iter().find(|p| p.is_for(program)))
            .or_else(|| named(ANY).filter(|_| request.absorb.is_empty())),
    };
    let own = match (request.config.absorb(), profile) {
        (Some(patterns), _) => patterns,
        (None, Some(profile)) => profile.absorb.as_slice(),
        (None, None) => &[],
    };
    let mut patterns: Vec<String> = Vec::new();
    for pattern in own.iter().chain(request.absorb) {
        pattern::check(pattern).map_err(|what| PolicyError::Pattern {
            pattern: pattern.clone(),
            what,
        })?;
        if !patterns.contains(pattern) {
            patterns.push(pattern.clone());
        }
    }
    if patterns.is_empty() {
        return Err(PolicyError::NoPatterns);
    }
    Ok(AbsorbPolicy {
        refuse_io_uring: profile.is_some_and(|profile| profile.refuse_io_uring),
        guard: profile.and_then(|profile| profile.guard.clone()),
        profile: profile.map_or_else(|| GENERIC.to_owned(), |p| p.name.clone()),
        preallocated: profile.map_or_else(Vec::new, |profile| profile.preallocated.clone()),
        patterns,
    })
}

#[cfg(test)]
mod tests;
