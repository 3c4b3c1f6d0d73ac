//! A cache has the size that is asked for, whatever was left of an earlier attempt.

use super::*;
use crate::setup::{
    create,
    fixtures::{Two, flash_place, made_cache, move_lane},
    look, pool_of, remove,
};
use forebay_flash::{CacheOptions, FlashError, Identity, layout::CHECKPOINTS};
use forebay_pool::rights::{alone, user};
use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
};
use tempfile::TempDir;

const SMALL: u64 = 8 << 20;
const LARGE: u64 = 24 << 20;

fn slots(flash: &Path) -> u64 {
    look(flash).unwrap().slots
}

fn again(flash: &Path, bytes: u64) -> ResizeResult {
    resize(flash, bytes, &[], |_| ControlFlow::Continue(())).unwrap()
}

fn found(flash: &Path, bytes: u64) -> Result<(CacheOccupancy, ResizeResult), SetupError> {
    resize_found(flash, bytes, &[], |_| ControlFlow::Continue(()))
}

/// Promise: as `a_resized_cache_is_warm_and_has_only_pages_written_to_it`.
#[test]
fn a_cache_grows_and_shrinks_to_the_length_that_was_asked_for() {
    let (dir, flash) = flash_place();
    let small = create(&flash, SMALL).unwrap().slots;
    let large = again(&flash, LARGE).now.slots;
    assert!(large > 2 * small);
    assert_eq!(
        (slots(&flash), fs::metadata(&flash).unwrap().len()),
        (large, LARGE)
    );
    assert_eq!(again(&flash, LARGE).now.slots, large, "it has that size");
    // Some slots fewer than it was made with: its metadata had room before them.
    let (before, now) = (look(&flash).unwrap(), found(&flash, SMALL).unwrap());
    assert_eq!((before, look(&flash).unwrap()), (now.0, now.1.now));
    let shrunk = now.1.now.slots;
    assert!(shrunk < small && shrunk + 40 > small, "{shrunk} of {small}");
    assert_eq!(fs::metadata(&flash).unwrap().len(), SMALL);
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn a_resize_without_a_server_leaves_a_servers_note() {
    let (_dir, flash) = made_cache(SMALL);
    let place = CacheLocation::of(&flash).unwrap();
    let server = place.open(&Arc::new(Homes::new()), &CacheOptions::default());
    let note = note_of(&flash);
    fs::write(&note, r#"{"bytes":9}"#).unwrap();
    for bytes in [SMALL, LARGE] {
        assert!(found(&flash, bytes).unwrap_err().is_in_use());
        assert!(note.exists());
    }
    drop(server.unwrap());
    found(&flash, SMALL).unwrap();
    assert!(!note.exists());
}

#[test]
fn a_size_that_makes_no_cache_is_refused_before_any_change() {
    let (_dir, flash) = flash_place();
    let small = create(&flash, SMALL).unwrap().slots;
    let e = resize(&flash, 1 << 20, &[], |_| ControlFlow::Continue(())).unwrap_err();
    assert!(e.to_string().contains("cannot be made"), "{e}");
    assert_eq!(slots(&flash), small);
    assert_eq!(fs::metadata(&flash).unwrap().len(), SMALL);
}

/// As one of another user, in a directory that is not this one's. Not even root can remove this one
/// as a file.
#[test]
fn a_request_that_cannot_be_removed_prevents_a_resize_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (flash, left) = (dir.path().join("f"), dir.path().join("f.resize"));
    let small = create(&flash, SMALL).unwrap().slots;
    fs::create_dir(&left).unwrap();
    assert_eq!(found(&flash, SMALL).unwrap().1.now.slots, small);
    let e = found(&flash, LARGE).unwrap_err().to_string();
    let remedy = format!("rm {}", left.display());
    assert!(e.contains(&remedy), "{e}");
    assert_eq!(slots(&flash), small);
    fs::remove_dir(&left).unwrap();
    fs::write(&left, "what was asked for").unwrap();
    assert!(found(&flash, LARGE).unwrap().1.now.slots > small);
    assert!(!left.exists());
}

#[test]
fn a_cache_whose_files_are_not_found_keeps_its_size() {
    let (dir, flash) = flash_place();
    let small = create(&flash, SMALL).unwrap().slots;
    let place = CacheLocation::of(&flash).unwrap();
    let open = || place.open(&Arc::new(Homes::new()), &CacheOptions::default());
    let (cache, _) = open().unwrap();
    let identity = Identity {
        device: 1,
        inode: 2,
        generation: 3,
    };
    let name = dir.path().join("ibdata1");
    drop(cache.register(identity, &name.to_string_lossy()).unwrap());
    drop(cache);
    let e = resize(&flash, LARGE, &[], |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(e, SetupError::NoData(_)), "{e}");
    assert_eq!(slots(&flash), small);
}

#[test]
fn a_cache_without_room_to_grow_says_so_and_keeps_its_pages() {
    let (_dir, flash) = flash_place();
    let small = create(&flash, SMALL).unwrap().slots;
    let e = resize(&flash, 1 << 60, &[], |_| ControlFlow::Continue(())).unwrap_err();
    assert!(
        matches!(e, SetupError::Flash(FlashError::Flash { .. })),
        "{e}"
    );
    assert_eq!(slots(&flash), small);
    assert_eq!(fs::metadata(&flash).unwrap().len(), SMALL);
}

#[test]
fn what_a_cut_removal_left_becomes_a_cache_by_a_resize() {
    let (_dir, flash) = made_cache(SMALL);
    let place = CacheLocation::of(&flash).unwrap();
    let (cache, _) = place
        .open(&Arc::new(Homes::new()), &CacheOptions::default())
        .unwrap();
    cache.remove().unwrap();
    // It is no cache, and says so. Its headers are blank to every reader.
    let e = look(&flash).unwrap_err().to_string();
    assert!(e.contains("its headers are blank"), "{e}");
    let e = found(&flash, LARGE).unwrap_err().to_string();
    assert!(e.contains("its headers are blank"), "{e}");
    assert!(again(&flash, LARGE).now.slots > 0);
    assert_eq!(fs::metadata(&flash).unwrap().len(), LARGE);
}

/// A cache with a past: pages in it that the metadata knows of, or that only a checkpoint has.
#[test]
fn a_cache_whose_headers_were_written_over_is_not_made_anew() {
    for is_opened_since in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (flash, home) = (dir.path().join("f"), dir.path().join("t.ibd"));
        create(&flash, SMALL).unwrap();
        fs::write(&home, vec![0; 4 * crate::page::PAGE_BYTES]).unwrap();
        let homes = Arc::new(Homes::new());
        let place = CacheLocation::of(&flash).unwrap();
        let (cache, _) = place.open(&homes, &CacheOptions::default()).unwrap();
        let identity = Identity {
            device: 1,
            inode: 2,
            generation: 3,
        };
        let file = cache.register(identity, "t.ibd").unwrap();
        let open = fs::OpenOptions::new().read(true).write(true).open(&home);
        homes.attach(file.id(), open.unwrap());
        let _ = cache
            .enqueue(&file, 1, &[7; crate::page::PAGE_BYTES])
            .unwrap();
        cache.sync(&file).unwrap();
        drop((file, cache));
        if is_opened_since {
            assert_eq!(look(&flash).unwrap().dirty, 1);
        }
        blank(&flash);
        let both = || [&flash, &pool_of(&flash)].map(|path| fs::read(path).unwrap());
        let before = both();
        let e = resize(&flash, LARGE, &[], |_| ControlFlow::Continue(())).unwrap_err();
        assert!(e.to_string().contains("its headers are blank"), "{e}");
        assert!(both() == before, "{is_opened_since}");
    }
}

