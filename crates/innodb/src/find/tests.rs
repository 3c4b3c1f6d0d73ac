#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use super::*;
use crate::identity;
use crate::setup;
use forebay_flash::{CacheOptions, Home};
use std::sync::Arc;
use tempfile::TempDir;

/// A data directory with a cache that knows its files, each of which has a page there.
struct World {
    dir: TempDir,
    homes: Arc<Homes>,
    cache: Cache,
}

const BYTES: usize = 4 * crate::page::PAGE_BYTES;

impl World {
    fn new(names: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let flash = dir.path().join("flash");
        setup::create(&flash, 8 << 20).unwrap();
        let homes = Arc::new(Homes::new());
        let place = setup::CacheLocation::of(&flash).unwrap();
        let (cache, _) = place.open(&homes, &CacheOptions::default()).unwrap();
        let world = Self { dir, homes, cache };
        names.iter().for_each(|name| world.make(name));
        world
    }

    fn data(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("data")
    }

    fn make(&self, name: &str) {
        let path = self.data().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![1; BYTES]).unwrap();
        let file = fs::File::open(&path).unwrap();
        let known = identity::of(&file).unwrap().unwrap();
        let name = path.to_str().unwrap();
        let cached = self.cache.register(known.identity, name).unwrap();
        let home = reopen(&file, true).unwrap();
        self.homes.attach(cached.id(), home);
        let page = vec![2; crate::page::PAGE_BYTES];
        let _ = self.cache.enqueue(&cached, 1, &page).unwrap();
        self.cache.sync(&cached).unwrap();
        self.homes.detach(cached.id());
    }

    fn attach(&self) -> Result<(), HomesError> {
        self.attach_in(&self.data())
    }

    fn attach_in(&self, data: &Path) -> Result<(), HomesError> {
        self.attach_without(data, &[])
    }

    fn attach_without(&self, data: &Path, given_up: &[PathBuf]) -> Result<(), HomesError> {
        let at = HomeSearch {
            data,
            roots: BTreeSet::new(),
            skip: None,
            given_up,
        };
        attach_all(&self.cache, &self.homes, at)
    }

    /// A server is about to unlink it.
    fn leaves(&self, name: &str) {
        let files = self.cache.files();
        let file = files.iter().find(|file| file.name().ends_with(name));
        recorded_names::leaves(&self.cache, file.unwrap()).unwrap();
    }

    /// The names of the files that the cache knows and whose homes are open.
    fn attached(&self) -> Vec<String> {
        let files = self.cache.files();
        let open = files
            .iter()
            .filter(|file| self.homes.durable_bytes(file.id()).is_ok());
        let name = |file: &Arc<CachedFile>| {
            let path = recorded_names::path_of(file);
            path.file_name().unwrap().to_str().unwrap().to_owned()
        };
        open.map(name).collect()
    }
}

/// Promise: as `a_renamed_table_is_found_though_ibdata1_is_elsewhere`.
#[test]
fn renamed_files_are_found_and_deleted_ones_forgotten() {
    let world = World::new(&["ibdata1", "db/a.ibd", "db/b.ibd", "db/c.ibd"]);
    let db = world.data().join("db");
    fs::rename(db.join("a.ibd"), db.join("z.ibd")).unwrap();
    // Open, so that its number is not given to another within the same tick of the clock.
    let _old = fs::File::open(db.join("b.ibd")).unwrap();
    world.leaves("b.ibd");
    fs::remove_file(db.join("b.ibd")).unwrap();
    // The same name, and another file.
    fs::write(db.join("b.ibd"), vec![9; BYTES]).unwrap();
    // The power went before the server could unlink it.
    world.leaves("c.ibd");
    world.attach().unwrap();
    assert_eq!(world.attached(), ["ibdata1", "z.ibd", "c.ibd"]);
    assert!(
        !world
            .cache
            .files()
            .iter()
            .any(|file| recorded_names::is_leaving(file))
    );
    assert_eq!(world.cache.files().len(), 3);
    assert_eq!(world.cache.stats().dirty_pages, 3);
}

/// Promise: as `a_table_replaced_by_a_copy_is_missed_until_back_or_given_up`.
#[test]
fn a_replaced_file_is_missed_until_its_pages_are_given_up() {
    let world = World::new(&["ibdata1", "db/a.ibd", "db/b.ibd"]);
    let (a, b) = (world.data().join("db/a.ibd"), world.data().join("db/b.ibd"));
    let _old = fs::File::open(&a).unwrap();
    fs::copy(&a, world.dir.path().join("copy")).unwrap();
    fs::rename(world.dir.path().join("copy"), &a).unwrap();
    let error = world.attach().unwrap_err().to_string();
    for words in ["1 pages", "is another file now", "--give-up"] {
        assert!(error.contains(words), "{error}");
    }
    fs::remove_file(&a).unwrap();
    let error = world.attach().unwrap_err().to_string();
    assert!(error.contains("is not there"), "{error}");
    // A file that is there is never given up.
    let error = world.attach_without(&world.data(), &[a.clone(), b.clone()]);
    assert!(matches!(error, Err(HomesError::NotMissing(path)) if path == b));
    assert_eq!(world.cache.stats().dirty_pages, 3);
    world.attach_without(&world.data(), &[a]).unwrap();
    assert_eq!(world.attached(), ["ibdata1", "b.ibd"]);
    assert_eq!(world.cache.stats().dirty_pages, 2);
}

