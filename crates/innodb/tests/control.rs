//! Commands to a server that is killed, stopped, or has a forked child; and what its next start
//! makes of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unsafe_code,
    reason = "tests; a forked child"
)]

mod support;

use forebay_innodb::{
    CacheStatus, CancelledResize, Settings, WritePolicy, cancel_resize, resize_running, set_running,
};
use rustix::process::Signal;
use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};
use support::{RunningServer, STATUS, World};

const LARGE: u64 = 24 << 20;
/// Where a resize has made flash longer, and nothing else.
const LENGTHENED: &str = "flash:lengthened";

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Slots, as a server says that began after what was said before.
fn slots(world: &World, server: &RunningServer) -> u64 {
    let mut slots = 0;
    until("a status of this server", || {
        let status = CacheStatus::read(&world.dir.path().join(STATUS)).unwrap_or_default();
        slots = status.slots;
        status.pid == server.pid()
    });
    slots
}

fn resize(flash: &Path) -> Result<u64, String> {
    let resized = resize_running(flash, LARGE, |_| {});
    resized
        .map(|done| done.now.slots)
        .map_err(|e| e.to_string())
}

/// Promise (flash): The next start finishes a resize that a kill has cut.
#[test]
fn a_resize_that_a_kill_cuts_is_finished_or_given_up() {
    let name = "a_resize_that_a_kill_cuts_is_finished_or_given_up";
    let Some(world) = World::commanded(|_| {}) else {
        return;
    };
    let note = world.dir.path().join("flash.resize");
    let first = world.begin(name, "");
    let before = slots(&world, &first);
    first.end();
    for is_given_up in [true, false] {
        let server = world.begin(name, &format!("{LENGTHENED}=1:die"));
        let e = resize(&world.flash()).unwrap_err();
        assert!(
            e.contains("has ended") && e.contains("the next server does"),
            "{e}"
        );
        assert!(note.exists());
        drop(server);
        if is_given_up {
            let cancelled = cancel_resize(&world.flash()).unwrap();
            assert_eq!(cancelled, CancelledResize::Forgotten);
        }
        // The socket that is left of the other one is replaced.
        let server = world.begin(name, "");
        until("nothing is noted", || !note.exists());
        let set = set_running(&world.flash(), &Settings::default());
        assert!(set.is_ok(), "{set:?}");
        assert_eq!(slots(&world, &server) == before, is_given_up);
    }
}

/// Promise (flash): A resize that a server refuses is done by no later start.
#[test]
fn a_resize_that_is_refused_is_not_done_by_the_next_start() {
    let name = "a_resize_that_is_refused_is_not_done_by_the_next_start";
    let Some(world) = World::commanded(|_| {}) else {
        return;
    };
    let (note, faults) = ["flash.resize", "faults"]
        .map(|of| world.dir.path().join(of))
        .into();
    fs::create_dir(&faults).unwrap();
    let server = world.begin(name, "");
    let before = slots(&world, &server);
    // The note has its name, and that cannot be made durable; nor that it is gone.
    for (times, words) in [(1, "keeps its size"), (2, "a power cut may bring it back")] {
        fs::write(faults.join("control-names"), format!("5 {times}")).unwrap();
        let e = resize(&world.flash()).unwrap_err();
        assert!(e.contains(words) && !note.exists(), "{e}");
    }
    server.end();
    let server = world.begin(name, "");
    assert_eq!(slots(&world, &server), before);
    assert!(resize(&world.flash()).unwrap() > before);
}

