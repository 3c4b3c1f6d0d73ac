//! A guest's counts since it booted: its processors' time, its disks' requests, and those that
//! bcache found.

use crate::{Failure, machine::Machine, shell::Shell};
use std::time::Duration;

/// Prints the counts, a line each.
const SCRIPT: &str = "head -n 1 /proc/stat
for disk in vda vdb; do echo \"$disk $(cat /sys/block/$disk/stat 2> /dev/null)\"; done
for stats in /sys/block/bcache0/bcache/stats_total; do
    ! [ -d $stats ] || echo bcache $(cd $stats; cat cache_hits cache_bypass_hits cache_misses cache_bypass_misses)
done";

/// Counts since the boot, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Time of the processors, in the kernel's ticks, and how much of it they had nothing to do or
    /// waited for a disk.
    pub ticks: u64,
    /// See above.
    pub idle_ticks: u64,
    /// `/dev/vda`, `/dev/vdb`.
    pub disks: [Requests; 2],
    /// Reads of the disk that bcache is before, and those of them that it had on its cache. Counted
    /// every 22 s.
    pub bcache_reads: u64,
    /// See above.
    pub bcache_found: u64,
}

/// What a disk was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Flushes of the disk's cache.
    pub flushes: u64,
}

impl Look {
    /// What the guest says now.
    ///
    /// # Errors
    /// Those of the shell.
    pub fn at(machine: &Machine) -> Result<Self, Failure> {
        Ok(Self::of(&machine.sh(SCRIPT, Duration::from_secs(60))?))
    }

    /// What is said in these lines. What is not there is 0.
    fn of(said: &str) -> Self {
        let mut look = Self::default();
        for line in said.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or_default();
            let counts: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
            let count = |at: usize| counts.get(at).copied().unwrap_or(0);
            // The fields are those of the kernel's documentation: proc(5),
            // Documentation/block/stat.rst.
            let requests = Requests {
                reads: count(0),
                writes: count(4),
                written_bytes: 512 * count(6),
                flushes: count(15),
            };
            match name {
                "cpu" => {
                    // Time of guests is in the others already.
                    look.ticks = counts.iter().take(8).sum();
                    look.idle_ticks = count(3) + count(4);
                }
                "vda" => look.disks[0] = requests,
                "vdb" => look.disks[1] = requests,
                "bcache" => {
                    look.bcache_reads = counts.iter().sum();
                    look.bcache_found = count(0) + count(1);
                }
                _ => {}
            }
        }
        look
    }

    /// What was counted since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let requests = |at: usize| {
            let (now, then) = (self.disks[at], earlier.disks[at]);
            Requests {
                reads: now.reads - then.reads,
                writes: now.writes - then.writes,
                written_bytes: now.written_bytes - then.written_bytes,
                flushes: now.flushes - then.flushes,
            }
        };
        Self {
            ticks: self.ticks - earlier.ticks,
            idle_ticks: self.idle_ticks - earlier.idle_ticks,
            disks: [requests(0), requests(1)],
            bcache_reads: self.bcache_reads - earlier.bcache_reads,
            bcache_found: self.bcache_found - earlier.bcache_found,
        }
    }

    /// The part of their time that the processors had nothing to do, percent.
    #[must_use]
    pub fn idle_percent(&self) -> f64 {
        100.0 * self.idle_ticks as f64 / self.ticks.max(1) as f64
    }

    /// The reads that bcache had on its cache, percent; 0 without it.
    #[must_use]
    pub fn found_percent(&self) -> f64 {
        100.0 * self.bcache_found as f64 / self.bcache_reads.max(1) as f64
    }

    /// What was counted in so many seconds, in words that follow others.
    #[must_use]
    pub fn told(&self, seconds: f64) -> String {
        let mut told = format!(
            ", the guest's processors idle for {:.0} %",
            self.idle_percent()
        );
        for (name, disk) in ["data", "flash"].iter().zip(&self.disks) {
            let a_second = |count: u64| count as f64 / seconds;
            told += &format!(
                ", disk of the {name} {:.0} reads/s, {:.0} writes/s of {:.0} KiB, {:.0} flushes/s",
                a_second(disk.reads),
                a_second(disk.writes),
                disk.written_bytes as f64 / 1024.0 / disk.writes.max(1) as f64,
                a_second(disk.flushes)
            );
        }
        if self.bcache_reads > 0 {
            told += &format!("; bcache had {:.1} % of the reads", self.found_percent());
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "cpu  100 0 50 700 150 0 0 0 9 0
vda     90  0  720 10  40 0  800  5 0 10 20 0 0 0 0 7 1
vdb
bcache 60 2 35 3
";

    #[test]
    fn what_the_kernel_says_is_read() {
        let look = Look::of(SAID);
        assert_eq!((look.ticks, look.idle_percent()), (1000, 85.0));
        let disk = Requests {
            reads: 90,
            writes: 40,
            written_bytes: 409_600,
            flushes: 7,
        };
        assert_eq!(look.disks, [disk, Requests::default()]);
        assert_eq!((look.bcache_reads, look.found_percent()), (100, 62.0));
        let told = look.told(10.0);
        let words = "idle for 85 %, disk of the data 9 reads/s, 4 writes/s of 10 KiB, 1 flushes/s";
        assert!(
            told.contains(words) && told.ends_with("62.0 % of the reads"),
            "{told}"
        );
    }

    #[test]
    fn between_two_moments_only_what_came_counts() {
        let before = Look::of(SAID);
        let after = Look::of(&SAID.replace("bcache 60", "bcache 70"));
        let between = after.since(&before);
        assert_eq!((between.bcache_reads, between.found_percent()), (10, 100.0));
        assert_eq!((between.ticks, between.idle_percent()), (0, 0.0));
        assert_eq!(between.disks, [Requests::default(); 2]);
    }
}
