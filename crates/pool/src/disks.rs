//! Which disks a file lies on, as the kernel knows them.

use std::{
    fs,
    os::{fd::BorrowedFd, unix::fs::MetadataExt},
    path::Path,
};

/// The names of the disks below a device: of a partition the disk's, of a volume its disks', of a loop device its file's.
#[must_use]
pub fn whole(device: u64) -> Vec<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))
        .map_or_else(|_| Vec::new(), |at| below(&at))
}

fn below(at: &Path) -> Vec<String> {
    if at.join("partition").exists() {
        return at.parent().map_or_else(Vec::new, below);
    }
    if let Ok(backing) = fs::read_to_string(at.join("loop/backing_file"))
        && let Ok(file) = fs::metadata(backing.trim())
    {
        return whole(file.dev());
    }
    let slaves = fs::read_dir(at.join("slaves"))
        .into_iter()
        .flatten()
        .flatten();
    let disks: Vec<String> = slaves
        .filter_map(|slave| fs::canonicalize(slave.path()).ok())
        .flat_map(|slave| below(&slave))
        .collect();
    match disks.is_empty() {
        true => at
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .into_iter()
            .collect(),
        false => disks,
    }
}

/// The disks below an open file, or below the block device that it is.
#[must_use]
pub fn of(file: BorrowedFd<'_>) -> Vec<String> {
    let Ok(stat) = rustix::fs::fstat(file) else {
        return Vec::new();
    };
    match rustix::fs::FileType::from_raw_mode(stat.st_mode).is_block_device() {
        true => whole(stat.st_rdev),
        false => whole(stat.st_dev),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn two_files_of_a_directory_lie_on_the_same_disks() {
        let program = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let [one, other] = ["one", "other"].map(|name| fs::File::create(dir.path().join(name)));
        assert_eq!(of(one.unwrap().as_fd()), of(other.unwrap().as_fd()));
        // Memory is no disk.
        let memory = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(of(memory.as_fd()).is_empty());
    }
}
