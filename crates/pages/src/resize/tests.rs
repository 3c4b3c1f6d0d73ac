//! A cache has the size that is asked for, whatever was left of an earlier attempt.

use super::*;
use crate::setup::look;
use forebay_flash::{FlashError, Identity, Options};

const SMALL: u64 = 8 << 20;
const LARGE: u64 = 24 << 20;

fn slots(flash: &Path) -> u64 {
    look(flash).unwrap().slots
}

fn again(flash: &Path, bytes: u64) -> Resized {
    resize(flash, bytes, &[], |_| ControlFlow::Continue(())).unwrap()
}

fn found(flash: &Path, bytes: u64) -> Result<(Warm, Resized), SetupError> {
    resize_found(flash, bytes, &[], |_| ControlFlow::Continue(()))
}

#[test]
fn a_cache_grows_and_shrinks_and_its_file_has_the_length_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let flash = dir.path().join("f");
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
fn a_size_that_makes_no_cache_is_refused_before_anything_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let flash = dir.path().join("f");
    let small = create(&flash, SMALL).unwrap().slots;
    let e = resize(&flash, 1 << 20, &[], |_| ControlFlow::Continue(())).unwrap_err();
    assert!(e.to_string().contains("cannot be made"), "{e}");
    assert_eq!(slots(&flash), small);
    assert_eq!(fs::metadata(&flash).unwrap().len(), SMALL);
}

/// As one of another user, in a directory that is not this one's. Not even root can remove this one as a file.
#[test]
fn a_request_that_cannot_be_removed_is_in_the_way_of_another_size_only() {
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
    let dir = tempfile::tempdir().unwrap();
    let flash = dir.path().join("f");
    let small = create(&flash, SMALL).unwrap().slots;
    let place = Place::of(&flash).unwrap();
    let open = || place.open(&Arc::new(Homes::new()), &Options::default());
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
fn a_cache_that_has_no_room_to_grow_says_so_and_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let flash = dir.path().join("f");
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
fn what_the_version_before_left_of_a_resize_is_made_a_cache() {
    let dir = tempfile::tempdir().unwrap();
    let (flash, new) = (dir.path().join("f"), dir.path().join("f.new"));
    let ended = |shortened| {
        for path in [&flash, &pool_of(&flash), &new, &pool_of(&new)] {
            let _ = fs::remove_file(path);
        }
        create(&flash, SMALL).unwrap();
        let place = Place::of(&flash).unwrap();
        let (cache, _) = place
            .open(&Arc::new(Homes::new()), &Options::default())
            .unwrap();
        cache.remove().unwrap();
        if shortened {
            let file = fs::OpenOptions::new().write(true).open(&flash).unwrap();
            file.set_len(CHECKPOINTS).unwrap();
        }
    };
    // Ended, and not shortened: it is no cache, and says so. Its headers are blank to every reader.
    ended(false);
    let e = look(&flash).unwrap_err().to_string();
    assert!(e.contains("its headers are blank"), "{e}");
    let e = found(&flash, LARGE).unwrap_err().to_string();
    assert!(e.contains("its headers are blank"), "{e}");
    assert!(again(&flash, LARGE).now.slots > 0, "not shortened");
    ended(true);
    assert!(again(&flash, LARGE).now.slots > 0, "shortened");
    ended(true);
    create(&new, LARGE).unwrap();
    assert!(again(&flash, LARGE).now.slots > 0, "another one beside it");
    assert!(look(&new).unwrap().slots > 0, "which is left alone");
    ended(true);
    create(&new, LARGE).unwrap();
    fs::rename(pool_of(&new), pool_of(&flash)).unwrap();
    assert!(again(&flash, LARGE).now.slots > 0, "its lane is renamed");
    assert_eq!(fs::metadata(&flash).unwrap().len(), LARGE);
}

/// What was something once: pages in it that the metadata knows of, or that only a checkpoint has.
#[test]
fn a_cache_whose_headers_were_written_over_is_not_made_anew() {
    for is_opened_since in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (flash, home) = (dir.path().join("f"), dir.path().join("t.ibd"));
        create(&flash, SMALL).unwrap();
        fs::write(&home, vec![0; 4 * crate::PAGE_BYTES]).unwrap();
        let homes = Arc::new(Homes::new());
        let place = Place::of(&flash).unwrap();
        let (cache, _) = place.open(&homes, &Options::default()).unwrap();
        let identity = Identity {
            device: 1,
            inode: 2,
            generation: 3,
        };
        let file = cache.register(identity, "t.ibd").unwrap();
        let open = fs::OpenOptions::new().read(true).write(true).open(&home);
        homes.attach(file.id(), open.unwrap());
        let _ = cache.enqueue(&file, 1, &[7; crate::PAGE_BYTES]).unwrap();
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

#[test]
fn a_cache_whose_making_was_cut_before_its_headers_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let flash = dir.path().join("f");
    create(&flash, SMALL).unwrap();
    blank(&flash);
    assert!(again(&flash, LARGE).now.slots > 0, "the lane was claimed");
    blank(&flash);
    fs::write(pool_of(&flash), vec![0; 64 << 10]).unwrap();
    assert!(again(&flash, LARGE).now.slots > 0, "its pool was begun");
}

/// Zeros over the headers.
fn blank(flash: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(flash).unwrap();
    file.write_all_at(&[0; CHECKPOINTS as usize], 0).unwrap();
}
