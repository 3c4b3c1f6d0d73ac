//! Wherever a resize is interrupted, repeating it makes a cache of the size that was asked for.

use super::*;
use forebay_flash::layout::BLOCK;

const SMALL: u64 = 8 << 20;
const LARGE: u64 = 24 << 20;

fn slots(flash: &Path) -> u64 {
    look(flash).unwrap().slots
}

fn again(flash: &Path, bytes: u64) -> Resized {
    resize(flash, bytes, &[], |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn a_cache_grows_and_shrinks() {
    let dir = tempfile::tempdir().unwrap();
    let flash = dir.path().join("f");
    let small = create(&flash, SMALL).unwrap().slots;
    let large = again(&flash, LARGE).slots;
    assert!(large > 2 * small);
    assert_eq!(
        (slots(&flash), fs::metadata(&flash).unwrap().len()),
        (large, LARGE)
    );
    assert_eq!(again(&flash, SMALL).slots, small);
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_size_that_makes_no_cache_is_refused_before_anything_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let flash = dir.path().join("f");
    let small = create(&flash, SMALL).unwrap().slots;
    let e = resize(&flash, 1 << 20, &[], |_| ControlFlow::Continue(())).unwrap_err();
    assert!(e.to_string().contains("cannot be made"), "{e}");
    assert_eq!(slots(&flash), small);
}

#[test]
fn wherever_a_resize_is_interrupted_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (flash, new) = (dir.path().join("f"), dir.path().join("f.new"));
    let ended = || {
        for path in [&flash, &pool_of(&flash), &new, &pool_of(&new)] {
            let _ = fs::remove_file(path);
        }
        create(&flash, SMALL).unwrap();
        let place = Place::of(&flash).unwrap();
        let (cache, _) = place
            .open(&Arc::new(Homes::new()), &Options::default())
            .unwrap();
        cache.remove().unwrap();
    };
    // Ended, and not shortened: it is no cache, and says so. Its headers are blank for whoever looks.
    ended();
    let e = look(&flash).unwrap_err().to_string();
    assert!(e.contains("is not a flash cache"), "{e}");
    assert!(again(&flash, LARGE).slots > 0, "not shortened");
    ended();
    shorten(&flash).unwrap();
    assert!(again(&flash, LARGE).slots > 0, "shortened");
    ended();
    shorten(&flash).unwrap();
    fs::write(&new, vec![0; BLOCK as usize]).unwrap();
    assert!(
        again(&flash, LARGE).slots > 0,
        "half of the new one is made"
    );
    ended();
    shorten(&flash).unwrap();
    create(&new, LARGE).unwrap();
    assert!(again(&flash, LARGE).slots > 0, "the new one is made");
    ended();
    shorten(&flash).unwrap();
    create(&new, LARGE).unwrap();
    fs::rename(pool_of(&new), pool_of(&flash)).unwrap();
    assert!(again(&flash, LARGE).slots > 0, "its lane is renamed");
    assert_eq!(fs::metadata(&flash).unwrap().len(), LARGE);
}
