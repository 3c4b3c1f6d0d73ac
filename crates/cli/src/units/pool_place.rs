//! The choice of a unit's pool: the one that the user names, or one where `forebay doctor` finds
//! that it pays.
//!
//! In this order: a path; a pool of the name that is there; persistent memory; the best disk that
//! was measured and that nothing speaks against. On the disk of the data it lies in
//! `/var/lib/forebay`. A pool in ordinary memory is refused: after a power cut it is gone, and the
//! database has lost what it acknowledged.

use super::{drop_in::check_plain, search::UnitRoot};
use crate::{
    disk_mounts,
    doctor::{self, BestPlace},
    failure::Failure,
    pool, size,
    users::SystemUser,
};
use forebay_pool::{PoolOptions, media::PoolPersistence};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// The directory of pools that have no better place.
const USUAL: &str = "/var/lib/forebay";
/// Bytes of a pool that is made.
const ON_DISK: u64 = 128 << 20;
const ON_PERSISTENT_MEMORY: u64 = 64 << 20;

/// A unit's pool.
#[derive(Debug)]
pub struct PlannedPool {
    /// As the unit sees it.
    pub path: PathBuf,
    /// It is a device.
    pub is_device: bool,
    /// True if it is to be made.
    pub is_new: bool,
    on_disk: bool,
    bytes: u64,
    /// The losses that acknowledged writes survive there.
    pub persistence: PoolPersistence,
    /// The reason for that place, in a sentence.
    pub why: String,
}

/// The user's wishes for the pool.
pub struct PoolWish<'a> {
    /// A name, or a path.
    pub named: Option<&'a str>,
    /// Bytes.
    pub size: Option<u64>,
    /// Places to be measured.
    pub beside: &'a [PathBuf],
    /// The name of a pool that has none.
    pub usual_name: String,
    /// All that is absorbed has its size before it is written, and stays plain on the pool's disk.
    pub needs_another_disk: bool,
}

