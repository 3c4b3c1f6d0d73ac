//! Errors in the choice of a profile and its patterns.

use std::{fmt, path::PathBuf};

/// The reason that nothing can be chosen.
#[derive(Debug)]
#[non_exhaustive]
pub enum PolicyError {
    /// No profile of that name.
    UnknownProfile {
        /// The name.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// Nothing says which files to absorb.
    NoPatterns,
    /// A pattern that is none.
    Pattern {
        /// The pattern.
        pattern: String,
        /// The mistake in it.
        what: &'static str,
    },
    /// The configuration file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The configuration file says something that cannot be.
    Config {
        /// The file.
        path: PathBuf,
        /// The line, from 1; 0 if it is not known.
        line: usize,
        /// The mistake there.
        what: String,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownProfile { name, known } => write!(
                f,
                "there is no profile {name:?}; there are {}, and those of a file given with --config",
                known.join(", ")
            ),
            Self::NoPatterns => f.write_str(
                "no file would be absorbed: neither the profile nor the configuration has a pattern. Add one: --absorb '*.log'",
            ),
            Self::Pattern { pattern, what } => write!(f, "the pattern {pattern:?} {what}"),
            Self::Unreadable { path, source } => {
                write!(f, "reading the configuration {}: {source}", path.display())
            }
            Self::Config {
                path,
                line: 0,
                what,
            } => write!(f, "{}: {what}", path.display()),
            Self::Config { path, line, what } => {
                write!(f, "{}, line {line}: {what}", path.display())
            }
        }
    }
}

impl std::error::Error for PolicyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}
