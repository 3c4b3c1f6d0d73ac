//! The identity of this boot of the machine.

use crate::FilesError;
use forebay_pool::failpoint;
use uuid::Uuid;

/// The kernel's id of this boot: as long as it is the same, the page cache may have everything that
/// was written.
///
/// # Errors
/// If `/proc` is not there.
pub fn id() -> Result<Uuid, FilesError> {
    if let Some(id) = failpoint::boot_id() {
        let wrong = |_| FilesError::Config(format!("a test's boot id is no uuid: {id}"));
        return id.parse().map_err(wrong);
    }
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(PATH).map_err(|e| {
        // Of /proc that is there, and has processes only, a unit's line has made it so.
        let remedy = match std::path::Path::new("/proc/self").exists() {
            true => "/proc has processes only. In a unit of systemd that is ProcSubset=pid: take the line out, or write ProcSubset=all",
            false => "/proc is not mounted. forebay and its program need it: mount it in the chroot or container",
        };
        FilesError::Config(format!("reading {PATH}: {e}. {remedy}"))
    })?;
    text.trim()
        .parse()
        .map_err(|_| FilesError::Config(format!("{PATH} is no uuid: {text}")))
}
