//! A store is in the directory that it was opened in, wherever the paths to that lead later, and in
//! no two processes at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, new_pool, tiny};
use forebay_pool::Pool;
use forebay_store::{Durability, ScanRange, Store, StoreError, StoreOptions};
use std::{
    env, fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Mutex,
};

/// The current directory is the process's.
static CURRENT: Mutex<()> = Mutex::new(());

const KEYS: u32 = 400;

/// A store, and what is to be in it.
struct Tenant {
    store: Store,
    number: u8,
    pool: Option<Pool>,
}

fn value(number: u8, i: u32) -> Vec<u8> {
    // Now and then one in a file of its own.
    let bytes = if i % 50 == 7 { 40_000 } else { 9_000 };
    let mut value = vec![number + 1; bytes];
    value[..4].copy_from_slice(&i.to_le_bytes());
    value
}

fn options(variant: Durability) -> StoreOptions {
    tiny(variant).space_amplification_max(1.1)
}

impl Tenant {
    fn open(path: impl AsRef<Path>, number: u8, variant: Durability) -> Self {
        let pool = matches!(variant, Durability::Buffered(_)).then(|| new_pool(64 << 10));
        let store = options(variant).open(path, pool.as_ref()).unwrap();
        Self {
            store,
            number,
            pool,
        }
    }

    /// Puts all, twice, so that something is collected and merged.
    fn fill(&self, from: u32) {
        for i in (from..KEYS).chain(from..KEYS) {
            self.store
                .put(&i.to_be_bytes(), &value(self.number, i))
                .unwrap();
        }
        self.store.gc().unwrap();
    }

    fn check(&self, store: &Store) {
        let found = store.scan(ScanRange::all()).unwrap();
        let found: Vec<_> = found.collect::<Result<_, _>>().unwrap();
        assert_eq!(found.len(), KEYS as usize);
        for (i, (key, read)) in (0..KEYS).zip(found) {
            assert_eq!(key, i.to_be_bytes());
            assert!(*read == value(self.number, i)[..], "key {i}");
        }
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }

    /// Closes it, and finds everything where it is now.
    fn close_and_check(self, path: &Path, variant: Durability) {
        self.check(&self.store);
        let Self {
            store,
            number,
            pool,
        } = self;
        store.close().unwrap();
        let store = options(variant).open(path, pool.as_ref()).unwrap();
        let tenant = Self {
            store,
            number,
            pool,
        };
        tenant.check(&tenant.store);
    }
}

const VARIANTS: [Durability; 3] = [Durability::DOUBLE, Durability::NoSync, Durability::Fsync];

/// Promise (store): A store stays in the directory that it was opened in, wherever the path leads
/// later (`chdir`, renames, replaced links, other names, bind mounts).
#[test]
fn a_store_opened_as_store_stays_where_it_was_after_chdir() {
    let _current = CURRENT.lock();
    let before = env::current_dir().unwrap();
    for variant in VARIANTS {
        let base = tempfile::tempdir().unwrap();
        let homes = ["a", "b"].map(|name| base.path().join(name));
        let tenants: Vec<_> = (0..)
            .zip(&homes)
            .map(|(number, home)| {
                fs::create_dir(home).unwrap();
                env::set_current_dir(home).unwrap();
                Tenant::open("store", number, variant)
            })
            .collect();
        tenants.iter().for_each(|tenant| tenant.fill(0));
        env::set_current_dir(&before).unwrap();
        for (tenant, home) in tenants.into_iter().zip(&homes) {
            tenant.close_and_check(&home.join("store"), variant);
        }
    }
}

/// Moves a store's way in `away` while it is open, puts another's in its place, and has both go on.
fn both_go_on(away: impl Fn(&Path), variant: Durability) {
    let base = tempfile::tempdir().unwrap();
    let name = base.path().join("store");
    let first = Tenant::open(&name, 0, variant);
    for i in 0..KEYS / 2 {
        first.store.put(&i.to_be_bytes(), &value(0, i)).unwrap();
    }
    away(&name);
    let second = Tenant::open(&name, 1, variant);
    second.fill(0);
    first.fill(KEYS / 2);
    second.close_and_check(&name, variant);
    first.close_and_check(&base.path().join("moved"), variant);
}

/// Promise: as `a_store_opened_as_store_stays_where_it_was_after_chdir`.
#[test]
fn a_renamed_store_leaves_the_one_under_its_old_name_alone() {
    for variant in VARIANTS {
        both_go_on(
            |name| fs::rename(name, name.with_file_name("moved")).unwrap(),
            variant,
        );
    }
}

/// Promise: as `a_store_opened_as_store_stays_where_it_was_after_chdir`.
#[test]
fn a_store_opened_by_a_link_stays_when_the_link_is_replaced() {
    let variant = Durability::NoSync;
    let base = tempfile::tempdir().unwrap();
    let [link, one, two] = ["link", "one", "two"].map(|name| base.path().join(name));
    for dir in [&one, &two] {
        fs::create_dir(dir).unwrap();
    }
    symlink(&one, &link).unwrap();
    let first = Tenant::open(&link, 0, variant);
    fs::remove_file(&link).unwrap();
    symlink(&two, &link).unwrap();
    let second = Tenant::open(&link, 1, variant);
    first.fill(0);
    second.fill(0);
    first.close_and_check(&one, variant);
    second.close_and_check(&two, variant);
}

