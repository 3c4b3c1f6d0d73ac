//! A cache that has nothing goes with all that is beside it; any other stays as it is.

use super::*;
use crate::{
    settings::{Kept, Policy, Settings},
    setup::{create, look},
};
use forebay_flash::{Identity, Options};
use forebay_pool::rights::user;
use std::{ffi::OsString, os::unix::fs::chown};
use tempfile::TempDir;

const BYTES: u64 = 8 << 20;

/// A directory with a cache, and its flash file.
fn made() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let flash = dir.path().join("f");
    create(&flash, BYTES).unwrap();
    (dir, flash)
}

fn open(flash: &Path) -> Cache {
    let place = Place::of(flash).unwrap();
    let homes = Arc::new(Homes::new());
    place.open(&homes, &Options::default()).unwrap().0
}

/// What is in a directory, by name.
fn names(dir: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn a_cache_is_removed_with_all_that_is_beside_it_and_another_may_take_its_place() {
    let (dir, flash) = made();
    let settings = Settings {
        policy: Some(Policy::Through),
        ..Settings::default()
    };
    let kept = Kept::default().with(settings).unwrap();
    kept.keep(&flash).unwrap();
    let aside = format!("f.status.{}.new", uuid::Uuid::new_v4());
    for left in ["f.resize", "f.status.new", &aside, "f.other", "f2.status"] {
        fs::write(dir.path().join(left), "left").unwrap();
    }
    let gone = remove(&flash).unwrap();
    assert_eq!(gone.len(), 7, "{gone:?}");
    assert_eq!(names(dir.path()), ["f.other", "f2.status"]);
    create(&flash, BYTES).unwrap();
    assert_eq!(Kept::read(&flash).unwrap(), Kept::default());
}

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
    let remedy = format!("forebay flush --flash {}", flash.display());
    assert!(refused.to_string().contains(&remedy), "{refused}");
    assert_eq!(names(dir.path()), before);
    assert!(look(&flash).is_ok());
    // As after a flush.
    let cache = open(&flash);
    cache.drop_file(&cache.files()[0]).unwrap();
    drop(cache);
    remove(&flash).unwrap();
}

#[test]
fn a_removal_that_was_cut_goes_on_and_a_cache_without_headers_is_kept() {
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
    let other = tempfile::tempdir().unwrap();
    let real = other.path().join("lane");
    fs::copy(pool_of(&flash), &real).unwrap();
    fs::remove_file(pool_of(&flash)).unwrap();
    std::os::unix::fs::symlink(&real, pool_of(&flash)).unwrap();
    remove(&flash).unwrap();
    assert!(names(dir.path()).is_empty() && names(other.path()).is_empty());
}

#[test]
fn a_server_s_cache_in_a_directory_of_root_s_is_removed_by_root() {
    const SERVER: u32 = 65534;
    if user() != 0 {
        println!("skipped: not root");
        return;
    }
    let (dir, flash) = made();
    for entry in fs::read_dir(dir.path()).unwrap() {
        chown(entry.unwrap().path(), Some(SERVER), Some(SERVER)).unwrap();
    }
    remove(&flash).unwrap();
    assert!(names(dir.path()).is_empty());
}
