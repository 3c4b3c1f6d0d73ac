#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use super::*;
use crate::identity;
use std::fs;
use tempfile::TempDir;

/// A tablespace of ten pages, each of its number, and its guard's surroundings.
struct World {
    dir: TempDir,
    tablespace: File,
    of: Identity,
    owner: Uuid,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ibdata1");
        let bytes: Vec<u8> = (1..11).flat_map(|page| vec![page; PAGE_BYTES]).collect();
        fs::write(&path, bytes).unwrap();
        let tablespace = File::options().read(true).write(true).open(&path).unwrap();
        let of = identity::of(&tablespace).unwrap().unwrap().identity;
        Self {
            dir,
            tablespace,
            of,
            owner: Uuid::from_u128(7),
        }
    }

    fn find(&self) -> FoundGuard {
        self.find_in(Epochs::default())
    }

    fn find_in(&self, epochs: Epochs) -> FoundGuard {
        let cache = (self.owner, Some(epochs));
        ActiveGuard::find(self.dir.path(), &self.tablespace, self.of, cache).unwrap()
    }

    fn lay(&self) -> ActiveGuard {
        let flash = Path::new("/fast/cache");
        ActiveGuard::lay(
            self.dir.path(),
            &self.tablespace,
            self.of,
            (self.owner, 0),
            flash,
        )
        .unwrap()
    }

    fn page(&self, page: u32) -> Vec<u8> {
        read_page(&self.tablespace, page).unwrap()
    }

    fn set(&self, state: GuardState) {
        let path = self.dir.path().join(GUARD_FILE);
        let mut file = open(&path).unwrap();
        let header = read_header(&file).unwrap().unwrap();
        let mut guard = ActiveGuard {
            file: file.try_clone().unwrap(),
            rewritten: RewrittenFile::default(),
            path,
            header,
        };
        guard.set(state).unwrap();
        io::Write::flush(&mut file).unwrap();
    }
}

/// Promise (flash-run): A guard is whole or known not to be, wherever laying or lifting it is cut.
#[test]
fn a_guard_that_is_laid_and_lifted_leaves_every_byte_as_it_was() {
    let world = World::new();
    assert!(matches!(world.find(), FoundGuard::None));
    let guard = world.lay();
    assert!(has_text(&world.page(0)) && has_text(&world.page(5)));
    assert!(matches!(world.find(), FoundGuard::Here(_)));
    guard
        .file()
        .write_all_at(&[42; PAGE_BYTES], ActiveGuard::moved(offset(5)).unwrap())
        .unwrap();
    guard.lift(&world.tablespace).unwrap();
    assert!(matches!(world.find(), FoundGuard::None));
    let expected: Vec<u8> = [1, 2, 3, 4, 5, 42, 7, 8, 9, 10]
        .iter()
        .flat_map(|&page| vec![page; PAGE_BYTES])
        .collect();
    assert_eq!(
        fs::read(world.dir.path().join("ibdata1")).unwrap(),
        expected
    );
    assert!(!world.dir.path().join(GUARD_FILE).exists());
}

#[test]
fn a_sector_of_text_is_enough_to_know_where_the_page_is() {
    let world = World::new();
    drop(world.lay());
    for state in [GuardState::Laying, GuardState::Lifting] {
        world.set(state);
        // A page that was torn while it was written: one sector of text is left.
        let mut torn = vec![1; PAGE_BYTES];
        torn[7 * SECTOR..8 * SECTOR].copy_from_slice(&text(world.owner, Path::new("x"))[..SECTOR]);
        world.tablespace.write_all_at(&torn, 0).unwrap();
        let FoundGuard::Here(mut guard) = world.find() else {
            panic!("{state:?}: the pages are in the guard file");
        };
        guard.complete(&world.tablespace).unwrap();
        assert!(matches!(world.find(), FoundGuard::Here(_)));
    }
}

/// Promise: as `a_guard_that_is_laid_and_lifted_leaves_every_byte_as_it_was`.
#[test]
fn without_any_text_an_unfinished_guard_is_none() {
    let world = World::new();
    drop(world.lay());
    for state in [GuardState::Laying, GuardState::Lifting] {
        world.set(state);
        world.tablespace.write_all_at(&[9; PAGE_BYTES], 0).unwrap();
        assert!(matches!(world.find(), FoundGuard::None), "{state:?}");
    }
}

#[test]
fn a_tablespace_that_something_else_wrote_to_is_refused() {
    let world = World::new();
    drop(world.lay());
    world.tablespace.write_all_at(&[9; PAGE_BYTES], 0).unwrap();
    assert!(matches!(
        world.find(),
        FoundGuard::Mismatch(Mismatch::WrittenSince)
    ));
}

