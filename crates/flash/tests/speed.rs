//! The cost of the cache beside the devices. Run it with `cargo test --release -p forebay-flash
//! --test speed -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_flash::{
    Cache, CacheOptions, CreateOptions, FileId, Flash, Home, HomePage, Identity, ReadOutcome,
    Watermarks,
};
use forebay_pool::PoolOptions;
use std::{
    hint::black_box,
    io,
    sync::{Arc, RwLock},
    time::Instant,
};

const PAGE: usize = 16 << 10;
const PAGES: u32 = 4096;

/// Flash in memory.
struct Memory(RwLock<Vec<u8>>);

impl Flash for Memory {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.read().unwrap().len() as u64)
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        let offset = offset as usize;
        to.copy_from_slice(&self.0.read().unwrap()[offset..offset + to.len()]);
        Ok(())
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        let offset = offset as usize;
        self.0.write().unwrap()[offset..offset + from.len()].copy_from_slice(from);
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

/// The median of five rounds, nanoseconds each.
fn median(count: u32, mut round: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..5)
        .map(|_| {
            let begun = Instant::now();
            round();
            begun.elapsed().as_nanos() as f64 / f64::from(count)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[2]
}

#[test]
#[ignore = "measures; run it alone, in release"]
fn a_hit_and_an_enqueue_beside_the_devices() {
    let dir = tempfile::tempdir().unwrap();
    let pool = PoolOptions::new().emulated(true);
    let pool = pool.create(dir.path().join("pool")).unwrap();
    let flash = Arc::new(Memory(RwLock::new(vec![0; 300 << 20])));
    let options = CacheOptions {
        watermarks: Watermarks {
            low: 100,
            high: 100,
        },
        bypass_reads: 0,
        ..CacheOptions::default()
    };
    let create = CreateOptions::default();
    let cache = Cache::create(flash.clone(), Arc::new(Nowhere), &pool, &create, &options).unwrap();
    let file = cache.register(identity(2), "t").unwrap();
    let page = vec![7; PAGE];
    let scattered = |n: u32| n.wrapping_mul(2_654_435_761) % PAGES;
    // Every slot and buffer has been touched once.
    for n in 0..5 * PAGES {
        let _ = cache.enqueue(&file, scattered(n), &page).unwrap();
    }
    cache.sync(&file).unwrap();

    let mut to = vec![0; PAGE];
    let raw = median(PAGES, || {
        for n in 0..PAGES {
            let at = u64::from(scattered(n)) * PAGE as u64;
            flash.read_at(black_box(&mut to), 4 << 20 | at).unwrap();
        }
    });
    let sum = median(PAGES, || {
        for _ in 0..PAGES {
            black_box(forebay_pool::crc32c([black_box(&to)]));
        }
    });
    println!("the checksum of a page: {sum:.0} ns");
    let hit = median(PAGES, || {
        for n in 0..PAGES {
            let found = cache.read(&file, scattered(n), black_box(&mut to)).unwrap();
            assert!(matches!(found, ReadOutcome::Hit));
        }
    });
    println!(
        "a hit: {hit:.0} ns, of which {raw:.0} ns read flash (memory here): ours {:.0} ns",
        hit - raw
    );

    // As a whole, with its share of groups in memory, syncs that cost nothing, metadata, and the
    // queue's front.
    let enqueue = median(PAGES, || {
        for n in 0..PAGES {
            let _ = cache
                .enqueue(&file, scattered(n), black_box(&page))
                .unwrap();
        }
    });
    let group = vec![1; 64 * PAGE];
    let share = median(PAGES, || {
        for n in 0..PAGES / 64 {
            flash
                .write_at(&group, 4 << 20 | u64::from(n) << 20)
                .unwrap();
        }
    });
    println!(
        "an enqueue: {enqueue:.0} ns, of which {share:.0} ns are its share of a group's write (memory here)"
    );
    println!("{:?}", cache.stats());
}

#[test]
#[ignore = "measures; run it alone, in release"]
fn an_opening_by_the_pages_in_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let pool = PoolOptions::new().emulated(true);
    let pool = pool.create(dir.path().join("pool")).unwrap();
    // Small pages, to have as many as a cache of 20 GiB has.
    let flash = Arc::new(Memory(RwLock::new(vec![0; 724 << 20])));
    let create = CreateOptions {
        page_bytes: 512,
        ..CreateOptions::default()
    };
    let (home, options) = (Arc::new(Nowhere), CacheOptions::default());
    let cache = Cache::create(flash.clone(), home.clone(), &pool, &create, &options).unwrap();
    let old: Vec<u64> = (10_000..10_500).collect();
    for &inode in &old {
        let file = cache.register(identity(inode), "old").unwrap();
        let _ = cache.enqueue(&file, 0, &[1; 512]).unwrap();
    }
    let file = cache.register(identity(2), "t").unwrap();
    let slots = cache.stats().slots as u32;
    for n in 0..slots - 8000 {
        let _ = cache.enqueue(&file, n, &[n as u8; 512]).unwrap();
    }
    cache.sync(&file).unwrap();
    drop((cache, file));
    let open = || {
        let begun = Instant::now();
        let (cache, opened) =
            Cache::open(flash.clone(), home.clone(), &pool, 512, &options).unwrap();
        println!("opening {} pages: {:?}", opened.pages, begun.elapsed());
        cache
    };
    let cache = open();
    for (what, inodes) in [("new", (20_000..25_000).collect()), ("old", old)] {
        let begun = Instant::now();
        for &inode in &inodes {
            let file = cache.register(identity(inode), what).unwrap();
            if what == "new" {
                let _ = cache.enqueue(&file, 0, &[1; 512]).unwrap();
            }
            cache.drop_file(&file).unwrap();
        }
        let each = begun.elapsed() / inodes.len() as u32;
        println!("dropping {} {what} files: {each:?} each", inodes.len());
    }
    drop(cache);
    // With a record of each drop in the lane.
    let _ = open();
}

fn identity(inode: u64) -> Identity {
    Identity {
        device: 1,
        inode,
        generation: 3,
    }
}
