//! What all cycles begin with: the guest's first file systems, and the images of a formatted disk and an empty pool.

use crate::{
    Failure,
    disk::Survival,
    initramfs::Initramfs,
    machine::{Images, Kernel, Machine},
    mariadb, postgres,
    workload::Beside,
};
use forebay_bench::{
    processes::find_eatmydata,
    redis::server::Kind::{Redis, Valkey},
};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// How long a machine may take to do what it is to do.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Starts of a machine whose emulator fails: QEMU 7.2 does, once in some hundred starts on a busy machine, while the guest sets up its interrupts.
const BOOTS_MAX: u32 = 3;
/// What QEMU says then.
const EMULATOR_FAILED: &str = "msix_table_mmio_write: Assertion";

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

/// Kernel modules that the guest needs: disk, network, NVDIMM, file system.
const MODULES: [&str; 11] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "libnvdimm",
    "nfit",
    "nd_pmem",
    "dax_pmem",
    "device_dax",
    "crc32c_generic",
    "crc32c_intel",
    "ext4",
];

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
    /// Prepares everything in `home`. `programs` and `aimed` are the directories of the programs built without and with failpoints; `servers` are those
    /// that are needed; `flash` says that a workload has a flash cache.
    pub fn new(
        home: &Path,
        programs: &Path,
        aimed: Option<&Path>,
        pools: &[PoolOn],
        servers: &[Beside],
        flash: bool,
    ) -> Result<Self, Failure> {
        let release = installed_kernel()?;
        let image = unpacked(Path::new(&format!("/boot/vmlinuz-{release}")), home)?;
        let kernel = |name: &str, programs: &Path, failpoints: bool| -> Result<Kernel, Failure> {
            check_build(programs, failpoints)?;
            let initramfs = home.join(name);
            fs::write(&initramfs, guest(home, &release, programs)?.archive())?;
            Ok(Kernel {
                image: image.clone(),
                initramfs,
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
                    image: kernel.image.clone(),
                    initramfs,
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
            let survives = machine.wait(PATIENCE, |_, console| {
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

    /// Boots a machine, with failpoints in Forebay or without, and with the programs of a database server if there is to be one.
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
        let boot = || {
            let console = images.disk.with_extension("console");
            let mut machine = Machine::boot(kernel, images, &parameters, console)?;
            let is_up = |_: &Machine, console: &str| console.contains("LAB up").then_some(());
            machine.wait(PATIENCE, is_up).map(|()| machine)
        };
        let mut booted = boot();
        for _ in 1..BOOTS_MAX {
            match &booted {
                Err(why) if why.to_string().contains(EMULATOR_FAILED) => {
                    eprintln!(
                        "the emulator failed before it touched a disk, and is started again: {why}"
                    );
                    booted = boot();
                }
                _ => break,
            }
        }
        booted
    }
}

/// Of a disk, what every cut may leave.
pub fn survival(draw: u64) -> Survival {
    let per_mille = [0, 0, 100, 500, 900, 1000][(draw % 6) as usize];
    Survival { per_mille }
}

/// A build is what it is taken for: failpoints are in it, or nothing of them is.
fn check_build(programs: &Path, failpoints: bool) -> Result<(), Failure> {
    const TRACE: &[u8] = b"FOREBAY_FAILPOINT";
    for name in ["forebay", "libforebay.so", "forebay-lab-server"] {
        let path = programs.join(name);
        let program = fs::read(&path)
            .map_err(|e| format!("reading {}: {e}. Build it: make powercut", path.display()))?;
        if program.windows(TRACE.len()).any(|bytes| bytes == TRACE) != failpoints {
            let what = if failpoints {
                "no failpoints"
            } else {
                "failpoints"
            };
            return Err(format!(
                "{} has {what} in it. Build it again: make powercut",
                path.display()
            )
            .into());
        }
    }
    Ok(())
}

/// The guest's first file system.
fn guest(home: &Path, release: &str, programs: &Path) -> Result<Initramfs, Failure> {
    let mut guest = Initramfs::default();
    guest.add_modules(release, &MODULES)?;
    guest.add("/init", include_str!("init.sh"));
    guest.add("/lab/action", include_str!("action.sh"));
    guest.add_program(Path::new("/bin/busybox"), "/bin/busybox")?;
    guest.add_program(Path::new("/usr/bin/ndctl"), "/lab/ndctl")?;
    // Called by its path: busybox has one of its own, without ext4.
    guest.add_program(Path::new("/sbin/mke2fs"), "/lab/mke2fs")?;
    for (name, to) in [
        ("forebay", "/lab/forebay"),
        ("libforebay.so", "/lab/libforebay.so"),
        ("forebay-lab-server", "/lab/lab-server"),
    ] {
        // Symbols would be read, and unpacked, at every boot.
        let stripped = home.join(name);
        run(Command::new("strip")
            .arg("-o")
            .arg(&stripped)
            .arg(programs.join(name)))?;
        guest.add_program(&stripped, to)?;
    }
    for (engine, sources, library) in [
        ("rocksdb", &["rocksdb.c"][..], "-lrocksdb"),
        ("sqlite", &["sqlite.c"], "-lsqlite3"),
        ("sqlite-processes", &["processes.c"], "-lsqlite3"),
    ] {
        let program = home.join(engine);
        build_server(sources, library, &program)?;
        guest.add_program(&program, &format!("/lab/{engine}-server"))?;
    }
    guest.add_program(&Redis.program()?, "/lab/redis-server")?;
    guest.add_program(&Valkey.program()?, "/lab/valkey-server")?;
    let eatmydata =
        find_eatmydata().ok_or("libeatmydata is not installed: scripts/setup.sh powercut")?;
    guest.add_program(&eatmydata, "/lab/libeatmydata.so")?;
    Ok(guest)
}

/// Builds guest/server.c with a database that Debian ships: the files of `engine`.
fn build_server(engine: &[&str], library: &str, to: &Path) -> Result<(), Failure> {
    if to.exists() {
        return Ok(());
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest");
    run(Command::new("cc")
        .args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
        ])
        .arg(to)
        .arg(sources.join("server.c"))
        .args(engine.iter().map(|name| sources.join(name)))
        .arg(library))
}

/// Packs `data` of the directory `dir` into the file `to`.
pub fn archive(dir: &Path, to: PathBuf) -> Result<PathBuf, Failure> {
    run(Command::new("tar")
        .arg("-czf")
        .arg(&to)
        .arg("-C")
        .arg(dir)
        .arg("data"))?;
    Ok(to)
}

pub fn run(command: &mut Command) -> Result<(), Failure> {
    let done = command
        .output()
        .map_err(|e| format!("{command:?}: {e}. Remedy: scripts/setup.sh powercut"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(format!("{command:?} failed:\n{said}").into());
    }
    Ok(())
}

/// The kernel without its compression, which would be undone at every boot, and slowly, if that can be had; otherwise `packed` itself.
fn unpacked(packed: &Path, home: &Path) -> Result<PathBuf, Failure> {
    const XZ: &[u8] = b"\xFD7zXZ\0";
    let bytes = fs::read(packed).map_err(|e| format!("reading {}: {e}", packed.display()))?;
    let Some(at) = bytes.windows(XZ.len()).position(|window| window == XZ) else {
        return Ok(packed.to_owned());
    };
    let (part, image) = (home.join("vmlinux.xz"), home.join("vmlinux"));
    fs::write(&part, &bytes[at..])?;
    let done = Command::new("xz")
        .args(["--single-stream", "-dc"])
        .arg(&part)
        .stdout(fs::File::create(&image)?)
        .status();
    let is_elf = fs::read(&image)?.starts_with(b"\x7FELF");
    Ok(if done.is_ok_and(|status| status.success()) && is_elf {
        image
    } else {
        packed.to_owned()
    })
}

/// The release of a kernel that is installed here, with its modules.
fn installed_kernel() -> Result<String, Failure> {
    let has_modules = |release: &String| {
        let listed = Path::new("/lib/modules").join(release).join("modules.dep");
        fs::read_to_string(listed).is_ok_and(|listed| listed.contains("/nfit.ko:"))
    };
    let mut found: Vec<String> = fs::read_dir("/boot")?
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .into_string()
                .ok()?
                .strip_prefix("vmlinuz-")
                .map(str::to_owned)
        })
        .filter(has_modules)
        .collect();
    found.sort();
    found
        .pop()
        .ok_or_else(|| "no kernel is installed in /boot: scripts/setup.sh powercut".into())
}
