//! The guest's parts for etcd: its program.

use crate::Failure;
use forebay_bench::etcd::server::program;
use forebay_guest::initramfs::Initramfs;

/// The files, to be unpacked behind those that every guest has.
pub fn guest() -> Result<Initramfs, Failure> {
    let mut guest = Initramfs::default();
    // The profile knows it by its name.
    guest.add_program(&program()?, "/lab/etcd")?;
    Ok(guest)
}
