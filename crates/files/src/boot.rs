//! Which boot of the machine this is.

use crate::FilesError;
use uuid::Uuid;

/// Set in tests only: pretends another boot.
const OVERRIDE: &str = "FOREBAY_TEST_BOOT_ID";

/// Set in tests only: pretends that an emulated pool is persistent memory, which a new boot leaves
/// as it was.
const SURVIVED: &str = "FOREBAY_TEST_POOL_SURVIVED";

/// True if a test says that its pool, though emulated, has lived through a power cut.
pub(crate) fn pool_survived() -> bool {
    std::env::var_os(SURVIVED).is_some()
}

/// The kernel's id of this boot: as long as it is the same, the page cache may have everything that
/// was written.
///
/// # Errors
/// If `/proc` is not there.
pub fn id() -> Result<Uuid, FilesError> {
    if let Ok(id) = std::env::var(OVERRIDE) {
        return id
            .parse()
            .map_err(|_| FilesError::Config(format!("{OVERRIDE} is no uuid: {id}")));
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
