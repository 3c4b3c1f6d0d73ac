//! The disk with the data is full while pages go around flash: the server goes on, as it does
//! without Forebay.

use crate::{
    common::{Sandbox, databases::Strike, disk::Disk},
    world::{World, fill, sound, sum},
};
use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

/// Takes all room that is left on the file system. The file that has it.
fn fill_up(dir: &Path) -> PathBuf {
    let filler = dir.join("filler");
    for piece in [1 << 20, 4096] {
        let full = OpenOptions::new().create(true).append(true).open(&filler);
        let mut full = full.unwrap();
        let bytes = vec![7; piece];
        while full
            .write_all(&bytes)
            .and_then(|()| full.sync_data())
            .is_ok()
        {}
    }
    filler
}

/// Everything in `dir`, without a binary log: that waits for room on its own account.
fn world_on(disk: &Disk, sandbox: Sandbox, policy: &str) -> Option<World> {
    let dir = disk.at.join("mariadb");
    fs::create_dir(&dir).unwrap();
    let mut world = World::within(sandbox, &dir)?;
    let has_no_binary_log = |option: &String| !option.contains("bin");
    world.launch.options.retain(has_no_binary_log);
    // Not on the disk that fills up.
    let faults = world.sandbox.faults();
    let environment = &mut world.launch.environment;
    environment.push(("FOREBAY_TEST_FAULTS".into(), faults.into()));
    world.create(&format!("--policy {policy}"));
    Some(world)
}

/// Promise (flash-run): A full data disk fails no page on its way around flash: the file of copies
/// has its blocks before the guard is laid.
#[test]
fn server_goes_on_when_the_disk_is_full_and_pages_go_around() {
    for (kind, policy, is_broken) in [
        ("ext4", "around", false),
        ("xfs", "off", false),
        ("ext4", "back", true),
    ] {
        let sandbox = Sandbox::on_disk();
        let Some(disk) = Disk::make(sandbox.path(), kind) else {
            return;
        };
        let Some(world) = world_on(&disk, sandbox, policy) else {
            return;
        };
        let mut server = world.start();
        fill(&server);
        let filler = fill_up(&disk.at);
        if is_broken {
            world.sandbox.fail("flash-write");
        }
        for round in 0..40 {
            let update = format!("UPDATE stock.s SET k = k + 1 WHERE id % 997 = {round}");
            let updated = server.sql(&update, "");
            assert!(updated.is_ok(), "{kind}, {policy}: {}", server.output());
        }
        world.until("pages go around", |status| {
            status["around_pages"].as_u64() > Some(100)
        });
        let before = sum(&server);
        Strike::Database.strike(server.server(), server.outer(), || {});
        server.wait().unwrap();
        // A start needs room for temporary files, also without Forebay.
        fs::remove_file(filler).unwrap();
        let server = world.start();
        assert_eq!(sum(&server), before, "{kind}, {policy}");
        sound(&server, "stock.s");
        if is_broken {
            world.sandbox.mend("flash-write");
        }
        server.stop().unwrap();
        let flush = format!("flash flush --flash {}", world.flash().display());
        world.forebay(&flush).ok();
        let server = world.plain().unwrap();
        assert_eq!(sum(&server), before, "{kind}, {policy}");
        sound(&server, "stock.s");
        server.stop().unwrap();
    }
}

/// Promise (flash-run): A first start without room for the file of copies changes nothing.
#[test]
fn first_start_says_what_room_is_missing_and_changes_nothing() {
    let sandbox = Sandbox::on_disk();
    let Some(disk) = Disk::make(sandbox.path(), "ext4") else {
        return;
    };
    let Some(world) = world_on(&disk, sandbox, "back") else {
        return;
    };
    let line = "run --flash mariadb/flash --flash-size 14MiB -- mariadbd --no-defaults --help";
    let mut makes = world.sandbox.command(line);
    let made = makes.current_dir(&disk.at).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let filler = fill_up(&disk.at);
    // Room for the server's own files, and not for the copies.
    let full = OpenOptions::new().write(true).open(&filler).unwrap();
    let left = full.metadata().unwrap().len() - (6 << 20);
    full.set_len(left).unwrap();
    full.sync_all().unwrap();
    drop(full);
    let said = world.refused();
    assert!(
        said.contains("forebay.pages cannot be given its 16 MiB: No space left")
            && said.contains("Make room there"),
        "{said}"
    );
    let left = ["forebay.pages", "forebay.guard"].map(|name| world.launch.data().join(name));
    assert!(left.iter().all(|left| !left.exists()), "{left:?}");
    fs::remove_file(filler).unwrap();
    world.plain().unwrap().stop().unwrap();
    world.start().stop().unwrap();
}