/// Promise: as `a_store_opened_as_store_stays_where_it_was_after_chdir`.
#[test]
fn a_replaced_directory_within_a_store_takes_none_of_its_files() {
    for part in ["vlog", "large", "index"] {
        let bench = Bench::new();
        let path = bench.path();
        let tenant = Tenant::open(&path, 0, Durability::NoSync);
        let (there, moved) = (path.join(part), bench.dir.path().join("moved"));
        fs::rename(&there, &moved).unwrap();
        fs::create_dir(&there).unwrap();
        tenant.fill(0);
        assert_eq!(fs::read_dir(&there).unwrap().count(), 0, "{part}");
        tenant.check(&tenant.store);
        fs::remove_dir(&there).unwrap();
        fs::rename(&moved, &there).unwrap();
        tenant.close_and_check(&path, Durability::NoSync);
    }
}

/// Promise (store): A directory has one open store at a time, whichever of its files is removed.
#[test]
fn a_store_is_refused_by_every_other_name_it_has() {
    let _current = CURRENT.lock();
    let bench = Bench::new();
    let path = bench.path();
    let store = options(Durability::NoSync).open(&path, None).unwrap();
    let link = bench.dir.path().join("link");
    symlink(&path, &link).unwrap();
    let around = path.join("vlog/../../store/.");
    for name in [&path, &link, &around] {
        // Whatever an administrator or a cleaner has removed.
        for removed in ["", "LOCK", "MANIFEST.tmp"] {
            let _ = fs::remove_file(path.join(removed));
            let refused = options(Durability::NoSync).open(name, None).err();
            let is_in_use = matches!(refused, Some(StoreError::InUse { .. }));
            assert!(is_in_use, "{}: {refused:?}", name.display());
        }
    }
    drop(store);
    options(Durability::NoSync).open(&link, None).unwrap();
}

/// Promise: as `a_store_is_refused_by_every_other_name_it_has`.
#[test]
fn a_store_is_refused_by_a_bind_mount_of_it() {
    let bench = Bench::new();
    let (path, mounted) = (bench.path(), bench.dir.path().join("mounted"));
    let store = options(Durability::NoSync).open(&path, None).unwrap();
    fs::create_dir(&mounted).unwrap();
    if let Err(error) = bind(&path, &mounted) {
        println!("skipped: no bind mounts here: {error}");
        return;
    }
    let refused = options(Durability::NoSync).open(&mounted, None).err();
    unbind(&mounted);
    assert!(
        matches!(refused, Some(StoreError::InUse { .. })),
        "{refused:?}"
    );
    drop(store);
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    let status = std::process::Command::new("mount")
        .arg("--bind")
        .args([from, to])
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(status.to_string())),
    }
}

fn unbind(at: &Path) {
    let status = std::process::Command::new("umount").arg(at).status();
    assert!(status.unwrap().success());
}

/// Promise: as `another_store_or_sessions_manifest_is_not_replaced`.
#[test]
fn another_stores_manifest_is_left_as_it_is() {
    for variant in VARIANTS {
        let bench = Bench::new();
        let other = bench.dir.path().join("other");
        drop(options(Durability::NoSync).open(&other, None).unwrap());
        let foreign = fs::read(other.join("MANIFEST")).unwrap();
        let path: PathBuf = bench.path();
        let tenant = Tenant::open(&path, 0, variant);
        fs::write(path.join("MANIFEST"), &foreign).unwrap();
        let write = |i: u32| tenant.store.put(&i.to_be_bytes(), &value(0, i));
        let refused = (0..20 * KEYS).find_map(|i| write(i).err());
        let refused = refused.expect("a new file needs the manifest").to_string();
        assert!(refused.contains("was replaced"), "{variant}: {refused}");
        assert!(tenant.store.close().is_err());
        assert_eq!(fs::read(path.join("MANIFEST")).unwrap(), foreign);
    }
}

/// Promise: as `another_store_or_sessions_manifest_is_not_replaced`.
#[test]
fn files_moved_out_of_an_open_store_are_refused() {
    for variant in VARIANTS {
        let bench = Bench::new();
        let (path, other) = (bench.path(), bench.dir.path().join("other"));
        let tenant = Tenant::open(&path, 0, variant);
        fs::create_dir(&other).unwrap();
        for name in ["MANIFEST", "vlog", "index", "large"] {
            fs::rename(path.join(name), other.join(name)).unwrap();
        }
        let second = options(Durability::NoSync).salvage(true).open(&other, None);
        let refused = second.err();
        assert!(
            matches!(refused, Some(StoreError::InUse { .. })),
            "{variant}: {refused:?}"
        );
        let flushed = tenant.store.flush();
        assert!(flushed.is_err(), "{variant}");
        assert!(tenant.store.close().is_err(), "{variant}");
        assert!(!path.join("MANIFEST").exists(), "{variant}");
    }
}

/// Promise (store): A store whose directory was removed says so, and no flush of it succeeds.
#[test]
fn a_removed_store_says_what_to_do() {
    for variant in VARIANTS {
        let bench = Bench::new();
        let path = bench.path();
        let tenant = Tenant::open(&path, 0, variant);
        fs::remove_dir_all(&path).unwrap();
        for refused in [tenant.store.flush(), tenant.store.close()] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("from a backup"), "{variant}: {refused}");
            assert!(!refused.contains("by themselves"), "{variant}: {refused}");
        }
    }
}
