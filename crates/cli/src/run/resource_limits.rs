//! Limits that hold for Forebay's own files, too: on their size (`ulimit -f`, `LimitFSIZE=`), and
//! on the number of open ones.

use crate::{failure::Failure, size};

/// The largest of what a run makes for itself beside the pool's memory, in whole MiB: the page that
/// its processes share, where it is for the fewest files.
const OWN_BYTES: u64 = forebay_files::PAGE_BYTES_MIN.next_multiple_of(1 << 20);

/// Refuses a limit under which the run's own files cannot be made.
pub(super) fn check() -> Result<(), Failure> {
    match limit().filter(|limit| *limit < OWN_BYTES) {
        Some(limit) => Err(Failure::Failed(format!(
            "{}, and forebay needs {} for files of its own. {REMEDY}",
            said(limit),
            size::show(OWN_BYTES)
        ))),
        None => Ok(()),
    }
}

/// Adds this to the error that kept a pool from being opened: the memory of one on a disk is a file
/// as large.
pub(super) fn beside(failure: Failure) -> Failure {
    match (failure, limit()) {
        (Failure::Failed(why), Some(limit)) => {
            Failure::Failed(format!("{why} ({}. {REMEDY})", said(limit)))
        }
        (failure, _) => failure,
    }
}

/// As many files as may be open: this process has two of each process of the program's, and some of
/// each log. The program was started with the limit that there was.
pub(super) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    // Who then finds no descriptor says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
}

const REMEDY: &str =
    "One of the program alone may be lower: forebay run … -- sh -c 'ulimit -f …; exec …'";

fn limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

fn said(limit: u64) -> String {
    format!(
        "the limit on the size of files (ulimit -f, LimitFSIZE=) is {}",
        size::show(limit)
    )
}
