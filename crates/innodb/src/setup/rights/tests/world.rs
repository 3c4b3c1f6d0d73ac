//! A data directory behind a cache, and the owners of its files.

use crate::{
    doublewrite::DoublewriteFile,
    guard::ActiveGuard,
    home::Homes,
    identity,
    page::PAGE_BYTES,
    setup::{CacheLocation, create, flush, resize},
};
use forebay_flash::{CacheOptions, Epochs, FileId, HomePage, Identity};
use std::{
    fs::{self, File, Permissions},
    ops::ControlFlow,
    os::unix::fs::{PermissionsExt, chown},
    path::PathBuf,
    sync::Arc,
};
use tempfile::TempDir;

pub(super) const PAGES: usize = 16;
const LARGE: u64 = 24 << 20;
pub(super) const SMALL: u64 = 8 << 20;
const EPOCH: u32 = 3;

/// A guarded data directory and its cache, and a file of root's beside them.
pub(super) struct World {
    pub(super) dir: TempDir,
}

impl World {
    /// None if the file system tells neither users' rights nor a file's identity.
    pub(super) fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let world = Self { dir };
        fs::create_dir(world.at("data")).unwrap();
        for name in ["data/ibdata1", "roots"] {
            fs::write(world.at(name), vec![0; PAGES * PAGE_BYTES]).unwrap();
        }
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(world.dir.path(), open).unwrap();
        fs::set_permissions(world.at("roots"), Permissions::from_mode(0o600)).unwrap();
        create(&world.at("f"), LARGE).unwrap();
        let known = identity::of(File::open(world.at("roots")).unwrap());
        let is_told = rustix::process::geteuid().is_root() && known.is_ok();
        if !is_told {
            println!("skipped: not root, or files have no time of birth");
        }
        is_told.then_some(world)
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(super) fn identity(&self, name: &str) -> Identity {
        let file = File::open(self.at(name)).unwrap();
        identity::of(&file).unwrap().unwrap().identity
    }

    pub(super) fn open(&self, name: &str) -> File {
        let mut options = File::options();
        options.read(true).write(true).open(self.at(name)).unwrap()
    }

    /// Lays the guard, and has the cache say that it has a newer first page of each of these files.
    pub(super) fn fill(&self, names: &[&str]) {
        let homes = Arc::new(Homes::new());
        let place = CacheLocation::of(&self.at("f")).unwrap();
        let (cache, _) = place.open(&homes, &CacheOptions::default()).unwrap();
        let register = |name: &str| {
            let path = self.at(name);
            let identity = self.identity(name);
            cache.register(identity, path.to_str().unwrap()).unwrap()
        };
        register("data/ibdata1");
        cache.set_epochs(Epochs::begun(EPOCH)).unwrap();
        for name in names {
            let file = register(name);
            homes.attach(file.id(), self.open(name));
            let _ = cache.enqueue(&file, 0, &vec![7; PAGE_BYTES]).unwrap();
            cache.sync(&file).unwrap();
        }
        let tablespace = self.open("data/ibdata1");
        let (of, cache) = (self.identity("data/ibdata1"), (cache.owner(), EPOCH));
        ActiveGuard::lay(&self.at("data"), &tablespace, of, cache, &self.at("f")).unwrap();
    }

    /// Keeps copies of a first page, which is as new as a page can be, of each of these files.
    pub(super) fn keep(&self, names: &[&str]) {
        let place = CacheLocation::of(&self.at("f")).unwrap();
        let homes = Arc::new(Homes::new());
        let (cache, _) = place.open(&homes, &CacheOptions::default()).unwrap();
        let page = vec![7; PAGE_BYTES];
        let pages: Vec<_> = (names.iter())
            .map(|name| HomePage {
                file: FileId {
                    number: 1,
                    identity: self.identity(name),
                },
                offset: 0,
                bytes: &page,
            })
            .collect();
        let copies = DoublewriteFile::new(&self.at("data"), cache.owner());
        copies.keep(u64::MAX >> 1, &pages).unwrap();
    }

    pub(super) fn give(&self, names: &[&str], user: u32) {
        for name in names {
            chown(self.at(name), Some(user), Some(user)).unwrap();
        }
    }

    pub(super) fn flush(&self) -> Result<(), String> {
        let flushed = flush(&self.at("f"), &[], &[], |_| ControlFlow::Continue(()));
        flushed
            .map(|done| assert!(done.complete))
            .map_err(|e| e.to_string())
    }

    pub(super) fn shrink(&self) -> Result<(), String> {
        let resized = resize(&self.at("f"), SMALL, &[], |_| ControlFlow::Continue(()));
        resized.map(drop).map_err(|e| e.to_string())
    }

    pub(super) fn first_page(&self, name: &str) -> u8 {
        fs::read(self.at(name)).unwrap()[0]
    }
}
