//! Sessions on a cache: random operations beside the model.

use super::{
    Rng,
    devices::{Contents, Event, HomeKey, SimFlash, SimHome, World},
    model::{ANYTHING, FILES, Model, PAGE, PAGES, Promise, page_of},
};
use forebay_flash::{
    AdmissionPolicy as Kept, Cache, CacheOptions, CachedFile, CreateOptions, Enqueued, Flash,
    FlashError, Home, Identity, ReadOutcome, Watermarks, WritePolicy, layout,
};
use forebay_pool::{Pool, PoolOptions, media::SimMedia};
use std::{
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};
use uuid::Uuid;

const POOL_BYTES: usize = 32 << 10;
const SEGMENT: u64 = 4096;

pub fn options(rng: &mut Rng) -> CacheOptions {
    let group_pages = 2 + rng.below(4) as u32;
    CacheOptions {
        group_pages,
        groups_unsynced_max: 1 + rng.below(3) as u32,
        groups_leaving_max: 1 + rng.below(3) as u32,
        second_chances_max: rng.below(u64::from(group_pages)) as u32,
        contents: [Kept::Dirty, Kept::All][rng.below(2) as usize],
        policy: WritePolicy::Back,
        watermarks: Watermarks {
            low: rng.below(60) as u8,
            high: 60 + rng.below(40) as u8,
        },
        bypass_reads: rng.below(4) as u32,
        bypass_writes: 0,
        flash_retry_ms: [0, 10_000][rng.below(2) as usize],
        ..CacheOptions::default()
    }
}

/// A pool in which everything is free.
pub fn blank_pool() -> Vec<u8> {
    static POOL: OnceLock<Vec<u8>> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let sim = Arc::new(SimMedia::new(POOL_BYTES));
        let options = PoolOptions::new().size(POOL_BYTES as u64);
        let options = options.segment_size(SEGMENT).lanes(2);
        options.create_on("sim", sim.clone()).unwrap();
        sim.image()
    });
    pool.clone()
}

/// The size of a cache that was resized to so many slots, or a few less.
pub fn bytes_for(slots: u64) -> u64 {
    layout::CHECKPOINTS + 4 * (layout::CHECKPOINT_HEADER + 4096) + slots * PAGE as u64
}

/// A cache of `slots` slots that was just made, and its files, without pages.
pub fn new_contents(slots: u64, lane_segments: u16) -> Contents {
    let region = layout::CHECKPOINT_HEADER + 4096;
    let bytes = layout::CHECKPOINTS + 2 * region + slots * PAGE as u64;
    let homes = (0..FILES).map(|inode| ((inode, 1), vec![0; PAGES as usize * PAGE]));
    let world = World::new(Contents {
        flash: vec![0; bytes as usize],
        homes: homes.collect(),
        pool: blank_pool(),
        ..Contents::default()
    });
    drop(create(&world, lane_segments).unwrap());
    world.live()
}

pub fn pool(world: &World) -> Pool {
    let opened = PoolOptions::new().open_on("sim", world.sim.clone());
    opened.expect("the pool opens")
}

pub fn create(world: &Arc<World>, lane_segments: u16) -> Result<Cache, FlashError> {
    create_as(0xF1A5, world, lane_segments)
}

/// The cache's identity is `owner`.
pub fn create_as(owner: u128, world: &Arc<World>, lane_segments: u16) -> Result<Cache, FlashError> {
    let create = CreateOptions {
        page_bytes: PAGE as u32,
        files_max: 4,
        owner: Uuid::from_u128(owner),
        lane_segments,
    };
    let options = CacheOptions {
        group_pages: 2,
        second_chances_max: 1,
        ..CacheOptions::default()
    };
    let (flash, home) = (SimFlash(world.clone()), SimHome(world.clone()));
    Cache::create(
        Arc::new(flash),
        Arc::new(home),
        &pool(world),
        &create,
        &options,
    )
}

pub fn open(world: &Arc<World>, options: &CacheOptions) -> Result<Cache, FlashError> {
    let (flash, home) = (SimFlash(world.clone()), SimHome(world.clone()));
    open_on(world, Arc::new(flash), Arc::new(home), options)
}

/// By way of these devices, which are the world's.
pub fn open_on(
    world: &World,
    flash: Arc<dyn Flash>,
    home: Arc<dyn Home>,
    options: &CacheOptions,
) -> Result<Cache, FlashError> {
    let (cache, _) = Cache::open(flash, home, &pool(world), PAGE as u32, options)?;
    world.restore(&cache)?;
    Ok(cache)
}

pub fn register(
    cache: &Cache,
    (inode, generation): HomeKey,
) -> Result<Arc<CachedFile>, FlashError> {
    let identity = Identity {
        device: 1,
        inode,
        generation,
    };
    cache.register(identity, &format!("t{inode}.ibd"))
}

