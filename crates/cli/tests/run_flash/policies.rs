//! The policy for written pages is a setting: written through, they are in the files as well; and
//! it may change at any time.

use crate::{
    common::{FOREBAY, Sandbox, databases::Strike},
    world::{World, churn, fill, sound, sum},
};
use forebay_innodb::{AdmissionPolicy, CacheStatus, Settings, WritePolicy};
use forebay_pool::{ClaimOptions, PoolOptions};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen, recv,
    send, socket,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// What people look for: hit ratio, dirty pages, versions a page, second chances, endurance,
/// batches.
const STATUS: [&str; 11] = [
    "hits",
    "misses",
    "recent_hits",
    "dirty_pages",
    "slots_used",
    "pages",
    "second_chances",
    "flash_bytes",
    "page_bytes",
    "home_batches",
    "home_pages",
];

#[test]
fn written_through_everything_is_in_the_files_after_a_sync() {
    let Some(world) = World::new() else { return };
    world.create("--policy through");
    let server = world.start();
    fill(&server);
    sound(&server, "stock.s");
    let said = server.stop().unwrap();
    assert!(
        said.contains("of them 0 newer than in the files; "),
        "{said}"
    );
    assert!(
        !said.contains("before the server is started without"),
        "{said}"
    );
    world.flush().ok();
    let server = world.plain().unwrap();
    sound(&server, "stock.s");
    server.stop().unwrap();
}

/// Promise: as `written_through_a_checkpoint_has_every_page_at_home`.
#[test]
fn a_lost_cache_that_wrote_through_is_given_up_without_loss() {
    let Some(world) = World::new() else { return };
    world.create("--policy through");
    let server = world.start();
    fill(&server);
    let before = sum(&server);
    server.stop().unwrap();
    let give_up = "flash flush --cache-is-lost --data data";
    world
        .forebay(give_up)
        .fails(1, &["is there", "forebay flash flush --flash"]);
    fs::remove_file(world.flash()).unwrap();
    fs::remove_file(world.launch.dir.join("flash.lane")).unwrap();
    assert!(world.plain().is_err());
    let said = world.forebay(give_up).ok().text();
    assert!(said.contains("may be started without Forebay"), "{said}");
    world.forebay(give_up).fails(1, &["nothing to give up"]);
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
}

/// Promise (flash-run): The policy may be changed at any time, and a kill then loses nothing.
#[test]
fn a_kill_while_policies_are_switched_loses_nothing() {
    let Some((world, mut server)) = World::filled() else {
        return;
    };
    let set = |line: &str| world.forebay(&format!("flash set --flash flash {line}"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| churn(&server, &done));
        for policy in ["through", "around", "back", "off", "back", "around"] {
            let said = set(&format!("--policy {policy}")).ok().text();
            assert!(said.contains("kept for its next runs"), "{said}");
            assert!(said.contains(&format!("policy {policy}")), "{said}");
            assert_eq!(world.status()["settings"]["policy"], policy);
            let shown = world.forebay("flash status --json").ok().json();
            assert_eq!(shown[0]["settings"]["policy"], policy);
            for field in STATUS {
                assert!(shown[0][field].is_number(), "{field}: {shown}");
            }
            thread::sleep(Duration::from_millis(400));
        }
        set("--policy off --home-limit 500MiB --low 10 --high 20").ok();
        done.store(true, Relaxed);
    });
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    world.until("empty", |status| {
        status["slots_used"].as_u64() < Some(70) && status["dirty_pages"] == 0
    });
    let before = sum(&server);
    Strike::Both.strike(server.server(), server.outer(), || {});
    let _ = server.wait();
    // What was set is kept.
    let server = world.start();
    assert_eq!(world.status()["settings"]["policy"], "off");
    assert_eq!(world.status()["settings"]["high"], 20);
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    let said = world.forebay("flash set --flash flash --write-limit 50MiB --json");
    let said = said.ok().json();
    assert_eq!(said["in_force"], true);
    assert_eq!(said["settings"]["policy"], "off");
    assert_eq!(said["running"]["policy"], "off");
    assert_eq!(said["running"]["home_bytes_per_second"], 500 << 20);
    assert_eq!(said["running"]["flash_bytes_per_second"], 50 << 20);
    assert_eq!(world.status()["settings"], said["running"]);
    set_elsewhere(&world);
    server.stop().unwrap();
    let kept = world
        .forebay("flash set --flash flash --policy back")
        .ok()
        .text();
    assert!(kept.contains("no server runs with it"), "{kept}");
    let masked = Command::new("sh")
        .args([
            "-c",
            "umask 077; exec \"$0\" flash set --flash flash --low 40 --high 60",
            FOREBAY,
        ])
        .current_dir(world.sandbox.path())
        .status();
    assert!(masked.unwrap().success());
    let mode = fs::metadata(world.sandbox.file("flash.settings"))
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o644, "for the server's user");
    world
        .forebay("flash set --flash flash")
        .fails(2, &["nothing is to be set"]);
    world
        .forebay("flash set --flash flash --low 30 --high 20")
        .fails(2, &["must not be above"]);
    world
        .forebay("flash set --flash nowhere --policy back")
        .fails(1, &["nowhere"]);
}

