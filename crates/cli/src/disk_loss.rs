//! The losses that a block device survives, as the kernel describes the device: a disk of this
//! machine, an array, a volume that other machines keep.
//!
//! A pool on a disk survives what that disk survives, and no more. Sources: `sysfs-block-nvme` and
//! the kernel's drivers for md, nbd and nvme (attributes of `/sys/block/NAME`), `/proc/drbd` of
//! DRBD 8.4.

use forebay_pool::disks::BackingStore;
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The largest loss after which synced writes are still on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SurvivedLoss {
    /// That is another machine's to say, or a driver's that is not known.
    Unknown,
    /// Power, for as long as the machine is the same: a cloud's local disk.
    Reboot,
    /// Power.
    PowerCut,
    /// A disk of an array.
    Disk,
    /// This machine: the data is in others.
    Machine,
}

/// The losses that one device survives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiskLoss {
    /// Its name below `/sys/block`.
    pub disk: String,
    /// The losses that it survives.
    pub survives: SurvivedLoss,
    /// Its kind, in words.
    pub told: String,
    /// The doubt about keeping acknowledged writes on it, beside data that is elsewhere.
    pub doubt: Option<String>,
}

impl DiskLoss {
    /// Of all that data lies on: the arrays, and the disks below them.
    pub fn below(ground: &BackingStore) -> Vec<Self> {
        let kernel = KernelView {
            blocks: Path::new("/sys/block"),
            drbd: Path::new("/proc/drbd"),
        };
        let arrays = ground.layers.iter().filter_map(|name| kernel.array(name));
        let disks = ground.disks.iter().map(|disk| kernel.look(disk));
        arrays.chain(disks).collect()
    }
}

/// The kernel's directories.
struct KernelView<'a> {
    blocks: &'a Path,
    drbd: &'a Path,
}

/// A device's directory, and what is to be said of it.
struct SeenDevice<'a> {
    disk: &'a str,
    at: PathBuf,
}

impl KernelView<'_> {
    fn device<'a>(&self, disk: &'a str) -> SeenDevice<'a> {
        SeenDevice {
            disk,
            at: self.blocks.join(disk),
        }
    }

    fn array(&self, name: &str) -> Option<DiskLoss> {
        self.device(name).array()
    }

    fn look(&self, disk: &str) -> DiskLoss {
        let seen = self.device(disk);
        seen.array()
            .or_else(|| self.replicated(&seen))
            .or_else(|| seen.served())
            .or_else(|| seen.of_cloud())
            .or_else(|| seen.removable())
            .unwrap_or_else(|| seen.own())
    }

    /// DRBD: the peer has each write before it is acknowledged with protocol C only, and only while
    /// it is up to date.
    fn replicated(&self, seen: &SeenDevice<'_>) -> Option<DiskLoss> {
        let minor = numbered(seen.disk, "drbd")?;
        let text = fs::read_to_string(self.drbd).unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(&format!("{minor}:")));
        let Some(line) = line else {
            return Some(seen.loss(
                SurvivedLoss::Unknown,
                "a mirror by DRBD: it survives this machine while drbdadm status shows the peer UpToDate, with protocol C".to_owned(),
            ));
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let (both, protocol) = (
            words.contains(&"ds:UpToDate/UpToDate"),
            words.contains(&"C"),
        );
        Some(match (both, protocol) {
            (true, true) => seen.loss(
                SurvivedLoss::Machine,
                "a mirror by DRBD, whose peer has each write (protocol C, UpToDate)".to_owned(),
            ),
            (true, false) => seen.loss(
                SurvivedLoss::PowerCut,
                "a mirror by DRBD without protocol C: the peer may lack the last writes".to_owned(),
            ),
            (false, _) => seen.loss(
                SurvivedLoss::PowerCut,
                "a mirror by DRBD with one side not up to date: only the other has the last writes"
                    .to_owned(),
            ),
        })
    }
}

