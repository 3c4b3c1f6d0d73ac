//! `forebay doctor`: this machine's memory and disks, and the next steps.

mod advice;
mod candidates;
mod guarded_directory;
mod legs;
mod persistent_memory;
mod report;

pub use candidates::commit_us;

use crate::{disk_mounts, failure::Failure, output};
use clap::Args;
use forebay_pool::{disks::BackingStore, persist::Persist};
use forebay_probe::{
    ProbeError,
    disk::{self as device, Effort, FileSystem},
};
use report::{CheckedDirectory, DoctorReport, PersistInstructions};
use std::{
    fs,
    io::ErrorKind,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    thread::available_parallelism,
};

/// Show this machine's persistent memory, instructions and disk, and the next steps
#[derive(Args)]
#[command(
    long_about = "Looks for persistent memory, names the instructions that writes to it will use, and measures the \
                  disk under a directory: how long a synced write takes, and how fast large ones go. Lists other places for a pool, on the disks that are mounted, and \
                  measures those that --beside names: a commit there beside a sync in the directory. Asks the legs that --leg names for a page, many times, and tells the \
                  gain of a pool in their memory and the losses it survives. Then names the next steps on this machine. A quarter of a gigabyte is written to the \
                  directory, a megabyte to those that --beside names, and removed. Nothing is written elsewhere.",
    after_long_help = "Examples:\n  forebay doctor --dir /var/lib/db\n  forebay doctor --dir /var/lib/db --beside /mnt/nvme\n  forebay doctor --dir /var/lib/db --leg nbd://127.0.0.1:10809/forebay\n  forebay doctor /var/lib/mysql && systemctl start mariadb"
)]
pub struct Doctor {
    /// Check instead whether a database must not be started on the files below this directory
    /// without Forebay; exit status 1 if so
    ///
    /// It must not while a pool holds acknowledged writes for them, or a flash cache newer pages.
    #[arg(value_name = "DATA", conflicts_with = "dir")]
    data: Option<PathBuf>,
    /// The directory that a store is to lie in
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// A directory in which a pool could lie, to be measured too; may be given several times
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    beside: Vec<PathBuf>,
    /// An export of an NBD server that could be a leg of a pool, to be asked for a page (nbd://…,
    /// or nbds://…?tls-certificates=DIR with TLS); may be given several times
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    leg: Vec<String>,
    /// Ask nbd:// legs also through a network, without TLS: a page of their contents is sent there
    #[arg(long, requires = "leg")]
    insecure: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// A place for a pool on a disk that pays.
pub struct BestPlace {
    /// A directory there.
    pub directory: PathBuf,
    /// It is the disk of the data.
    pub is_same_disk: bool,
    /// The measurement, in a sentence.
    pub sentence: String,
}

/// Measures the directory of the data and those that are named `beside` it: where a pool on a disk
/// is best, if it pays anywhere and nothing speaks against that.
pub fn best_place(data: &Path, beside: &[PathBuf]) -> Option<BestPlace> {
    let found = candidates::find(data, beside);
    let best = found.best()?;
    Some(BestPlace {
        directory: best.spot.directory.clone(),
        is_same_disk: best.spot.same_disk == Some(true),
        sentence: best.sentence(found.sync_us.unwrap_or_default()),
    })
}

/// True if two paths lie on one disk; none if that cannot be told.
pub fn is_same_disk(one: &Path, other: &Path) -> Option<bool> {
    let device = |path: &Path| {
        let mounted = disk_mounts::mount_of(path).map(|mount| mount.device);
        mounted.or_else(|| fs::metadata(path).ok().map(|found| found.dev()))
    };
    let (one, other) = (device(one)?, device(other)?);
    if one == other {
        return Some(true);
    }
    let [one, other] = [one, other].map(BackingStore::of_device);
    match one.shares_with(&other) {
        false if one.is_unknown() || other.is_unknown() => None,
        shares => Some(shares),
    }
}

/// The effort of measuring the directory's disk.
const EFFORT: Effort = Effort::SHORT;

impl Doctor {
    pub fn run(self) -> Result<(), Failure> {
        if let Some(data) = &self.data {
            return guarded_directory::report(data, self.json);
        }
        self.check_directory()?;
        let (copy, flush) = Persist::detect().names();
        let mut report = DoctorReport {
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned()),
            architecture: std::env::consts::ARCH,
            processors: available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(),
            instructions: PersistInstructions { copy, flush },
            persistent_memory: persistent_memory::find(),
            directory: self.directory(),
            disks: candidates::find(&self.dir, &self.beside),
            legs: None,
            advice: Vec::new(),
        };
        report.legs = legs::find(&self.leg, self.insecure, report.disks.sync_us);
        report.advice = advice::advise(&report);
        output::report(self.json, &report, report::human)
    }

    /// Refuses what no data can lie in: a measurement would only say that it failed.
    fn check_directory(&self) -> Result<(), Failure> {
        let shown = self.dir.display();
        let wrong = |what: &str| {
            let remedy = "give the directory that the data is to lie in";
            Failure::Usage(format!("--dir {shown}: {what}; {remedy}"))
        };
        let found = fs::metadata(&self.dir).map_err(|error| wrong(&error.to_string()))?;
        if !found.is_dir() {
            return Err(wrong("it is no directory"));
        }
        let kernels = ["proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs"];
        match device::file_system(&self.dir).filter(|at| kernels.contains(&&*at.kind)) {
            Some(at) => Err(wrong(&format!(
                "it is the kernel's ({}), which keeps no files",
                at.kind
            ))),
            None => Ok(()),
        }
    }

    fn directory(&self) -> CheckedDirectory {
        let file_system = device::file_system(&self.dir);
        let measured = device::measure(&self.dir, EFFORT);
        let (device, trouble) = match measured {
            Ok(speed) => (Some(speed), None),
            Err(error) => (None, Some(told(&error))),
        };
        CheckedDirectory {
            path: fs::canonicalize(&self.dir).unwrap_or_else(|_| self.dir.clone()),
            dax: file_system.as_ref().is_some_and(FileSystem::is_dax),
            in_memory: file_system.as_ref().is_some_and(FileSystem::is_memory)
                || fs::File::open(&self.dir)
                    .is_ok_and(|at| !BackingStore::of(at.as_fd()).memory.is_empty()),
            free_bytes: rustix::fs::statvfs(&self.dir)
                .ok()
                .map(|s| s.f_bavail * s.f_frsize),
            file_system,
            device,
            trouble,
        }
    }
}

/// The reason that nothing was measured; of a full disk, the room that a measurement needs.
fn told(error: &ProbeError) -> String {
    match error.source.kind() {
        ErrorKind::StorageFull => format!(
            "{error}: a measurement needs {} MiB free there",
            EFFORT.bytes >> 20
        ),
        _ => error.to_string(),
    }
}

fn memory_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
