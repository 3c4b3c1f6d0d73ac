//! What a workload's files are on: this machine's disk, or a device that `forebay run --device` emulates.

use std::{ffi::OsString, path::Path};

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
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Here => "this disk",
            Self::Emulated(profile) => profile,
        }
    }

    /// The emulated device's profile.
    #[must_use]
    pub fn profile(self) -> Option<&'static str> {
        match self {
            Self::Here => None,
            Self::Emulated(profile) => Some(profile),
        }
    }
}

/// The value of `--device`: `DIR=PROFILE`.
#[must_use]
pub fn device_argument(dir: &Path, profile: &str) -> OsString {
    let mut value = dir.as_os_str().to_owned();
    value.push("=");
    value.push(profile);
    value
}

/// What stands before a command to have it run under `forebay`, with a pool of which it gets so many segments, or with none, and with further
/// options.
#[must_use]
pub fn forebay_run(
    forebay: &Path,
    pool: Option<(&Path, u16)>,
    options: impl IntoIterator<Item = (&'static str, OsString)>,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![forebay.into(), "run".into()];
    match pool {
        Some((pool, buffers)) => words.extend([
            "--pool".into(),
            pool.into(),
            "--buffers".into(),
            buffers.to_string().into(),
        ]),
        None => words.push("--no-pool".into()),
    }
    for (name, value) in options {
        words.extend([name.into(), value]);
    }
    words.push("--".into());
    words
}
