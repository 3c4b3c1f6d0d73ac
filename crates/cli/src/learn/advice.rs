//! The advice on a file that a program wrote: absorbed already, a log, or nothing to gain.

use forebay_files::policy::{AbsorbPolicy, matches};
use forebay_trace::files::{TracedFile, WritingManner};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;

/// A new file costs the run real syncs before it is absorbed: below so many, nothing is gained.
const SYNCS_THAT_PAY: u64 = 8;

/// The use that `forebay run` would make of a file's syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearnedUse {
    /// It is absorbed without further options.
    Absorbed,
    /// It may be a log, and would be absorbed if it were asked for.
    Log,
    /// It may be a log, but other files have names like its own, and are none.
    Ambiguous,
    /// It is written from one end to the other, and synced too seldom to gain.
    ShortLived,
    /// It is written here and there: a database's pages.
    Pages,
    /// It is written through a mapping, which cannot be absorbed.
    Mapped,
    /// It is synced by this program, and written by something that was not seen.
    Unwritten,
    /// It is a directory: its names are in order by real syncs.
    Directory,
}

impl LearnedUse {
    /// The use of `file` under `policy`.
    pub fn of(file: &TracedFile, policy: &AbsorbPolicy) -> Self {
        let path = file.path.as_os_str().as_bytes();
        let is_named = || (policy.patterns.iter()).any(|pattern| matches(pattern.as_bytes(), path));
        match file.manner() {
            _ if file.is_directory => Self::Directory,
            _ if file.is_mapped => Self::Mapped,
            _ if is_named() => Self::Absorbed,
            WritingManner::Unwritten => Self::Unwritten,
            WritingManner::InPlace => Self::Pages,
            _ if file.syncs.count() < SYNCS_THAT_PAY => Self::ShortLived,
            WritingManner::Appended | WritingManner::InSequence => Self::Log,
        }
    }

    /// In the table.
    pub fn in_short(self) -> &'static str {
        match self {
            Self::Absorbed => "absorbed",
            Self::Log => "may be absorbed",
            Self::Ambiguous => "plain: named as pages",
            Self::ShortLived => "plain: few syncs",
            Self::Pages => "plain: no log",
            Self::Mapped => "plain: mapped",
            Self::Unwritten => "plain: writes unseen",
            Self::Directory => "plain: a directory",
        }
    }

    /// True if a copy to the pool could take the place of its syncs.
    pub fn gains(self) -> bool {
        matches!(self, Self::Absorbed | Self::Log)
    }
}

/// The way a file is written, in the table.
pub fn manner(file: &TracedFile) -> &'static str {
    match file.manner() {
        WritingManner::Unwritten => "-",
        WritingManner::Appended => "appended",
        WritingManner::InSequence if file.is_preallocated => "preallocated",
        WritingManner::InSequence => "in sequence",
        WritingManner::InPlace => "in place",
    }
}
