//! The place of a workload's files: this machine's disk, or a device that `forebay-lab run
//! --device` emulates. Its name in reports is [`HERE`] or that of the device's profile.

use forebay_databases::contest::around::device_argument;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The disk under the directory that was asked for.
pub const HERE: &str = "this disk";

/// The profile of the emulated device that a place is.
pub fn profile(place: &str) -> Option<&str> {
    (place != HERE).then_some(place)
}

/// The laboratory's program, which lies beside `forebay`: for runs on emulated devices, and
/// measurements that start it again.
pub fn lab_program(forebay: &Path) -> PathBuf {
    forebay.with_file_name("forebay-lab")
}

/// A command line that runs the words to be added on an emulated device: what they do below `dir`,
/// without a pool.
pub fn on_device(forebay: &Path, dir: &Path, profile: &str) -> Command {
    let mut command = Command::new(lab_program(forebay));
    command
        .args(["run", "--no-pool", "--device"])
        .arg(device_argument(dir, profile))
        .arg("--");
    command
}
