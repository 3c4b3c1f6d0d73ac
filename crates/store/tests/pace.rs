//! The disk behind the pool is slow, or stands still: writers slow down before they have to wait,
//! and say the reason.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Bench,
    hook_disk::{Doing, HookDisk},
    small, within,
};
use forebay_store::Durability;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// How long something that should happen is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Promise: as `small_prices_add_up_to_pauses_of_at_most_the_longest`.
#[test]
fn a_long_sync_slows_writers_gradually_before_one_has_to_wait() {
    within(PATIENCE, "writers beside a sync that takes long", || {
        let bench = Bench::with_segments(1 << 20);
        let (held, seen) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let disk = {
            let (held, seen) = (Arc::clone(&held), Arc::clone(&seen));
            HookDisk::new(move |doing| {
                if let Doing::Sync(path) = doing
                    && path.extension().is_some_and(|e| e == "vlog")
                {
                    while held.load(SeqCst) {
                        seen.store(true, SeqCst);
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                Ok(())
            })
        };
        let options = small(Durability::DOUBLE);
        let store = options
            .open_on(disk, None, bench.path(), &bench.pool)
            .unwrap();
        let put = |i: u32| store.put(&i.to_be_bytes(), &[i as u8; 100]).unwrap();
        put(0);
        store.flush().unwrap();
        assert_eq!(store.stats().waits.drain.times, 0);
        held.store(true, SeqCst);
        let mut keys = 1;
        while store.stats().waits.drain.times < 3 {
            // Two segments have room for fewer: without a brake this one waits for the sync.
            assert!(keys < 11_000);
            put(keys);
            keys += 1;
        }
        while !seen.load(SeqCst) {
            thread::yield_now();
        }
        let waits = store.stats().waits;
        assert_eq!(waits.segment.times, 0, "{waits:?}");
        // Let go, they are not slowed any more.
        held.store(false, SeqCst);
        store.flush().unwrap();
        let before = store.stats().waits.drain.times;
        put(keys);
        assert_eq!(store.stats().waits.drain.times, before);
        for i in 0..=keys {
            assert_eq!(
                store.get(&i.to_be_bytes()).unwrap().unwrap()[..],
                [i as u8; 100]
            );
        }
        store.close().unwrap();
    });
}
