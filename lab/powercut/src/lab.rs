//! What all cycles begin with: kernels with the guest's first file systems, and the images of a
//! formatted disk and an empty pool.

use crate::{
    Failure,
    boots::{check_build, guest},
    disk::Survival,
    etcd,
    machine::{Images, Machine},
    mariadb, nats, postgres,
    workload::Beside,
};
use forebay_guest::{
    accelerator::{self, Accelerator},
    kernel::{self, Kernel},
    machine::until_up,
};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long a machine may take to do what it is to do.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Where the pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
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
}

impl PoolOn {
    /// As the guest's command line says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsdax => "fsdax",
            Self::Devdax => "devdax",
            Self::Disk => "disk",
            Self::DiskFile => "disk-file",
        }
    }

    /// True if what is in it has to be committed.
    pub fn is_disk(self) -> bool {
        matches!(self, Self::Disk | Self::DiskFile)
    }
}

/// Kernels with initramfs, and images to be copied.
pub struct Lab {
    pub home: PathBuf,
    /// With Forebay as users have it.
    normal: Kernel,
    /// With failpoints.
    aimed: Option<Kernel>,
    /// The same two, and a database server's programs.
    beside: Vec<(Beside, Vec<Kernel>)>,
    templates: Vec<(PoolOn, Images)>,
    /// Where cycles that lost something are kept, if they are.
    pub keep: Option<PathBuf>,
    /// Moments are aimed at that have this in their names.
    pub moments: String,
}

impl Lab {
    /// Prepares everything in `home`. `programs` and `aimed` are the directories of the programs
    /// built without and with failpoints; `servers` are those that are needed; `flash` says that a
    /// workload has a flash cache.
    pub fn new(
        home: &Path,
        programs: &Path,
        aimed: Option<&Path>,
        pools: &[PoolOn],
        servers: &[Beside],
        flash: bool,
        accelerator: Accelerator,
    ) -> Result<Self, Failure> {
        let release = kernel::installed("nfit")?;
        let image = kernel::unpacked(&release, home)?;
        let kernel = |name: &str, programs: &Path, failpoints: bool| -> Result<Kernel, Failure> {
            check_build(programs, failpoints)?;
            let initramfs = home.join(name);
            fs::write(&initramfs, guest(home, &release, programs)?.archive())?;
            Ok(Kernel {
                image: image.clone(),
                initramfs,
                accelerator,
            })
        };
        let mut lab = Self {
            home: home.to_owned(),
            normal: kernel("initramfs", programs, false)?,
            aimed: aimed
                .map(|programs| kernel("initramfs.aimed", programs, true))
                .transpose()?,
            beside: Vec::new(),
            templates: Vec::new(),
            keep: None,
            moments: String::new(),
        };
        for &server in servers {
            let more = match server {
                Beside::MariaDb => mariadb::guest(home)?,
                Beside::Postgres => postgres::guest(home)?,
                Beside::Etcd => etcd::guest()?,
                Beside::Nats => nats::guest()?,
            };
            let more = more.archive();
            let kernels = std::iter::once(&lab.normal).chain(&lab.aimed);
            let kernels = kernels.map(|kernel| -> Result<Kernel, Failure> {
                let name = kernel.initramfs.file_name().unwrap_or_default();
                let name = format!("{}.{server:?}", name.to_string_lossy());
                let initramfs = kernel.initramfs.with_file_name(name);
                // The kernel unpacks archives that stand one behind the other.
                let both = [fs::read(&kernel.initramfs)?, more.clone()].concat();
                fs::write(&initramfs, both)?;
                Ok(Kernel {
                    initramfs,
                    ..kernel.clone()
                })
            });
            let kernels = kernels.collect::<Result<_, _>>()?;
            lab.beside.push((server, kernels));
        }
        for pool in pools {
            let dir = home.join(pool.name());
            fs::create_dir(&dir)?;
            let images = Images::create(&dir, pool.is_disk(), flash)?;
            let mut machine = lab.boot(None, &images, *pool, "lab.action=format", false)?;
            let survives = machine.wait(PATIENCE, |console| {
                console
                    .contains("LAB done")
                    .then(|| console.contains("survives a power cut"))
            })?;
            if !survives {
                return Err(format!(
                    "`forebay pool status` says otherwise:\n{}",
                    machine.console()
                )
                .into());
            }
            machine.wait_end(PATIENCE)?;
            lab.templates.push((*pool, images));
        }
        Ok(lab)
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
        match beside {
            None => {
                let kernels = std::iter::once(&self.normal).chain(&self.aimed);
                self.boot_one_of(kernels, images, pool, parameters, failpoints)
            }
            Some(server) => {
                let kernels = self.beside.iter().filter(|(other, _)| *other == server);
                let kernels = kernels.flat_map(|(_, kernels)| kernels);
                self.boot_one_of(kernels, images, pool, parameters, failpoints)
            }
        }
    }

    /// The first of the kernels is the one without failpoints, the second the one with.
    fn boot_one_of<'a>(
        &'a self,
        mut kernels: impl Iterator<Item = &'a Kernel>,
        images: &Images,
        pool: PoolOn,
        parameters: &str,
        failpoints: bool,
    ) -> Result<Machine, Failure> {
        let kernel = kernels
            .nth(usize::from(failpoints))
            .ok_or("there is no such Forebay: --failpoints DIR")?;
        let mut parameters = format!("lab.pool={} {parameters}", pool.name());
        if images.flash.is_some() {
            // The last of the disks.
            let device = if images.pool.is_some() { "vdc" } else { "vdb" };
            parameters += &format!(" lab.flash={device}");
        }
        until_up(|| {
            let console = images.disk.with_extension("console");
            let mut machine = Machine::boot(kernel, images, &parameters, console)?;
            machine.wait_up(PATIENCE)?;
            let wanted = kernel.accelerator.name();
            match accelerator::seen(&machine.console()) {
                Some(seen) if seen == wanted => Ok(machine),
                // The report would name another.
                other => Err(format!("a machine is run by {other:?} and not by {wanted}").into()),
            }
        })
    }
}

/// Of a disk, what every cut may leave.
pub fn survival(draw: u64) -> Survival {
    let per_mille = [0, 0, 100, 500, 900, 1000][(draw % 6) as usize];
    Survival { per_mille }
}
