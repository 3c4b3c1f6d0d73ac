//! The collector after something went wrong.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{
    hook_disk::{Doing, HookDisk},
    tiny,
};
use forebay_store::{CompactionStage, Durability};
use std::{
    io,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

#[test]
fn a_failed_collector_says_why_and_retries_without_new_writes() {
    let fails = Arc::new(AtomicBool::new(true));
    let disk = HookDisk::new({
        let fails = Arc::clone(&fails);
        move |doing| {
            let is_collector = thread::current().name() == Some("forebay-gc");
            match doing {
                // It cannot take a file out of the manifest.
                Doing::Rename(_) if is_collector && fails.load(SeqCst) => {
                    Err(io::Error::from_raw_os_error(5))
                }
                _ => Ok(()),
            }
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let options = tiny(Durability::NoSync);
    let store = options
        .open_on(disk, None, dir.path().join("store"), None)
        .unwrap();
    let begun = Instant::now();
    while store.stats().trouble.is_none() {
        for key in 0..20u8 {
            store.put(&[key], &[key; 20_000]).unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it never fails");
    }
    // Nothing is written from now on, and it stays as it is.
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(100));
        let stats = store.stats();
        assert!(stats.trouble.unwrap().contains("writing"));
        assert_eq!(stats.gc_files_removed, 0);
    }
    fails.store(false, SeqCst);
    let mended = Instant::now();
    while store.stats().gc_files_removed == 0 || store.stats().trouble.is_some() {
        assert!(mended.elapsed() < Duration::from_secs(60), "it has stopped");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Promise (store): A compaction ends although writers make garbage as fast as it collects.
#[test]
fn a_compaction_does_not_collect_what_is_written_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = tiny(Durability::NoSync).gc(false);
    let store = options.open(dir.path().join("store"), None).unwrap();
    // Several files, in each of which some is live.
    let overwrite = || (0..100u8).for_each(|key| store.put(&[key], &[key; 20_000]).unwrap());
    (0..2).for_each(|_| overwrite());
    let mut steps = 0;
    let report = store.compact(|so_far| {
        if so_far.stage == CompactionStage::Log {
            steps += 1;
            overwrite();
        }
        match steps {
            ..30 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    });
    let report = report.unwrap();
    assert!(
        !report.interrupted && report.collected.files > 0,
        "{report:?}"
    );
}