#[test]
fn a_resize_under_way_is_given_up_and_the_size_stays() {
    let name = "a_resize_under_way_is_given_up_and_the_size_stays";
    let Some(world) = World::commanded(|_| {}) else {
        return;
    };
    let server = world.begin(name, &format!("{LENGTHENED}=1:1500ms"));
    let before = slots(&world, &server);
    let flash = world.flash();
    thread::scope(|scope| {
        let resizes = scope.spawn(|| resize(&flash));
        until("it has begun", || {
            world.dir.path().join("flash.resize").exists()
        });
        let CancelledResize::GivenUp(now) = cancel_resize(&flash).unwrap() else {
            panic!("it is not given up");
        };
        assert_eq!(now.slots, before);
        assert_eq!(fs::metadata(&flash).unwrap().len(), 8 << 20);
        let e = resizes.join().unwrap().unwrap_err();
        assert!(e.contains("was given up"), "{e}");
    });
    assert_eq!(cancel_resize(&flash).unwrap(), CancelledResize::None);
    assert!(resize(&flash).unwrap() > before);
    assert_eq!(cancel_resize(&flash).unwrap(), CancelledResize::None);
}

#[test]
fn of_a_server_that_is_stopped_it_is_said_that_it_is() {
    let name = "of_a_server_that_is_stopped_it_is_said_that_it_is";
    let Some(world) = World::commanded(|_| {}) else {
        return;
    };
    let server = world.begin(name, &format!("{LENGTHENED}=1:1000ms"));
    let flash = world.flash();
    let around = Settings {
        policy: Some(WritePolicy::Around),
        ..Settings::default()
    };
    around.keep(&flash).unwrap();
    let remedy = format!("is stopped (kill -CONT {}", server.pid());
    thread::scope(|scope| {
        let resizes = scope.spawn(|| resize(&flash));
        until("it has begun", || {
            world.dir.path().join("flash.resize").exists()
        });
        thread::sleep(Duration::from_millis(200));
        server.signal(Signal::STOP);
        let e = set_running(&flash, &around).unwrap_err().to_string();
        assert!(e.contains(&remedy) && e.contains("is not known"), "{e}");
        let e = resizes.join().unwrap().unwrap_err();
        assert!(
            e.contains(&remedy) && e.contains("or the next server does"),
            "{e}"
        );
    });
    server.signal(Signal::CONT);
    until("it goes on", || {
        !world.dir.path().join("flash.resize").exists()
    });
    set_running(&flash, &around).unwrap();
}

#[test]
fn a_forked_child_keeps_no_connection_of_its_parent_s() {
    let name = "a_forked_child_keeps_no_connection_of_its_parent_s";
    let world = World::commanded(|server| {
        until("it is told to fork", || {
            server.dir.join("flash.resize").exists()
        });
        thread::sleep(Duration::from_millis(200));
        // SAFETY: the child calls what the library does after a fork, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            forebay_innodb::forked();
            // SAFETY: as above.
            unsafe {
                libc::sleep(40);
                libc::_exit(0);
            }
        }
        fs::write(server.dir.join("child"), child.to_string()).unwrap();
    });
    let Some(world) = world else { return };
    let server = world.begin(name, &format!("{LENGTHENED}=1:600000ms"));
    let flash = world.flash();
    let child = world.dir.path().join("child");
    thread::scope(|scope| {
        let resizes = scope.spawn(|| resize(&flash));
        until("it has forked", || {
            fs::read_to_string(&child).is_ok_and(|child| !child.is_empty())
        });
        let killed = Instant::now();
        server.end();
        let e = resizes.join().unwrap().unwrap_err();
        assert!(e.contains("has ended"), "{e}");
        assert!(
            killed.elapsed() < Duration::from_secs(5),
            "it was waited for"
        );
    });
    let child: i32 = fs::read_to_string(child).unwrap().parse().unwrap();
    // SAFETY: it is the server's, and lives.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
}

#[test]
fn an_orderly_end_leaves_no_socket() {
    let world = World::commanded(|server| {
        until("it is told to end", || server.dir.join("end").exists());
        forebay_innodb::exiting();
        std::process::exit(0);
    });
    let Some(world) = world else { return };
    let _server = world.begin("an_orderly_end_leaves_no_socket", "");
    fs::write(world.dir.path().join("end"), "").unwrap();
    until("it is gone", || {
        !world.dir.path().join("flash.control").exists()
    });
}
