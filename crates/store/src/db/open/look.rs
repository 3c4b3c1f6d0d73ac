//! A look at a store for reading alone: its parts as of one moment, with nothing claimed or
//! changed. docs/store-format.md, "Reading beside the owner".
//!
//! 1. Read the manifest.
//! 2. Open the value-log files that it names, and then the index with its tables: whatever is
//!    unlinked from now on can be read.
//! 3. Copy what the pool has of the log. In the files it is complete up to where that begins.
//! 4. Replay the log from the index's watermark to its end: in the files, then in the copy. The end
//!    must not lie below the watermark. Damage and parts that contradict each other are refused as
//!    by an opening.
//! 5. Read the manifest again. If it is the one of 1, no file came or went meanwhile, and each
//!    address that the index leads to is in a file or in the copy.
//!
//! If 5 finds another manifest, the owner was at work: it is done again. So it is after an error:
//! what failed because the owner is at work fails in another way the next time, or manifest or
//! index have changed. What looks the same several times is so.

use super::{
    directory,
    session::{INDEX, OpeningSession},
};
use crate::{
    db::{StoreCore, recovery::find_end},
    disk::{Disk, HeldDirectory, RealDisk},
    error::StoreError,
    large_values::LargeValues,
    log::{LogTail, ReadTail},
    manifest::{ManifestState, NAME, PoolRef, StoreManifest},
    options::StoreOptions,
};
use forebay_pool::{LaneCopy, Pool, PoolErrorKind, PoolOptions, format::segment::next_start};
use std::{io::ErrorKind, path::Path, sync::Arc, thread, time::Duration};
use uuid::Uuid;

/// Looks while the owner is at work, and how long one waits for the next at most.
const LOOKS: u32 = 200;
const PAUSE_MAX_MS: u64 = 20;
/// After so many that say the same it is so.
const ALIKE: u32 = 3;

/// The bytes of both manifests: they change with every file and table.
type Manifests = [Option<Vec<u8>>; 2];

fn manifests(directory: &HeldDirectory) -> Manifests {
    let names = [NAME.to_owned(), format!("{INDEX}/{NAME}")];
    names.map(|name| directory.read(&name).ok())
}

impl StoreCore {
    /// The store in `dir` as it is now; if it is given, the `one` with that uuid.
    pub(in crate::db) fn as_of_now(
        options: &StoreOptions,
        dir: &Path,
        pool: Option<&Pool>,
        one: Option<Uuid>,
    ) -> Result<Self, StoreError> {
        let directory = directory::open_existing(dir)?;
        let (mut alike, mut said) = (0, String::new());
        for look in 1..=LOOKS {
            let before = manifests(&directory);
            match look_once(options, &directory, pool, one) {
                Ok(Some(core)) => return Ok(core),
                Ok(None) => alike = 0,
                Err(error) => {
                    let says = error.to_string();
                    let changed = manifests(&directory) != before;
                    alike = match (changed || is_busy(&error), says == said) {
                        (true, _) => 0,
                        (false, false) => 1,
                        (false, true) => alike + 1,
                    };
                    said = says;
                    if alike == ALIKE || (look == LOOKS && !changed) {
                        return Err(error);
                    }
                }
            }
            thread::sleep(Duration::from_millis(u64::from(look).min(PAUSE_MAX_MS)));
        }
        Err(StoreError::Outdated {
            dir: dir.to_owned(),
            what: format!("its files changed during each of {LOOKS} looks at them"),
        })
    }
}

/// The owner writes faster than its lane is copied.
fn is_busy(error: &StoreError) -> bool {
    let StoreError::Pool(error) = error else {
        return false;
    };
    matches!(&error.kind, PoolErrorKind::Io { source, .. } if source.kind() == ErrorKind::WouldBlock)
}

