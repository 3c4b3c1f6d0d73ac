#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::os::unix::fs::symlink;

/// The kernel's attributes on a machine with these devices: name and text.
struct ShownKernel(tempfile::TempDir);

impl ShownKernel {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("block")).unwrap();
        Self(dir)
    }

    fn has(self, disk: &str, attributes: &[(&str, &str)]) -> Self {
        let at = self.0.path().join("block").join(disk);
        for (name, text) in attributes {
            let path = at.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        self
    }

    /// The device's directory is where its bus has it.
    fn has_at(self, disk: &str, place: &str) -> Self {
        let at = self.0.path().join(place);
        fs::create_dir_all(&at).unwrap();
        symlink(at, self.0.path().join("block").join(disk)).unwrap();
        self
    }

    fn look(&self, disk: &str) -> DiskLoss {
        KernelView {
            blocks: &self.0.path().join("block"),
            drbd: &self.0.path().join("drbd"),
        }
        .look(disk)
    }

    fn survives(&self, disk: &str) -> SurvivedLoss {
        self.look(disk).survives
    }
}

#[test]
fn a_mirror_survives_a_disk_until_it_has_lost_one() {
    let array = |level: &str, disks: &str, missing: &str| {
        ShownKernel::new()
            .has(
                "md0",
                &[
                    ("md/level", level),
                    ("md/raid_disks", disks),
                    ("md/degraded", missing),
                ],
            )
            .look("md0")
    };
    let behind = ShownKernel::new().has(
        "md0",
        &[
            ("md/level", "raid1"),
            ("md/raid_disks", "2"),
            ("md/bitmap/backlog", "256"),
        ],
    );
    assert_eq!(behind.survives("md0"), SurvivedLoss::PowerCut);
    let whole = array("raid1", "2", "0");
    assert_eq!(whole.survives, SurvivedLoss::Disk);
    assert_eq!(whole.doubt, None);
    let degraded = array("raid1", "2", "1");
    assert_eq!(degraded.survives, SurvivedLoss::PowerCut);
    assert!(degraded.doubt.unwrap().contains("degraded"));
    assert_eq!(array("raid1", "3", "1").survives, SurvivedLoss::Disk);
    assert_eq!(array("raid6", "6", "1").survives, SurvivedLoss::Disk);
    assert_eq!(array("raid6", "6", "2").survives, SurvivedLoss::PowerCut);
    // It has no `degraded`.
    let striped = array("raid0", "2", "");
    assert_eq!(striped.survives, SurvivedLoss::PowerCut);
    assert!(striped.told.contains("lost with any"));
}

#[test]
fn a_mirror_by_drbd_survives_the_machine_only_up_to_date() {
    let with = |line: &str| {
        let shown = ShownKernel::new().has("drbd1", &[("size", "1")]);
        let text = format!(
            "version: 8.4.11\n\n 0: cs:Connected ds:UpToDate/UpToDate C r-----\n {line}\n    ns:0\n"
        );
        fs::write(shown.0.path().join("drbd"), text).unwrap();
        shown.survives("drbd1")
    };
    let line = |states: &str| format!("1: cs:Connected ro:Primary/Secondary ds:{states} r-----");
    assert_eq!(with(&line("UpToDate/UpToDate C")), SurvivedLoss::Machine);
    assert_eq!(with(&line("UpToDate/UpToDate A")), SurvivedLoss::PowerCut);
    assert_eq!(with(&line("UpToDate/DUnknown C")), SurvivedLoss::PowerCut);
    // A newer DRBD tells its states to its own tool only.
    assert_eq!(with(""), SurvivedLoss::Unknown);
}

#[test]
fn volumes_of_other_machines_outlive_this_one() {
    let shown = ShownKernel::new()
        .has("nvme0n1", &[("device/transport", "tcp")])
        .has("nvme1n1", &[("device/nvme1/transport", "rdma")])
        .has("nvme2n1", &[("device/transport", "loop")])
        .has(
            "nvme3n1",
            &[
                ("device/transport", "pcie"),
                ("device/model", "Amazon Elastic Block Store"),
            ],
        )
        .has("sdb", &[("device/model", "PersistentDisk")])
        .has("rbd0", &[("size", "1")])
        .has_at("sdc", "devices/platform/host2/session1/target2/block/sdc")
        .has_at("sdd", "devices/pci0/host3/rport-3:0-0/target3/block/sdd");
    for disk in ["nvme3n1", "sdb", "rbd0"] {
        assert_eq!(shown.survives(disk), SurvivedLoss::Machine, "{disk}");
    }
    // That is the target's to say.
    for disk in ["nvme0n1", "nvme1n1", "sdc", "sdd"] {
        let found = shown.look(disk);
        assert_eq!(found.survives, SurvivedLoss::Unknown, "{disk}");
        assert!(found.told.contains("target"), "{found:?}");
    }
    // The target is this machine.
    assert_eq!(shown.survives("nvme2n1"), SurvivedLoss::PowerCut);
}

#[test]
fn what_may_be_memory_or_may_go_is_doubted() {
    let shown = ShownKernel::new()
        .has("nbd0", &[("pid", "12")])
        .has(
            "nvme0n1",
            &[("device/model", "Amazon EC2 NVMe Instance Storage")],
        )
        .has("nvme1n1", &[("device/model", "nvme_card-pd")])
        .has("sdb", &[("removable", "1")])
        .has_at("sdc", "devices/pci0/usb1/1-1/host4/block/sdc");
    let (nbd, local) = (shown.look("nbd0"), shown.look("nvme0n1"));
    assert_eq!(nbd.survives, SurvivedLoss::Unknown);
    assert!(nbd.doubt.unwrap().contains("memory"));
    assert_eq!(local.survives, SurvivedLoss::Reboot);
    assert!(local.doubt.unwrap().contains("gone with this machine"));
    for disk in ["sdb", "sdc"] {
        assert!(shown.look(disk).doubt.unwrap().contains("pulled out"));
    }
    assert_eq!(shown.look("nvme1n1").doubt, None);
}

#[test]
fn any_other_disk_is_the_machines_or_its_hosts() {
    let shown = ShownKernel::new()
        .has("sda", &[("removable", "0")])
        .has("vda", &[("removable", "0")])
        .has("xvdb", &[("removable", "0")])
        .has(
            "sdb",
            &[("device/vendor", "QEMU"), ("device/model", "QEMU HARDDISK")],
        )
        .has(
            "sdc",
            &[("device/vendor", "Msft"), ("device/model", "Virtual Disk")],
        );
    assert_eq!(shown.survives("sdb"), SurvivedLoss::Unknown);
    assert!(shown.look("sdc").doubt.unwrap().contains("resource disk"));
    assert_eq!(shown.survives("sda"), SurvivedLoss::PowerCut);
    assert_eq!(shown.survives("vda"), SurvivedLoss::Unknown);
    assert_eq!(shown.survives("xvdb"), SurvivedLoss::Unknown);
    // Its name begins like a network block device's.
    assert_eq!(shown.survives("nbdisk"), SurvivedLoss::PowerCut);
}
