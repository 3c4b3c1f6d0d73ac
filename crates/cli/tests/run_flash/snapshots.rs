//! A snapshot of a file system has each file with the identity that it has in the original: what is
//! done with the one does not touch the other.

use crate::{
    common::{
        Sandbox,
        disk::{Disk, Loop, Mounted, run},
    },
    world::{FLASH, World, fill, sound, sum},
};
use forebay_bench::mariadb::server::Server;
use rustix::process::Signal;
use std::fs;

/// A world on a file system of its own, whose server goes on, and a snapshot of all of it, mounted
/// beside. They end in this order.
struct Twins {
    server: Server,
    /// What the snapshot has.
    then: String,
    snapshot: World,
    live: World,
    _mounted: Mounted,
    _loop: Loop,
    _disk: Disk,
}

/// None where a file system cannot be mounted. `more` is done before the snapshot.
fn twins(more: impl FnOnce(&World, &Server)) -> Option<Twins> {
    let sandbox = Sandbox::new();
    let disk = Disk::make(sandbox.path(), "ext4")?;
    let [image, copied, at] = ["image", "copied", "snapshot"].map(|name| sandbox.file(name));
    let dir = disk.at.join("mariadb");
    fs::create_dir(&dir).unwrap();
    let live = World::within(sandbox, &dir)?;
    let server = live.start();
    fill(&server);
    more(&live, &server);
    let then = sum(&server);
    let on = disk.at.to_str().unwrap();
    run("fsfreeze", &["-f", on]).unwrap();
    let [from, to] = [&image, &copied].map(|path| path.to_str().unwrap());
    let made = run("cp", &["--sparse=always", from, to]);
    run("fsfreeze", &["-u", on]).unwrap();
    made.unwrap();
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    let device = Loop::of(&copied, 512)?;
    let mounted = Mounted::at(&device.path, &at);
    let mut snapshot = World {
        sandbox: Sandbox::new(),
        launch: live.launch.clone(),
    };
    snapshot.launch.dir = at.join("mariadb");
    snapshot.launch.wrapper = snapshot.wrapper(&["--flash-size", FLASH]);
    Some(Twins {
        server,
        then,
        snapshot,
        live,
        _mounted: mounted,
        _loop: device,
        _disk: disk,
    })
}

impl Twins {
    /// `forebay flash flush` of the snapshot's cache, with these words more.
    fn flush(&self, more: &str) -> crate::common::Ran {
        let flash = self.snapshot.flash();
        let line = format!("flash flush --flash {} {more}", flash.display());
        self.snapshot.forebay(&line)
    }

    /// The original is as it was, also after its server was killed.
    fn go_on(self) {
        let mut server = self.server;
        let after = sum(&server);
        assert_ne!(after, self.then);
        assert!(self.live.launch.data().join("forebay.guard").exists());
        server.server().signal(Signal::KILL);
        let _ = server.wait();
        let server = self.live.start();
        let flush = format!("flash flush --flash {}", self.live.flash().display());
        assert_eq!(sum(&server), after);
        sound(&server, "stock.s");
        server.stop().unwrap();
        self.live.forebay(&flush).ok();
        let server = self.live.plain().unwrap();
        assert_eq!(sum(&server), after);
        sound(&server, "stock.s");
        server.stop().unwrap();
    }
}

/// Promise (flash-run): A flush and a server that work on a snapshot mounted beside its original
/// write only to the snapshot.
#[test]
fn a_snapshots_cache_is_flushed_into_it_and_not_its_original() {
    let Some(twins) = twins(|_, _| {}) else {
        return;
    };
    // Where the snapshot is was not said: what is found is the original.
    twins.flush("").fails(1, &["a server runs with", "--data"]);
    let data = twins.snapshot.launch.data();
    twins.flush(&format!("--data {}", data.display())).ok();
    let server = twins.snapshot.plain().unwrap();
    assert_eq!(sum(&server), twins.then);
    sound(&server, "stock.s");
    server.stop().unwrap();
    twins.go_on();
}

/// Promise: as `a_snapshots_cache_is_flushed_into_it_and_not_its_original`.
#[test]
fn a_server_on_a_snapshot_writes_to_it_and_not_its_original() {
    let Some(twins) = twins(|_, _| {}) else {
        return;
    };
    let server = twins.snapshot.start();
    assert_eq!(sum(&server), twins.then);
    server.sql("UPDATE stock.s SET k = k + 100", "").unwrap();
    let after = sum(&server);
    server.stop().unwrap();
    // It is known where that is now.
    twins.flush("").ok();
    let server = twins.snapshot.plain().unwrap();
    assert_eq!(sum(&server), after);
    sound(&server, "stock.s");
    server.stop().unwrap();
    twins.go_on();
}

#[test]
fn a_file_outside_of_a_snapshot_is_not_taken_for_the_snapshots() {
    let table = |live: &World, server: &Server| {
        let beside = live.sandbox.file("beside");
        fs::create_dir(&beside).unwrap();
        let make = format!(
            "CREATE TABLE stock.t ENGINE=InnoDB DATA DIRECTORY='{}' SELECT * FROM stock.s",
            beside.display()
        );
        server.sql(&make, "").unwrap();
    };
    let Some(twins) = twins(table) else { return };
    let data = twins.snapshot.launch.data();
    twins
        .flush(&format!("--data {}", data.display()))
        .fails(1, &["t.ibd", "is a snapshot"]);
    let said = twins.snapshot.refused();
    assert!(said.contains("is a snapshot"), "{said}");
    twins.go_on();
}