/// Promise: as `a_kill_while_a_server_resizes_its_cache_loses_nothing`.
#[test]
fn a_cache_whose_making_was_cut_before_its_headers_is_made_anew() {
    let (_dir, flash) = made_cache(SMALL);
    blank(&flash);
    assert!(again(&flash, LARGE).now.slots > 0, "the lane was claimed");
    blank(&flash);
    fs::write(pool_of(&flash), vec![0; 64 << 10]).unwrap();
    assert!(again(&flash, LARGE).now.slots > 0, "its pool was begun");
}

/// A directory, and in it a cache of which only the headers are not there.
fn begun() -> (TempDir, PathBuf) {
    let (dir, flash) = made_cache(SMALL);
    blank(&flash);
    (dir, flash)
}

#[test]
fn a_servers_cache_remade_in_roots_directory_stays_the_servers() {
    alone(|| {
        const SERVER: u32 = 65534;
        let (dir, flash) = begun();
        fs::remove_file(dir.path().join("f.status")).unwrap();
        for path in [&flash, &pool_of(&flash)] {
            chown(path, Some(SERVER), Some(SERVER)).unwrap();
        }
        assert!(again(&flash, LARGE).now.slots > 0);
        assert_eq!(fs::metadata(&flash).unwrap().len(), LARGE);
        for name in ["f", "f.lane", "f.status"] {
            let found = fs::metadata(dir.path().join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (SERVER, SERVER), "{name}");
        }
    });
}

