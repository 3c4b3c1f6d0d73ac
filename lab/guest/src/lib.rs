//! Virtual machines: Debian's stock kernel in QEMU, by KVM or emulated, with programs of this
//! machine in its first file system; and namespaces of this machine's kernel in the place of one.
//!
//! [`kernel`] and [`initramfs`] are what one boots, [`machine`] is one that runs, [`namespace`] one
//! that this machine's kernel runs, both [`watched`], [`accelerator`] what runs it, [`shell`] has
//! it do something, [`disk`] is what it has on disks that are no faster than they are told to be,
//! [`bcache`] what Linux itself has for caching a disk, [`mariadb`] a server, [`look`] what the
//! guest counts, and [`cached`] all of it together: a server whose disk is slow, with a cache in
//! front of it.
//!
//! The power-cut lab (`lab/powercut`) brings disks of its own, and what the guest does there.

pub mod accelerator;
pub mod bcache;
pub mod cached;
pub mod disk;
pub mod initramfs;
pub mod kernel;
pub mod look;
pub mod machine;
pub mod mariadb;
pub mod namespace;
pub mod shell;
pub mod watched;

use std::process::Command;

/// Anything that keeps a machine from working, in words.
pub type Failure = Box<dyn std::error::Error>;

/// What a guest cannot do without: processors, files, network.
pub const MODULES: [&str; 6] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "crc32c_generic",
    "crc32c_intel",
    "ext4",
];

/// Runs a program of this machine to its end.
///
/// # Errors
/// If it is not installed, with the remedy; what it said, if it fails.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let done = command
        .output()
        .map_err(|e| format!("{command:?}: {e}. Remedy: scripts/setup.sh powercut"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(format!("{command:?} failed:\n{said}").into());
    }
    Ok(())
}
