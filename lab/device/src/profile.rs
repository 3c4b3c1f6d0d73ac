//! Profiles of devices: those that are built in, and those of a TOML file. Figures and sources:
//! docs/devices.md.

use crate::{
    DeviceError,
    fabric::{self, Policy},
};
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// Requests that a device serves at once, at most.
pub(crate) const CHANNELS_MAX: usize = 64;

const US_MAX: f64 = 10_000_000.0;
const MIB_MAX: u64 = 64 << 10;

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name; of a file, the file's, if it does not say.
    #[serde(default)]
    pub name: String,
    /// Requests that it serves at once; they share the bandwidth. 1 … 64.
    #[serde(default = "one")]
    pub channels: u32,
    /// What a read costs.
    pub read: Cost,
    /// What a write costs, until the device says that it has it.
    pub write: Cost,
    /// Microseconds of a flush of the device's volatile cache, if something was written since the
    /// last; 0: it has none.
    #[serde(default)]
    pub flush_us: f64,
    /// True if the file system commits a journal record (one more write of a page) where a sync
    /// follows changed metadata.
    #[serde(default = "yes")]
    pub journal: bool,
    /// The memory in front of the device.
    #[serde(default)]
    pub cache: CacheModel,
}

/// What a request costs: a fixed time, and the transfer of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Microseconds before the first byte, away from where the last request ended.
    pub random_us: f64,
    /// Microseconds before the first byte, where the last request ended; as `random_us` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequential_us: Option<f64>,
    /// Microseconds before the first byte of a request smaller than a page; as the others if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_us: Option<f64>,
    /// Bandwidth, 10^6 bytes a second.
    pub mb_s: f64,
}

impl Cost {
    /// Fixed time and transfer time, in nanoseconds.
    #[must_use]
    pub fn of(&self, bytes: u64, is_sequential: bool) -> (u64, u64) {
        let place = match self.sequential_us {
            Some(us) if is_sequential => us,
            _ => self.random_us,
        };
        let us = match self.partial_us {
            Some(us) if bytes < crate::PAGE_BYTES => us,
            _ => place,
        };
        (ns(us), self.transfer_ns(bytes))
    }

    pub(crate) fn transfer_ns(&self, bytes: u64) -> u64 {
        // 10^6 bytes a second are a byte in a thousand nanoseconds.
        (bytes as f64 * 1e3 / self.mb_s) as u64
    }
}

pub(crate) fn ns(us: f64) -> u64 {
    (us * 1e3) as u64
}

/// The memory in front of a device: the page cache, or for memory behind a fabric the processor's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheModel {
    /// What was read or written before is read at no cost. False: every read is charged.
    pub reads: bool,
    /// Writes wait in memory until a sync, or until there are too many. False: every write is
    /// charged when it is made.
    pub writes: bool,
    /// Its size, MiB.
    pub mib: u64,
    /// What a sequential reader gets read ahead, and a mapping around a touched page, KiB.
    pub read_ahead_kib: u64,
    /// Written data that may wait, MiB; from half of it on it is written back behind.
    pub dirty_mib: u64,
}

impl Default for CacheModel {
    /// The page cache of Linux, with its read-ahead.
    fn default() -> Self {
        Self {
            reads: true,
            writes: true,
            mib: 4096,
            read_ahead_kib: 128,
            dirty_mib: 256,
        }
    }
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

impl Profile {
    /// Names of the profiles that are built in.
    pub const NAMES: [&'static str; 9] = [
        "hdd-7200",
        "hdd-15k-raid0x8",
        "sata-ssd",
        "sata-ssd-steady",
        "nvme",
        "nvram",
        Policy::Uc.profile(),
        Policy::Wt.profile(),
        Policy::Wc.profile(),
    ];

