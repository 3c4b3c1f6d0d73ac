//! Another size: what is in the cache stays in it, and nothing is lost, whenever it is cut.

use crate::{
    common::databases::Strike,
    world::{World, churn, fill, has_flushed, sound, sum},
};
use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

fn dirty(world: &World) -> u64 {
    let said = world.forebay("run --flash flash -- mariadbd --no-defaults --help");
    let said = said.ok().stderr;
    let (before, _) = said.split_once(" newer than in the files").unwrap();
    let number = before.rsplit(' ').next().unwrap();
    number.parse().unwrap()
}

/// Promise (flash-run): A cache of another size has all pages that it had, and none that was not
/// written to it.
#[test]
fn a_resized_cache_is_warm_and_has_only_pages_written_to_it() {
    let Some((mut world, mut server)) = World::filled() else {
        return;
    };
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    let before = sum(&server);
    Strike::Both.strike(server.server(), server.outer(), || {});
    let _ = server.wait();
    let resize = |size: &str| world.forebay(&format!("flash resize --flash flash {size}"));
    resize("1MiB").fails(1, &["cannot be made"]);
    let newer = dirty(&world);
    assert!(newer > 100, "{newer}");
    let said = resize("24MiB").ok().text();
    assert!(said.contains("24 MiB now"), "{said}");
    assert!(said.contains("0 pages were written to the files"), "{said}");
    assert_eq!(dirty(&world), newer);
    assert!(world.plain().is_err(), "the guard was lifted");

    // Shrunk by the next run, with pages that only it has.
    world.launch.wrapper = world.wrapper(&["--flash-size", "9MiB"]);
    let mut server = world.start();
    let said = server.output();
    assert!(said.contains("9 MiB now, room for"), "{said}");
    assert_eq!(fs::metadata(world.flash()).unwrap().len(), 9 << 20);
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    let before = sum(&server);
    Strike::Both.strike(server.server(), server.outer(), || {});
    let _ = server.wait();
    let server = world.start();
    assert!(!server.output().contains("MiB now"), "{}", server.output());
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    has_flushed(&world, server, &before);
}

/// Ends the thread that writes, also if the test fails.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Promise (flash-run): A resize that is cut anywhere, with a server or without, leaves one of the
/// two sizes, whole, and goes on.
#[test]
fn a_kill_while_a_server_resizes_its_cache_loses_nothing() {
    let Some(mut world) = World::new() else {
        return;
    };
    let killed = ("FOREBAY_FAILPOINT".into(), "flash:lengthened=4:die".into());
    world.launch.environment.push(killed);
    let mut server = world.start();
    fill(&server);
    let resize = |size: &str| world.forebay(&format!("flash resize --flash flash {size}"));
    let done = AtomicBool::new(false);
    let mut answered = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| churn(&server, &done));
        let _ended = Ended(&done);
        // In its first second a status has none.
        let has_none = || {
            world.status()["windows"]
                .as_array()
                .is_none_or(Vec::is_empty)
        };
        for _ in (0..400).take_while(|_| has_none()) {
            thread::sleep(Duration::from_millis(50));
        }
        resize("1MiB").fails(1, &["cannot be made"]);
        for (size, bytes) in [("24MiB", 24 << 20), ("9MiB", 9 << 20), ("20MiB", 20 << 20)] {
            let said = resize(size).ok().text();
            assert!(said.contains(" now, room for"), "{said}");
            let status = world.status();
            answered.push(status["windows"].clone());
            let slots = status["slots"].as_u64().unwrap();
            assert!(
                slots * 16384 > bytes * 9 / 10 && slots * 16384 < bytes,
                "{status}"
            );
            assert_eq!(fs::metadata(world.flash()).unwrap().len(), bytes);
            thread::sleep(Duration::from_millis(300));
        }
    });
    // Also the status that has the answer says what was in the last seconds.
    for windows in answered {
        assert_eq!(windows[0]["seconds"], 10, "{windows}");
    }
    sound(&server, "stock.s");
    let before = sum(&server);
    resize("--cancel").fails(1, &["no resize is under way"]);
    resize("--cancel 9MiB").fails(2, &["cannot be used with"]);
    // What a kill leaves undone of the fourth one the next start does.
    let note = world.launch.dir.join("flash.resize");
    assert!(!note.exists());
    let words = ["has ended", "or the next server does"];
    resize("12MiB").fails(1, &words);
    let _ = server.wait();
    assert!(note.exists());
    world.launch.environment.pop();
    world.launch.wrapper = world.wrapper(&[]);
    let server = world.start();
    world.says(&server, "the flash cache has 12582912 bytes");
    assert_eq!(fs::metadata(world.flash()).unwrap().len(), 12 << 20);
    world.until("nothing is noted", |_| !note.exists());
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    // The socket that the killed one has left is this one's now.
    let said = world
        .forebay("flash resize --flash flash 13MiB")
        .ok()
        .text();
    assert!(said.contains("13 MiB now"), "{said}");
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    let before = sum(&server);
    has_flushed(&world, server, &before);
}
