//! Latency profiles of memories slower than DRAM. docs/devices-memory.md says where their figures
//! are from.

use crate::fabric::{self, Policy};
use std::time::Duration;

/// How the processor's cache stands before a memory (x86's page attributes).
/// docs/devices-memory.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// Each copy to the memory and each read from it is an access of its own: plain memory, and UC.
    Uncached,
    /// WT: each copy goes to the device, reads are served by a cache of so many bytes, which a read
    /// that misses fills, line by line.
    WriteThrough {
        /// Bytes that the cache holds.
        cache_bytes: usize,
    },
    /// WC: what a thread copies between two fences goes to the device as one access, at the fence;
    /// reads are uncached.
    WriteCombining,
}

/// What one access costs on a device: a fixed latency and a bandwidth, for reads and writes.
///
/// The cost is added to the medium underneath, by waiting, so a profile is
/// what the device takes *beyond* DRAM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// The name that `--profile` takes.
    pub name: &'static str,
    /// Where the figures are from.
    pub source: &'static str,
    /// Added to each read access, nanoseconds.
    pub read_latency_ns: u32,
    /// Added to each write access, nanoseconds.
    pub write_latency_ns: u32,
    /// Read bandwidth, bytes per microsecond (= MB/s); 0 is unlimited.
    pub read_mb_per_s: u32,
    /// Write bandwidth, bytes per microsecond (= MB/s); 0 is unlimited.
    pub write_mb_per_s: u32,
    /// The cache before it.
    pub cache: CachePolicy,
    /// True if the device serves one access at a time, of all threads.
    pub one_at_a_time: bool,
}

const fn memory(
    name: &'static str,
    source: &'static str,
    read_latency_ns: u32,
    write_latency_ns: u32,
) -> Profile {
    Profile {
        name,
        source,
        read_latency_ns,
        write_latency_ns,
        read_mb_per_s: 0,
        write_mb_per_s: 0,
        cache: CachePolicy::Uncached,
        one_at_a_time: false,
    }
}

impl Profile {
    /// Every profile, in the order `--help` lists them.
    ///
    /// The first memories are given as access latencies beside DRAM's 50/50 ns; what stands here is
    /// the difference. The fabric-attached memory is one device ([`crate::fabric`]); its three
    /// policies differ in the cache before it, not in figures.
    pub const ALL: [Self; 8] = [
        memory("dram", "P4: 50/50 ns", 0, 0),
        memory("nvdimm-n", "P1: DRAM speed", 0, 0),
        memory("pcm", "P4: 50/500 ns", 0, 450),
        memory("xpoint-mm", "P4: 100/100 ns", 50, 50),
        memory("xpoint-sm", "P4: 200/200 ns", 150, 150),
        Self::of_fabric(Policy::Uc),
        Self::of_fabric(Policy::Wt),
        Self::of_fabric(Policy::Wc),
    ];

    /// Memory behind a fabric. One queue of depth 1.
    pub(crate) const fn of_fabric(policy: Policy) -> Self {
        let (source, cache) = match policy {
            Policy::Uc => ("P5: uncached", CachePolicy::Uncached),
            Policy::Wt => (
                "P5: write-through",
                CachePolicy::WriteThrough {
                    cache_bytes: fabric::CACHE_MIB << 20,
                },
            ),
            Policy::Wc => ("P5: write-combining", CachePolicy::WriteCombining),
        };
        Self {
            name: policy.profile(),
            source,
            read_latency_ns: fabric::READ.0,
            write_latency_ns: fabric::WRITE.0,
            read_mb_per_s: fabric::READ.1,
            write_mb_per_s: fabric::WRITE.1,
            cache,
            one_at_a_time: true,
        }
    }

    /// The profile of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name == name)
    }

    /// What a write of `bytes` bytes costs beyond DRAM.
    #[must_use]
    pub fn write_cost(&self, bytes: usize) -> Duration {
        cost(self.write_latency_ns, self.write_mb_per_s, bytes)
    }

    /// What a read of `bytes` bytes costs beyond DRAM.
    #[must_use]
    pub fn read_cost(&self, bytes: usize) -> Duration {
        cost(self.read_latency_ns, self.read_mb_per_s, bytes)
    }
}

fn cost(latency_ns: u32, mb_per_s: u32, bytes: usize) -> Duration {
    let transfer_ns = match u64::from(mb_per_s) {
        0 => 0,
        rate => bytes as u64 * 1_000 / rate,
    };
    Duration::from_nanos(u64::from(latency_ns) + transfer_ns)
}

#[cfg(test)]
mod tests {
    use super::Profile;

    #[test]
    fn every_profile_is_found_by_its_name() {
        for profile in Profile::ALL {
            assert_eq!(Profile::named(profile.name), Some(profile));
        }
        assert_eq!(Profile::named("tape"), None);
    }
}
