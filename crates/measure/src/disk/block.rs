//! The kernel's counters of what a block device wrote (/proc/diskstats).
//!
//! They are machine-wide: what other processes write to the device meanwhile counts too. So do the
//! file system's journal and metadata, which is the point of asking the device.

use rustix::fs::{major, minor, stat};
use std::{fs, ops::Sub, path::Path};

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    number: (u32, u32),
    /// Its name, as in `nvme0n1p2`.
    pub name: String,
}

/// What a device has written since it appeared; the difference of two says what it wrote between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes.
    pub bytes: u64,
    /// Milliseconds that write requests took, summed over requests, waiting in the queue included.
    pub request_ms: u64,
}

impl Written {
    /// P1's figure 8: how long the device's writes took per KiB, in microseconds.
    #[must_use]
    pub fn us_per_kib(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.request_ms as f64 * 1e3 / (self.bytes as f64 / 1024.0))
    }
}

impl Sub for Written {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            request_ms: self.request_ms.saturating_sub(earlier.request_ms),
        }
    }
}

impl BlockDevice {
    /// The device that holds `path`, if one does: files in memory, or on the network, have none.
    #[must_use]
    pub fn holding(path: &Path) -> Option<Self> {
        let device = stat(path).ok()?.st_dev;
        Self::numbered(major(device), minor(device)).or_else(|| {
            // File systems over several devices (btrfs) have a number of their own: ask the mount.
            let source = super::file_system(path)?.source;
            let device = stat(source.as_str()).ok()?.st_rdev;
            Self::numbered(major(device), minor(device))
        })
    }

    fn numbered(major: u32, minor: u32) -> Option<Self> {
        let table = fs::read_to_string("/proc/diskstats").ok()?;
        let (name, _) = find(&table, (major, minor))?;
        Some(Self {
            number: (major, minor),
            name,
        })
    }

    /// What it has written so far. Synchronise first what should count.
    #[must_use]
    pub fn written(&self) -> Option<Written> {
        let table = fs::read_to_string("/proc/diskstats").ok()?;
        find(&table, self.number).map(|(_, written)| written)
    }
}

/// The device's line: `major minor name reads merged sectors ms writes merged sectors ms …`; a
/// sector is 512 bytes.
fn find(table: &str, number: (u32, u32)) -> Option<(String, Written)> {
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
        if (field(0)?, field(1)?) != (u64::from(number.0), u64::from(number.1)) {
            return None;
        }
        let written = Written {
            bytes: field(9)? * 512,
            request_ms: field(10)?,
        };
        Some(((*fields.get(2)?).to_owned(), written))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0
 254       1 vda1 48828 7435 4779074 30035 74457 41295 2048 512 0 32980 181840 20044 5 53071008 7932 9203 458";

    #[test]
    fn the_counters_are_those_of_the_device_asked_for() {
        let (name, written) = find(TABLE, (254, 1)).unwrap();
        assert_eq!(name, "vda1");
        assert_eq!(written.bytes, 1 << 20);
        assert_eq!(written.us_per_kib(), Some(500.0));
        assert_eq!(find(TABLE, (254, 2)), None);
    }

    #[test]
    fn files_in_memory_have_no_block_device() {
        assert_eq!(BlockDevice::holding(Path::new("/proc/self")), None);
    }
}