impl SeenDevice<'_> {
    fn read(&self, name: &str) -> String {
        let text = fs::read_to_string(self.at.join(name)).unwrap_or_default();
        text.trim().to_owned()
    }

    fn loss(&self, survives: SurvivedLoss, told: String) -> DiskLoss {
        DiskLoss {
            disk: self.disk.to_owned(),
            survives,
            told,
            doubt: None,
        }
    }

    fn doubtful(&self, survives: SurvivedLoss, told: String, doubt: String) -> DiskLoss {
        DiskLoss {
            doubt: Some(doubt),
            ..self.loss(survives, told)
        }
    }

    /// An array of md's.
    fn array(&self) -> Option<DiskLoss> {
        let level = self.read("md/level");
        if level.is_empty() {
            return None;
        }
        let disks = self.read("md/raid_disks");
        let missing: u32 = self.read("md/degraded").parse().unwrap_or(0);
        // A disk that may be written behind is no second copy yet.
        let is_behind = !matches!(self.read("md/bitmap/backlog").as_str(), "" | "0");
        let spare = match level.as_str() {
            "raid1" if is_behind => 0,
            "raid1" => disks
                .parse::<u32>()
                .map_or(0, |disks| disks.saturating_sub(1)),
            "raid4" | "raid5" | "raid10" => 1,
            "raid6" => 2,
            _ => 0,
        };
        let what = format!("an array ({level}) of {disks} disks");
        Some(match spare {
            0 if is_behind => self.loss(
                SurvivedLoss::PowerCut,
                format!("{what}; one of them may be written behind"),
            ),
            0 => self.loss(
                SurvivedLoss::PowerCut,
                format!("{what}, lost with any of them"),
            ),
            _ if missing >= spare => self.doubtful(
                SurvivedLoss::PowerCut,
                format!("{what}, of which {missing} are missing"),
                format!(
                    "{} is degraded: the next disk that fails takes it along",
                    self.disk
                ),
            ),
            _ => self.loss(SurvivedLoss::Disk, what),
        })
    }

    /// The loss of a disk that another machine serves.
    fn served(&self) -> Option<DiskLoss> {
        if numbered(self.disk, "nbd").is_some() {
            let told = "a network block device: only its server's administrator knows the losses it survives (nbdkit memory: not the server's restart)";
            let doubt = format!(
                "{} survives as much as its server, which may keep it in memory",
                self.disk
            );
            return Some(self.doubtful(SurvivedLoss::Unknown, told.to_owned(), doubt));
        }
        if numbered(self.disk, "rbd").is_some() {
            return Some(
                self.loss(
                    SurvivedLoss::Machine,
                    "a volume of Ceph, which other machines keep in as many copies as its pool has"
                        .to_owned(),
                ),
            );
        }
        let path = fs::canonicalize(&self.at).unwrap_or_default();
        let path = path.to_string_lossy();
        let by = match self.transport().as_deref() {
            Some("loop") => return None,
            Some(transport @ ("tcp" | "rdma" | "fc")) => format!("NVMe over {transport}"),
            _ if path.contains("/session") => "iSCSI".to_owned(),
            _ if path.contains("/rport-") => "Fibre Channel".to_owned(),
            _ => return None,
        };
        Some(self.loss(
            SurvivedLoss::Unknown,
            format!(
                "a volume by {by}: it survives as much as its target, which may be other machines"
            ),
        ))
    }

    /// The transport of an NVMe controller; with native multipath the subsystem has the
    /// controllers.
    fn transport(&self) -> Option<String> {
        let device = self.at.join("device");
        let own = self.read("device/transport");
        if !own.is_empty() {
            return Some(own);
        }
        let below = fs::read_dir(device).into_iter().flatten().flatten();
        let controllers =
            below.filter(|entry| numbered(&entry.file_name().to_string_lossy(), "nvme").is_some());
        let mut found = controllers
            .filter_map(|entry| fs::read_to_string(entry.path().join("transport")).ok())
            .map(|text| text.trim().to_owned());
        found.next()
    }

    /// Amazon's, Google's and Microsoft's.
    fn of_cloud(&self) -> Option<DiskLoss> {
        let model = self.read("device/model");
        let is = |names: &[&str]| names.iter().any(|name| model.contains(name));
        if is(&["Elastic Block Store", "PersistentDisk", "nvme_card-pd"]) {
            return Some(self.loss(
                SurvivedLoss::Machine,
                format!("a volume of the cloud ({model}), which outlives this machine"),
            ));
        }
        is(&[
            "Instance Storage",
            "nvme_card",
            "EphemeralDisk",
            "NVMe Direct Disk",
        ])
        .then(|| {
            self.doubtful(
                SurvivedLoss::Reboot,
                format!("a local disk of the cloud ({model})"),
                format!("{} ({model}) is gone with this machine", self.disk),
            )
        })
    }

    fn removable(&self) -> Option<DiskLoss> {
        let path = fs::canonicalize(&self.at).unwrap_or_default();
        let is_usb = path.to_string_lossy().contains("/usb");
        (is_usb || self.read("removable") == "1").then(|| {
            self.doubtful(
                SurvivedLoss::PowerCut,
                "a disk that can be pulled out".to_owned(),
                format!("{} can be pulled out", self.disk),
            )
        })
    }

    /// Nothing else is known: a disk of the machine, or of its host.
    fn own(&self) -> DiskLoss {
        let is_named = ["vd", "xvd"].iter().any(|kind| {
            let rest = self.disk.strip_prefix(kind);
            rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_lowercase()))
        });
        let makers = self.read("device/vendor") + " " + &self.read("device/model");
        let hosts = ["QEMU", "VMware", "VBOX", "Msft", "Xen"];
        match is_named || hosts.iter().any(|host| makers.contains(host)) {
            // Azure's resource disk has the same names as its volumes.
            true if makers.contains("Msft") => self.doubtful(
                SurvivedLoss::Unknown,
                "a disk by this machine's host, perhaps Azure's resource disk".to_owned(),
                format!(
                    "{} may be the resource disk, which is gone with this machine: see /dev/disk/cloud",
                    self.disk
                ),
            ),
            true => self.loss(
                SurvivedLoss::Unknown,
                "a disk by this machine's host: only the host knows if it survives power cuts".to_owned(),
            ),
            false => self.loss(
                SurvivedLoss::PowerCut,
                "a disk of this machine, gone with it".to_owned(),
            ),
        }
    }
}

/// The text behind a kind in a device's name, if that is its number.
fn numbered<'a>(name: &'a str, kind: &str) -> Option<&'a str> {
    let number = name.strip_prefix(kind)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(number)
}

#[cfg(test)]
mod tests;
