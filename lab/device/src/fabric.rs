//! Gen-Z: memory behind a fabric (P5), under each way that the processor's cache can stand before it. What both models are made of: that of a device
//! below a directory ([`Profile`]) and that of a memory that a pool is on ([`memory::Profile`]).

use crate::{
    memory::{self, CachePolicy},
    profile::{CacheModel, Cost, Profile},
};
use serde::Serialize;
use std::{fmt, str::FromStr};

/// A read: nanoseconds before the first byte, and megabytes a second. So 4 KiB take 35 µs, and 1 MiB 6.5 ms.
const READ: (u32, u32) = (9_650, 161);
/// A write: 25 µs, and 3.5 ms.
const WRITE: (u32, u32) = (11_400, 301);
/// Last-level cache of the processor that it was measured with, a Threadripper 1950X. The memory has none of its own.
const CACHE_MIB: usize = 32;

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

    /// As a device. What differs below a page, and at a sync, are assumptions (docs/devices.md).
    pub(crate) fn device(self) -> Profile {
        let (write_partial_us, flush_us) = match self {
            Self::Uc => (None, 0.0),
            Self::Wt => (Some(13.0), 0.0),
            Self::Wc => (Some(9.0), 3.0),
        };
        let cost = |(ns, mb_s), partial_us| Cost {
            random_us: f64::from(ns) / 1e3,
            sequential_us: None,
            partial_us,
            mb_s: f64::from(mb_s),
        };
        Profile {
            name: self.profile().to_owned(),
            channels: 1,
            read: cost(READ, None),
            write: cost(WRITE, write_partial_us),
            flush_us,
            journal: false,
            cache: CacheModel {
                reads: self == Self::Wt,
                writes: false,
                mib: CACHE_MIB as u64,
                read_ahead_kib: 0,
                ..CacheModel::default()
            },
        }
    }

    /// As a pool's memory. One queue of depth 1.
    pub(crate) const fn memory(self) -> memory::Profile {
        let (source, cache) = match self {
            Self::Uc => ("P5: uncached", CachePolicy::Uncached),
            Self::Wt => (
                "P5: write-through",
                CachePolicy::WriteThrough {
                    cache_bytes: CACHE_MIB << 20,
                },
            ),
            Self::Wc => ("P5: write-combining", CachePolicy::WriteCombining),
        };
        memory::Profile {
            name: self.profile(),
            source,
            read_latency_ns: READ.0,
            write_latency_ns: WRITE.0,
            read_mb_per_s: READ.1,
            write_mb_per_s: WRITE.1,
            cache,
            one_at_a_time: true,
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
mod tests {
    use super::*;

    #[test]
    fn both_models_cost_what_the_paper_measured() {
        for policy in Policy::ALL {
            let (device, memory) = (policy.device(), policy.memory());
            let device_us = |cost: Cost, bytes: usize| {
                let (fixed, transfer) = cost.of(bytes as u64, false);
                (fixed + transfer) as f64 / 1e3
            };
            for (bytes, read_us, write_us) in [(4096, 35.0, 25.0), (1 << 20, 6500.0, 3500.0)] {
                for (found, paper) in [
                    (device_us(device.read, bytes), read_us),
                    (device_us(device.write, bytes), write_us),
                    (memory.read_cost(bytes).as_secs_f64() * 1e6, read_us),
                    (memory.write_cost(bytes).as_secs_f64() * 1e6, write_us),
                ] {
                    assert!(
                        (found / paper - 1.0).abs() < 0.02,
                        "{policy}, {bytes} bytes: {found} for {paper}"
                    );
                }
            }
        }
    }
}
