//! The beginning of all cycles: the guest's first file systems, with kernels or without, and the
//! images of a formatted disk and an empty pool.

use crate::{
    Failure,
    boots::{check_build, guest},
    disk::Survival,
    etcd,
    machine::{
        Images, Machine, MachineKind, emulated::EmulatedMachine, namespaces::NamespacesMachine,
    },
    mariadb, nats, postgres,
    workload::Beside,
};
use forebay_guest::{
    accelerator::{self, Accelerator},
    initramfs::Initramfs,
    kernel::{self, Kernel},
    machine::until_up,
};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long a machine may take to do what it is to do.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Seconds that a server may take to begin where nothing is emulated.
const NAMESPACE_PATIENCE_S: u64 = 40;

/// Where the pool is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum PoolOn {
    /// A file on ext4 `-o dax`, mapped with `MAP_SYNC`.
    Fsdax,
    /// The NVDIMM as a character device.
    Devdax,
    /// A second disk, whole.
    Disk,
    /// A file on ext4 on a second disk.
    DiskFile,
    /// Two further disks that the guest's kernel mirrors (md), whole. One of them is another one,
    /// and empty, after every second cut.
    Mirror,
    /// Two exports of NBD servers outside of an emulated machine.
    Legs,
    /// One such export, which loses its memory at each cut, and a second disk of the machine.
    LegDisk,
    /// A file in memory that outlives the machine, which takes it for persistent memory: of a
    /// machine in namespaces.
    Memory,
}

impl PoolOn {
    /// As the guest's command line says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsdax => "fsdax",
            Self::Devdax => "devdax",
            Self::Disk => "disk",
            Self::DiskFile => "disk-file",
            Self::Mirror => "mirror",
            Self::Legs => "legs",
            Self::LegDisk => "leg-disk",
            Self::Memory => "memory",
        }
    }

    /// Exports outside of the machine that it is on.
    pub fn legs(self) -> usize {
        match self {
            Self::Legs => 2,
            Self::LegDisk => 1,
            _ => 0,
        }
    }

    /// True if what is in it has to be committed.
    pub fn is_disk(self) -> bool {
        matches!(
            self,
            Self::Disk | Self::DiskFile | Self::Mirror | Self::Legs | Self::LegDisk
        )
    }

    /// Disks of the machine's that it is on.
    pub fn disks(self) -> usize {
        match self {
            Self::Disk | Self::DiskFile | Self::LegDisk => 1,
            Self::Mirror => 2,
            Self::Fsdax | Self::Devdax | Self::Memory | Self::Legs => 0,
        }
    }
}

/// What a machine boots.
#[derive(Clone)]
enum BootImage {
    Emulated(Kernel),
    /// Directories that its root is made of, the uppermost first.
    Namespace(Vec<PathBuf>),
}

/// What is to be prepared.
pub struct LabNeeds<'a> {
    /// The directory of the programs without failpoints.
    pub programs: &'a Path,
    /// The directory of those with.
    pub aimed: Option<&'a Path>,
    /// Where pools are.
    pub pools: &'a [PoolOn],
    /// Servers that are needed.
    pub servers: &'a [Beside],
    /// A workload has a flash cache.
    pub flash: bool,
    /// What machines are.
    pub machine: MachineKind,
    /// What runs emulated ones.
    pub accelerator: Accelerator,
    /// The data's file system.
    pub file_system: FileSystem,
}

/// What the disk with a database's data is formatted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum FileSystem {
    /// ext4
    Ext4,
    /// XFS, in namespaces
    Xfs,
}

impl FileSystem {
    /// As `mount` says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }
}

/// What machines boot, and images to be copied.
pub struct Lab {
    pub home: PathBuf,
    pub machine: MachineKind,
    file_system: FileSystem,
    /// With Forebay as users have it.
    normal: BootImage,
    /// With failpoints.
    aimed: Option<BootImage>,
    /// The same two, and a database server's programs.
    beside: Vec<(Beside, Vec<BootImage>)>,
    templates: Vec<(PoolOn, Images)>,
    /// Where cycles that lost something are kept, if they are.
    pub keep: Option<PathBuf>,
    /// Moments are aimed at that have this in their names.
    pub moments: String,
}

