//! The directories of a run that have a device, and how its processes find them.

use crate::{
    DEVICES_MAX, Device, DeviceError, ENV_DEVICES, FileKey, PAGE_BYTES, Profile,
    cache::Pages,
    shared::{Shared, WAYS, count},
};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    fmt, fs,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    sync::atomic::Ordering::Relaxed,
};

/// A directory and its device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// The directory, absolute and without links.
    pub dir: PathBuf,
    /// The device.
    pub profile: Profile,
}

impl Placed {
    /// Reads `DIR=PROFILE`: a directory that is there, and a built-in profile or the path of a TOML
    /// file.
    ///
    /// # Errors
    /// [`DeviceError::Syntax`], [`DeviceError::Directory`], and those of [`Profile::named`].
    pub fn parse(text: &str) -> Result<Self, DeviceError> {
        let (dir, profile) = match text.rsplit_once('=') {
            Some((dir, profile)) if !dir.is_empty() && !profile.is_empty() => (dir, profile),
            _ => return Err(DeviceError::Syntax(text.to_owned())),
        };
        let dir = PathBuf::from(dir);
        let refused = |what: String| DeviceError::Directory {
            dir: dir.clone(),
            what,
        };
        let profile = Profile::named(profile)?;
        let found = fs::canonicalize(&dir).map_err(|e| refused(e.to_string()))?;
        if !found.is_dir() {
            return Err(refused("it is not a directory".to_owned()));
        }
        // The environment of the program carries it.
        if found.to_str().is_none() {
            return Err(refused("its path is not UTF-8".to_owned()));
        }
        Ok(Self {
            dir: found,
            profile,
        })
    }

    /// Sets of its page cache: a power of two.
    fn sets(&self) -> usize {
        let pages = self.profile.cache.mib * (1 << 20) / PAGE_BYTES;
        (pages as usize / WAYS).next_power_of_two().max(1)
    }
}

/// What a device was asked for since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests to read that reached the device.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Reads of pages that were in memory, which cost nothing.
    pub cached_reads: u64,
    /// Requests to write that reached the device.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// Syncs that were charged.
    pub syncs: u64,
    /// Flushes of the volatile cache.
    pub flushes: u64,
}

/// The devices of a run.
pub struct Devices {
    placed: Vec<Placed>,
    shared: Shared,
    /// In the process that made them: what others map, and keeps the memory.
    fd: Option<OwnedFd>,
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.placed).finish()
    }
}

/// What the environment says.
#[derive(Serialize, Deserialize)]
struct Note {
    state: String,
    devices: Vec<Placed>,
}

impl Devices {
    /// New devices, idle, with nothing in memory.
    ///
    /// # Errors
    /// [`DeviceError::Twice`], [`DeviceError::TooMany`], [`DeviceError::Shared`].
    pub fn create(placed: Vec<Placed>) -> Result<Self, DeviceError> {
        if placed.len() > DEVICES_MAX {
            return Err(DeviceError::TooMany(placed.len()));
        }
        for (at, one) in placed.iter().enumerate() {
            if placed[..at].iter().any(|other| other.dir == one.dir) {
                return Err(DeviceError::Twice(one.dir.clone()));
            }
        }
        let (shared, fd) = Shared::create(placed.iter().map(Placed::sets).sum())
            .map_err(|e| DeviceError::Shared(e.to_string()))?;
        Ok(Self {
            placed,
            shared,
            fd: Some(fd),
        })
    }

    /// What the environment of the run's processes must have, so that they find these devices as
    /// long as this process lives.
    #[must_use]
    pub fn environment(&self) -> Option<(OsString, OsString)> {
        let fd = self.fd.as_ref()?.as_raw_fd();
        let note = Note {
            state: format!("/proc/{}/fd/{fd}", std::process::id()),
            devices: self.placed.clone(),
        };
        Some((
            ENV_DEVICES.into(),
            serde_json::to_string(&note).ok()?.into(),
        ))
    }

    /// The devices that the environment names; none without.
    ///
    /// # Errors
    /// [`DeviceError::Shared`]: they cannot be reached.
    pub fn of_environment() -> Result<Option<Self>, DeviceError> {
        let Ok(note) = std::env::var(ENV_DEVICES) else {
            return Ok(None);
        };
        let failed = |what: String| DeviceError::Shared(what);
        let note: Note = serde_json::from_str(&note).map_err(|e| failed(e.to_string()))?;
        if note.devices.len() > DEVICES_MAX {
            return Err(DeviceError::TooMany(note.devices.len()));
        }
        let fd = rustix::fs::open(&note.state, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| failed(format!("{}: {e}", note.state)))?;
        let sets = note.devices.iter().map(Placed::sets).sum();
        let shared = Shared::map(rustix::fd::AsFd::as_fd(&fd), sets)
            .map_err(|e| failed(format!("{}: {e}", note.state)))?;
        Ok(Some(Self {
            placed: note.devices,
            shared,
            fd: None,
        }))
    }

    /// The directories and their profiles, by number.
    #[must_use]
    pub fn placed(&self) -> &[Placed] {
        &self.placed
    }

    /// The number of the device that a file with this absolute path is on: the innermost
    /// directory's. Does not allocate.
    #[must_use]
    pub fn holding(&self, path: &[u8]) -> Option<usize> {
        let below = |placed: &Placed| {
            let dir = placed.dir.as_os_str().as_bytes();
            let dir = dir.strip_suffix(b"/").unwrap_or(dir);
            let rest = path.strip_prefix(dir)?;
            (rest.is_empty() || rest[0] == b'/').then_some(dir.len())
        };
        let depths = self.placed.iter().enumerate();
        let depths = depths.filter_map(|(number, placed)| Some((below(placed)?, number)));
        depths.max().map(|(_, number)| number)
    }

    /// The device with this number.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<Device<'_>> {
        let before = self.placed.get(..number)?.iter().map(Placed::sets);
        let from: usize = before.sum();
        let placed = self.placed.get(number)?;
        Some(Device {
            number,
            profile: &placed.profile,
            state: &self.shared.state().devices[number],
            files: &self.shared.state().files,
            pages: Pages(self.shared.sets().get(from..from + placed.sets())?),
        })
    }

    /// A file is gone that may be one of ours: nothing of it need be written back.
    pub fn unlinked(&self, key: FileKey) {
        let number = Device::known_on(&self.shared.state().files, key);
        if let Some(device) = number.and_then(|number| self.get(number)) {
            device.emptied(key);
        }
    }

    /// What each device was asked for.
    #[must_use]
    pub fn counts(&self) -> Vec<Counts> {
        let of = |number: usize| {
            let figure = |at: usize| self.shared.state().devices[number].counts[at].load(Relaxed);
            Counts {
                reads: figure(count::READS),
                read_bytes: figure(count::READ_BYTES),
                cached_reads: figure(count::CACHED_READS),
                writes: figure(count::WRITES),
                write_bytes: figure(count::WRITE_BYTES),
                syncs: figure(count::SYNCS),
                flushes: figure(count::FLUSHES),
            }
        };
        (0..self.placed.len()).map(of).collect()
    }
}
