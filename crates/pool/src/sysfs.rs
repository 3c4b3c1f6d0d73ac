//! The kernel's directory on a block device, in sysfs.
//!
//! Container runtimes hide `/sys/dev/block`, which names devices by their numbers. There a device
//! is looked for among all of them.

use std::{
    fs,
    path::{Path, PathBuf},
};

const BY_NUMBER: &str = "/sys/dev/block";
const BY_NAME: &str = "/sys/class/block";

/// The directory of the block device with this number; none if there is no such device.
pub(crate) fn of_block_device(number: u64) -> Option<PathBuf> {
    find(Path::new(BY_NUMBER), Path::new(BY_NAME), number)
}

fn find(by_number: &Path, by_name: &Path, number: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let number = format!("{major}:{minor}");
    let is_it = |device: &PathBuf| {
        fs::read_to_string(device.join("dev")).is_ok_and(|said| said.trim() == number)
    };
    fs::canonicalize(by_number.join(&number)).ok().or_else(|| {
        let all = fs::read_dir(by_name).into_iter().flatten().flatten();
        let found = all.map(|entry| entry.path()).find(is_it)?;
        fs::canonicalize(found).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise (pool): What lies below a pool on a disk is known also where `/sys/dev/block` is
    /// hidden, as container runtimes do.
    #[test]
    fn device_is_found_where_its_number_is_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let (hidden, by_name) = (dir.path().join("hidden"), dir.path().join("class"));
        for (name, number) in [("sda", "8:0\n"), ("sda1", "8:1\n"), ("nvme0n1", "259:0\n")] {
            fs::create_dir_all(by_name.join(name)).unwrap();
            fs::write(by_name.join(name).join("dev"), number).unwrap();
        }
        fs::create_dir(&hidden).unwrap();
        let found = |major, minor| find(&hidden, &by_name, rustix::fs::makedev(major, minor));
        assert!(found(8, 1).unwrap().ends_with("sda1"));
        assert!(found(259, 0).unwrap().ends_with("nvme0n1"));
        assert_eq!(found(8, 2), None);
    }

    #[test]
    fn both_ways_lead_to_the_same_device() {
        let all = fs::read_dir(BY_NAME).into_iter().flatten().flatten();
        for device in all {
            // It may go meanwhile: other tests have loop devices.
            let path = device.path().join("dev");
            let Ok(said) = fs::read_to_string(&path) else {
                continue;
            };
            let (major, minor) = said.trim().split_once(':').unwrap();
            let number = rustix::fs::makedev(major.parse().unwrap(), minor.parse().unwrap());
            let searched = find(Path::new("/nowhere"), Path::new(BY_NAME), number);
            let by_number = of_block_device(number);
            if fs::read_to_string(&path).is_ok_and(|again| again == said) {
                assert_eq!(searched, by_number, "{said}");
            }
        }
    }
}
