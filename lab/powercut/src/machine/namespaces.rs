//! A machine in namespaces of this one's kernel: its disks are loop devices on files that this
//! process serves, and its persistent memory is a directory in memory.
//!
//! The cut, in this order:
//!
//! 1. The disks lose their power. They take nothing and answer nothing any more.
//! 2. All processes are killed, at once: none of them sees what comes next.
//! 3. The disks fail what waits for them, so that whoever waited ends.
//! 4. The file systems are shut down: nothing of the kernel's caches is written back. They are
//!    unmounted with the machine's namespaces, which end with the processes.
//! 5. The loop devices and the files below them go. Only then may the same disks be used again.
//!
//! Without the power going first, nothing would be lost that a file system has written and not
//! flushed; without waiting for the end, the kernel could write to the next boot's disks.

use super::Images;
use crate::{Failure, shared_disk::SharedDisk};
use forebay_device::block::{LoopDevice, ServedFile};
use forebay_guest::{
    namespace::{NamespaceMachine, NamespaceSetup},
    run,
};
use rustix::fs::makedev;
use std::{
    fs,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

/// How long it may take until nobody uses a disk any more whose machine has ended.
const RELEASE_MAX: Duration = Duration::from_secs(60);

/// What a file system says that has shut itself down, since its disk failed.
const SHUT_DOWN: &str = "Input/output error";

/// Requests that a disk takes side by side: it does them one after the other.
const REQUESTS: usize = 2;

/// The guest's names of its disks.
const NAMES: [&str; 3] = ["vda", "vdb", "vdc"];
/// Where it mounts them.
const MOUNTED: [&str; 3] = ["/data", "/mnt/pmem", "/mnt/flash"];

/// A running one, cut when this is dropped.
pub struct NamespacesMachine {
    pub machine: NamespaceMachine,
    disks: Vec<AttachedDisk>,
}

/// A disk, and what leads to it from the kernel.
struct AttachedDisk {
    disk: Arc<SharedDisk>,
    /// Taken when the machine has ended.
    attached: Option<(LoopDevice, ServedFile)>,
}

impl AttachedDisk {
    fn attach(image: &Path) -> Result<Self, Failure> {
        let disk = Arc::new(SharedDisk::open(image)?);
        let bytes = Arc::clone(&disk);
        let file = ServedFile::mount(&image.with_extension("served"), bytes, REQUESTS)?;
        let device = LoopDevice::attach(file.path())?;
        Ok(Self {
            disk,
            attached: Some((device, file)),
        })
    }

    fn numbers(&self) -> Option<(u32, u32)> {
        Some(self.attached.as_ref()?.0.numbers())
    }
}

impl NamespacesMachine {
    /// Starts one whose root is made of `layers`, with `parameters` in the place of a kernel's
    /// command line.
    pub fn boot(
        layers: &[PathBuf],
        images: &Images,
        parameters: &str,
        console: PathBuf,
    ) -> Result<Self, Failure> {
        let attached = images.disks().map(|image| AttachedDisk::attach(image));
        let disks = attached.collect::<Result<Vec<_>, _>>()?;
        let devices = disks.iter().filter_map(|disk| disk.attached.as_ref());
        let scratch = images.disk.with_extension("machine");
        fs::create_dir_all(&scratch)?;
        let setup = NamespaceSetup {
            layers,
            disks: NAMES
                .into_iter()
                .zip(devices.map(|(device, _)| device))
                .collect(),
            memory: &images.nvdimm,
            parameters,
            scratch: &scratch,
            console,
        };
        Ok(Self {
            machine: NamespaceMachine::start(setup)?,
            disks,
        })
    }

    /// Its disks, in the order in which the guest has them.
    pub fn disks(&self) -> impl Iterator<Item = &SharedDisk> {
        self.disks.iter().map(|disk| &*disk.disk)
    }

    /// Ends it, the disks first: what it had of this kernel is gone then.
    pub fn end(&mut self) -> Result<(), Failure> {
        let numbers: Vec<_> = self
            .disks
            .iter()
            .filter_map(AttachedDisk::numbers)
            .collect();
        let is_ours = |device: u64| numbers.iter().any(|&(a, b)| makedev(a, b) == device);
        // Held until they are shut down.
        let mounted = MOUNTED.iter().filter_map(|path| self.machine.open(path));
        let mounted: Vec<fs::File> = mounted
            .filter(|at| at.metadata().is_ok_and(|it| is_ours(it.dev())))
            .collect();
        self.disks().for_each(SharedDisk::power_off);
        let doomed = self.machine.doom();
        self.disks().for_each(SharedDisk::fail);
        let ended = doomed.and_then(|()| self.machine.wait_end());
        for file_system in mounted {
            let own = format!(
                "/proc/{}/fd/{}",
                std::process::id(),
                file_system.as_raw_fd()
            );
            shut_down(Path::new(&own))?;
        }
        ended?;
        for disk in &mut self.disks {
            if let Some((device, file)) = disk.attached.take() {
                device.detach(RELEASE_MAX)?;
                drop(file);
            }
        }
        Ok(())
    }
}

/// Has the file system at this place write nothing any more.
fn shut_down(at: &Path) -> Result<(), Failure> {
    let words = ["-x", "-c", "shutdown"];
    match run(Command::new("xfs_io").args(words).arg(at)) {
        Err(why) if !why.to_string().contains(SHUT_DOWN) => Err(why),
        _ => Ok(()),
    }
}

impl Drop for NamespacesMachine {
    fn drop(&mut self) {
        let attached = |disk: &AttachedDisk| disk.attached.is_some();
        if self.disks.iter().any(attached)
            && let Err(why) = self.end()
        {
            eprintln!("a machine could not be ended: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{disk::Survival, lab::PoolOn, machine::MachineKind};
    use forebay_device::block;
    use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt, thread, time::Instant};

    const O_DIRECT: i32 = 0x4000;

    /// True if this process may mount what it likes, and nobody else sees it: the test of this name
    /// is started once more for that, and has succeeded if this gives false.
    fn has_own_mounts(name: &str) -> bool {
        if let Some(lacking) = block::lacking() {
            eprintln!("skipped: {lacking}");
            return false;
        }
        if block::is_in_own_namespace().unwrap() {
            block::unmount_loops().unwrap();
            return true;
        }
        let mut again = block::own_namespace(&std::env::current_exe().unwrap()).unwrap();
        let again = again
            .args(["--exact", "--nocapture"])
            .arg(format!("machine::namespaces::tests::{name}"));
        let done = again.output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        let errors = String::from_utf8_lossy(&done.stderr);
        // A name that no test has is no failure there.
        let passed = done.status.success() && said.contains("1 passed");
        assert!(passed, "{said}{errors}");
        false
    }

    /// Mounts a disk, has `act` do something there, and cuts its power: what `survival` says of
    /// what was not flushed is there afterwards.
    fn cut(image: &Path, at: &Path, seed: u64, survival: Survival, act: impl FnOnce(&SharedDisk)) {
        let mut disk = AttachedDisk::attach(image).unwrap();
        let (device, file) = disk.attached.take().unwrap();
        run(Command::new("mount").arg(device.path()).arg(at)).unwrap();
        act(&disk.disk);
        disk.disk.power_off();
        disk.disk.fail();
        shut_down(at).unwrap();
        run(Command::new("umount").arg(at)).unwrap();
        device.detach(RELEASE_MAX).unwrap();
        drop(file);
        disk.disk.cut(seed, survival).unwrap();
    }

    /// Promise (lab): On a machine in namespaces, too, a file system's flush reaches the disk
    /// before a sync returns, and what was not flushed is lost as the lab decides.
    #[test]
    fn only_synced_bytes_are_sure_to_survive_on_a_loop_device() {
        if !has_own_mounts("only_synced_bytes_are_sure_to_survive_on_a_loop_device") {
            return;
        }
        for kind in ["ext4", "xfs"] {
            let dir = tempfile::tempdir().unwrap();
            let images =
                Images::create(MachineKind::Namespace, dir.path(), PoolOn::Memory, false).unwrap();
            run(Command::new(format!("mkfs.{kind}"))
                .arg("-q")
                .arg(&images.disk))
            .unwrap();
            let at = dir.path().join("mounted");
            fs::create_dir(&at).unwrap();
            let [synced, written] = ["synced", "written"].map(|name| at.join(name));
            let none = Survival { per_mille: 0 };
            // Made before, so that nothing but their bytes is at stake.
            cut(&images.disk, &at, 0, none, |_| {
                for file in [&synced, &written] {
                    fs::write(file, [0; 4096]).unwrap();
                    fs::File::open(file).unwrap().sync_all().unwrap();
                }
            });
            for round in 1..=10 {
                cut(&images.disk, &at, round.into(), none, |disk| {
                    let open = |file: &Path, flags| {
                        let mut options = OpenOptions::new();
                        options.write(true).custom_flags(flags).open(file).unwrap()
                    };
                    let flushes = disk.lock().flushes;
                    let mut file = open(&synced, 0);
                    file.write_all(&[round; 4096]).unwrap();
                    file.sync_data().unwrap();
                    assert!(disk.lock().flushes > flushes, "{kind}");
                    // It is the disk's when this returns, and in its cache.
                    let aligned = Aligned([round; 4096]);
                    open(&written, O_DIRECT).write_all(&aligned.0).unwrap();
                });
                cut(&images.disk, &at, 0, none, |_| {
                    assert_eq!(fs::read(&synced).unwrap(), [round; 4096], "{kind}");
                    assert_eq!(fs::read(&written).unwrap(), [0; 4096], "{kind}");
                });
            }
            let all = Survival { per_mille: 1000 };
            cut(&images.disk, &at, 1, all, |_| {
                let mut options = OpenOptions::new();
                let file = options.write(true).custom_flags(O_DIRECT).open(&written);
                file.unwrap().write_all(&Aligned([7; 4096]).0).unwrap();
            });
            cut(&images.disk, &at, 0, none, |_| {
                assert_eq!(fs::read(&written).unwrap(), [7; 4096], "{kind}");
            });
        }
    }

    /// As direct writes have to be.
    #[repr(align(4096))]
    struct Aligned([u8; 4096]);

    #[test]
    fn a_process_that_waits_for_a_sync_sees_no_error_of_the_cut() {
        if !has_own_mounts("a_process_that_waits_for_a_sync_sees_no_error_of_the_cut") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let images =
            Images::create(MachineKind::Namespace, dir.path(), PoolOn::Memory, false).unwrap();
        run(Command::new("mkfs.ext4").arg("-q").arg(&images.disk)).unwrap();
        // It syncs all the time, and says each error where the machine's end does not take it.
        let init = "#!/bin/sh
umount -l /before
mkdir -p /data && mount /dev/vda /data || echo LAB failed: mount
echo LAB up
while :; do
    dd if=/dev/zero of=/data/file bs=4096 count=1 conv=fsync,notrunc 2> /tmp/said || cat /tmp/said >> /mnt/pmem/errors
done
";
        // A layer may not lie in another one of the same file system.
        let layer = tempfile::tempdir_in("/dev/shm").unwrap();
        let own = layer.path().to_owned();
        fs::write(own.join("init"), init).unwrap();
        run(Command::new("chmod").arg("+x").arg(own.join("init"))).unwrap();
        let layers = [own, PathBuf::from("/")];
        for _ in 0..5 {
            let console = dir.path().join("console");
            let mut machine = NamespacesMachine::boot(&layers, &images, "", console).unwrap();
            machine.machine.wait_up(RELEASE_MAX).unwrap();
            let flushes = |machine: &NamespacesMachine| {
                machine.disks().map(|disk| disk.lock().flushes).sum::<u64>()
            };
            // The mount's are before.
            let (before, until) = (flushes(&machine), Instant::now() + RELEASE_MAX);
            while flushes(&machine) < before + 3 {
                let console = machine.machine.guest.console();
                assert!(Instant::now() < until, "it does not sync: {console}");
                thread::sleep(Duration::from_millis(1));
            }
            machine.end().unwrap();
        }
        assert!(!images.nvdimm.join("errors").exists());
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(dir.path().to_str().unwrap()), "{mounts}");
    }
}
