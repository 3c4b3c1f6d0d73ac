//! Flash that is gone, for a while or for long: pages go home past it, what only it has is named,
//! and it is used again once it takes pages.

use crate::{
    machine, machine_with, options, read,
    support::{
        model::{PAGE, version_of},
        session,
    },
    write,
};
use forebay_flash::{Cache, CacheOptions, CachedFile, FlashError, ReadOutcome};
use std::{ops::ControlFlow, sync::atomic::Ordering::SeqCst};

/// Flash that failed is tried again with the next write.
fn tries_at_once() -> CacheOptions {
    CacheOptions {
        flash_retry_ms: 0,
        ..options()
    }
}

/// Promise: as `a_damaged_clean_page_is_read_at_home`.
#[test]
fn without_flash_clean_pages_are_read_at_home_dirty_ones_named() {
    let (world, cache, file) = machine();
    write(&cache, &file, 3, 33).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(read(&world, &cache, &file, 4).unwrap(), 0);
    cache.sync(&file).unwrap();
    assert_eq!(cache.stats().pages, 2, "one dirty, one clean");
    world.flash_gone.store(true, SeqCst);
    let e = read(&world, &cache, &file, 3).unwrap_err();
    assert!(
        e.to_string()
            .starts_with("page 3 of t0.ibd could not be read"),
        "{e}"
    );
    let mut bytes = vec![0; PAGE];
    assert!(matches!(
        cache.read(&file, 4, &mut bytes),
        Ok(ReadOutcome::Miss(_))
    ));
    write(&cache, &file, 5, 55).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(version_of(&world.home((0, 1), 5 * PAGE, PAGE)), Some(55));
    assert_eq!(read(&world, &cache, &file, 5).unwrap(), 55, "at home");
    let trouble = cache.flash_trouble().unwrap();
    assert!(trouble.contains("flash simulated: "), "{trouble}");
    let flushed = cache.flush(|_| ControlFlow::Continue(())).unwrap();
    let named: Vec<_> = flushed.lost.iter().map(ToString::to_string).collect();
    assert_eq!(
        (flushed.pages, named),
        (0, vec!["page 3 of t0.ibd".to_owned()])
    );
    let e = cache.empty(|_| ControlFlow::Continue(())).unwrap_err();
    assert!(
        matches!(e, FlashError::DamagedPages { count: 1, .. }),
        "{e}"
    );
    assert_eq!(version_of(&world.home((0, 1), 3 * PAGE, PAGE)), Some(0));
    world.flash_gone.store(false, SeqCst);
    write(&cache, &file, 6, 66).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 33);
    assert_eq!(read(&world, &cache, &file, 5).unwrap(), 55);
    assert_eq!(read(&world, &cache, &file, 6).unwrap(), 66);
}

#[test]
fn flash_that_takes_nothing_is_bypassed_until_it_does_again() {
    let options = tries_at_once();
    let (world, cache, file) = machine_with(&options);
    write(&cache, &file, 1, 1).unwrap();
    cache.sync(&file).unwrap();
    world.flash_gone.store(true, SeqCst);
    write(&cache, &file, 1, 2).unwrap();
    write(&cache, &file, 2, 3).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(cache.stats().around_pages, 2);
    // A kill: what came around is found at home, not what flash had before it.
    drop((cache, file));
    world.flash_gone.store(false, SeqCst);
    let cache = session::open(&world, &options).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    assert_eq!(cache.stats().dirty_pages, 0);
    assert_eq!(read(&world, &cache, &file, 1).unwrap(), 2);
    assert_eq!(read(&world, &cache, &file, 2).unwrap(), 3);
    assert_eq!(cache.flash_trouble(), None);
    write(&cache, &file, 1, 4).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(version_of(&world.home((0, 1), PAGE, PAGE)), Some(2));
    assert_eq!(read(&world, &cache, &file, 1).unwrap(), 4);
}

#[test]
fn writers_stay_durable_however_long_flash_takes_nothing() {
    let (world, cache, file) = machine();
    write(&cache, &file, 1, 1).unwrap();
    cache.sync(&file).unwrap();
    let _ = cache.flush(|_| ControlFlow::Continue(())).unwrap();
    world.flash_gone.store(true, SeqCst);
    for n in 2..5000u64 {
        write(&cache, &file, (n % 40) as u32, n).unwrap();
        if n % 3 == 0 {
            cache.sync(&file).unwrap();
        }
        cache.step().unwrap();
    }
    cache.sync(&file).unwrap();
    let check = |cache: &Cache, file: &CachedFile| {
        for n in 4960..5000u64 {
            let page = (n % 40) as u32;
            assert_eq!(read(&world, cache, file, page).unwrap(), n);
        }
    };
    check(&cache, &file);
    drop((cache, file));
    // Opened while flash can be read again, and used: what comes in now is behind all that went
    // around.
    world.flash_gone.store(false, SeqCst);
    let cache = session::open(&world, &options()).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    check(&cache, &file);
    write(&cache, &file, 7, 6000).unwrap();
    cache.sync(&file).unwrap();
    drop((cache, file));
    let cache = session::open(&world, &options()).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    assert_eq!(read(&world, &cache, &file, 7).unwrap(), 6000);
}

#[test]
fn flash_takes_pages_again_in_the_session_that_bypassed_it() {
    let options = tries_at_once();
    let (world, cache, file) = machine_with(&options);
    for round in 0..6u64 {
        world.flash_gone.store(round % 2 == 0, SeqCst);
        for n in 0..100u64 {
            write(&cache, &file, (n % 40) as u32, round * 100 + n + 1).unwrap();
            if n % 7 == 0 {
                cache.sync(&file).unwrap();
            }
        }
        // Nothing is dirty when flash goes.
        let _ = cache.flush(|_| ControlFlow::Continue(())).unwrap();
    }
    drop((cache, file));
    let cache = session::open(&world, &options).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    for n in 60..100u64 {
        let found = read(&world, &cache, &file, (n % 40) as u32).unwrap();
        assert_eq!(found, 500 + n + 1);
    }
}