/// From a container, whose users and network are others.
fn set_elsewhere(world: &World) {
    let unshare = |line: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "--"]);
        command
            .args(line.split(' '))
            .current_dir(world.sandbox.path());
        command.output().unwrap()
    };
    if !unshare("true").status.success() {
        println!("skipped: no namespaces");
        return;
    }
    let set = unshare(&format!("{FOREBAY} flash set --flash flash --low 11"));
    assert!(set.status.success(), "{set:?}");
    assert_eq!(world.status()["settings"]["low"], 11);
}

#[test]
fn an_earlier_servers_settings_are_not_taken_for_those_in_force() {
    let sandbox = Sandbox::new();
    let flash = sandbox.file("f");
    forebay_innodb::create(&flash, 16 << 20).unwrap();
    let earlier = CacheStatus {
        settings: Settings {
            policy: Some(WritePolicy::Back),
            contents: Some(AdmissionPolicy::Dirty),
            low: Some(20),
            high: Some(30),
            ..Settings::default()
        },
        ..CacheStatus::default()
    };
    let earlier = serde_json::to_vec(&earlier).unwrap();
    fs::write(sandbox.file("f.status"), earlier).unwrap();
    // As a server that has just been started.
    let cache = Uuid::from_slice(&fs::read(&flash).unwrap()[32..48]).unwrap();
    let pool = PoolOptions::new().emulated(true);
    let pool = pool.open(sandbox.file("f.lane")).unwrap();
    let _has = pool.claim(cache, &ClaimOptions::new()).unwrap();
    let set = "flash set --flash f --policy back --json";
    let said = thread::scope(|scope| {
        let sets = scope.spawn(|| sandbox.run(set));
        let limit = Instant::now() + Duration::from_secs(60);
        while !sandbox.file("f.settings").exists() && Instant::now() < limit {
            thread::sleep(Duration::from_millis(10));
        }
        // The command waits all the while.
        thread::sleep(Duration::from_secs(2));
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let path = sandbox.file("f.control");
        bind(&socket, &SocketAddrUnix::new(path.as_path()).unwrap()).unwrap();
        listen(&socket, 1).unwrap();
        let asked = accept(&socket).unwrap();
        let mut request = [0; 99];
        let (_, length) = recv(&asked, &mut request[..], RecvFlags::empty()).unwrap();
        assert_eq!(&request[..length], b"\"set\"");
        let answer = br#"{"settings":{"policy":"back","high":40}}"#;
        send(&asked, answer, SendFlags::empty()).unwrap();
        drop(asked);
        sets.join().unwrap().ok().json()
    });
    assert_eq!(said["running"]["high"], 40, "{said}");
    // One that does not listen any more has nothing in force that is known.
    let words = ["settings are stored", "does not listen"];
    sandbox.run(set).fails(1, &words);
}
