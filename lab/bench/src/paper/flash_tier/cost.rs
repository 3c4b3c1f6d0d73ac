//! What the cache itself takes of a page that it finds, and of one that comes in, beside what the device takes: flash is memory here, whose copy of a
//! page is measured and left out, and homes take everything at once.

use super::{Measured, Row, SSD, Size};
use crate::{
    BenchError,
    scratch::{PoolSource, ScratchPool},
};
use forebay_device::Profile;
use forebay_flash::{
    Cache, CreateOptions, FileId, Flash, FlashError, Home, HomePage, Identity, Options, Read,
    Watermarks,
};
use std::{
    hint::black_box,
    io,
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

const PAGE: usize = 16 << 10;
/// Pages of a group, which go to flash by one write.
const GROUP: u64 = 64;
/// Pages that are used: a power of two.
const PAGES: u32 = 4096;
/// The cache's memory: more than so many pages, so that nothing has to go home for another.
const FLASH_BYTES: usize = 300 << 20;
const ROUNDS: usize = 5;

/// Flash that is memory.
struct Memory(RwLock<Vec<u8>>);

impl Memory {
    /// What a range of the flash is in memory.
    fn range(offset: u64, bytes: usize) -> io::Result<std::ops::Range<usize>> {
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        Ok(from..from + bytes)
    }
}

impl Flash for Memory {
    fn bytes(&self) -> io::Result<u64> {
        Ok(FLASH_BYTES as u64)
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        let memory = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let from = memory.get(Self::range(offset, to.len())?);
        to.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        let mut memory = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let to = memory.get_mut(Self::range(offset, from.len())?);
        to.ok_or(io::ErrorKind::UnexpectedEof)?
            .copy_from_slice(from);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}

/// Homes that take everything.
struct Nowhere;

impl Home for Nowhere {
    fn durable_bytes(&self, _: FileId) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn write(&self, _: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        Ok(())
    }

    fn sync(&self, _: FileId) -> io::Result<()> {
        Ok(())
    }
}

/// A page for each of `0..PAGES`, in no order.
fn scattered(n: u32) -> u32 {
    n.wrapping_mul(2_654_435_761) % PAGES
}

/// Microseconds that one of `PAGES` calls takes.
fn timed(mut call: impl FnMut(u32) -> Result<(), FlashError>) -> Result<f64, BenchError> {
    let begun = Instant::now();
    (0..PAGES)
        .try_for_each(|n| call(scattered(n)))
        .map_err(failed)?;
    Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(PAGES))
}

fn failed(error: FlashError) -> BenchError {
    BenchError::Child(format!("(the flash cache) {error}"))
}

/// The rows of the panel `cost`.
pub(super) fn rows(size: Size, measured: &mut Measured) -> Result<(), BenchError> {
    let pool = ScratchPool::new(&PoolSource::Emulated, 8, 8 << 20)?;
    let flash = Arc::new(Memory(RwLock::new(vec![0; FLASH_BYTES])));
    let options = Options {
        watermarks: Watermarks {
            low: 100,
            high: 100,
        },
        bypass_reads: 0,
        ..Options::default()
    };
    let cache = Cache::create(
        flash.clone(),
        Arc::new(Nowhere),
        pool.pool(),
        &CreateOptions::default(),
        &options,
    )
    .map_err(failed)?;
    let identity = Identity {
        device: 1,
        inode: 2,
        generation: 3,
    };
    let file = cache.register(identity, "t").map_err(failed)?;
    let page = vec![7; PAGE];
    let mut to = vec![0; PAGE];
    let enqueue = |n| cache.enqueue(&file, n, black_box(&page)).map(drop);
    // Every slot and buffer has been touched once.
    for _ in 0..ROUNDS {
        timed(enqueue)?;
    }
    cache.sync(&file).map_err(failed)?;
    let mut missed = 0;
    // What the cache takes beside the copy, which is measured in the same round; 0 where noise hides it.
    let (mut hits, mut enqueues) = (Vec::new(), Vec::new());
    for _ in 0..size.pick(1, ROUNDS, ROUNDS) {
        let copy = timed(|n| {
            // Any error is that of a wrong offset, and then the cache's reads fail too.
            let _ = flash.read_at(black_box(&mut to), u64::from(n) * PAGE as u64);
            Ok(())
        })?;
        let hit = timed(|n| {
            let found = cache.read(&file, n, black_box(&mut to))?;
            missed += u32::from(!matches!(found, Read::Hit));
            Ok(())
        })?;
        hits.push((hit - copy).max(0.0));
        enqueues.push((timed(enqueue)? - copy).max(0.0));
    }
    if missed > 0 {
        let what = format!("(the flash cache) {missed} pages that came in were not found");
        return Err(BenchError::Child(what));
    }
    let mut add = |series, x, figures: &[f64]| {
        let row = Row::of("cost", SSD, series, x, figures);
        measured.rows.push(row);
    };
    add("the cache", "page found", &hits);
    add("the cache", "page that comes in", &enqueues);
    if let Some(device) = Profile::built_in(SSD) {
        let us = |(fixed, transfer): (u64, u64)| (fixed + transfer) as f64 / 1e3;
        let read = us(device.read.of(PAGE as u64, false));
        let group = us(device.write.of(GROUP * PAGE as u64, false)) / GROUP as f64;
        add("the device", "page found", &[read]);
        add("the device", "page that comes in", &[group]);
    }
    Ok(())
}
