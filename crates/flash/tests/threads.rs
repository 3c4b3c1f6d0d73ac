//! Readers beside writers, a dequeuer, syncs, flushes and tombstones, on real files.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_flash::{
    AdmissionPolicy, Cache, CacheOptions, CreateOptions, Enqueued, FlashFile, HomeFiles, Identity,
    ReadOutcome, Watermarks, WritePolicy,
};
use forebay_pool::PoolOptions;
use std::{
    fs::File,
    ops::ControlFlow,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

const PAGE: usize = 4096;
const PAGES: usize = 300;
const WRITERS: usize = 2;
/// How long they work, and at most until each thread had enough to do.
const ENOUGH: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(120);

/// Every eight bytes of a page say which page and version it is: a torn or foreign one is known.
fn fill(page: usize, version: u64, to: &mut [u8]) {
    let word = ((page as u64) << 40 | version).to_le_bytes();
    to.chunks_exact_mut(8)
        .for_each(|to| to.copy_from_slice(&word));
}

fn version_of(page: usize, bytes: &[u8]) -> u64 {
    let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(
        bytes.chunks_exact(8).all(|w| w == word.to_le_bytes()),
        "page {page} is torn"
    );
    assert!(
        word == 0 || word >> 40 == page as u64,
        "page {page} is page {}",
        word >> 40
    );
    word & ((1 << 40) - 1)
}

struct Machine {
    _dir: tempfile::TempDir,
    cache: Cache,
    file: Arc<forebay_flash::CachedFile>,
    home: File,
    /// Of each page, the version that was written last, and the one that is being written.
    written: Vec<AtomicU64>,
    begun: Vec<AtomicU64>,
    stop: AtomicBool,
    /// Whatever is read is a scan.
    scans: bool,
}

impl Machine {
    fn new(contents: AdmissionPolicy, scans: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = PoolOptions::new().size(1 << 20).segment_size(32 << 10);
        let pool = pool.emulated(true).create(dir.path().join("pool")).unwrap();
        let path = dir.path().join("t.ibd");
        std::fs::write(&path, vec![0; PAGES * PAGE]).unwrap();
        let flash = FlashFile::create(&dir.path().join("flash"), 1 << 20).unwrap();
        let homes = Arc::new(HomeFiles::new(4));
        let create = CreateOptions {
            page_bytes: PAGE as u32,
            files_max: 8,
            ..CreateOptions::default()
        };
        let options = CacheOptions {
            group_pages: 8,
            second_chances_max: 4,
            contents,
            watermarks: Watermarks { low: 50, high: 80 },
            bypass_reads: u32::from(scans),
            ..CacheOptions::default()
        };
        let cache =
            Cache::create(Arc::new(flash), homes.clone(), &pool, &create, &options).unwrap();
        let identity = Identity {
            device: 1,
            inode: 2,
            generation: 3,
        };
        let file = cache.register(identity, "t.ibd").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        homes.attach(file.id(), open());
        let zeros = || (0..PAGES).map(|_| AtomicU64::new(0)).collect();
        Self {
            home: open(),
            _dir: dir,
            cache,
            file,
            written: zeros(),
            begun: zeros(),
            stop: AtomicBool::new(false),
            scans,
        }
    }

    /// Each page has one writer, as a database's latches see to.
    fn write(&self, writer: usize) {
        let mut bytes = vec![0; PAGE];
        let mut random = writer as u64 + 1;
        let mut count = 0;
        while !self.stop.load(SeqCst) {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let page = (random >> 33) as usize % (PAGES / WRITERS) * WRITERS + writer;
            let version = self.begun[page].fetch_add(1, SeqCst) + 1;
            fill(page, version, &mut bytes);
            let enqueued = self.cache.enqueue(&self.file, page as u32, &bytes).unwrap();
            if let Enqueued::Past(_writing) = enqueued {
                self.home
                    .write_all_at(&bytes, (page * PAGE) as u64)
                    .unwrap();
            }
            self.written[page].store(version, SeqCst);
            count += 1;
            if count % 50 == 0 {
                self.cache.sync(&self.file).unwrap();
            }
        }
    }

    /// True if each thread had enough to do.
    fn has_worked(&self) -> bool {
        let written = |writer| -> u64 {
            let pages = self.written.iter().skip(writer).step_by(WRITERS);
            pages.map(|version| version.load(SeqCst)).sum()
        };
        let stats = self.cache.stats();
        (0..WRITERS).all(|writer| written(writer) > 100)
            && stats.hits > 0
            && stats.home_batches > 0
            && stats.checkpoints > 1
            && (!self.scans || stats.read_ahead > 0 && stats.bypassed > stats.read_ahead)
    }

    /// A page is read through the cache: not older than before the read, not newer than after it.
    fn read(&self, page: usize, bytes: &mut [u8]) {
        loop {
            let written = self.written[page].load(SeqCst);
            let found = self.cache.read(&self.file, page as u32, bytes).unwrap();
            if let ReadOutcome::Miss(ticket) = found {
                let home = &mut |to: &mut [u8], offset| self.home.read_at(to, offset);
                if !(self.cache).read_ahead(&self.file, page as u32, &ticket, bytes, home) {
                    self.home
                        .read_exact_at(bytes, (page * PAGE) as u64)
                        .unwrap();
                }
                // A database latches a page while it reads it: here its home may have been written
                // meanwhile.
                if self.begun[page].load(SeqCst) != written {
                    continue;
                }
                self.cache
                    .admit(&self.file, page as u32, bytes, ticket)
                    .unwrap();
            }
            let version = version_of(page, bytes);
            let begun = self.begun[page].load(SeqCst);
            assert!(
                (written..=begun).contains(&version),
                "page {page}: {written} {version} {begun}"
            );
            return;
        }
    }

    fn read_on(&self, reader: u64) {
        let mut bytes = vec![0; PAGE];
        let mut random = reader + 77;
        while !self.stop.load(SeqCst) {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            self.read((random >> 33) as usize % PAGES, &mut bytes);
        }
    }

    fn run(&self, policies: &[WritePolicy]) {
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || self.write(writer));
            }
            for reader in 0..2 {
                scope.spawn(move || self.read_on(reader));
            }
            scope.spawn(|| {
                while !self.stop.load(SeqCst) {
                    if !self.cache.step().unwrap().more {
                        thread::sleep(Duration::from_micros(200));
                    }
                }
            });
            let begun = Instant::now();
            let mut turns = 0;
            while begun.elapsed() < ENOUGH || !self.has_worked() && begun.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(40));
                turns += 1;
                self.cache.set_policy(policies[turns % policies.len()]);
                if turns % 5 == 0 {
                    let _ = self.cache.flush(|_| ControlFlow::Continue(())).unwrap();
                }
            }
            self.stop.store(true, SeqCst);
        });
        let mut bytes = vec![0; PAGE];
        for page in 0..PAGES {
            self.read(page, &mut bytes);
        }
        let _ = self.cache.empty(|_| ControlFlow::Continue(())).unwrap();
        for page in 0..PAGES {
            self.home
                .read_exact_at(&mut bytes, (page * PAGE) as u64)
                .unwrap();
            assert_eq!(version_of(page, &bytes), self.written[page].load(SeqCst));
        }
        assert!(self.has_worked(), "{:?}", self.cache.stats());
    }
}