    /// A built-in profile.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        let text = match name {
            "hdd-7200" => include_str!("../profiles/hdd-7200.toml"),
            "hdd-15k-raid0x8" => include_str!("../profiles/hdd-15k-raid0x8.toml"),
            "sata-ssd" => include_str!("../profiles/sata-ssd.toml"),
            "sata-ssd-steady" => include_str!("../profiles/sata-ssd-steady.toml"),
            "nvme" => include_str!("../profiles/nvme.toml"),
            "nvram" => include_str!("../profiles/nvram.toml"),
            _ => {
                let mut policies = Policy::ALL.into_iter();
                return policies
                    .find(|it| it.profile() == name)
                    .map(Self::of_fabric);
            }
        };
        Self::parse(text, Path::new(name)).ok()
    }

    /// Memory behind a fabric, as a device. What differs below a page, and at a sync, are
    /// assumptions (docs/devices.md).
    pub(crate) fn of_fabric(policy: Policy) -> Self {
        let (write_partial_us, flush_us) = match policy {
            Policy::Uc => (None, 0.0),
            Policy::Wt => (Some(13.0), 0.0),
            Policy::Wc => (Some(9.0), 3.0),
        };
        let cost = |(ns, mb_s), partial_us| Cost {
            random_us: f64::from(ns) / 1e3,
            sequential_us: None,
            partial_us,
            mb_s: f64::from(mb_s),
        };
        Self {
            name: policy.profile().to_owned(),
            channels: 1,
            read: cost(fabric::READ, None),
            write: cost(fabric::WRITE, write_partial_us),
            flush_us,
            journal: false,
            cache: CacheModel {
                reads: policy == Policy::Wt,
                writes: false,
                mib: fabric::CACHE_MIB as u64,
                read_ahead_kib: 0,
                ..CacheModel::default()
            },
        }
    }

    /// The built-in profile of that name, or that of the TOML file at that path.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`], [`DeviceError::Unreadable`], [`DeviceError::Profile`].
    pub fn named(name: &str) -> Result<Self, DeviceError> {
        if let Some(profile) = Self::built_in(name) {
            return Ok(profile);
        }
        let path = Path::new(name);
        if !name.contains('/') && !name.ends_with(".toml") && !path.exists() {
            return Err(DeviceError::Unknown {
                name: name.to_owned(),
                known: Self::NAMES.join(", "),
            });
        }
        let text = fs::read_to_string(path).map_err(|source| DeviceError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Reads `text`, which errors say is in `path`.
    ///
    /// # Errors
    /// [`DeviceError::Profile`]: not TOML, an unknown key, a figure that cannot be.
    pub fn parse(text: &str, path: &Path) -> Result<Self, DeviceError> {
        let wrong = |line, what| DeviceError::Profile {
            path: path.to_owned(),
            line,
            what,
        };
        let mut profile: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| {
                1 + text
                    .bytes()
                    .take(span.start)
                    .filter(|&b| b == b'\n')
                    .count()
            });
            wrong(line, error.message().replace('\n', " "))
        })?;
        if profile.name.is_empty() {
            profile.name = path
                .file_stem()
                .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        }
        profile.check().map_err(|what| wrong(0, what))?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=CHANNELS_MAX as u32).contains(&self.channels) {
            return Err(format!(
                "channels is {}, not 1 to {CHANNELS_MAX}",
                self.channels
            ));
        }
        let times = [
            ("read.random_us", Some(self.read.random_us)),
            ("read.sequential_us", self.read.sequential_us),
            ("read.partial_us", self.read.partial_us),
            ("write.random_us", Some(self.write.random_us)),
            ("write.sequential_us", self.write.sequential_us),
            ("write.partial_us", self.write.partial_us),
            ("flush_us", Some(self.flush_us)),
        ];
        for (name, us) in times {
            if us.is_some_and(|us| !(0.0..=US_MAX).contains(&us)) {
                return Err(format!("{name} is not between 0 and {US_MAX}"));
            }
        }
        for (name, mb_s) in [
            ("read.mb_s", self.read.mb_s),
            ("write.mb_s", self.write.mb_s),
        ] {
            if !(0.001..=1e6).contains(&mb_s) {
                return Err(format!("{name} is not between 0.001 and 1000000"));
            }
        }
        for (name, mib) in [
            ("cache.mib", self.cache.mib),
            ("cache.dirty_mib", self.cache.dirty_mib),
        ] {
            if !(1..=MIB_MAX).contains(&mib) {
                return Err(format!("{name} is {mib}, not 1 to {MIB_MAX}"));
            }
        }
        if self.cache.read_ahead_kib > MIB_MAX {
            return Err(format!("cache.read_ahead_kib is more than {MIB_MAX}"));
        }
        Ok(())
    }

    /// Pages that are read around one that is touched in a mapping; at least 1.
    #[must_use]
    pub fn read_around_pages(&self) -> u64 {
        (self.cache.read_ahead_kib * 1024 / crate::PAGE_BYTES).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_is_one() {
        for name in Profile::NAMES {
            assert_eq!(Profile::built_in(name).unwrap().name, name);
        }
    }

    #[test]
    fn flash_writes_a_random_page_as_fast_as_the_paper_measured() {
        for (name, kib_s) in [
            ("sata-ssd", 86_459.0),
            ("nvme", 174_440.0),
            ("nvram", 189_395.0),
        ] {
            let (fixed, transfer) = Profile::built_in(name).unwrap().write.of(4096, false);
            let found = 4.0 / ((fixed + transfer) as f64 / 1e9);
            assert!(
                (found / kib_s - 1.0_f64).abs() < 0.02,
                "{name}: {found} for {kib_s}"
            );
        }
    }

    #[test]
    fn a_steady_ssd_is_slow_at_random_writes_and_not_at_sequential() {
        let steady = Profile::built_in("sata-ssd-steady").unwrap();
        let ns = |bytes, is_sequential| {
            let (fixed, transfer) = steady.write.of(bytes, is_sequential);
            (fixed + transfer) as f64
        };
        let random_a_second = f64::from(steady.channels) * 1e9 / ns(4096, false);
        assert!(
            (5000.0..8000.0).contains(&random_a_second),
            "{random_a_second}"
        );
        let sequential_mb_s = f64::from(1 << 20) / ns(1 << 20, true) * 1e3;
        assert!(
            (450.0..=500.0).contains(&sequential_mb_s),
            "{sequential_mb_s}"
        );
        assert!(steady.flush_us >= 1000.0);
        let fresh = Profile::built_in("sata-ssd").unwrap();
        assert_eq!(steady.read.of(16384, false), fresh.read.of(16384, false));
    }

    #[test]
    fn what_cannot_be_a_profile_is_refused_with_its_line() {
        let refused = |text: &str| {
            Profile::parse(text, Path::new("f.toml"))
                .unwrap_err()
                .to_string()
        };
        let sound = "read = { random_us = 1, mb_s = 2 }\nwrite = { random_us = 1, mb_s = 2 }\n";
        assert_eq!(
            Profile::parse(sound, Path::new("a/f.toml")).unwrap().name,
            "f"
        );
        assert!(refused(&format!("{sound}chanels = 3")).contains("line 3"));
        assert!(refused(&format!("channels = 0\n{sound}")).contains("channels is 0"));
        assert!(refused(&sound.replace("mb_s = 2", "mb_s = 0")).contains("read.mb_s"));
        assert!(refused(&sound.replace("random_us = 1", "random_us = -1")).contains("random_us"));
        assert!(refused(&sound.replace("random_us = 1", "random_us = nan")).contains("random_us"));
        assert!(refused("read = [").contains("line 1"));
        let unknown = Profile::named("floppy").unwrap_err().to_string();
        assert!(unknown.contains("floppy") && unknown.contains("hdd-7200"));
    }
}