#[test]
fn a_copy_of_a_guarded_directory_and_another_cache_are_refused() {
    let world = World::new();
    drop(world.lay());
    let other = ActiveGuard::find(
        world.dir.path(),
        &world.tablespace,
        world.of,
        (Uuid::from_u128(8), None),
    );
    assert!(matches!(
        other.unwrap(),
        FoundGuard::Mismatch(Mismatch::OtherCache(_, owner)) if owner == world.owner
    ));
    let copy = Identity {
        generation: 1,
        ..world.of
    };
    let copied = ActiveGuard::find(
        world.dir.path(),
        &world.tablespace,
        copy,
        (world.owner, None),
    );
    assert!(matches!(
        copied.unwrap(),
        FoundGuard::Mismatch(Mismatch::Copy)
    ));
}

#[test]
fn a_lost_guard_file_is_missed_and_no_copy_is_suspected() {
    let world = World::new();
    drop(world.lay());
    fs::remove_file(world.dir.path().join(GUARD_FILE)).unwrap();
    let FoundGuard::Mismatch(mismatch) = world.find() else {
        panic!("it is found");
    };
    assert_eq!(mismatch, Mismatch::NoGuardFile);
    let told = mismatch.told(Path::new("/srv/ibdata1"), Path::new("/fast/cache"), 3);
    assert!(
        told.contains("forebay.guard is not beside it") && !told.contains("it is a copy"),
        "{told}"
    );
}

/// Promise: as `a_guard_that_is_laid_and_lifted_leaves_every_byte_as_it_was`.
#[test]
fn a_guard_file_that_is_damaged_does_not_count() {
    let world = World::new();
    drop(world.lay());
    let file = open(&world.dir.path().join(GUARD_FILE)).unwrap();
    file.write_all_at(b"x", 70).unwrap();
    assert!(matches!(world.find(), FoundGuard::Mismatch(Mismatch::Copy)));
}

