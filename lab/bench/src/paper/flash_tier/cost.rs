//! The cache's own time for a page that it finds, and for one that comes in, beside the device's:
//! flash is a file in memory here, whose reads and writes are measured and left out, and nothing
//! goes home.

use super::case::SSD;
use crate::{
    BenchError,
    paper::{outcome::Measured, size::Size},
    scratch::{PoolSource, ScratchDir, ScratchPool, memory_dir},
};
use forebay_device::Profile;
use forebay_flash::{
    Cache, CacheOptions, CreateOptions, Flash, FlashError, FlashFile, HomeFiles, Identity,
    ReadOutcome, Watermarks,
};
use std::{fs::File, hint::black_box, sync::Arc, time::Instant};

const PAGE: usize = 16 << 10;
/// Pages of a group, which go to flash by one write.
const GROUP: u32 = 64;
/// Pages that are used: a power of two.
const PAGES: u32 = 4096;
/// The cache's memory: more than so many pages, so that nothing has to go home for another.
const FLASH_BYTES: u64 = 300 << 20;
const ROUNDS: usize = 5;

/// Microseconds that one of `PAGES` calls takes, each for another page, in no order.
fn timed(mut call: impl FnMut(u32) -> Result<(), FlashError>) -> Result<f64, BenchError> {
    let begun = Instant::now();
    for n in 0..PAGES {
        call(n.wrapping_mul(2_654_435_761) % PAGES).map_err(failed)?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(PAGES))
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Child(format!("(the flash cache) {error}"))
}

/// The rows of the panel `cost`.
pub(super) fn rows(size: Size, measured: &mut Measured) -> Result<(), BenchError> {
    let pool = ScratchPool::new(&PoolSource::Emulated, 8, 8 << 20)?;
    let dir = ScratchDir::new_in(&memory_dir())?;
    let flash = FlashFile::create(&dir.path().join("flash"), FLASH_BYTES).map_err(failed)?;
    let (flash, home) = (Arc::new(flash), Arc::new(HomeFiles::new(1)));
    let options = CacheOptions {
        watermarks: Watermarks {
            low: 100,
            high: 100,
        },
        bypass_reads: 0,
        ..CacheOptions::default()
    };
    let create = CreateOptions::default();
    let cache = Cache::create(flash.clone(), home.clone(), pool.pool(), &create, &options);
    let cache = cache.map_err(failed)?;
    let identity = Identity {
        device: 1,
        inode: 2,
        generation: 3,
    };
    let file = cache.register(identity, "t").map_err(failed)?;
    let pages = u64::from(PAGES) * PAGE as u64;
    let zeros = File::create(dir.path().join("home")).map_err(failed)?;
    zeros.set_len(pages).map_err(failed)?;
    home.attach(file.id(), zeros);
    let group = vec![7; GROUP as usize * PAGE];
    let mut to = vec![0; PAGE];
    let enqueue = |n| cache.enqueue(&file, n, black_box(&group[..PAGE])).map(drop);
    // Every slot and buffer has been touched once.
    for _ in 0..ROUNDS {
        timed(enqueue)?;
    }
    cache.sync(&file).map_err(failed)?;
    let alone = FlashFile::create(&dir.path().join("alone"), pages).map_err(failed)?;
    let mut missed = 0;
    // What the cache takes beside the memory, which is measured in the same round; 0 where noise
    // hides it.
    let (mut hits, mut enqueues) = (Vec::new(), Vec::new());
    for _ in 0..size.pick(1, ROUNDS, ROUNDS) {
        // Any error is that of a wrong offset, and then the cache's own fail too.
        let write = timed(|n| {
            if n.is_multiple_of(GROUP) {
                let _ = alone.write_at(black_box(&group), u64::from(n) * PAGE as u64);
            }
            Ok(())
        })?;
        let read = timed(|n| {
            let _ = alone.read_at(black_box(&mut to), u64::from(n) * PAGE as u64);
            Ok(())
        })?;
        let hit = timed(|n| {
            let found = cache.read(&file, n, black_box(&mut to))?;
            missed += u32::from(!matches!(found, ReadOutcome::Hit));
            Ok(())
        })?;
        hits.push((hit - read).max(0.0));
        enqueues.push((timed(enqueue)? - write).max(0.0));
    }
    if missed > 0 {
        return Err(failed(format!(
            "{missed} pages that came in were not found"
        )));
    }
    measured.add("cost", SSD, "the cache", "page found", &hits);
    measured.add("cost", SSD, "the cache", "page that comes in", &enqueues);
    of_the_device(group.len() as u64, measured);
    Ok(())
}

/// What the profile says of the device.
fn of_the_device(group_bytes: u64, measured: &mut Measured) {
    if let Some(device) = Profile::built_in(SSD) {
        let us = |(fixed, transfer): (u64, u64)| (fixed + transfer) as f64 / 1e3;
        let read = us(device.read.of(PAGE as u64, false));
        let write = us(device.write.of(group_bytes, false)) / f64::from(GROUP);
        measured.add("cost", SSD, "the device", "page found", &[read]);
        measured.add("cost", SSD, "the device", "page that comes in", &[write]);
    }
}