/// Makes what machines boot.
struct BootMaker<'a> {
    home: &'a Path,
    /// The kernel, its release, and what runs it; none in namespaces.
    kernel: Option<(PathBuf, String, Accelerator)>,
}

impl BootMaker<'_> {
    /// With these programs, under this name.
    fn make(&self, name: &str, programs: &Path, failpoints: bool) -> Result<BootImage, Failure> {
        check_build(programs, failpoints)?;
        let path = self.home.join(name);
        let release = self.kernel.as_ref().map(|(_, release, _)| release.as_str());
        let guest = guest(self.home, release, programs)?;
        let Some((image, _, accelerator)) = &self.kernel else {
            guest.unpack(&path)?;
            return Ok(BootImage::Namespace(vec![path]));
        };
        fs::write(&path, guest.archive())?;
        Ok(BootImage::Emulated(Kernel {
            image: image.clone(),
            initramfs: path,
            accelerator: *accelerator,
        }))
    }

    /// Each of `images` with a server's files besides.
    fn beside(
        &self,
        images: impl Iterator<Item = BootImage>,
        name: &str,
        more: &Initramfs,
    ) -> Result<Vec<BootImage>, Failure> {
        let layer = self.home.join(name);
        if self.kernel.is_none() {
            more.unpack(&layer)?;
        }
        let with_more = |image| match image {
            BootImage::Namespace(layers) => {
                let own = std::iter::once(layer.clone());
                Ok(BootImage::Namespace(own.chain(layers).collect()))
            }
            BootImage::Emulated(kernel) => {
                let below = kernel.initramfs.file_name().unwrap_or_default();
                let own = format!("{}.{name}", below.to_string_lossy());
                let initramfs = kernel.initramfs.with_file_name(own);
                // The kernel unpacks archives that stand one behind the other.
                let both = [fs::read(&kernel.initramfs)?, more.archive()].concat();
                fs::write(&initramfs, both)?;
                Ok(BootImage::Emulated(Kernel {
                    initramfs,
                    ..kernel
                }))
            }
        };
        images.map(with_more).collect()
    }
}

impl Lab {
    /// Prepares everything in `home`.
    pub fn new(home: &Path, needs: &LabNeeds<'_>) -> Result<Self, Failure> {
        let kernel = match needs.machine {
            MachineKind::Namespace => None,
            MachineKind::Emulated => {
                let release = kernel::installed("nfit")?;
                let image = kernel::unpacked(&release, home)?;
                Some((image, release, needs.accelerator))
            }
        };
        let maker = BootMaker { home, kernel };
        let aimed = |programs| maker.make("initramfs.aimed", programs, true);
        let mut lab = Self {
            home: home.to_owned(),
            machine: needs.machine,
            file_system: needs.file_system,
            normal: maker.make("initramfs", needs.programs, false)?,
            aimed: needs.aimed.map(aimed).transpose()?,
            beside: Vec::new(),
            templates: Vec::new(),
            keep: None,
            moments: String::new(),
        };
        for &server in needs.servers {
            let more = match server {
                Beside::MariaDb => mariadb::guest(home)?,
                Beside::Postgres => postgres::guest(home)?,
                Beside::Etcd => etcd::guest()?,
                Beside::Nats => nats::guest()?,
            };
            let images = std::iter::once(&lab.normal).chain(&lab.aimed).cloned();
            let images = maker.beside(images, &format!("{server:?}"), &more)?;
            lab.beside.push((server, images));
        }
        for pool in needs.pools {
            lab.format(*pool, needs.flash)?;
        }
        Ok(lab)
    }