#[test]
fn a_guard_of_an_unknown_version_is_refused_as_such() {
    let world = World::new();
    drop(world.lay());
    let path = world.dir.path().join(GUARD_FILE);
    let mut bytes = fs::read(&path).unwrap();
    bytes[..8].copy_from_slice(b"FBGUARD7");
    fs::write(&path, bytes).unwrap();
    let cache = (world.owner, None);
    let found = ActiveGuard::find(world.dir.path(), &world.tablespace, world.of, cache);
    let error = found.err().unwrap().to_string();
    for words in [
        "FBGUARD7",
        "FBGUARD1",
        GUARD_FILE,
        "the version that wrote it",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    // Those who look without a cache name the file as well.
    let error = standing(world.dir.path()).unwrap_err().to_string();
    for words in [&*path.to_string_lossy(), "FBGUARD7"] {
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_guard_of_another_epoch_but_the_next_is_refused() {
    let world = World::new();
    let mut guard = world.lay();
    let flash = Path::new("/fast/another");
    guard.begin(5, flash).unwrap();
    let epochs = |current, next| Epochs { current, next };
    for of_its_time in [epochs(5, 0), epochs(4, 5), epochs(5, 6)] {
        assert!(matches!(world.find_in(of_its_time), FoundGuard::Here(_)));
    }
    for other in [epochs(4, 0), epochs(6, 0), epochs(6, 7), epochs(0, 0)] {
        let FoundGuard::Mismatch(mismatch) = world.find_in(other) else {
            panic!("{other:?}");
        };
        assert_eq!(mismatch, Mismatch::OtherTime(flash.to_owned()));
        let told = mismatch.told(Path::new("/srv/ibdata1"), Path::new("/fast/cache"), 3);
        assert!(
            told.contains("/fast/another") && told.contains("not of the same time"),
            "{told}"
        );
    }
    // A cache that is given up has no time.
    let cache = (world.owner, None);
    let found = ActiveGuard::find(world.dir.path(), &world.tablespace, world.of, cache).unwrap();
    assert!(matches!(found, FoundGuard::Here(_)));
}

#[test]
fn a_path_that_the_guard_has_no_room_for_is_refused() {
    let world = World::new();
    let flash = Path::new("/").join("x".repeat(PATH_MAX));
    let cache = (world.owner, 0);
    let laid = ActiveGuard::lay(world.dir.path(), &world.tablespace, world.of, cache, &flash);
    let error = laid.unwrap_err().to_string();
    assert!(error.contains("shorter"), "{error}");
    assert!(!world.dir.path().join(GUARD_FILE).exists());
}

/// Promise (flash-run): A process that looks for a guard opens no link or pipe in its place, and
/// takes neither for the absence of one.
#[test]
fn what_is_no_file_is_not_opened_by_who_looks_for_a_guard() {
    use rustix::fs::{CWD, FileType, mknodat};
    let world = World::new();
    drop(world.lay());
    let dir = world.dir.path();
    let [guard, elsewhere] = [GUARD_FILE, "elsewhere"].map(|name| dir.join(name));
    assert!(standing(dir).unwrap().is_some());
    fs::rename(&guard, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &guard).unwrap();
    let refused = |what: &str| {
        let error = standing(dir).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{what}: {error}");
        assert!(error.to_string().contains(GUARD_FILE), "{what}: {error}");
    };
    refused("a link");
    fs::remove_file(&guard).unwrap();
    mknodat(CWD, &guard, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Without it, who opens the pipe would wait for ever.
    let writer = File::options().read(true).write(true).open(&guard).unwrap();
    refused("a pipe");
    drop(writer);
}

/// Promise (flash-run): Forebay reports a guard without its tablespace, and a guarded tablespace
/// without a whole guard file.
#[test]
fn a_guard_without_a_tablespace_names_its_cache_and_the_remedy() {
    let world = World::new();
    drop(world.lay());
    let dir = world.dir.path();
    fs::remove_file(dir.join("ibdata1")).unwrap();
    let error = standing(dir).unwrap_err().to_string();
    for said in [
        GUARD_FILE,
        "/fast/cache",
        "Bring that back",
        "pages 0 and 5 are in the guard",
        "remove the guard",
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
}

/// It comes up no more than one whose guard is whole.
///
/// Promise: as `a_guard_without_a_tablespace_names_its_cache_and_the_remedy`.
#[test]
fn a_tablespace_without_a_whole_guard_is_named_with_the_remedy() {
    let damages: [fn(&Path); 3] = [
        |guard| fs::remove_file(guard).unwrap(),
        |guard| fs::write(guard, "").unwrap(),
        |guard| open(guard).unwrap().write_all_at(b"x", 70).unwrap(),
    ];
    for damage in damages {
        let world = World::new();
        drop(world.lay());
        let dir = world.dir.path();
        damage(&dir.join(GUARD_FILE));
        let error = standing(dir).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        let said = error.to_string();
        for words in ["ibdata1 is guarded", GUARD_FILE, "missing", "Put that back"] {
            assert!(said.contains(words), "{words}: {said}");
        }
        // One sector of text keeps a server from coming up, too.
        let plain = vec![9; PAGE_BYTES - SECTOR];
        world.tablespace.write_all_at(&plain, 0).unwrap();
        assert!(standing(dir).is_err());
        let plain = vec![9; PAGE_BYTES];
        world.tablespace.write_all_at(&plain, 0).unwrap();
        assert!(standing(dir).unwrap().is_none());
    }
}

/// A tablespace may be a device, over which no guard is laid.
#[test]
fn a_tablespace_that_is_no_file_and_has_no_guard_is_not_guarded() {
    let world = World::new();
    let path = world.dir.path().join("ibdata1");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(standing(world.dir.path()).unwrap().is_none());
}

#[test]
fn a_guard_is_found_beside_a_tablespace_of_another_name() {
    let world = World::new();
    drop(world.lay());
    let dir = world.dir.path();
    fs::rename(dir.join("ibdata1"), dir.join("system")).unwrap();
    let data = dir.join("data");
    fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink("../system", data.join("ibdata1")).unwrap();
    assert!(standing(&data).unwrap().unwrap().is_its_own);
}

/// As `cp -al` makes it. Who only looks has nothing to fear from another name.
#[test]
fn a_guard_with_another_name_as_well_is_looked_at_by_root_too() {
    let world = World::new();
    drop(world.lay());
    let dir = world.dir.path();
    for name in [GUARD_FILE, "ibdata1"] {
        fs::hard_link(dir.join(name), dir.join(format!("{name}.2"))).unwrap();
    }
    assert!(standing(dir).unwrap().unwrap().is_its_own);
}

#[test]
fn a_tablespace_locked_by_this_process_is_compared_unopened() {
    use std::os::unix::fs::MetadataExt;
    let world = World::new();
    world.lay();
    let path = world.dir.path().join("ibdata1");
    claim(&world.tablespace, &path, Path::new("/fast/cache")).unwrap();
    let inode = format!(":{} ", world.tablespace.metadata().unwrap().ino());
    let is_locked = || {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|lock| lock.contains(&inode))
    };
    assert!(!is_of_another(&path, world.owner, &path));
    assert!(is_locked());
    let other = World::new();
    assert!(is_of_another(
        &path,
        world.owner,
        &other.dir.path().join("ibdata1")
    ));
    assert!(!is_locked(), "what is closed here is not what was locked");
}
