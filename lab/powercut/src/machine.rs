//! One machine, of one of two kinds, with persistent memory and one to four disks that the lab
//! itself has: an emulated one ([`emulated`]), which has a kernel of its own, or one in namespaces
//! of this machine's kernel ([`namespaces`]). Ending it is the power cut: the persistent memory
//! holds what the machine's processors had stored there, and the disks what [`crate::disk`] says.

pub mod emulated;
mod leg_server;
pub mod namespaces;

use crate::{Failure, disk::Survival, lab::PoolOn, shared_disk::SharedDisk};
use emulated::EmulatedMachine;
use forebay_guest::{namespace::NamespaceNetwork, watched::WatchedProcess};
use namespaces::NamespacesMachine;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// What a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum MachineKind {
    /// QEMU with a kernel of its own, an NVDIMM and disks: slow, and nothing of it outlives a cut
    Emulated,
    /// Namespaces of this machine's kernel, with loop devices: fast; needs root
    Namespace,
}

/// The guest's port of its server.
const PORT: u16 = 6379;

/// Bytes of the NVDIMM.
const NVDIMM: u64 = 128 << 20;
/// Bytes of the disk.
const DISK: u64 = 512 << 20;
/// Bytes of the disk that a pool is on.
const POOL_DISK: u64 = 64 << 20;
/// Bytes of a leg of the pool.
const LEG_BYTES: u64 = 25 << 20;
/// Bytes of the disk that a flash cache is on.
const FLASH_DISK: u64 = 64 << 20;

/// The files.
pub struct Images {
    /// The NVDIMM's bytes, or the directory that is in its place.
    pub nvdimm: PathBuf,
    pub disk: PathBuf,
    /// Further disks, where the pool is on such.
    pub pool: Vec<PathBuf>,
    /// What other machines have, where the pool is there.
    pub legs: Vec<PathBuf>,
    /// The last disk, where there is a flash cache.
    pub flash: Option<PathBuf>,
}

impl Images {
    /// Empty ones in `dir`, with further disks if the pool is to be on one, and if there is to be
    /// flash.
    pub fn create(
        kind: MachineKind,
        dir: &Path,
        pool: PoolOn,
        flash: bool,
    ) -> Result<Self, Failure> {
        let images = Self::in_dir(dir, pool.disks(), pool.legs(), flash);
        let mut all = vec![(&images.disk, DISK)];
        match kind {
            MachineKind::Emulated => all.push((&images.nvdimm, NVDIMM)),
            MachineKind::Namespace => fs::create_dir(&images.nvdimm)?,
        }
        all.extend(images.pool.iter().map(|path| (path, POOL_DISK)));
        all.extend(images.legs.iter().map(|path| (path, LEG_BYTES)));
        all.extend(images.flash.iter().map(|path| (path, FLASH_DISK)));
        for (path, bytes) in all {
            File::create(path).and_then(|file| file.set_len(bytes))?;
        }
        Ok(images)
    }

    fn in_dir(dir: &Path, pool: usize, legs: usize, flash: bool) -> Self {
        let numbered = |name, count| {
            let paths = (0..count).map(|number| dir.join(format!("{name}-{number}")));
            paths.collect()
        };
        Self {
            nvdimm: dir.join("nvdimm"),
            disk: dir.join("disk"),
            pool: numbered("pool", pool),
            legs: numbered("leg", legs),
            flash: flash.then(|| dir.join("flash")),
        }
    }

    /// The disks, in the order in which the guest has them.
    fn disks(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.disk)
            .chain(&self.pool)
            .chain(&self.flash)
    }

    /// The memory of the legs is lost, if the pool has one elsewhere besides.
    fn forget_legs(&self) -> Result<(), Failure> {
        if self.pool.is_empty() {
            return Ok(());
        }
        for leg in &self.legs {
            File::create(leg).and_then(|file| file.set_len(LEG_BYTES))?;
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.nvdimm)
            .chain(&self.legs)
            .chain(self.disks())
    }

    /// Copies of these in `dir`, of the flash only if it is wanted.
    pub fn copy_to(&self, dir: &Path, flash: bool) -> Result<Self, Failure> {
        fs::create_dir_all(dir)?;
        let flash = flash && self.flash.is_some();
        let copy = Self::in_dir(dir, self.pool.len(), self.legs.len(), flash);
        for (from, to) in self.all().zip(copy.all()) {
            let done = Command::new("cp")
                .args(["--recursive", "--no-target-directory", "--sparse=always"])
                .args([from, to])
                .status()?;
            if !done.success() {
                return Err(format!("copying {} failed", from.display()).into());
            }
        }
        Ok(copy)
    }
}

