//! A writer that gives up its log after `sync_all`: until it returned, the pages are where the
//! policy says they are.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{Cache, Enqueued, FileId, FlashError, Home, HomePage, WritePolicy};
use std::{
    io,
    ops::ControlFlow,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst, mpsc},
    thread,
};
use support::{
    devices::{SimFlash, SimHome, World},
    machine::{GROUP, Machine, options},
    model::{PAGE, page_of},
    session::{self, new_contents},
};

/// Promise (flash-run): A cache that is lost after `through` loses nothing that was synced, or that
/// a checkpoint passed.
#[test]
fn written_through_a_checkpoint_has_every_page_at_home() {
    let machine = Machine::new(60, &options());
    machine.write(1, 11);
    machine.cache.sync_all().unwrap();
    assert_eq!(machine.home(1), 0, "on flash");
    machine.cache.set_policy(WritePolicy::Through);
    // No sync of a file comes between: the server takes a page for durable whose write ended while
    // one ran.
    machine.write(2, 22);
    machine.cache.sync_all().unwrap();
    assert_eq!((machine.home(1), machine.home(2)), (11, 22));
}

/// Promise: as `written_through_a_checkpoint_has_every_page_at_home`.
#[test]
fn no_checkpoint_written_through_passes_an_unreadable_page() {
    let machine = Machine::new(60, &options());
    machine.write(1, 11);
    machine.write(2, 22);
    machine.cache.sync_all().unwrap();
    assert_eq!(machine.world.damage(11), 1);
    machine.cache.set_policy(WritePolicy::Through);
    let e = machine.cache.sync_all().unwrap_err();
    assert!(
        matches!(&e, FlashError::DamagedPages { count: 1, first } if first.page == 1),
        "{e}"
    );
    assert_eq!(machine.home(2), 22, "what can be read is home");
    machine.write(1, 12);
    machine.cache.sync_all().unwrap();
    assert_eq!(machine.home(1), 12);
}

#[test]
fn around_flash_a_checkpoint_fails_as_long_as_the_homes_do() {
    let machine = Machine::new(60, &options());
    for policy in [WritePolicy::Around, WritePolicy::Off, WritePolicy::Through] {
        machine.cache.set_policy(WritePolicy::Back);
        machine.write(1, 11);
        machine.world.home_gone.store(true, SeqCst);
        machine.cache.set_policy(policy);
        machine.cache.sync_all().unwrap_err();
        machine.world.home_gone.store(false, SeqCst);
        machine.cache.sync_all().unwrap();
        assert_eq!(machine.home(1), 11, "{policy:?}");
    }
}

#[test]
fn a_checkpoint_syncs_the_files_written_past_the_cache() {
    let machine = Machine::new(60, &options());
    let behind = 1000;
    let enqueued = machine.cache.enqueue(&machine.file, behind, &page_of(7));
    let Ok(Enqueued::Past(past)) = enqueued else {
        panic!("a page behind the end came in");
    };
    let offset = behind as usize * PAGE;
    machine.world.write_past((0, 1), offset, &page_of(7));
    drop(past);
    machine.world.home_gone.store(true, SeqCst);
    machine.cache.sync_all().unwrap_err();
}

#[test]
fn a_failed_sync_of_a_length_may_lose_writes_past_the_cache() {
    let machine = Machine::new(60, &options());
    let Ok(Enqueued::Past(past)) = machine.cache.enqueue(&machine.file, 1000, &page_of(7)) else {
        panic!("a page behind the end came in");
    };
    drop(past);
    machine.world.home_gone.store(true, SeqCst);
    machine.cache.durable_bytes(&machine.file).unwrap_err();
    machine.world.home_gone.store(false, SeqCst);
    let e = machine.cache.sync(&machine.file).unwrap_err();
    assert!(matches!(e, FlashError::SyncFailed { .. }), "{e}");
}

#[test]
fn a_flush_brings_home_pages_that_are_written_again_meanwhile() {
    let machine = Machine::new(100, &options());
    for page in 0..4 * GROUP {
        machine.write(page, u64::from(page) + 1);
    }
    machine.sync();
    let mut begun = false;
    let flushed = machine.cache.flush(|_| {
        if !std::mem::replace(&mut begun, true) {
            // In memory only, when the flush goes on.
            for page in GROUP..4 * GROUP {
                machine.write(page, u64::from(page) + 1000);
            }
        }
        ControlFlow::Continue(())
    });
    assert!(flushed.unwrap().complete);
    for page in 0..4 * GROUP {
        let (home, was) = (machine.home(page), u64::from(page) + 1);
        assert!(home == was || home == was + 999, "page {page} is {home}");
    }
    // Of neither version anything is lost.
    machine.sync();
    let _ = machine.cache.empty(|_| ControlFlow::Continue(())).unwrap();
    for page in GROUP..4 * GROUP {
        assert_eq!(machine.home(page), u64::from(page) + 1000);
    }
}

/// Homes of which that of the first file is closed in the moment in which it is synced.
struct Closing {
    homes: SimHome,
    begun: mpsc::SyncSender<()>,
    closed: Mutex<mpsc::Receiver<()>>,
}

impl Home for Closing {
    fn durable_bytes(&self, file: FileId) -> io::Result<u64> {
        self.homes.durable_bytes(file)
    }

    fn write(&self, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        self.homes.write(pages)
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        if file.identity.inode > 0 {
            return self.homes.sync(file);
        }
        self.begun.send(()).unwrap();
        self.closed.lock().unwrap().recv().unwrap();
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Promise: as `reads_of_a_file_whose_home_cannot_be_synced_try_it_once`.
#[test]
fn a_checkpoint_does_not_fail_for_a_file_dropped_in_its_sync() {
    let world = World::new(new_contents(60, 3));
    let (begun, has_begun) = mpsc::sync_channel(1);
    let (close, closed) = mpsc::channel();
    let home = Closing {
        homes: SimHome(world.clone()),
        begun,
        closed: closed.into(),
    };
    let flash = Arc::new(SimFlash(world.clone()));
    let pool = session::pool(&world);
    let opened = Cache::open(flash, Arc::new(home), &pool, PAGE as u32, &options());
    let (cache, _) = opened.unwrap();
    let [file, _other] = [0, 1].map(|inode| {
        let file = session::register(&cache, (inode, 1)).unwrap();
        let past = cache.enqueue(&file, 1000, &page_of(7));
        assert!(matches!(past, Ok(Enqueued::Past(_))));
        drop(past);
        file
    });
    // Nor is anything lost of the other file that is to be synced.
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| cache.sync_all());
        has_begun.recv().unwrap();
        cache.drop_file(&file).unwrap();
        close.send(()).unwrap();
        checkpoint.join().unwrap().unwrap();
    });
}
