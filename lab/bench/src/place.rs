//! What a workload's files are on: this machine's disk, or a device that `forebay-lab run --device` emulates.

use forebay_databases::contest::around::device_argument;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// What a workload's files are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The disk under the directory that was asked for.
    Here,
    /// An emulated device, by its profile's name.
    Emulated(&'static str),
}

impl Place {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Here => "this disk",
            Self::Emulated(profile) => profile,
        }
    }

    /// The emulated device's profile.
    pub fn profile(self) -> Option<&'static str> {
        match self {
            Self::Here => None,
            Self::Emulated(profile) => Some(profile),
        }
    }
}

/// The laboratory's program, which lies beside `forebay`: for runs on emulated devices, and measurements that start it again.
pub fn lab_program(forebay: &Path) -> PathBuf {
    forebay.with_file_name("forebay-lab")
}

/// A command line that runs the words to be added on an emulated device: what they do below `dir`, without a pool.
pub fn on_device(forebay: &Path, dir: &Path, profile: &str) -> Command {
    let mut command = Command::new(lab_program(forebay));
    command
        .args(["run", "--no-pool", "--device"])
        .arg(device_argument(dir, profile))
        .arg("--");
    command
}