impl PlannedPool {
    /// Chooses it. Of a pool that is there it is looked whether `owner` may use it.
    ///
    /// # Errors
    /// There is no place where it pays; the pool is emulated, another user's, or no pool.
    pub fn choose(
        wish: &PoolWish<'_>,
        data: &Path,
        owner: &SystemUser,
        root: &UnitRoot,
    ) -> Result<Self, Failure> {
        let (path, why) = match wish.named {
            Some(path) if path.contains('/') => (PathBuf::from(path), "you named it".to_owned()),
            named => {
                let file = format!("{}.pool", named.unwrap_or(&wish.usual_name));
                Self::place(&file, wish, data, root)?
            }
        };
        check_plain(&path)?;
        let path = resolved(&path, root)?;
        let here = root.at(&path);
        let planned = match fs::metadata(&here) {
            Ok(found) => {
                let kind = found.file_type();
                let is_device = kind.is_block_device() || kind.is_char_device();
                let persistence = check_standing(&here, &path, &found, owner)?;
                Self {
                    path,
                    is_device,
                    is_new: false,
                    on_disk: false,
                    bytes: 0,
                    persistence,
                    why,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_dax = (here.ancestors().skip(1).find(|it| it.exists()))
                    .and_then(disk_mounts::mount_of)
                    .is_some_and(|mount| mount.is_dax);
                let (usual, persistence) = if is_dax {
                    (ON_PERSISTENT_MEMORY, PoolPersistence::PowerCut)
                } else {
                    (ON_DISK, PoolPersistence::PowerCutOnceCommitted)
                };
                Self {
                    path,
                    is_device: false,
                    is_new: true,
                    on_disk: !is_dax,
                    bytes: wish.size.unwrap_or(usual),
                    persistence,
                    why,
                }
            }
            Err(error) => return Err(Failure::io("looking at", here.display())(error)),
        };
        Ok(planned)
    }

    /// The place of a pool of this name, or the best one for it.
    fn place(
        file: &str,
        wish: &PoolWish<'_>,
        data: &Path,
        root: &UnitRoot,
    ) -> Result<(PathBuf, String), Failure> {
        let usual = Path::new(USUAL).join(file);
        if !root.is_this() {
            return match root.at(&usual).exists() || wish.named.is_some() {
                true => Ok((usual, "with --root nothing is measured".to_owned())),
                false => Err(Failure::Usage(
                    "with --root nothing is measured: name the pool with --pool".to_owned(),
                )),
            };
        }
        let dax = disk_mounts::mounts()
            .into_iter()
            .filter(|mount| mount.is_dax);
        let dax: Vec<PathBuf> = dax.map(|mount| mount.point.join(file)).collect();
        if let Some(standing) = dax.iter().chain([&usual]).find(|path| path.exists()) {
            return Ok((standing.clone(), "it is there already".to_owned()));
        }
        if let Some(first) = dax.into_iter().next() {
            return Ok((first, "persistent memory is mounted there".to_owned()));
        }
        Self::best_place(
            doctor::best_place(data, wish.beside),
            (file, usual),
            wish,
            data,
        )
    }

    /// The best place for a pool, of those measured.
    fn best_place(
        best: Option<BestPlace>,
        (file, usual): (&str, PathBuf),
        wish: &PoolWish<'_>,
        data: &Path,
    ) -> Result<(PathBuf, String), Failure> {
        let best = best.filter(|best| !(best.is_same_disk && wish.needs_another_disk));
        match (best, wish.named) {
            (Some(best), _) if best.is_same_disk => Ok((usual, best.sentence)),
            (Some(best), _) => Ok((best.directory.join(file), best.sentence)),
            (None, Some(_)) => Ok((
                usual,
                "no place was found where it is faster; you named it".to_owned(),
            )),
            (None, None) => Err(Failure::Failed(format!(
                "no place for a pool was found here that would make {0} faster, so nothing was changed{1}. forebay doctor --dir {0} shows the measurements; \
                 measure another disk with --beside DIR, or name a place with --pool PATH",
                data.display(),
                match wish.needs_another_disk {
                    true =>
                        " (its logs have their size before they are written, which on their own disk is as fast)",
                    false => "",
                }
            ))),
        }
    }

    /// True if it lies on the disk of `data`, as far as is known.
    pub fn shares_disk(&self, data: &Path) -> bool {
        let mut places = self.path.ancestors();
        let place = places.find(|it| it.exists());
        place.and_then(|it| doctor::is_same_disk(it, data)) == Some(true)
    }

    /// Its kind and place, or the plan for them, in a sentence.
    pub fn sentence(&self) -> String {
        let kind = match (self.is_new, self.on_disk) {
            (false, _) => "which is there".to_owned(),
            (true, true) => format!("{} on a disk, to be made", size::show(self.bytes)),
            (true, false) => format!(
                "{} on persistent memory, to be made",
                size::show(self.bytes)
            ),
        };
        format!("{}, {kind}: {}", self.path.display(), self.why)
    }

    /// Makes it, unless it is there, and gives the losses that it survives.
    ///
    /// # Errors
    /// As `forebay pool create`.
    pub fn make(&self, owner: &SystemUser, root: &UnitRoot) -> Result<PoolPersistence, Failure> {
        let here = root.at(&self.path);
        if self.is_new {
            let place = here.parent().unwrap_or(Path::new("/"));
            let mut directory = fs::DirBuilder::new();
            (directory.recursive(true).mode(0o755).create(place))
                .map_err(Failure::io("making", place.display()))?;
            let options = PoolOptions::new().size(self.bytes).on_disk(self.on_disk);
            pool::make(&options, &here, self.bytes, Some(owner))?;
        }
        Ok(PoolOptions::new().open(&here)?.durability())
    }
}

/// A pool's path without links in its directory, since a unit's sandbox is answered by it. Refused
/// in `/`, which a sandbox could only open whole.
fn resolved(path: &Path, root: &UnitRoot) -> Result<PathBuf, Failure> {
    let (Some(place), Some(file)) = (path.parent(), path.file_name()) else {
        return Err(Failure::Usage(format!("{} is no file", path.display())));
    };
    // A device is what its link leads to; with another root links lead elsewhere.
    let whole = match (root.is_this(), path.canonicalize(), place.canonicalize()) {
        (false, ..) | (_, Err(_), Err(_)) => path.to_owned(),
        (_, Ok(whole), _) => whole,
        (_, Err(_), Ok(place)) => place.join(file),
    };
    if whole.parent() == Some(Path::new("/")) {
        return Err(Failure::Usage(format!(
            "the pool {} lies in /, which a unit's sandbox could only open whole. Name one in a directory",
            whole.display()
        )));
    }
    check_plain(&whole)?;
    Ok(whole)
}

/// Checks the losses that a pool survives. Refuses one that its unit could not use, or should not.
fn check_standing(
    here: &Path,
    path: &Path,
    found: &fs::Metadata,
    owner: &SystemUser,
) -> Result<PoolPersistence, Failure> {
    let fail = |why: String| {
        Err(Failure::Failed(format!(
            "the pool {} {why}",
            path.display()
        )))
    };
    if found.uid() != owner.uid {
        let whose = SystemUser::numbered(found.uid()).name;
        return fail(format!(
            "belongs to {whose}, and the unit's user is {0}. If no other database uses it: chown {0} {1}; otherwise name another",
            owner.name,
            path.display()
        ));
    }
    if found.is_file() && found.permissions().mode() & 0o022 != 0 {
        return fail(format!(
            "can be written by other users: chmod go-w {}",
            path.display()
        ));
    }
    let pool = PoolOptions::new().open(here)?;
    match pool.durability() {
        survives @ (PoolPersistence::PowerCut
        | PoolPersistence::PowerCutOnceCommitted
        | PoolPersistence::MachineLossOnceCommitted) => Ok(survives),
        other => fail(format!(
            "{other}. For a unit make one on persistent memory or on a disk; forebay doctor says where"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(named: Option<&str>, needs_another_disk: bool) -> PoolWish<'_> {
        PoolWish {
            named,
            size: None,
            beside: &[],
            usual_name: "db".to_owned(),
            needs_another_disk,
        }
    }

    fn place(best: Option<bool>, wish: &PoolWish<'_>) -> Result<PathBuf, String> {
        let best = best.map(|is_same_disk| BestPlace {
            directory: PathBuf::from("/fast"),
            is_same_disk,
            sentence: "it is faster".to_owned(),
        });
        let names = ("db.pool", PathBuf::from("/var/lib/forebay/db.pool"));
        let placed = PlannedPool::best_place(best, names, wish, Path::new("/srv/db"));
        placed
            .map(|(path, _)| path)
            .map_err(|failure| failure.to_string())
    }

    /// Promise (programs): `forebay enable` makes a pool where a measurement says that it pays, or
    /// changes nothing.
    #[test]
    fn pool_lies_where_the_measurement_says_that_it_pays() {
        let fast = Ok(PathBuf::from("/fast/db.pool"));
        let usual = Ok(PathBuf::from("/var/lib/forebay/db.pool"));
        assert_eq!(place(Some(false), &wish(None, false)), fast);
        assert_eq!(place(Some(false), &wish(None, true)), fast);
        assert_eq!(place(Some(true), &wish(None, false)), usual);
        // The user's word is that there be one.
        assert_eq!(place(None, &wish(Some("db"), false)), usual);
        assert_eq!(place(Some(true), &wish(Some("db"), true)), usual);
        for (best, needs_another_disk) in [(None, false), (Some(true), true)] {
            let why = place(best, &wish(None, needs_another_disk)).unwrap_err();
            assert!(
                why.contains("no place for a pool") && why.contains("nothing was changed"),
                "{why}"
            );
            assert_eq!(why.contains("on their own disk"), needs_another_disk);
        }
    }
}
