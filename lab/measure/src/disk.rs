//! The device under a directory: what the laboratory adds to [`forebay_probe::disk`], and the
//! kernel's counters of what a block device wrote (/proc/diskstats).
//!
//! They are machine-wide: what other processes write to the device meanwhile counts too. So do the
//! file system's journal and metadata, which is the point of asking the device.

pub use forebay_probe::disk::{Effort, FileSystem, Speed, device_of, file_system, measure, pages};

use crate::rounds::{Span, median, span};
use std::{fs, ops::Sub};

/// What to know of what was written where there is no disk.
#[must_use]
pub fn note(speed: &Speed) -> Option<String> {
    let note = "the directory is not on a block device: nothing was written to a disk";
    speed.name.is_none().then(|| note.to_owned())
}

/// Several measurements as one: the medians, and the span of all.
#[must_use]
pub fn of_rounds(rounds: &[Speed]) -> Option<Speed> {
    let all = |figure: fn(&Speed) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
    Some(Speed {
        seq_write_mb_s: median(&all(|s| s.seq_write_mb_s)),
        seq_write_mb_s_span: Span {
            min: span(&all(|s| s.seq_write_mb_s_span.min)).min,
            max: span(&all(|s| s.seq_write_mb_s_span.max)).max,
        },
        fsync_us: median(&all(|s| s.fsync_us)),
        ..rounds.first()?.clone()
    })
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
    /// What the device of this name has written so far. Synchronise first what should count.
    #[must_use]
    pub fn by(device: &str) -> Option<Self> {
        Self::find(&fs::read_to_string("/proc/diskstats").ok()?, device)
    }

    /// By the device's line: `major minor name reads merged sectors ms writes merged sectors ms …`;
    /// a sector is 512 bytes.
    fn find(table: &str, device: &str) -> Option<Self> {
        table.lines().find_map(|line| {
            let mut fields = line.split_whitespace().skip(2);
            let is_it = fields.next()? == device;
            let mut fields = fields.skip(6).filter(|_| is_it);
            let mut number = || fields.next()?.parse::<u64>().ok();
            Some(Self {
                bytes: number()? * 512,
                request_ms: number()?,
            })
        })
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0
 254       1 vda1 48828 7435 4779074 30035 74457 41295 2048 512 0 32980 181840 20044 5 53071008 7932 9203 458";

    #[test]
    fn the_counters_are_those_of_the_device_asked_for() {
        let written = Written::find(TABLE, "vda1").unwrap();
        assert_eq!((written.bytes, written.request_ms), (1 << 20, 512));
        assert_eq!(written.us_per_kib(), Some(500.0));
        assert_eq!(Written::find(TABLE, "vda2"), None);
    }
}
