//! A MariaDB server in a guest: its data on one disk, and a smaller and faster one for what is to
//! cache that.

use crate::{
    Failure, MODULES,
    accelerator::Accelerator,
    bcache,
    disk::{self, Disk, Limits},
    initramfs::Initramfs,
    kernel::{self, Kernel},
    look::Look,
    machine::{self, Machine, NetworkSetup},
    mariadb,
    shell::{self, Shell},
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long the guest may take for what is not measured.
const PATIENCE: Duration = Duration::from_secs(600);

/// Room for ext4's own on the disk that Forebay's flash cache is a file of, beside the cache.
const FLASH_ROOM: u64 = 64 << 20;

/// What stands between the server and the disk with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Nothing.
    None,
    /// bcache in writeback mode.
    Bcache,
    /// Forebay's flash tier, with these contents and this policy.
    Forebay([String; 2]),
}

/// How a server is set up.
pub struct Setup<'a> {
    /// What the machine boots.
    pub kernel: &'a Kernel,
    /// The directory in which the data directory, `data`, lies.
    pub data: &'a Path,
    /// Bytes of the file system that it gets.
    pub data_bytes: u64,
    /// Bytes of the cache, whatever it is.
    pub flash_bytes: u64,
    /// How fast the disk of the data and that of the cache are.
    pub limits: [Limits; 2],
    /// The cache.
    pub cache: Cache,
    /// Where the disks are made.
    pub home: &'a Path,
}

/// A server that runs.
pub struct Server {
    /// Its machine.
    pub machine: Machine,
    cache: Cache,
    /// The disks of the data, and of the cache if there is one.
    images: Vec<PathBuf>,
    flash_bytes: u64,
    kernel: Kernel,
    console: PathBuf,
}

/// What such a machine needs and is not here, in words, with the remedy.
#[must_use]
pub fn lacking() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the laboratory's virtual machines are x86-64".to_owned());
    }
    let programs = [
        "/usr/bin/qemu-system-x86_64",
        "/bin/busybox",
        "/usr/bin/strip",
        "/usr/bin/setpriv",
        "/sbin/mke2fs",
        bcache::PROGRAM,
    ];
    let mut missing = programs
        .into_iter()
        .filter(|name| !Path::new(name).exists());
    match missing.next() {
        Some(name) => Some(format!("{name} is not installed: scripts/setup.sh bench")),
        None => kernel::installed(bcache::MODULE)
            .err()
            .map(|why| why.to_string()),
    }
}

/// What such a machine boots, made in `home`: the server, and the programs of Forebay that lie
/// beside `forebay`.
///
/// # Errors
/// Something is not installed, with the remedy; I/O errors.
pub fn kernel(forebay: &Path, home: &Path) -> Result<Kernel, Failure> {
    let release = kernel::installed(bcache::MODULE)?;
    let mut guest = Initramfs::default();
    guest.add_modules(&release, &[&MODULES[..], &[bcache::MODULE]].concat())?;
    shell::add(&mut guest)?;
    mariadb::add_server(&mut guest, home)?;
    for name in ["forebay", "libforebay.so"] {
        guest.add_stripped(&forebay.with_file_name(name), home, &format!("/lab/{name}"))?;
    }
    let initramfs = home.join("initramfs");
    fs::write(&initramfs, guest.archive())?;
    Ok(Kernel {
        image: kernel::unpacked(&release, home)?,
        initramfs,
        // Its figures are compared with earlier ones, which are of emulated processors.
        accelerator: Accelerator::Tcg,
    })
}

impl Setup<'_> {
    /// Makes the disks, boots, and starts the server with these options.
    ///
    /// # Errors
    /// I/O errors; whatever fails in the guest.
    pub fn start(&self, options: &[String]) -> Result<Server, Failure> {
        let [data, flash] = ["disk", "flash"].map(|name| self.home.join(name));
        let offset = match self.cache {
            Cache::Bcache => bcache::DATA_OFFSET,
            _ => 0,
        };
        disk::ext4(&data, offset, self.data_bytes, Some(self.data))?;
        let mut images = vec![data.clone()];
        match self.cache {
            Cache::None => {}
            Cache::Bcache => bcache::make(&data, &flash, self.flash_bytes)?,
            Cache::Forebay(_) => disk::ext4(&flash, 0, self.flash_bytes + FLASH_ROOM, None)?,
        }
        if self.cache != Cache::None {
            images.push(flash);
        }
        let console = self.home.join("console");
        let machine = boot(self.kernel, &images, Some(self.limits), &console)?;
        let server = Server {
            machine,
            cache: self.cache.clone(),
            images,
            flash_bytes: self.flash_bytes,
            kernel: self.kernel.clone(),
            console,
        };
        server.serve(options)?;
        Ok(server)
    }
}

