//! A file that is no cache, or not this one, is refused with that reason, and left as it is.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{Cache, CacheOptions, CreateOptions, FlashError, FlashFile, HomeFiles};
use forebay_pool::{Pool, PoolOptions};
use std::{fs, path::PathBuf, sync::Arc};
use tempfile::TempDir;

struct Machine {
    dir: TempDir,
    pool: Pool,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = new_pool(&dir.path().join("pool"));
        Self { dir, pool }
    }

    fn flash(&self) -> PathBuf {
        self.dir.path().join("flash")
    }

    fn create(&self, bytes: u64) -> Result<Cache, FlashError> {
        let path = self.flash();
        let flash = if path.exists() {
            FlashFile::open(&path).unwrap()
        } else {
            FlashFile::create(&path, bytes).unwrap()
        };
        let create = CreateOptions {
            files_max: 16,
            ..CreateOptions::default()
        };
        let home = Arc::new(HomeFiles::new(2));
        Cache::create(Arc::new(flash), home, &self.pool, &create, &options())
    }

    fn open(&self, pool: &Pool, page_bytes: u32) -> Result<Vec<String>, FlashError> {
        let flash = FlashFile::open(&self.flash()).unwrap();
        let home = Arc::new(HomeFiles::new(2));
        Cache::open(Arc::new(flash), home, pool, page_bytes, &options())
            .map(|(_, opened)| opened.mended)
    }

    /// Why it is refused; the file is as it was.
    fn refusal(&self) -> String {
        let before = fs::read(self.flash()).unwrap();
        let e = self.open(&self.pool, 16 << 10).unwrap_err();
        assert!(fs::read(self.flash()).unwrap() == before, "it was changed");
        e.to_string()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.flash()).unwrap();
        change(&mut bytes);
        fs::write(self.flash(), bytes).unwrap();
    }
}

fn options() -> CacheOptions {
    CacheOptions {
        group_pages: 8,
        second_chances_max: 4,
        ..CacheOptions::default()
    }
}

fn new_pool(path: &std::path::Path) -> Pool {
    let options = PoolOptions::new().size(1 << 20).segment_size(16 << 10);
    options.emulated(true).create(path).unwrap()
}

#[test]
fn a_flash_file_too_small_is_refused_with_the_size_needed() {
    let machine = Machine::new();
    let e = machine.create(256 << 10).err().unwrap().to_string();
    assert!(e.contains("4 groups of 8 pages are needed"), "{e}");
    // It is blank still: the next one is made in it.
    fs::remove_file(machine.flash()).unwrap();
    machine.create(2 << 20).unwrap();
}

/// Promise: as `what_is_no_cache_is_refused_for_what_it_is`.
#[test]
fn what_is_not_blank_is_not_made_a_cache() {
    let machine = Machine::new();
    drop(machine.create(2 << 20).unwrap());
    let e = machine.create(2 << 20).err().unwrap().to_string();
    assert!(e.contains("is not blank: a flash cache,"), "{e}");
    machine.change(|bytes| bytes[..8192].fill(b'x'));
    let e = machine.create(2 << 20).err().unwrap().to_string();
    assert!(e.contains("something that is no flash cache"), "{e}");
}

/// Promise (flash): A cache that is damaged, cut short, of other pages, of another pool or without
/// its lane, or is none, is refused for that reason and left as it is.
#[test]
fn what_is_no_cache_is_refused_for_what_it_is() {
    let machine = Machine::new();
    fs::write(machine.flash(), vec![0; 1 << 20]).unwrap();
    let e = machine.refusal();
    assert!(e.contains("header A is blank, header B is blank"), "{e}");
    fs::write(machine.flash(), vec![7; 1 << 20]).unwrap();
    let e = machine.refusal();
    assert!(e.contains("header A is something else"), "{e}");
    fs::write(machine.flash(), b"short").unwrap();
    let e = machine.refusal();
    assert!(e.contains("it has 5 bytes"), "{e}");
}

/// Another version may have written one header and been cut before the other: the one that this
/// version can read is the older.
///
/// Promise: as `what_is_no_cache_is_refused_for_what_it_is`.
#[test]
fn a_header_of_another_version_is_never_written_over() {
    for at in [0, 4096] {
        let machine = Machine::new();
        drop(machine.create(2 << 20).unwrap());
        machine.change(|bytes| {
            let header = &mut bytes[at..at + 80];
            header[8] += 1;
            let crc = forebay_pool::crc32c([&header[8..]]);
            header[4..8].copy_from_slice(&crc.to_le_bytes());
        });
        let before = fs::read(machine.flash()).unwrap();
        assert!(
            machine.refusal().contains("version"),
            "{}",
            machine.refusal()
        );
        assert_eq!(fs::read(machine.flash()).unwrap(), before);
    }
}

