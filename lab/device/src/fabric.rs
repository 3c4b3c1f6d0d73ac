//! Gen-Z: memory behind a fabric (P5), under each way that the processor's cache can stand before
//! it. What both models are made of: that of a device below a directory
//! ([`Profile`](crate::Profile)) and that of a memory that a pool is on
//! ([`memory::Profile`](crate::memory::Profile)).

use serde::Serialize;
use std::{fmt, str::FromStr};

/// A read: nanoseconds before the first byte, and megabytes a second. So 4 KiB take 35 µs, and 1
/// MiB 6.5 ms.
pub(crate) const READ: (u32, u32) = (9_650, 161);
/// A write: 25 µs, and 3.5 ms.
pub(crate) const WRITE: (u32, u32) = (11_400, 301);
/// Last-level cache of the processor that it was measured with, a Threadripper 1950X. The memory
/// has none of its own.
pub(crate) const CACHE_MIB: usize = 32;

/// How the processor's cache stands before the memory (x86's page attributes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Uncached.
    Uc,
    /// Write-through: reads are cached, each write goes to the device.
    Wt,
    /// Write-combining: writes leave in bursts, reads are uncached.
    Wc,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Uc, Self::Wt, Self::Wc];

    /// The name of both profiles.
    #[must_use]
    pub const fn profile(self) -> &'static str {
        match self {
            Self::Uc => "gen-z-uc",
            Self::Wt => "gen-z-wt",
            Self::Wc => "gen-z-wc",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uc => "uc",
            Self::Wt => "wt",
            Self::Wc => "wc",
        })
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|policy| policy.to_string() == text)
            .ok_or_else(|| "there is no such cache policy; there are uc, wt and wc".to_owned())
    }
}

#[cfg(test)]
mod tests;
