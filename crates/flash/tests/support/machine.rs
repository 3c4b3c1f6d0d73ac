//! A cache and one file, for tests that say what happens page by page.

use super::{
    devices::World,
    held_devices::{HeldFlash, HeldHome},
    model::{PAGE, page_of, version_of},
    session::{self, new_contents},
};
use forebay_flash::{Cache, CacheOptions, CachedFile, Enqueued, ReadOutcome, Watermarks};
use std::sync::Arc;

pub const GROUP: u32 = 8;

/// Small groups, and no bypass.
pub fn options() -> CacheOptions {
    CacheOptions {
        group_pages: GROUP,
        second_chances_max: 4,
        bypass_reads: 0,
        ..CacheOptions::default()
    }
}

/// Pages leave at each step, and none has a second chance.
pub fn leaving() -> CacheOptions {
    CacheOptions {
        second_chances_max: 0,
        watermarks: Watermarks { low: 0, high: 0 },
        ..options()
    }
}

/// A cache with one file of a thousand pages.
pub struct Machine {
    pub world: Arc<World>,
    pub cache: Cache,
    pub file: Arc<CachedFile>,
}

impl Machine {
    pub fn new(slots: u64, options: &CacheOptions) -> Self {
        let world = World::new(new_contents(slots, 3));
        world.set_length((0, 1), 1000 * PAGE);
        Self::open(world, options)
    }

    /// The same with [`options`] that are changed.
    pub fn with(slots: u64, change: impl FnOnce(&mut CacheOptions)) -> Self {
        let mut options = options();
        change(&mut options);
        Self::new(slots, &options)
    }

    pub fn open(world: Arc<World>, options: &CacheOptions) -> Self {
        let cache = session::open(&world, options).unwrap();
        Self::of(world, cache)
    }

    /// By way of devices that hold a call.
    pub fn held(slots: u64, options: &CacheOptions) -> (Self, Arc<HeldFlash>, Arc<HeldHome>) {
        let world = World::new(new_contents(slots, 3));
        world.set_length((0, 1), 1000 * PAGE);
        let flash = Arc::new(HeldFlash::of(&world));
        let home = Arc::new(HeldHome::of(&world));
        let cache = session::open_on(&world, flash.clone(), home.clone(), options).unwrap();
        (Self::of(world, cache), flash, home)
    }

    fn of(world: Arc<World>, cache: Cache) -> Self {
        let file = session::register(&cache, (0, 1)).unwrap();
        Self { world, cache, file }
    }

    /// True if it went to the cache.
    pub fn write(&self, page: u32, version: u64) -> bool {
        let enqueued = self
            .cache
            .enqueue(&self.file, page, &page_of(version))
            .unwrap();
        matches!(enqueued, Enqueued::Cached)
    }

    /// Writes so many pages, each of a version one higher than its number, and syncs them.
    pub fn fill(&self, pages: u32) {
        for page in 0..pages {
            self.write(page, u64::from(page) + 1);
        }
        self.sync();
    }

    pub fn sync(&self) {
        self.cache.sync(&self.file).unwrap();
    }

    pub fn read(&self, page: u32) -> u64 {
        let bytes = session::read(&self.world, &self.cache, &self.file, page).unwrap();
        version_of(&bytes).unwrap()
    }

    pub fn hits(&self, page: u32) -> bool {
        let mut bytes = vec![0; PAGE];
        matches!(
            self.cache.read(&self.file, page, &mut bytes).unwrap(),
            ReadOutcome::Hit
        )
    }

    pub fn home(&self, page: u32) -> u64 {
        version_of(&self.world.home((0, 1), page as usize * PAGE, PAGE)).unwrap()
    }
}
