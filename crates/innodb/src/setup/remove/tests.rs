//! A cache that has nothing goes with all that is beside it; any other stays as it is.

use super::*;
use crate::{
    control::ControlListener,
    settings::Settings,
    setup::{
        create,
        fixtures::{Two, made_cache, move_lane},
        look, pool_of,
    },
};
use forebay_flash::{CacheOptions, Identity, WritePolicy};
use forebay_pool::rights::alone;
use std::{
    ffi::OsString,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, chown, lchown},
};
use tempfile::TempDir;

const BYTES: u64 = 8 << 20;

/// A directory with a cache, and its flash file.
fn made() -> (TempDir, PathBuf) {
    made_cache(BYTES)
}

fn open(flash: &Path) -> Cache {
    let place = CacheLocation::of(flash).unwrap();
    let homes = Arc::new(Homes::new());
    place.open(&homes, &CacheOptions::default()).unwrap().0
}

/// The entries of a directory, by name.
fn names(dir: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn a_cache_is_removed_with_its_files_and_makes_way_for_another() {
    let (dir, flash) = made();
    let settings = Settings {
        policy: Some(WritePolicy::Through),
        ..Settings::default()
    };
    settings.keep(&flash).unwrap();
    let aside = format!("f.status.{}.new", uuid::Uuid::new_v4());
    drop(ControlListener::open(&flash).unwrap());
    for left in ["f.resize", "f.status.new", &aside, "f.other", "f2.status"] {
        fs::write(dir.path().join(left), "left").unwrap();
    }
    let gone = remove(&flash).unwrap();
    assert_eq!(gone.len(), 8, "{gone:?}");
    assert_eq!(names(dir.path()), ["f.other", "f2.status"]);
    create(&flash, BYTES).unwrap();
    assert_eq!(Settings::kept(&flash).unwrap(), Settings::default());
}

/// Promise: as `a_cache_is_removed_once_flushed_and_makes_way_for_a_new_one`.
#[test]
fn a_cache_that_knows_a_file_or_is_in_use_is_refused_and_kept() {
    let (dir, flash) = made();
    let before = names(dir.path());
    let cache = open(&flash);
    assert!(remove(&flash).unwrap_err().is_in_use());
    let identity = Identity {
        device: 1,
        inode: 2,
        generation: 3,
    };
    drop(cache.register(identity, "/srv/mysql/ibdata1").unwrap());
    drop(cache);
    let refused = remove(&flash).unwrap_err();
    assert!(matches!(refused, SetupError::NotFlushed { .. }));
    let remedy = format!("forebay flash flush --flash {}", flash.display());
    let restored = format!("remove {0} and {0}.lane", flash.display());
    for words in [remedy, restored] {
        assert!(refused.to_string().contains(&words), "{refused}");
    }
    assert_eq!(names(dir.path()), before);
    assert!(look(&flash).is_ok());
    // As after a flush.
    let cache = open(&flash);
    cache.drop_file(&cache.files()[0]).unwrap();
    drop(cache);
    remove(&flash).unwrap();
}

#[test]
fn a_cut_removal_goes_on_and_a_cache_without_headers_is_kept() {
    let (dir, flash) = made();
    open(&flash).remove().unwrap();
    assert_eq!(names(dir.path()).len(), 3);
    remove(&flash).unwrap();
    assert!(names(dir.path()).is_empty());

    create(&flash, BYTES).unwrap();
    let mut bytes = fs::read(&flash).unwrap();
    bytes[..8192].fill(0);
    fs::write(&flash, bytes).unwrap();
    let refused = remove(&flash).unwrap_err();
    assert!(matches!(refused, SetupError::Unmade { .. }), "{refused}");
    assert_eq!(names(dir.path()).len(), 3);
}

#[test]
fn metadata_on_another_disk_goes_with_the_link_to_it() {
    let (dir, flash) = made();
    let (other, _) = move_lane(&flash);
    remove(&flash).unwrap();
    assert!(names(dir.path()).is_empty() && names(other.path()).is_empty());
}

/// A server's user, and another one.
const SERVER: u32 = 65534;
const OTHER: u32 = 65533;

/// Gives the files in a directory to the server's user; no links.
fn give(dir: &Path) {
    for name in names(dir) {
        let path = dir.join(name);
        if !path.is_symlink() {
            chown(path, Some(SERVER), Some(SERVER)).unwrap();
        }
    }
}

/// Makes a directory that the server's user may enter, and which is `owner`'s.
fn open_dir(dir: &Path, owner: u32) {
    fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    chown(dir, Some(owner), Some(owner)).unwrap();
}

#[test]
fn a_server_s_cache_in_a_directory_of_root_s_is_removed_by_root() {
    alone(|| {
        let (dir, flash) = made();
        give(dir.path());
        remove(&flash).unwrap();
        assert!(names(dir.path()).is_empty());
        let (dir, flash) = made();
        let (other, _) = move_lane(&flash);
        give(dir.path());
        give(other.path());
        remove(&flash).unwrap();
        assert!(names(dir.path()).is_empty() && names(other.path()).is_empty());
    });
}

/// As where the directory is swapped for a link while the cache in it is opened and ended.
///
/// Promise: as `what_has_the_name_of_a_cache_s_file_by_then_is_left`.
#[test]
fn a_removal_is_in_the_held_directory_wherever_its_path_leads() {
    let dirs = Two::new();
    let at = |name| dirs.at(name);
    for name in ["x/f", "other/f"] {
        create(&at(name), BYTES).unwrap();
    }
    fs::write(at("x/f.settings"), "{}").unwrap();
    let before = names(&at("other"));
    let place = CacheLocation::of(&at("x/f")).unwrap();
    let held = CacheFiles::of(&place).unwrap();
    dirs.swap();
    assert_eq!(remove_all(&held).unwrap().len(), 4);
    assert_eq!(names(&at("other")), before);
    assert!(names(&at("y")).is_empty());
}

/// Promise (rights): A command removes and makes names beside a cache only in the directory that it
/// held, and removes only files that it looked at.
#[test]
fn what_has_the_name_of_a_cache_s_file_by_then_is_left() {
    for name in ["f", "f.lane"] {
        let (dir, flash) = made();
        let place = CacheLocation::of(&flash).unwrap();
        let held = CacheFiles::of(&place).unwrap();
        fs::rename(dir.path().join(name), dir.path().join("aside")).unwrap();
        fs::write(dir.path().join(name), "kept").unwrap();
        let said = remove_all(&held).unwrap_err().to_string();
        assert!(said.contains("something else has that name"), "{said}");
        assert_eq!(fs::read(dir.path().join(name)).unwrap(), b"kept");
    }
}

#[test]
fn a_removal_takes_linked_metadata_and_nothing_put_in_its_place() {
    let (dir, flash) = made();
    let (other, real) = move_lane(&flash);
    let place = CacheLocation::of(&flash).unwrap();
    let held = CacheFiles::of(&place).unwrap();
    fs::rename(&real, other.path().join("moved")).unwrap();
    fs::write(&real, "kept").unwrap();
    remove_all(&held).unwrap();
    assert_eq!(names(other.path()), ["lane"]);
    assert!(names(dir.path()).is_empty());
}

/// Promise (rights): A command uses root's own rights beside a cache only where root alone may
/// change names.
#[test]
fn root_removes_nothing_where_another_user_may_change_names() {
    alone(|| {
        let (dir, flash) = made();
        give(dir.path());
        open_dir(dir.path(), OTHER);
        for _ in 0..2 {
            let said = remove(&flash).unwrap_err().to_string();
            for part in ["user 65534", "chmod go-w"] {
                assert!(said.contains(part), "{part}: {said}");
            }
            assert_eq!(names(dir.path()).len(), 3);
        }
        chown(dir.path(), Some(SERVER), Some(SERVER)).unwrap();
        remove(&flash).unwrap();
        assert!(names(dir.path()).is_empty());
    });
}

#[test]
fn root_removes_nothing_by_a_link_in_a_servers_directory() {
    alone(|| {
        let (dir, flash) = made();
        let (other, real) = move_lane(&flash);
        give(dir.path());
        give(other.path());
        open_dir(dir.path(), SERVER);
        open_dir(other.path(), 0);
        let said = remove(&flash).unwrap_err().to_string();
        let real_name = real.display().to_string();
        assert!(
            said.contains(&real_name) && said.contains("chmod go-w"),
            "{said}"
        );
        assert!(real.exists());
        // As that says.
        fs::remove_file(&real).unwrap();
        remove(&flash).unwrap();
        assert!(names(dir.path()).is_empty());
    });
}

/// An ended cache's file, and a pool without lanes: together the rest of a removal.
#[test]
fn roots_files_that_a_servers_link_combines_to_a_cache_are_left() {
    alone(|| {
        let (dir, flash) = made();
        let (other, real) = move_lane(&flash);
        open(&flash).remove().unwrap();
        open_dir(dir.path(), SERVER);
        lchown(pool_of(&flash), Some(SERVER), Some(SERVER)).unwrap();
        let said = remove(&flash).unwrap_err().to_string();
        assert!(said.contains("denied"), "{said}");
        assert!(flash.exists() && real.exists());
        // Its own link in its own directory.
        open_dir(dir.path(), 0);
        remove(&flash).unwrap();
        assert!(names(dir.path()).is_empty() && names(other.path()).is_empty());
    });
}

#[test]
fn a_removal_cut_after_another_disks_metadata_goes_on() {
    let (dir, flash) = made();
    let (_other, real) = move_lane(&flash);
    open(&flash).remove().unwrap();
    fs::remove_file(real).unwrap();
    remove(&flash).unwrap();
    assert!(names(dir.path()).is_empty());
    // With headers it may have pages.
    let (dir, flash) = made();
    let (_other, real) = move_lane(&flash);
    fs::remove_file(real).unwrap();
    let said = remove(&flash).unwrap_err().to_string();
    assert!(said.contains("No such file"), "{said}");
    assert_eq!(names(dir.path()).len(), 3);
}
