//! Asks the tables of a pool's runs (`absorbed`) if one of them has files of a directory: databases
//! may share a pool.

use crate::{absorbed, directories::each_directory};
use forebay_pool::Pool;
use rustix::fs::{AtFlags, FileType};
use std::path::Path;

/// False if the lane's run is known to absorb no file of these directories and those below them. As
/// far as is known it may: its table is where no process looks from here, or another user's.
///
/// # Errors
/// I/O errors: a directory cannot be read.
pub fn may_absorb(
    pool: &Pool,
    lane: u32,
    directories: &[impl AsRef<Path>],
) -> std::io::Result<bool> {
    let Some(lane) = pool.lanes().into_iter().find(|known| known.lane == lane) else {
        // It has ended meanwhile, and left nothing.
        return Ok(false);
    };
    let user = pool.descriptor().and_then(|it| rustix::fs::fstat(it).ok());
    let table = user.and_then(|pool| absorbed::of_lane(lane.owner, pool.st_uid));
    let Some(table) = table else {
        return Ok(true);
    };
    let mut is_found = false;
    for directory in directories {
        each_directory(directory.as_ref(), |directory, path| {
            for entry in std::fs::read_dir(path)? {
                let name = entry?.file_name();
                // One that is gone meanwhile is none.
                let stat = rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW);
                is_found |= stat.is_ok_and(|stat| {
                    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                        && table.has((stat.st_dev, stat.st_ino))
                });
            }
            Ok(())
        })?;
    }
    Ok(is_found)
}