    /// Formats the disks that chains with such a pool begin with, and makes the pool.
    fn format(&mut self, pool: PoolOn, flash: bool) -> Result<(), Failure> {
        let dir = self.home.join(pool.name());
        fs::create_dir(&dir)?;
        let images = Images::create(self.machine, &dir, pool, flash)?;
        let mut machine = self.boot(None, &images, pool, "lab.action=format", false)?;
        // Memory survives only as far as the lab has it so.
        let words = match pool {
            PoolOn::Memory => "survives a process crash",
            PoolOn::Legs | PoolOn::LegDisk => "survives the loss of this machine",
            _ => "survives a power cut",
        };
        let survives = machine.wait(PATIENCE, |console| {
            let done = console.contains("LAB done");
            done.then(|| console.contains(words))
        })?;
        if !survives {
            let said = machine.console();
            return Err(format!("`forebay pool status` says otherwise:\n{said}").into());
        }
        machine.wait_end(PATIENCE)?;
        self.templates.push((pool, images));
        Ok(())
    }

    /// True if cuts can be aimed.
    pub fn can_aim(&self) -> bool {
        self.aimed.is_some()
    }

    /// Fresh images in `dir`, with flash or without.
    pub fn images(&self, pool: PoolOn, flash: bool, dir: &Path) -> Result<Images, Failure> {
        let (_, template) = self
            .templates
            .iter()
            .find(|(on, _)| *on == pool)
            .ok_or("no template of this pool")?;
        template.copy_to(dir, flash)
    }

    /// Boots a machine, with failpoints in Forebay or without, and with the programs of a database
    /// server if there is to be one.
    pub fn boot(
        &self,
        beside: Option<Beside>,
        images: &Images,
        pool: PoolOn,
        parameters: &str,
        failpoints: bool,
    ) -> Result<Machine, Failure> {
        // Without them, memory is nothing that outlives a boot.
        let failpoints = failpoints || pool == PoolOn::Memory;
        // The first is the one without failpoints, the second the one with.
        let number = usize::from(failpoints);
        let image = match beside {
            None => std::iter::once(&self.normal).chain(&self.aimed).nth(number),
            Some(server) => {
                let of_server = self.beside.iter().find(|(other, _)| *other == server);
                of_server.and_then(|(_, images)| images.get(number))
            }
        };
        let image = image.ok_or("there is no such Forebay: --failpoints DIR")?;
        let file_system = self.file_system.name();
        let mut parameters = format!("lab.pool={} lab.fs={file_system} {parameters}", pool.name());
        if images.flash.is_some() {
            // The last of the disks.
            let device = ["vdb", "vdc", "vdd"][images.pool.len()];
            parameters += &format!(" lab.flash={device}");
        }
        start(image, images, &parameters)
    }
}

/// Starts a machine, and waits until it is about to touch the disks.
fn start(image: &BootImage, images: &Images, parameters: &str) -> Result<Machine, Failure> {
    let console = images.disk.with_extension("console");
    match image {
        BootImage::Namespace(layers) => {
            let parameters = format!("{parameters} lab.patience={NAMESPACE_PATIENCE_S}");
            let booted = NamespacesMachine::boot(layers, images, &parameters, console)?;
            let mut machine = Machine::Namespaces(booted);
            machine.wait_up(PATIENCE)?;
            Ok(machine)
        }
        BootImage::Emulated(kernel) => until_up(|| {
            let booted = EmulatedMachine::boot(kernel, images, parameters, console.clone())?;
            let mut machine = Machine::Emulated(booted);
            machine.wait_up(PATIENCE)?;
            let wanted = kernel.accelerator.name();
            match accelerator::seen(&machine.console()) {
                Some(seen) if seen == wanted => Ok(machine),
                // The report would name another.
                other => Err(format!("a machine is run by {other:?} and not by {wanted}").into()),
            }
        }),
    }
}

/// Of a disk, what every cut may leave.
pub fn survival(draw: u64) -> Survival {
    let per_mille = [0, 0, 100, 500, 900, 1000][(draw % 6) as usize];
    Survival { per_mille }
}