/// Promise: as `what_has_the_name_of_a_cache_s_file_by_then_is_left`.
#[test]
fn a_cache_is_remade_in_its_files_wherever_their_names_lead() {
    let dirs = Two::new();
    let at = |name| dirs.at(name);
    for name in ["x/f", "other/f"] {
        create(&at(name), SMALL).unwrap();
        blank(&at(name));
    }
    fs::remove_file(at("other/f.status")).unwrap();
    let other = || ["f", "f.lane"].map(|name| fs::read(at("other").join(name)).unwrap());
    let before = other();
    let place = CacheLocation::of(&at("x/f")).unwrap();
    let held = CacheFiles::of(&place).unwrap();
    dirs.swap();
    assert!(make_anew(&held, LARGE).unwrap().now.slots > 0);
    assert!(slots(&at("y/f")) > 0);
    assert!(other() == before && !at("other/f.status").exists());
}

#[test]
fn a_request_to_a_server_is_withdrawn_in_the_held_directory() {
    let dirs = Two::new();
    let at = |name| dirs.at(name);
    for name in ["x/f.resize", "other/f.resize"] {
        fs::write(at(name), "asked").unwrap();
    }
    create(&at("x/f"), SMALL).unwrap();
    let place = CacheLocation::of(&at("x/f")).unwrap();
    let held = CacheFiles::of(&place).unwrap();
    dirs.swap();
    resize_held(&held, SMALL, &[], |_| ControlFlow::Continue(())).unwrap();
    assert!(at("other/f.resize").exists() && !at("y/f.resize").exists());
}

#[test]
fn metadata_on_another_disk_stays_there_when_a_cache_is_remade() {
    let (_dir, flash) = begun();
    let (_other, _) = move_lane(&flash);
    assert!(again(&flash, LARGE).now.slots > 0);
    assert!(pool_of(&flash).is_symlink() && slots(&flash) > 0);
}

#[test]
fn what_is_no_metadata_is_not_written_over() {
    let (_dir, flash) = begun();
    let other = vec![9; 64 << 10];
    fs::write(pool_of(&flash), &other).unwrap();
    let e = resize(&flash, LARGE, &[], |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(e, SetupError::Unmade { .. }), "{e}");
    assert!(fs::read(pool_of(&flash)).unwrap() == other);
}

#[test]
fn root_makes_no_cache_anew_in_files_that_have_other_names() {
    for ending in ["", ".lane"] {
        let (dir, flash) = begun();
        let file = dir.path().join(format!("f{ending}"));
        fs::hard_link(file, dir.path().join("name")).unwrap();
        let before = fs::read(dir.path().join("name")).unwrap();
        let resized = resize(&flash, LARGE, &[], |_| ControlFlow::Continue(()));
        if user() == 0 {
            let e = resized.unwrap_err().to_string();
            assert!(e.contains("hard link"), "{e}");
            assert!(fs::read(dir.path().join("name")).unwrap() == before);
        }
    }
}

#[test]
fn a_cache_is_made_anew_or_removed_by_one_command_at_a_time() {
    let (_dir, flash) = begun();
    let place = CacheLocation::of(&flash).unwrap();
    let held = CacheFiles::of(&place).unwrap();
    let alone = held.lock().unwrap();
    let resized = resize(&flash, LARGE, &[], |_| ControlFlow::Continue(()));
    assert!(resized.unwrap_err().is_in_use());
    assert!(remove(&flash).unwrap_err().is_in_use());
    drop(alone);
    again(&flash, LARGE);
    // What was looked at before the other command ended.
    assert!(make_anew(&held, SMALL).unwrap_err().is_in_use());
    assert_eq!(fs::metadata(&flash).unwrap().len(), LARGE);
}

#[test]
fn a_size_that_makes_no_cache_leaves_an_unremade_one_as_it_was() {
    let (_dir, flash) = begun();
    let e = resize(&flash, 4096, &[], |_| ControlFlow::Continue(())).unwrap_err();
    assert!(
        matches!(e, SetupError::Flash(FlashError::BadSize { .. })),
        "{e}"
    );
    assert_eq!(fs::metadata(&flash).unwrap().len(), SMALL);
    assert!(again(&flash, SMALL).now.slots > 0);
}

/// Zeros over the headers.
fn blank(flash: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(flash).unwrap();
    file.write_all_at(&[0; CHECKPOINTS as usize], 0).unwrap();
}
