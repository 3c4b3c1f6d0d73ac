//! Devices that fail and pages that are damaged: nothing is lost that was synced, nothing stale or
//! torn is ever served, and errors name what they are about.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod damaged;
mod flash_gone;
mod home_gone;
mod one_failure;
#[path = "../support/mod.rs"]
mod support;

use forebay_flash::{AdmissionPolicy, Cache, CacheOptions, CachedFile, Enqueued, FlashError};
use std::sync::Arc;
use support::{
    devices::World,
    model::{PAGE, page_of, version_of},
    session::{self, new_contents},
};

const SLOTS: u64 = 40;
/// Pages of the file: more than there are slots.
const LENGTH: usize = 48;

fn options() -> CacheOptions {
    CacheOptions {
        group_pages: 4,
        second_chances_max: 2,
        contents: AdmissionPolicy::All,
        bypass_reads: 0,
        ..CacheOptions::default()
    }
}

fn machine() -> (Arc<World>, Cache, Arc<CachedFile>) {
    machine_with(&options())
}

fn machine_with(options: &CacheOptions) -> (Arc<World>, Cache, Arc<CachedFile>) {
    let world = World::new(new_contents(SLOTS, 2));
    world.set_length((0, 1), LENGTH * PAGE);
    let cache = session::open(&world, options).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    (world, cache, file)
}

fn write(cache: &Cache, file: &CachedFile, page: u32, version: u64) -> Result<(), FlashError> {
    let enqueued = cache.enqueue(file, page, &page_of(version))?;
    assert!(matches!(enqueued, Enqueued::Cached));
    Ok(())
}

/// The version that a reader gets.
fn read(world: &World, cache: &Cache, file: &CachedFile, page: u32) -> Result<u64, FlashError> {
    session::read(world, cache, file, page).map(|bytes| version_of(&bytes).expect("a whole page"))
}

/// Lets so many versions of page 11 come in, synced.
fn turn(cache: &Cache, file: &CachedFile, count: u64, version: &mut u64) {
    for _ in 0..count {
        *version += 1;
        write(cache, file, 11, *version).unwrap();
    }
    cache.sync(file).unwrap();
}