/// Steps 1 to 5; `None` if 5 finds another manifest.
fn look_once(
    options: &StoreOptions,
    directory: &Arc<HeldDirectory>,
    pool: Option<&Pool>,
    one: Option<Uuid>,
) -> Result<Option<StoreCore>, StoreError> {
    let dir = directory.path();
    let disk = RealDisk::read_only(options.open_log_files());
    let held = directory.to_lock().and_then(|open| disk.hold(dir, &open));
    held.map_err(StoreError::io("opening", dir))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let Some(manifest) = StoreManifest::read(directory)? else {
        return Err(StoreError::NotAStore {
            dir: dir.to_owned(),
            found: "it has no MANIFEST".to_owned(),
        });
    };
    let state = manifest.state().clone();
    if one.is_some_and(|one| one != state.uuid) {
        return Err(StoreError::Replaced {
            path: dir.join(NAME),
            found: format!("it is that of store {}", state.uuid),
        });
    }
    let session = OpeningSession::beside(Arc::clone(&disk), directory, manifest, options)?;
    let copy = match &state.pool {
        None => None,
        Some(left) => copy_lane(dir, &state, left, pool)?,
    };
    session.check_beside(copy.is_some())?;
    let files_end = match (&copy, state.log_end) {
        (Some(copy), _) => copy.head(),
        (None, Some(end)) => end,
        (None, None) => find_end(&session.log, state.uuid, session.watermark(), false)?.0,
    };
    let end = copy.as_ref().map_or(files_end, LaneCopy::end);
    let watermark = session.watermark();
    // The index may have been told of the seal behind the last record.
    if next_start(end) < watermark {
        return Err(StoreError::NotOneMoment {
            dir: dir.to_owned(),
            found: format!("the log ends at {end}, but its index was told of it up to {watermark}"),
            gives_up: format!("what was written between log addresses {end} and {watermark}"),
        });
    }
    let large = LargeValues::reading(Arc::clone(&disk), dir, state.uuid);
    let tail = LogTail::ReadOnly(ReadTail::new(end, copy));
    let mut core = session.shared(tail, large, None);
    core.survives = "is read only".to_owned();
    core.check_keyspaces()?;
    core.replay_look(files_end)?;
    let now = StoreManifest::read(directory)?;
    let same = now.is_some_and(|now| *now.state() == state);
    Ok(same.then_some(core))
}

/// What the pool that the manifest names has of the log; none if it has no lane of the store, whose
/// files have everything then.
fn copy_lane(
    dir: &Path,
    state: &ManifestState,
    left: &PoolRef,
    given: Option<&Pool>,
) -> Result<Option<LaneCopy>, StoreError> {
    let refuse = |found: String| StoreError::DataInPool {
        dir: dir.to_owned(),
        pool_path: left.path.clone(),
        pool_uuid: left.uuid,
        found,
    };
    let pool = match given {
        // Of one in other machines' memory each opening asks which legs count.
        Some(pool) if !pool.needs_commit() || pool.is_read_only() && !pool.is_elsewhere() => {
            Ok(pool.clone())
        }
        // A disk's is read into a memory of its own: in the given one a lane may be claimed.
        Some(pool) => PoolOptions::new()
            .emulated(pool.is_emulated())
            .lost_legs(pool.lost_legs())
            .open_read_only(pool.path()),
        None => PoolOptions::new().open_read_only(&left.path),
    };
    let pool = pool.map_err(|error| refuse(format!("it cannot be read: {error}")))?;
    if pool.uuid() != left.uuid {
        let path = pool.path().display();
        return Err(refuse(format!(
            "the pool {path} is another (uuid {})",
            pool.uuid()
        )));
    }
    match pool.copy_lane(state.uuid)? {
        // What a close or an opening that was cut noted first.
        None if state.log_end.is_some() => Ok(None),
        None => Err(refuse("it has nothing of this store".to_owned())),
        Some(copy) if copy.epoch() < state.epoch => Err(refuse(format!(
            "it has what session {} left, and MANIFEST is of session {}: the pool is older",
            copy.epoch(),
            state.epoch
        ))),
        Some(copy) => Ok(Some(copy)),
    }
}