/// Promise (flash): A reader beside writers, a dequeuer, flushes and changes of the policy gets the
/// newest version of a page, whole.
#[test]
fn readers_see_the_newest_page_whole_beside_all_other_calls() {
    Machine::new(AdmissionPolicy::Dirty, false).run(&[WritePolicy::Back]);
}

/// Promise: as `readers_see_the_newest_page_whole_beside_all_other_calls`.
#[test]
fn clean_pages_that_come_in_are_never_older_than_written_ones() {
    Machine::new(AdmissionPolicy::All, false).run(&[WritePolicy::Back]);
}

/// Promise: as `readers_see_the_newest_page_whole_beside_all_other_calls`.
#[test]
fn the_policy_is_changed_under_readers_and_writers() {
    let policies = [
        WritePolicy::Back,
        WritePolicy::Around,
        WritePolicy::Through,
        WritePolicy::Off,
    ];
    Machine::new(AdmissionPolicy::All, false).run(&policies);
}

/// Promise: as `a_page_read_ahead_does_not_count_once_it_has_changed`.
#[test]
fn a_scan_gets_pages_that_were_written_after_the_read_ahead() {
    let policies = [WritePolicy::Back, WritePolicy::Around, WritePolicy::Off];
    Machine::new(AdmissionPolicy::Dirty, true).run(&policies);
}
