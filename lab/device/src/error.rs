//! Errors in the choice of a device.

use std::path::PathBuf;

/// What is wrong with a device that was asked for, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Not `DIR=PROFILE`.
    #[error(
        "--device takes a directory and a profile, DIR=PROFILE, as in --device /mnt/data=hdd-7200; found {0:?}"
    )]
    Syntax(String),
    /// Neither a built-in profile nor a file.
    #[error(
        "there is no device profile {name:?}; there are {known}, or give the path of a TOML file with one (docs/devices.md)"
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// The directory cannot be used.
    #[error("the directory {dir} of --device cannot be used: {what}. Make it first: mkdir -p {dir}", dir = dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Two devices for one directory.
    #[error("the directory {} has two devices; give it one", .0.display())]
    Twice(PathBuf),
    /// Too many.
    #[error("{0} devices are too many: at most {max} directories of a run have one", max = crate::DEVICES_MAX)]
    TooMany(usize),
    /// The profile's file cannot be read.
    #[error("reading the device profile {path}: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The profile's file says what cannot be.
    #[error("the device profile {path}{at}: {what}. docs/devices.md lists the keys", path = path.display(), at = line_of(*line))]
    Profile {
        /// The file.
        path: PathBuf,
        /// The line, from 1; 0 if it is not known.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// The shared state.
    #[error("the emulated devices' shared memory: {0}")]
    Shared(String),
    /// A block device ([`crate::block`]).
    #[error(
        "an emulated block device needs root, /dev/fuse, loop devices, mkfs.ext4 and a mount namespace of its own: {0}"
    )]
    Block(String),
}

fn line_of(line: usize) -> String {
    match line {
        0 => String::new(),
        line => format!(", line {line}"),
    }
}
