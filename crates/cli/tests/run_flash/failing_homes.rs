//! The disk with the data fails each write-back for a while: the server goes on from flash, says so
//! in few words, and nothing is lost.

use crate::{
    common::{FOREBAY, Sandbox, databases::Strike},
    world::{FLASH, World, churn, fill, sound, sum},
};
use forebay_bench::mariadb::server::Server;
use forebay_device::thin::ThinDisk;
use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

const FAILS_FOR: Duration = Duration::from_secs(15);
/// The server's own among them: one a second of each of its threads that writes.
const LINES_MAX: usize = 200;
const GROWS: &str =
    "INSERT INTO stock.s SELECT 20000 + seq, seq, REPEAT('t', 300) FROM stock.seq_1_to_12000";

/// Data on the disk; redo log and flash elsewhere.
fn world_on(disk: &std::path::Path, sandbox: Sandbox) -> Option<World> {
    let dir = disk.join("mariadb");
    fs::create_dir(&dir).unwrap();
    let mut world = World::within(sandbox, &dir)?;
    world
        .launch
        .options
        .retain(|option| !option.contains("bin"));
    let logs = world.sandbox.file("redo");
    fs::create_dir(&logs).unwrap();
    let log = world.launch.data().join("ib_logfile0");
    fs::copy(&log, logs.join("ib_logfile0")).unwrap();
    fs::remove_file(log).unwrap();
    let place = format!("--innodb-log-group-home-dir={}", logs.display());
    world.launch.options.push(place);
    let flash = world.sandbox.file("flash");
    let wrapper = [FOREBAY, "run", "--flash-size", FLASH, "--flash"].map(Into::into);
    world.launch.wrapper = wrapper.to_vec();
    world.launch.wrapper.extend([flash.into(), "--".into()]);
    Some(world)
}

/// Promise (flash-run): While the data disk fails each write-back, the server's log gets a few
/// lines, and no committed transaction is lost.
#[test]
fn failing_home_writes_lose_nothing_and_fill_no_log() {
    let sandbox = Sandbox::on_disk();
    let mounted = sandbox.file("disk");
    fs::create_dir(&mounted).unwrap();
    // Ext4 gives itself up when it has no room for what it notes of itself.
    let disk = match ThinDisk::mount(sandbox.path(), &mounted, &["mkfs.xfs", "-q"], None) {
        Ok(disk) => disk,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let Some(world) = world_on(&mounted, sandbox) else {
        return;
    };
    let mut server = world.start();
    fill(&server);
    let lines = |server: &Server| server.output().lines().count();
    let before = lines(&server);
    disk.fill(256 << 10).unwrap();
    let (done, more) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| churn(&server, &done));
        // New pages need room, which there is none of: it waits with the others.
        scope.spawn(|| server.sql(GROWS, "").unwrap());
        thread::sleep(FAILS_FOR);
        more.store(lines(&server) - before, Relaxed);
        disk.make_room().unwrap();
        done.store(true, Relaxed);
    });
    let more = more.into_inner();
    assert!(more <= LINES_MAX, "{more} lines: {}", server.output());

    let expected = sum(&server);
    Strike::Database.strike(server.server(), server.outer(), || {});
    server.wait().unwrap();
    disk.mount_again().unwrap();
    let server = world.start();
    assert_eq!(sum(&server), expected);
    sound(&server, "stock.s");
    server.stop().unwrap();
    let flush = format!(
        "flash flush --flash {}",
        world.sandbox.file("flash").display()
    );
    world.forebay(&flush).ok();
    disk.mount_again().unwrap();
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), expected);
    sound(&server, "stock.s");
    server.stop().unwrap();
}