/// Promise: as `what_is_no_cache_is_refused_for_what_it_is`.
#[test]
fn one_damaged_header_is_written_anew_and_two_are_refused() {
    let machine = Machine::new();
    drop(machine.create(2 << 20).unwrap());
    for (at, name) in [(20, 'A'), (4096 + 20, 'B')] {
        machine.change(|bytes| bytes[at] ^= 1);
        let mended = machine.open(&machine.pool, 16 << 10).unwrap();
        assert!(
            mended[0].starts_with(&format!("header {name} is damaged")),
            "{mended:?}"
        );
        assert!(machine.open(&machine.pool, 16 << 10).unwrap().is_empty());
    }
    machine.change(|bytes| {
        bytes[20] ^= 1;
        bytes[4096 + 20] ^= 1;
    });
    assert!(
        machine
            .refusal()
            .contains("header A is damaged, header B is damaged")
    );
}

/// Promise: as `what_is_no_cache_is_refused_for_what_it_is`.
#[test]
fn a_cache_that_was_cut_short_is_refused() {
    let machine = Machine::new();
    drop(machine.create(2 << 20).unwrap());
    machine.change(|bytes| bytes.truncate(1 << 20));
    let e = machine.refusal();
    assert!(
        e.contains("is truncated") && e.contains("the file 1048576"),
        "{e}"
    );
}

/// Promise: as `what_is_no_cache_is_refused_for_what_it_is`.
#[test]
fn a_cache_with_other_pages_or_of_another_pool_is_refused() {
    let machine = Machine::new();
    drop(machine.create(2 << 20).unwrap());
    let e = machine
        .open(&machine.pool, 4 << 10)
        .unwrap_err()
        .to_string();
    assert!(
        e.contains("holds pages of 16384 bytes, 4096 were asked for"),
        "{e}"
    );
    let other = new_pool(&machine.dir.path().join("other"));
    let e = machine.open(&other, 16 << 10).unwrap_err().to_string();
    assert!(e.contains("belongs to pool"), "{e}");
}

/// Promise: as `what_is_no_cache_is_refused_for_what_it_is`.
#[test]
fn without_its_lane_a_cache_is_refused() {
    let machine = Machine::new();
    let cache = machine.create(2 << 20).unwrap();
    let owner = cache.owner();
    drop(cache);
    let (lane, recovered) = machine.pool.claim(owner, &Default::default()).unwrap();
    drop(recovered);
    while let Some(sealed) = lane.take_sealed(Default::default()) {
        sealed.release();
    }
    assert!(lane.remove());
    let e = machine.refusal();
    assert!(e.contains("there is no such lane"), "{e}");
    // Nor is an empty lane of the same owner taken for it, when the cache is farther.
    let machine = Machine::new();
    let cache = machine.create(2 << 20).unwrap();
    let owner = cache.owner();
    drop(cache);
    machine.open(&machine.pool, 16 << 10).unwrap();
    let (lane, recovered) = machine.pool.claim(owner, &Default::default()).unwrap();
    lane.append(1, &[std::io::IoSlice::new(&[0; 5000])])
        .unwrap();
    drop(recovered);
    lane.seal();
    while let Some(sealed) = lane.take_sealed(Default::default()) {
        sealed.release();
    }
    drop(lane);
    let e = machine.refusal();
    assert!(
        e.contains("its newest whole checkpoint goes on at log address"),
        "{e}"
    );
}

#[test]
fn a_cache_is_open_once() {
    let machine = Machine::new();
    let cache = machine.create(2 << 20).unwrap();
    let e = machine
        .open(&machine.pool, 16 << 10)
        .unwrap_err()
        .to_string();
    assert!(e.contains("is in use by another process"), "{e}");
    drop(cache);
    machine.open(&machine.pool, 16 << 10).unwrap();
}

#[test]
fn removing_an_empty_cache_leaves_flash_and_pool_as_before() {
    let machine = Machine::new();
    let lanes = machine.pool.geometry().segments / 3;
    // More often than the pool has lanes and segments.
    for _ in 0..2 * lanes + 2 {
        let cache = machine.create(2 << 20).unwrap();
        let owner = cache.owner();
        cache.remove().unwrap();
        assert!(!machine.pool.has_lane(owner).unwrap());
        assert!(
            machine
                .refusal()
                .contains("header A is blank, header B is blank")
        );
    }
}

#[test]
fn wrong_page_lengths_and_sizes_that_do_not_fit_are_refused() {
    let machine = Machine::new();
    let cache = machine.create(2 << 20).unwrap();
    let identity = forebay_flash::Identity {
        device: 1,
        inode: 2,
        generation: 3,
    };
    let file = cache.register(identity, "t").unwrap();
    let e = cache
        .enqueue(&file, 0, &[0; 100])
        .err()
        .unwrap()
        .to_string();
    assert_eq!(e, "100 bytes are no page of 16384");
    drop(cache);
    let flash = || Arc::new(FlashFile::open(&machine.flash()).unwrap());
    let home = Arc::new(HomeFiles::new(2));
    let too_large = CacheOptions::default();
    let e = Cache::open(flash(), home.clone(), &machine.pool, 16 << 10, &too_large);
    let e = e.err().unwrap().to_string();
    assert!(e.contains("groups of 64 pages in"), "{e}");
    let no_progress = CacheOptions {
        second_chances_max: 8,
        ..options()
    };
    let e = Cache::open(flash(), home, &machine.pool, 16 << 10, &no_progress);
    let e = e.err().unwrap().to_string();
    assert!(e.contains("8 second chances in a group of 8 pages"), "{e}");
}
