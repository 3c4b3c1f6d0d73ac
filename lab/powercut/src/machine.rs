//! One virtual machine: QEMU with an NVDIMM in a file, and one to three disks that the lab itself
//! serves. Killing it is the power cut: what was in the guest's memory is gone, the NVDIMM's file
//! holds what its processors had stored there, and the disks what [`crate::disk`] says.

use crate::{
    Failure,
    disk::{Disk, Survival},
    nbd::Server,
};
use forebay_guest::kernel::Kernel;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// The guest's port of its server.
const PORT: u16 = 6379;

/// Bytes of the NVDIMM.
const NVDIMM: u64 = 128 << 20;
/// Bytes of the disk.
const DISK: u64 = 512 << 20;
/// Bytes of the disk that a pool is on.
const POOL_DISK: u64 = 64 << 20;
/// Bytes of the disk that a flash cache is on.
const FLASH_DISK: u64 = 64 << 20;

/// The files.
pub struct Images {
    pub nvdimm: PathBuf,
    pub disk: PathBuf,
    /// A further disk, where the pool is on one.
    pub pool: Option<PathBuf>,
    /// The last disk, where there is a flash cache.
    pub flash: Option<PathBuf>,
}

impl Images {
    /// Empty ones in `dir`, with further disks if the pool is to be on one, and if there is to be
    /// flash.
    pub fn create(dir: &Path, pool_on_disk: bool, flash: bool) -> Result<Self, Failure> {
        let images = Self::in_dir(dir, pool_on_disk, flash);
        let [pool, flash] = [(&images.pool, POOL_DISK), (&images.flash, FLASH_DISK)]
            .map(|(image, bytes)| image.as_ref().map(|path| (path, bytes)));
        let all = [(&images.nvdimm, NVDIMM), (&images.disk, DISK)];
        for (path, bytes) in all.into_iter().chain(pool).chain(flash) {
            File::create(path).and_then(|file| file.set_len(bytes))?;
        }
        Ok(images)
    }

    fn in_dir(dir: &Path, pool_on_disk: bool, flash: bool) -> Self {
        Self {
            nvdimm: dir.join("nvdimm"),
            disk: dir.join("disk"),
            pool: pool_on_disk.then(|| dir.join("pool")),
            flash: flash.then(|| dir.join("flash")),
        }
    }

    /// The disks, in the order in which the guest has them.
    fn disks(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.disk)
            .chain(&self.pool)
            .chain(&self.flash)
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.nvdimm).chain(self.disks())
    }

    /// Copies of these in `dir`, of the flash only if it is wanted.
    pub fn copy_to(&self, dir: &Path, flash: bool) -> Result<Self, Failure> {
        fs::create_dir_all(dir)?;
        let copy = Self::in_dir(dir, self.pool.is_some(), flash && self.flash.is_some());
        for (from, to) in self.all().zip(copy.all()) {
            let done = Command::new("cp")
                .arg("--sparse=always")
                .args([from, to])
                .status()?;
            if !done.success() {
                return Err(format!("copying {} failed", from.display()).into());
            }
        }
        Ok(copy)
    }
}

/// A running machine, killed when this is dropped.
pub struct Machine {
    guest: forebay_guest::machine::Machine,
    disks: Vec<Server>,
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
    /// Boots with `parameters` on the kernel's command line.
    pub fn boot(
        kernel: &Kernel,
        images: &Images,
        parameters: &str,
        console: PathBuf,
    ) -> Result<Self, Failure> {
        let nvdimm = format!(
            "memory-backend-file,id=nvdimm,share=on,mem-path={},size={NVDIMM}",
            images.nvdimm.display()
        );
        let board = ["-machine", "q35,nvdimm=on", "-m", "1G,slots=2,maxmem=4G"];
        let memory = ["-object", &nvdimm, "-device", "nvdimm,id=nv,memdev=nvdimm"];
        let mut disks = Vec::new();
        let mut devices: Vec<String> = board.into_iter().chain(memory).map(str::to_owned).collect();
        for (number, image) in images.disks().enumerate() {
            let socket = image.with_extension("socket");
            disks.push(Server::start(Disk::open(image)?, &socket)?);
            // Nothing of it is cached on this side: the guest's flushes reach the disk, and only
            // they make anything durable.
            let disk = format!(
                "driver=nbd,node-name=disk{number},server.type=unix,server.path={},cache.direct=on,cache.no-flush=off",
                socket.display()
            );
            let device = format!("virtio-blk-pci,drive=disk{number},write-cache=on");
            devices.extend(["-blockdev".into(), disk, "-device".into(), device]);
        }
        Ok(Self {
            guest: forebay_guest::machine::Machine::start(
                kernel,
                devices,
                &[PORT],
                parameters,
                console,
            )?,
            disks,
        })
    }

    /// Port of this machine that leads to the guest's server.
    pub fn port(&self) -> u16 {
        self.guest.port(PORT)
    }

    /// Seconds since it was started.
    pub fn age(&self) -> f64 {
        self.guest.age()
    }

    /// What the guest printed.
    pub fn console(&self) -> String {
        self.guest.console()
    }

    /// Calls `ready` with the console until it gives something; fails if the guest says so, ends,
    /// or takes too long.
    pub fn wait<T>(
        &mut self,
        limit: Duration,
        ready: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        self.guest.wait(limit, ready)
    }

    /// Waits until it is about to touch the disks.
    pub fn wait_up(&mut self, limit: Duration) -> Result<(), Failure> {
        self.guest.wait_up(limit)
    }

    /// Waits for its end. What it did not flush is lost.
    pub fn wait_end(mut self, limit: Duration) -> Result<(), Failure> {
        self.guest.wait_end(limit)?;
        self.cut(0, |_| Survival { per_mille: 0 })?;
        Ok(())
    }

    /// Cuts the power: first the disks', so that nothing is acknowledged that came after. Of each
    /// disk survives what its number says.
    pub fn cut(mut self, seed: u64, survival: impl Fn(u64) -> Survival) -> Result<Cut, Failure> {
        for disk in &self.disks {
            disk.power_off();
        }
        self.guest.kill()?;
        let mut cut = Cut {
            unflushed: 0,
            dropped: 0,
        };
        for (number, disk) in (0..).zip(&self.disks) {
            let (unflushed, dropped) = disk.cut(seed ^ number, survival(number))?;
            cut.unflushed += unflushed;
            cut.dropped += dropped;
        }
        Ok(cut)
    }
}
