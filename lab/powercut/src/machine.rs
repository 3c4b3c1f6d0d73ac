//! One virtual machine: QEMU with an NVDIMM in a file, and one to three disks that the lab itself serves. Killing it is the power cut: what was in the
//! guest's memory is gone, the NVDIMM's file holds what its processors had stored there, and the disks what [`crate::disk`] says.

use crate::{
    Failure,
    disk::{Disk, Survival},
    nbd::Server,
};
use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

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
    /// Empty ones in `dir`, with further disks if the pool is to be on one, and if there is to be flash.
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

/// What every machine is started with.
pub struct Kernel {
    pub image: PathBuf,
    pub initramfs: PathBuf,
}

/// A running machine, killed when this is dropped.
pub struct Machine {
    process: Child,
    console: PathBuf,
    disks: Vec<Server>,
    /// Port of this machine that leads to the guest's server.
    pub port: u16,
    started: Instant,
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
        // Given back at once: QEMU binds it a moment later.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let output = File::create(&console)?;
        let nvdimm = format!(
            "memory-backend-file,id=nvdimm,share=on,mem-path={},size={NVDIMM}",
            images.nvdimm.display()
        );
        let mut disks = Vec::new();
        let mut attached = Vec::new();
        for (number, image) in images.disks().enumerate() {
            let socket = image.with_extension("socket");
            disks.push(Server::start(Disk::open(image)?, &socket)?);
            // Nothing of it is cached on this side: the guest's flushes reach the disk, and only they make anything durable.
            let disk = format!(
                "driver=nbd,node-name=disk{number},server.type=unix,server.path={},cache.direct=on,cache.no-flush=off",
                socket.display()
            );
            let device = format!("virtio-blk-pci,drive=disk{number},write-cache=on");
            attached.extend(["-blockdev".into(), disk, "-device".into(), device]);
        }
        // It ends with us, however we end.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"])
            .args(["-machine", "q35,nvdimm=on", "-m", "1G,slots=2,maxmem=4G"])
            .args(["-object", &nvdimm, "-device", "nvdimm,id=nv,memdev=nvdimm"])
            .args(attached)
            .args([
                "-netdev",
                &format!("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:6379"),
            ])
            .args(["-device", "virtio-net-pci,netdev=net,romfile="])
            .args([
                "-display",
                "none",
                "-serial",
                "stdio",
                "-monitor",
                "none",
                "-no-reboot",
            ])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&kernel.initramfs)
            .args([
                "-append",
                // The kernel's own tests of its ciphers have hung in emulation, and that of its timer fails where this machine is busy.
                &format!(
                    "console=ttyS0 quiet panic=-1 mitigations=off audit=0 apparmor=0 cryptomgr.notests no_timer_check {parameters}"
                ),
            ])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .map_err(|e| {
                format!("qemu-system-x86_64: {e}. Install it: scripts/setup.sh powercut")
            })?;
        Ok(Self {
            process,
            console,
            disks,
            port,
            started: Instant::now(),
        })
    }

    /// Seconds since it was started.
    pub fn age(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// What the guest printed.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// Calls `ready` until it gives something; fails if the guest says so, ends, or takes too long.
    pub fn wait<T>(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut(&Self, &str) -> Option<T>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + limit;
        loop {
            let console = self.console();
            if let Some(done) = ready(self, &console) {
                return Ok(done);
            }
            let why = if let Some(line) = console.lines().find(|line| line.contains("LAB failed")) {
                line.to_owned()
            } else if let Some(status) = self.process.try_wait()? {
                format!("the machine ended ({status})")
            } else if Instant::now() >= until {
                format!("nothing happened for {limit:?}")
            } else {
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            return Err(format!("{why}; the guest said:\n{}", console.trim_end()).into());
        }
    }

    /// Waits for its end. What it did not flush is lost.
    pub fn wait_end(mut self, limit: Duration) -> Result<(), Failure> {
        let until = Instant::now() + limit;
        while self.process.try_wait()?.is_none() {
            if Instant::now() >= until {
                return Err(format!("the guest did not end; it said:\n{}", self.console()).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.cut(0, |_| Survival { per_mille: 0 })?;
        Ok(())
    }

    /// Cuts the power: first the disks', so that nothing is acknowledged that came after. Of each disk survives what its number says.
    pub fn cut(mut self, seed: u64, survival: impl Fn(u64) -> Survival) -> Result<Cut, Failure> {
        for disk in &self.disks {
            disk.power_off();
        }
        self.process.kill()?;
        self.process.wait()?;
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

impl Drop for Machine {
    fn drop(&mut self) {
        // Ended already, or ours to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
