//! Blank headers: a cache that was ended, or whose making was cut. docs/flash-tier.md, "Another
//! size".

use super::error::SetupError;
use crate::descriptor::{hold, link_to};
use forebay_flash::layout::CHECKPOINTS;
use rustix::fd::AsFd;
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// True if it is the rest of a cache whose making, or removal, was cut. Nothing is in it.
pub(super) fn is_ended(flash: &Path, pool: &Path) -> Result<bool, SetupError> {
    let fail = |e: io::Error| SetupError::io("looking at", flash)(e);
    // Only held until it is known what it is: what is no file makes no one wait.
    let held = File::from(hold(flash).map_err(|e| fail(e.into()))?);
    let meta = held.metadata().map_err(fail)?;
    if !meta.is_file() {
        return Ok(false);
    }
    // It is told from any file of zeros by the lane beside it.
    if pool.symlink_metadata().is_err() {
        return Ok(false);
    }
    has_blank_headers(&held).map_err(fail)
}

/// True if a cache was ended on this flash, which is only held, or none was made to the end.
pub(super) fn has_blank_headers(flash: impl AsFd) -> io::Result<bool> {
    let start = start_of(flash)?;
    Ok(start.len() as u64 == CHECKPOINTS && start.iter().all(|&byte| byte == 0))
}

/// The headers of a flash file, or the superblocks of its metadata, as far as they are there.
pub(super) fn start_of(held: impl AsFd) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    let file = File::open(link_to(held))?;
    file.take(CHECKPOINTS).read_to_end(&mut start)?;
    Ok(start)
}
