//! The size of a measurement.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Seconds: shows that it runs and gives every row, not how fast.
    Toy,
    /// Minutes: a first impression.
    Quick,
    /// The papers' sizes.
    Paper,
}

impl Size {
    /// The option that asks for it; none for the papers' sizes.
    #[must_use]
    pub fn option(self) -> Option<&'static str> {
        self.pick(Some("--toy"), Some("--quick"), None)
    }

    /// One of three.
    pub(crate) fn pick<T>(self, toy: T, quick: T, paper: T) -> T {
        match self {
            Self::Toy => toy,
            Self::Quick => quick,
            Self::Paper => paper,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pick("toy size", "quick size", "the papers' size"))
    }
}
