//! The kernel: one of those that are installed on this machine, which need not be the one that runs
//! here.

use crate::{Failure, accelerator::Accelerator};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What a machine is started with.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The kernel itself.
    pub image: PathBuf,
    /// Its first file system.
    pub initramfs: PathBuf,
    /// What runs it.
    pub accelerator: Accelerator,
}

/// The release of the newest kernel in /boot that has a module of this name.
///
/// # Errors
/// There is none, with the remedy; /boot cannot be read.
pub fn installed(module: &str) -> Result<String, Failure> {
    let file = format!("/{module}.ko");
    let has_module = |release: &String| {
        let listed = Path::new("/lib/modules").join(release).join("modules.dep");
        fs::read_to_string(listed).is_ok_and(|listed| listed.contains(&file))
    };
    let mut found: Vec<String> = fs::read_dir("/boot")?
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .into_string()
                .ok()?
                .strip_prefix("vmlinuz-")
                .map(str::to_owned)
        })
        .filter(has_module)
        .collect();
    found.sort();
    found
        .pop()
        .ok_or_else(|| "no kernel is installed in /boot: scripts/setup.sh powercut".into())
}

/// The kernel of a release without its compression, which would be undone at every boot, and
/// slowly, in the directory `home`; the packed one itself if that cannot be had.
///
/// # Errors
/// I/O errors.
pub fn unpacked(release: &str, home: &Path) -> Result<PathBuf, Failure> {
    const XZ: &[u8] = b"\xFD7zXZ\0";
    let packed = PathBuf::from(format!("/boot/vmlinuz-{release}"));
    let bytes = fs::read(&packed).map_err(|e| format!("reading {}: {e}", packed.display()))?;
    let Some(at) = bytes.windows(XZ.len()).position(|window| window == XZ) else {
        return Ok(packed);
    };
    let (part, image) = (home.join("vmlinux.xz"), home.join("vmlinux"));
    fs::write(&part, &bytes[at..])?;
    let done = Command::new("xz")
        .args(["--single-stream", "-dc"])
        .arg(&part)
        .stdout(fs::File::create(&image)?)
        .status();
    let is_elf = fs::read(&image)?.starts_with(b"\x7FELF");
    Ok(if done.is_ok_and(|status| status.success()) && is_elf {
        image
    } else {
        packed
    })
}