/// A page as its reader sees it.
pub fn read(
    world: &World,
    cache: &Cache,
    file: &CachedFile,
    page: u32,
) -> Result<Vec<u8>, FlashError> {
    let mut bytes = vec![0; PAGE];
    let ReadOutcome::Miss(ticket) = cache.read(file, page, &mut bytes)? else {
        return Ok(bytes);
    };
    let key = super::devices::key(file.id());
    let ahead = &mut |to: &mut [u8], offset| world.read_home(key, to, offset);
    if cache.read_ahead(file, page, &ticket, &mut bytes, ahead) {
        return Ok(bytes);
    }
    let bytes = world.home(key, page as usize * PAGE, PAGE);
    cache.admit(file, page, &bytes, ticket)?;
    Ok(bytes)
}

/// Judges every page, after a cut, through the cache.
pub fn judge(world: &World, cache: &Cache, model: &mut Model) -> Result<(), String> {
    for inode in 0..FILES {
        let file = register(cache, model.file(inode)).map_err(|e| e.to_string())?;
        for page in 0..PAGES {
            let bytes = read(world, cache, &file, page).map_err(|e| e.to_string())?;
            model.found(inode, page, &bytes)?;
        }
    }
    Ok(())
}

pub struct Session<'a> {
    pub world: &'a Arc<World>,
    pub cache: &'a Cache,
    pub model: Model,
    pub rng: Rng,
    pub version: u64,
    /// Writes past the cache are allowed.
    pub past: bool,
    pub resizes: bool,
    /// The only file it uses, if there are sessions beside it.
    pub only: Option<u64>,
}

impl Session<'_> {
    fn promise(&mut self, promise: Promise) {
        self.model.learn(&promise);
        self.world.note(Event::Model(promise));
    }

    /// One random operation. An error is passed on; what was refused has changed nothing.
    pub fn operate(&mut self) -> Result<(), FlashError> {
        let inode = self.rng.below(FILES);
        let inode = self.only.unwrap_or(inode);
        let key = self.model.file(inode);
        let file = register(self.cache, key)?;
        let page = self.rng.below(u64::from(PAGES)) as u32;
        if self.resizes && self.rng.chance(16) {
            return self.resize();
        }
        match self.rng.below(100) {
            0..50 => self.write(&file, key, page),
            50..65 => self.sync(&file, key),
            65..80 => {
                let bytes = read(self.world, self.cache, &file, page)?;
                let now = self.model.now(inode, page);
                assert!(
                    now == ANYTHING || bytes == page_of(now),
                    "page {page} of {inode} is not {now}"
                );
                Ok(())
            }
            80..88 => self.cache.step().map(drop),
            88..91 => self.cut(&file, key, page),
            91..93 => self.drop(&file, key),
            93..96 => {
                let stop = self.rng.chance(2);
                let go = |_| {
                    if stop {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                };
                self.cache.flush(go).map(drop)
            }
            96..97 => self.cache.empty(|_| ControlFlow::Continue(())).map(drop),
            _ => {
                self.cache.assume_flash_pays(self.rng.chance(2));
                let policies = &WritePolicy::ALL[..if self.past { 5 } else { 2 }];
                self.cache.set_policy(self.rng.one_of(policies));
                Ok(())
            }
        }
    }

    /// Another size, larger or smaller; some are too near to the one that it has.
    fn resize(&mut self) -> Result<(), FlashError> {
        let bytes = bytes_for(44 + self.rng.below(40));
        let stop = self.rng.chance(8);
        let go = |_| match stop {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        match self.cache.resize(bytes, go) {
            Err(FlashError::BadSize { .. }) => Ok(()),
            resized => resized.map(drop),
        }
    }

    fn write(&mut self, file: &CachedFile, key: HomeKey, page: u32) -> Result<(), FlashError> {
        self.version += 1;
        let version = self.version;
        let bytes = page_of(version);
        self.promise(Promise::Writing(key, page, version));
        let enqueued = self.cache.enqueue(file, page, &bytes).map(|enqueued| {
            if let Enqueued::Past(_writing) = enqueued {
                self.world.write_past(key, page as usize * PAGE, &bytes);
            }
        });
        if enqueued.is_err() {
            self.promise(Promise::Refused(key, page, version));
        }
        enqueued
    }

    fn sync(&mut self, file: &CachedFile, key: HomeKey) -> Result<(), FlashError> {
        if self.version.is_multiple_of(3) {
            self.cache.assume_a_trial_is_due();
        }
        self.cache.sync(file)?;
        self.promise(Promise::Synced(key));
        Ok(())
    }

    /// Truncates, and makes it long again: zeros.
    fn cut(&mut self, file: &CachedFile, key: HomeKey, page: u32) -> Result<(), FlashError> {
        self.promise(Promise::Cutting(key, page));
        // Refused, it may have happened or not.
        self.cache.forget_pages(file, page, u32::MAX)?;
        self.world.set_length(key, page as usize * PAGE);
        self.world.set_length(key, PAGES as usize * PAGE);
        self.promise(Promise::Cut(key, page));
        Ok(())
    }

    fn drop(&mut self, file: &CachedFile, key: HomeKey) -> Result<(), FlashError> {
        self.promise(Promise::Dropping(key));
        self.cache.drop_file(file)?;
        self.world
            .set_length((key.0, key.1 + 1), PAGES as usize * PAGE);
        self.promise(Promise::Dropped(key));
        Ok(())
    }
}
