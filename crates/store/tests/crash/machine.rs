//! A machine with a store, a pool and a disk, and what is found on it after its power failed.

use crate::common::{self, Rng, crash_disk::CrashDisk, format, new_sim};
use forebay_pool::{Pool, PoolOptions, media::SimMedia};
use forebay_store::{Store, StoreOptions};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// How large everything is in a round of the test.
#[derive(Clone, Copy)]
pub struct Scale {
    pub segment_bytes: u64,
    /// By how much most values are longer than a few kilobytes.
    pub longer: u64,
}

/// Segments that are full soon.
pub const SMALL: Scale = Scale {
    segment_bytes: 64 << 10,
    longer: 1,
};
/// Segments large enough to be written ahead of their seal.
pub const LARGE: Scale = Scale {
    segment_bytes: 1 << 20,
    longer: 8,
};

/// A place where a store lives until the power fails.
pub struct Machine {
    pub dir: PathBuf,
    pub sim: Arc<SimMedia>,
    pub pool: Pool,
    pub disk: CrashDisk,
}

impl Machine {
    pub fn new(dir: &Path, segment_bytes: u64) -> Self {
        Self::with(dir, new_sim(segment_bytes), segment_bytes)
    }

    pub fn with(dir: &Path, sim: Arc<SimMedia>, segment_bytes: u64) -> Self {
        let pool = format(Arc::clone(&sim), segment_bytes);
        fs::create_dir_all(dir).unwrap();
        Self {
            dir: dir.to_owned(),
            disk: CrashDisk::new(dir, Arc::clone(&sim)),
            sim,
            pool,
        }
    }

    /// The machine whose pool has this image, and whose directory is there.
    pub fn after(dir: &Path, image: Vec<u8>) -> Self {
        Self::on(dir, Arc::new(SimMedia::from_image(image)))
    }

    pub fn on(dir: &Path, sim: Arc<SimMedia>) -> Self {
        Self {
            dir: dir.to_owned(),
            disk: CrashDisk::new(dir, Arc::clone(&sim)),
            pool: PoolOptions::new()
                .open_on("test pool", sim.clone())
                .unwrap(),
            sim,
        }
    }

    pub fn open(&self, options: &StoreOptions) -> Store {
        let disk = Arc::new(self.disk.clone());
        options.open_on(disk, None, &self.dir, &self.pool).unwrap()
    }
}

/// A store on a machine of its own, with options that need no pool.
pub fn without_pool(dir: &Path, options: &StoreOptions) -> (Machine, Store) {
    let machine = Machine::new(dir, SMALL.segment_bytes);
    let disk = Arc::new(machine.disk.clone());
    let store = options.open_on(disk, None, dir, None).unwrap();
    (machine, store)
}

/// The power fails now, and nothing that was not synced has arrived (or, with other seeds, some of
/// it).
pub fn cut_now(machine: &Machine, seed: u64, to: &Path) {
    let disk = &machine.disk;
    fs::create_dir_all(to).unwrap();
    disk.image(disk.events(), &mut Rng(seed), to);
    let index = machine.dir.join("index");
    if index.exists() {
        common::copy_dir(&index, &to.join("index"));
    }
}