#[test]
fn a_file_unlinked_while_it_came_into_the_cache_is_gone() {
    let world = World::new(&["ibdata1", "db/a.ibd", "db/b.ibd"]);
    let path = world.data().join("db/a.ibd");
    let file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let name = path_of(file.as_fd()).unwrap();
    let files = world.cache.files();
    let cached = files
        .iter()
        .find(|file| recorded_names::path_of(file) == path);
    recorded_names::is_at(&world.cache, cached.unwrap(), &name).unwrap();
    world.attach().unwrap();
    assert_eq!(world.attached(), ["ibdata1", "b.ibd"]);
    assert_eq!(world.cache.files().len(), 2);
}

#[test]
fn a_file_of_which_only_clean_pages_are_there_may_be_gone() {
    let world = World::new(&["ibdata1", "db/a.ibd", "db/b.ibd"]);
    world.attach().unwrap();
    let flushed = world
        .cache
        .flush(|_| std::ops::ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(flushed.pages, 3);
    fs::remove_file(world.data().join("db/a.ibd")).unwrap();
    world.attach().unwrap();
    assert_eq!(world.cache.files().len(), 2);
}

/// Promise: as `a_renamed_table_is_found_though_ibdata1_is_elsewhere`.
#[test]
fn a_table_renamed_into_another_database_is_found() {
    let world = World::new(&["../system/ibdata1", "db/a.ibd"]);
    let other = world.data().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(world.data().join("db/db.opt"), "x").unwrap();
    fs::rename(world.data().join("db/a.ibd"), other.join("z.ibd")).unwrap();
    let system = world.dir.path().canonicalize().unwrap().join("system");
    world.attach_in(&system).unwrap();
    assert_eq!(world.attached(), ["ibdata1", "z.ibd"]);
}

#[test]
fn of_a_database_that_was_dropped_the_files_are_forgotten() {
    let world = World::new(&["ibdata1", "db/a.ibd"]);
    world.leaves("a.ibd");
    fs::remove_dir_all(world.data().join("db")).unwrap();
    world.attach().unwrap();
    assert_eq!(world.cache.files().len(), 1);
}

/// Promise: as `a_table_replaced_by_a_copy_is_missed_until_back_or_given_up`.
#[test]
fn files_that_may_be_unmounted_keep_their_pages() {
    let world = World::new(&["ibdata1", "db/a.ibd"]);
    let (db, away) = (world.data().join("db"), world.dir.path().join("away"));
    fs::rename(&db, &away).unwrap();
    fs::create_dir(&db).unwrap();
    let error = world.attach().unwrap_err().to_string();
    assert!(error.contains("may not be mounted"), "{error}");
    assert_eq!(world.cache.stats().dirty_pages, 2);
    fs::remove_dir(&db).unwrap();
    fs::rename(&away, &db).unwrap();
    world.attach().unwrap();
    assert_eq!(world.attached(), ["ibdata1", "a.ibd"]);
}

#[test]
fn a_data_directory_that_was_moved_is_found_with_all_its_files() {
    let world = World::new(&["ibdata1", "db/a.ibd", "db/b.ibd"]);
    let there = world.dir.path().join("there");
    fs::rename(world.data(), &there).unwrap();
    world.leaves("b.ibd");
    fs::remove_file(there.join("db/b.ibd")).unwrap();
    world.attach_in(&there).unwrap();
    assert_eq!(world.attached(), ["ibdata1", "a.ibd"]);
    assert_eq!(world.cache.files().len(), 2);
}

/// Promise: as `a_page_file_of_which_it_cannot_be_told_who_it_is_is_refused`.
#[test]
fn a_file_that_cannot_be_looked_for_is_not_taken_for_deleted() {
    let world = World::new(&["ibdata1", "db/a.ibd", "db/b.ibd"]);
    // Its name cannot be looked up, by any user.
    let file = fs::File::open(world.data().join("db/b.ibd")).unwrap();
    let identity = identity::of(&file).unwrap().unwrap().identity;
    let known = world.cache.files();
    let b = known.iter().find(|file| file.id().identity == identity);
    world.cache.drop_file(b.unwrap()).unwrap();
    let name = world.data().join("x".repeat(300)).join("b.ibd");
    let registered = world.cache.register(identity, name.to_str().unwrap());
    let registered = registered.unwrap();
    world
        .homes
        .attach(registered.id(), reopen(&file, true).unwrap());
    let page = vec![2; crate::page::PAGE_BYTES];
    let _ = world.cache.enqueue(&registered, 1, &page).unwrap();
    world.cache.sync(&registered).unwrap();
    let away = world.dir.path().join("away.ibd");
    fs::rename(world.data().join("db/b.ibd"), away).unwrap();
    let error = world.attach().unwrap_err();
    assert!(matches!(error, HomesError::Unseen { .. }), "{error}");
    assert_eq!(world.cache.stats().dirty_pages, 3);
    assert_eq!(world.cache.files().len(), 3);
}

#[test]
fn a_file_renamed_into_a_database_that_is_a_link_is_found() {
    let world = World::new(&["ibdata1", "db/a.ibd", "db/b.ibd"]);
    let elsewhere = world.dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, world.data().join("linked")).unwrap();
    let a = world.data().join("db/a.ibd");
    fs::rename(a, elsewhere.join("a.ibd")).unwrap();
    world.attach().unwrap();
    assert_eq!(world.attached(), ["ibdata1", "a.ibd", "b.ibd"]);
    assert_eq!(world.cache.stats().dirty_pages, 3);
}
