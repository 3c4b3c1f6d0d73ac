//! Programs of a run that are no server: those that a server starts (the scripts of a state
//! transfer, `rsync`, `mariadb-backup`), or a script before it.
//!
//! The cache is never theirs. If it has nothing of any file, they use page files as they are. Else
//! they are refused: what they read would be older than what the server wrote, and the cache would
//! go on with what they wrote over, or removed. docs/flash-tier.md, "Programs that are no server".

use crate::{
    complain::{complain_again, complain_once},
    environment::{self, ForeignProgram},
    file_kinds, guard, recorded_names,
    setup::{CacheLocation, pool_of, retry_in_use},
};
use forebay_flash::{Cache, CacheOptions};
use forebay_pool::with_room;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::{fs::Metadata, os::unix::fs::MetadataExt, path::Path, sync::Arc};

/// Before this process, if it is another program than the server, opens, changes or removes the
/// file of this path.
///
/// # Errors
/// `EBUSY`: it is a page file, and it must not. The reason was said.
pub(crate) fn check(path: &[u8]) -> Result<(), Errno> {
    match environment::foreign() {
        Some(other) if file_kinds::is_of_database(path) => {
            with_room(|| refuse(other, &String::from_utf8_lossy(path)))
        }
        _ => Ok(()),
    }
}

/// The identities of a cache's two files, and the times of their last changes. A server that opens
/// the cache writes to both.
type CacheStamp = [(u64, [i64; 2]); 2];

/// As they were when they were found to have nothing that is needed: a backup opens thousands of
/// files.
static UNNEEDED: Mutex<Option<CacheStamp>> = Mutex::new(None);

/// None of a device, which does not tell.
fn changed(flash: &Path) -> Option<CacheStamp> {
    let of = |path: &Path| {
        let found = path.metadata().ok().filter(Metadata::is_file)?;
        Some((found.ino(), [found.ctime(), found.ctime_nsec()]))
    };
    let flash = flash.canonicalize().ok()?;
    Some([of(&flash)?, of(&pool_of(&flash))?])
}

fn refuse(other: &ForeignProgram, path: &str) -> Result<(), Errno> {
    let now = changed(&other.flash);
    // Locked for ever in a child of a process of which another thread had it.
    if now.is_some() && UNNEEDED.try_lock().is_some_and(|then| *then == now) {
        return Ok(());
    }
    let (program, flash) = (other.program.display(), other.flash.display());
    let homes = Arc::new(crate::home::Homes::new());
    let open = || {
        CacheLocation::of(&other.flash)
            .and_then(|place| place.open(&homes, &CacheOptions::default()))
    };
    // Another program of the run may be looking at the same moment.
    let why = match retry_in_use(open) {
        Ok((cache, _)) if !is_needed(&cache) => {
            drop(cache);
            if let Some(mut unneeded) = UNNEEDED.try_lock() {
                *unneeded = changed(&other.flash);
            }
            complain_once(&format!(
                "{program} is no MariaDB server, by its name: it uses page files as they are, past the flash cache"
            ));
            return Ok(());
        }
        Ok(_) => format!(
            "the flash cache {flash} has newer pages than the files of its data directory. Before another program than the server uses them (a state transfer to this node, a \
             backup, a restore): forebay flash flush --flash {flash}"
        ),
        Err(error) if error.is_in_use() => format!(
            "a server has its pages in the flash cache {flash}. Copy them by that server (mariadb-dump, FLUSH TABLES … FOR EXPORT), or stop it, and then: forebay flash flush --flash {flash}"
        ),
        Err(error) => error.to_string(),
    };
    complain_again(&format!("{path} is refused to {program}: {why}"));
    Err(Errno::BUSY)
}

/// True if the files are no database without it.
fn is_needed(cache: &Cache) -> bool {
    let files = cache.files();
    let mut paths = files.iter().map(|file| recorded_names::path_of(file));
    cache.stats().dirty_pages > 0 || paths.any(|path| guard::is_of(&path, cache.owner()))
}
