//! The one mechanism by which tests and laboratories disturb Forebay (feature `failpoints`, never
//! in a build that ships; `no_failpoints.rs` stands for this there). Only this module reads the
//! variables that it is told by, all of them once in a process:
//!
//! | variable | what it asks for |
//! |---|---|
//! | `FOREBAY_FAILPOINT=NAME=N,…` | something happens at the N-th pass of a `failpoint!`: [`moments`] |
//! | `FOREBAY_BROKEN=NAME,…` | what [`fault_enabled!`](crate::fault_enabled!) names is broken |
//! | `FOREBAY_TEST_FAULTS=DIR` | a call fails while `DIR/NAME` is there: [`error`] |
//! | `FOREBAY_TEST_WAITS=NAME=MS,…` | a wait has another limit: [`limit`] |
//! | `FOREBAY_TEST_BOOT_ID=UUID` | it is another boot of the machine |
//! | `FOREBAY_TEST_POOL_SURVIVED=1` | an emulated pool is persistent memory, and outlasts a boot |
//! | `FOREBAY_TEST_STEPS=1` | each failpoint asks the kernel for a file of its name, for a tracer |
//! | `FOREBAY_TEST_SYNCED=DIR` | who syncs files of a lane keeps copies of them as they were synced |

mod moments;

pub use moments::{announce, hit, pass};

use moments::ArmedFailpoint;
use rustix::io::Errno;
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

/// True in a build with this mechanism.
pub const BUILT_IN: bool = true;

/// The environment's wishes.
struct FaultSettings {
    armed: Vec<ArmedFailpoint>,
    broken: Vec<String>,
    faults: Option<PathBuf>,
    limits: Vec<(String, Duration)>,
    boot_id: Option<String>,
    pool_survived: bool,
    synced: Option<PathBuf>,
    is_traced: bool,
}

fn settings() -> &'static FaultSettings {
    static SETTINGS: OnceLock<FaultSettings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let text = |name| std::env::var(name).unwrap_or_default();
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        let limit = |text: &str| {
            let (name, ms) = text.split_once('=')?;
            Some((name.to_owned(), Duration::from_millis(ms.parse().ok()?)))
        };
        FaultSettings {
            armed: (text("FOREBAY_FAILPOINT").split(','))
                .filter_map(ArmedFailpoint::parse)
                .collect(),
            broken: (text("FOREBAY_BROKEN").split(','))
                .map(str::to_owned)
                .collect(),
            faults: path("FOREBAY_TEST_FAULTS"),
            limits: (text("FOREBAY_TEST_WAITS").split(','))
                .filter_map(limit)
                .collect(),
            boot_id: std::env::var("FOREBAY_TEST_BOOT_ID").ok(),
            pool_survived: std::env::var_os("FOREBAY_TEST_POOL_SURVIVED").is_some(),
            synced: path("FOREBAY_TEST_SYNCED"),
            is_traced: std::env::var_os("FOREBAY_TEST_STEPS").is_some(),
        }
    })
}

/// True if the environment breaks this.
#[must_use]
pub fn is_broken(name: &str) -> bool {
    settings().broken.iter().any(|broken| broken == name)
}

/// The error with which a call is to fail, taken from a file of this name: `ERRNO COUNT`, or
/// `ERRNO` for every call as long as the file is there. If the file is a pipe, the call waits until
/// a test writes to it.
#[must_use]
pub fn error(name: &str) -> Option<Errno> {
    take_error(&settings().faults.as_ref()?.join(name))
}

fn take_error(path: &Path) -> Option<Errno> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut words = text.split_ascii_whitespace();
    let errno = words.next()?.parse().ok()?;
    if let Some(count) = words.next() {
        let left = count.parse::<u64>().ok()?.checked_sub(1)?;
        std::fs::write(path, format!("{errno} {left}")).ok()?;
    }
    Some(Errno::from_raw_os_error(errno))
}

/// The longest wait for this: `usual`, unless a test says otherwise.
#[must_use]
pub fn limit(name: &str, usual: Duration) -> Duration {
    let told = settings().limits.iter().find(|(told, _)| told == name);
    told.map_or(usual, |(_, limit)| *limit)
}

/// The id of the boot that it is to be.
#[must_use]
pub fn boot_id() -> Option<&'static str> {
    settings().boot_id.as_deref()
}

/// True if an emulated pool is to count as persistent memory.
#[must_use]
pub fn pool_survived() -> bool {
    settings().pool_survived
}

/// The directory for copies of files as they were synced last: the worst that a power cut could
/// leave.
#[must_use]
pub fn synced_copies() -> Option<&'static Path> {
    settings().synced.as_deref()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_taken_as_often_as_its_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sync");
        assert_eq!(take_error(&path), None);
        std::fs::write(&path, "28 2").unwrap();
        let taken = [(); 3].map(|()| take_error(&path));
        assert_eq!(taken, [Some(Errno::NOSPC), Some(Errno::NOSPC), None]);
        std::fs::write(&path, "5").unwrap();
        assert_eq!([(); 2].map(|()| take_error(&path)), [Some(Errno::IO); 2]);
    }
}