/// A running machine, ended when this is dropped.
pub enum Machine {
    Emulated(EmulatedMachine),
    Namespaces(NamespacesMachine),
}

/// How the guest's server is reached.
#[derive(Clone)]
pub struct GuestServer {
    port: u16,
    /// The network that the port is in, if it is not this machine's.
    network: Option<NamespaceNetwork>,
}

impl GuestServer {
    /// Does something to the server, which has this port there.
    pub fn reach<T: Send>(&self, act: impl FnOnce(u16) -> io::Result<T> + Send) -> io::Result<T> {
        match &self.network {
            None => act(self.port),
            Some(network) => network.enter(|| act(self.port))?,
        }
    }
}

/// What a cut left.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Sectors that had not been flushed.
    pub unflushed: u64,
    /// Those of them that did not arrive.
    pub dropped: u64,
}

impl Machine {
    fn guest(&self) -> &WatchedProcess {
        match self {
            Self::Emulated(of) => &of.machine.guest,
            Self::Namespaces(of) => &of.machine.guest,
        }
    }

    fn guest_mut(&mut self) -> &mut WatchedProcess {
        match self {
            Self::Emulated(of) => &mut of.machine.guest,
            Self::Namespaces(of) => &mut of.machine.guest,
        }
    }

    /// The server in it.
    pub fn server(&self) -> GuestServer {
        match self {
            Self::Emulated(of) => GuestServer {
                port: of.port(),
                network: None,
            },
            Self::Namespaces(of) => GuestServer {
                port: PORT,
                network: of.machine.network(),
            },
        }
    }

    /// Seconds since it was started.
    pub fn age(&self) -> f64 {
        self.guest().age()
    }

    /// What the guest printed.
    pub fn console(&self) -> String {
        self.guest().console()
    }

    /// Calls `ready` with the console until it gives something; fails if the guest says so, ends,
    /// or takes too long.
    pub fn wait<T>(
        &mut self,
        limit: Duration,
        ready: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        self.guest_mut().wait(limit, ready)
    }

    /// Waits until it is about to touch the disks.
    pub fn wait_up(&mut self, limit: Duration) -> Result<(), Failure> {
        match self {
            Self::Emulated(of) => of.machine.guest.wait_up(limit),
            Self::Namespaces(of) => of.machine.wait_up(limit),
        }
    }

    /// Waits for its end. What it did not flush is lost.
    pub fn wait_end(mut self, limit: Duration) -> Result<(), Failure> {
        self.guest_mut().wait_end(limit)?;
        self.cut(0, |_| Survival { per_mille: 0 })?;
        Ok(())
    }

    fn disks(&self) -> Vec<&SharedDisk> {
        match self {
            Self::Emulated(of) => of.disks().collect(),
            Self::Namespaces(of) => of.disks().collect(),
        }
    }

    /// Cuts the power: first the disks', so that nothing is acknowledged that came after. Of each
    /// disk survives what its number says.
    pub fn cut(mut self, seed: u64, survival: impl Fn(u64) -> Survival) -> Result<Cut, Failure> {
        match &mut self {
            Self::Emulated(of) => of.end()?,
            Self::Namespaces(of) => of.end()?,
        }
        let mut cut = Cut {
            unflushed: 0,
            dropped: 0,
        };
        for (number, disk) in (0..).zip(self.disks()) {
            let (unflushed, dropped) = disk.cut(seed ^ number, survival(number))?;
            cut.unflushed += unflushed;
            cut.dropped += dropped;
        }
        Ok(cut)
    }
}