/// A machine with these disks and a shell.
fn boot(
    kernel: &Kernel,
    images: &[PathBuf],
    limits: Option<[Limits; 2]>,
    console: &Path,
) -> Result<Machine, Failure> {
    let disk = |(number, image): (usize, &PathBuf)| Disk {
        image: image.clone(),
        limits: limits.map(|limits| limits[number]),
    };
    let disks: Vec<Disk> = images.iter().enumerate().map(disk).collect();
    let machine = machine::until_up(|| {
        let board = ["-machine", "q35", "-m", "1G"].map(str::to_owned);
        let devices = board.into_iter().chain(disk::words(&disks));
        let ports = [&[shell::PORT], &[mariadb::PORT; mariadb::CLIENTS][..]].concat();
        let network = NetworkSetup {
            ports: &ports,
            forwards: &[],
        };
        let mut machine = Machine::start(kernel, devices, network, "", console.to_owned())?;
        machine.guest.wait_up(PATIENCE).map(|()| machine)
    })?;
    machine.wait_shell(PATIENCE)?;
    Ok(machine)
}

impl Server {
    /// Mounts what there is, and starts it.
    fn serve(&self, options: &[String]) -> Result<(), Failure> {
        let (attach, disk) = match self.cache {
            Cache::Bcache => (bcache::ATTACH, "bcache0"),
            _ => ("", "vda"),
        };
        let mut script = format!("{attach}\nmkdir /data\nmount -t ext4 /dev/{disk} /data\n");
        let mut before = String::new();
        if let Cache::Forebay([contents, policy]) = &self.cache {
            script += "mkdir /flash\nmount -t ext4 /dev/vdb /flash\n";
            script += &format!(
                "[ -e /flash/cache ] || forebay flash create --flash /flash/cache {}KiB --contents {contents} --policy {policy}\n",
                self.flash_bytes >> 10
            );
            before = "forebay run --no-pool --flash /flash/cache --".to_owned();
        }
        self.machine.sh(&script, PATIENCE)?;
        mariadb::start(&self.machine, &before, options, PATIENCE)
    }

    /// The ports of this machine that lead to it.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.machine.ports(mariadb::PORT)
    }

    /// What the guest has counted.
    ///
    /// # Errors
    /// Those of the shell.
    pub fn look(&self) -> Result<Look, Failure> {
        Look::at(&self.machine)
    }

    /// How often the cache's disk has been written over by then; none without one.
    #[must_use]
    pub fn written_over(&self, look: &Look) -> Option<f64> {
        let written = look.disks[1].written_bytes as f64 / self.flash_bytes as f64;
        (self.cache != Cache::None).then_some(written)
    }

    /// How Forebay's flash tier is, as it writes it to a file (JSON); none without it.
    ///
    /// # Errors
    /// Those of the shell.
    pub fn status(&self) -> Result<Option<String>, Failure> {
        match self.cache {
            Cache::Forebay(_) => {
                let said = self.machine.sh("cat /flash/cache.status", PATIENCE)?;
                Ok(Some(said))
            }
            _ => Ok(None),
        }
    }

    /// Ends it in the orderly way, boots another machine with its disks, which are not slow now,
    /// and starts it there again.
    ///
    /// # Errors
    /// Whatever fails in the guest.
    pub fn again(mut self, options: &[String]) -> Result<Self, Failure> {
        self.stop()?;
        self.machine.guest.kill()?;
        self.machine = boot(&self.kernel, &self.images, None, &self.console)?;
        self.serve(options)?;
        Ok(self)
    }

    /// Ends it in the orderly way.
    ///
    /// # Errors
    /// It does not end in ten minutes.
    pub fn stop(&self) -> Result<(), Failure> {
        mariadb::stop(&self.machine, PATIENCE)
    }
}
