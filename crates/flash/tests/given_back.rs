//! Before a file is changed past the cache: its pages go home first if the change may be refused,
//! and copies of pages that are on their way home stay until they are there.
//!
//! Promise: as `a_truncation_the_kernel_refuses_leaves_every_page_as_it_was`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{
    Cache, CacheOptions, Enqueued, FileId, FlashError, Home, HomePage, WritePolicy,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};
use support::{
    devices::{SimFlash, SimHome, World},
    machine::{GROUP, Machine, options},
    model::{PAGE, page_of},
    session::{self, new_contents},
};

#[test]
fn pages_brought_home_may_be_forgotten_and_the_file_has_them() {
    let machine = Machine::new(600, &options());
    // A range that is looked up, and one that is looked through.
    for (first, last) in [(3, 5), (3, u32::MAX)] {
        for page in 0..GROUP {
            machine.write(page, u64::from(page) + 1 + u64::from(last));
        }
        machine.sync();
        let before = [2, 3].map(|page| machine.home(page));
        machine
            .cache
            .bring_home(&machine.file, first, last)
            .unwrap();
        machine
            .cache
            .forget_pages(&machine.file, first, last)
            .unwrap();
        assert_eq!(machine.home(2), before[0], "it was not asked for");
        for page in 3..=5 {
            assert_eq!(machine.home(page), u64::from(page) + 1 + u64::from(last));
            assert!(!machine.hits(page));
        }
    }
}

#[test]
fn a_page_that_cannot_be_brought_home_is_named_and_kept() {
    let machine = Machine::new(60, &options());
    machine.write(3, 33);
    machine.sync();
    assert_eq!(machine.world.damage(33), 1);
    let e = machine.cache.bring_home(&machine.file, 0, 9).unwrap_err();
    assert!(
        matches!(e, FlashError::DamagedPages { count: 1, .. }),
        "{e}"
    );
    assert_eq!(machine.cache.stats().dirty_pages, 1);
}

#[test]
fn pages_that_cannot_go_home_are_named_and_the_others_go() {
    let machine = Machine::new(60, &options());
    machine.write(3, 33);
    machine.write(4, 44);
    machine.sync();
    assert_eq!(machine.world.damage(33), 1);
    let files = [Arc::clone(&machine.file)];
    let lost = machine.cache.bring_files_home(&files).unwrap();
    let pages: Vec<u32> = lost.iter().map(|lost| lost.page).collect();
    assert_eq!(pages, [3]);
    assert_eq!(machine.home(4), 44);
    assert_eq!(machine.cache.stats().dirty_pages, 1);
}

/// Homes that keep copies, and whose writes wait until they are told to go on.
struct Slow {
    homes: SimHome,
    begun: mpsc::SyncSender<()>,
    go_on: std::sync::Mutex<mpsc::Receiver<()>>,
    on_their_way: AtomicBool,
    given_up_too_early: Arc<AtomicBool>,
}

impl Home for Slow {
    fn durable_bytes(&self, file: FileId) -> io::Result<u64> {
        self.homes.durable_bytes(file)
    }

    fn write(&self, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        self.on_their_way.store(true, SeqCst);
        self.begun.send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        self.homes.write(pages)
    }

    fn protect(&self, last: u64, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        self.homes.protect(last, pages)
    }

    fn unprotect(&self) -> io::Result<()> {
        let on_their_way = self.on_their_way.load(SeqCst);
        self.given_up_too_early.fetch_or(on_their_way, SeqCst);
        Ok(())
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        self.on_their_way.store(false, SeqCst);
        self.homes.sync(file)
    }
}

#[test]
fn copies_of_pages_going_home_outlast_the_forgetting_of_pages() {
    let world = World::new(new_contents(60, 3));
    world.set_length((0, 1), 100 * PAGE);
    world.set_length((1, 1), 100 * PAGE);
    let given_up_too_early = Arc::new(AtomicBool::new(false));
    let (begun, has_begun) = mpsc::sync_channel(1);
    let (go, go_on) = mpsc::channel();
    let home = Slow {
        homes: SimHome(world.clone()),
        begun,
        go_on: go_on.into(),
        on_their_way: AtomicBool::new(false),
        given_up_too_early: Arc::clone(&given_up_too_early),
    };
    let options = CacheOptions {
        policy: WritePolicy::Around,
        ..options()
    };
    let flash = Arc::new(SimFlash(world.clone()));
    let pool = session::pool(&world);
    let opened = Cache::open(flash, Arc::new(home), &pool, PAGE as u32, &options);
    let (cache, _) = opened.unwrap();
    let [one, other] = [(0, 1), (1, 1)].map(|key| session::register(&cache, key).unwrap());
    assert!(matches!(
        cache.enqueue(&one, 1, &page_of(1)),
        Ok(Enqueued::Cached)
    ));
    thread::scope(|scope| {
        scope.spawn(|| cache.sync(&one).unwrap());
        has_begun.recv().unwrap();
        let forgetting = scope.spawn(|| cache.forget_pages(&other, 0, 9).unwrap());
        thread::sleep(Duration::from_millis(100));
        let waits = !forgetting.is_finished();
        go.send(()).unwrap();
        assert!(waits, "pages were forgotten while others were on their way");
    });
    assert!(!given_up_too_early.load(SeqCst));
}
