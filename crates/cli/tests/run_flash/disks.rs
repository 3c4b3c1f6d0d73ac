//! The disks under the cache's two files: that of the metadata fails, and the server ends; that of
//! the flash file fills, and pages go around it. Everything acknowledged is there either way.

use crate::{
    common::{databases::Strike, disk::Disk},
    world::{World, fill, sound, sum},
};
use forebay_bench::{mariadb::client::Connection, sql::Client};
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Makes the world's cache in a directory, behind a link. The flash file.
fn make_flash_in(world: &mut World, dir: &Path) -> PathBuf {
    let there = dir.join("flash");
    symlink(&there, world.flash()).unwrap();
    forebay_innodb::create(&there, 14 << 20).unwrap();
    world.launch.wrapper = world.wrapper(&[]);
    there
}

/// A link in the place of a file, which is at `there` from now on: on whatever file system that is.
fn move_behind_a_link(file: &Path, there: &Path) {
    fs::copy(file, there).unwrap();
    fs::remove_file(file).unwrap();
    symlink(there, file).unwrap();
}

/// Promise (flash-run): A disk under the cache's metadata that fails ends the server, and
/// everything acknowledged is there when the disk is back.
#[test]
fn a_server_whose_metadata_cannot_be_synced_ends_without_loss() {
    let Some(world) = World::new() else { return };
    let beside = tempfile::tempdir_in(world.sandbox.path()).unwrap();
    let Some(mut disk) = Disk::make(beside.path(), "xfs") else {
        return;
    };
    let line = "run --flash flash --flash-size 14MiB -- mariadbd --no-defaults --help";
    world.forebay(line).ok();
    let [lane, there] = [world.launch.dir.join("flash.lane"), disk.at.join("lane")];
    move_behind_a_link(&lane, &there);
    disk.sync();

    let mut server = world.start();
    fill(&server);
    let mut sums = vec![sum(&server)];
    disk.cut();
    let mut rounds = 0;
    while server.sql("UPDATE stock.s SET k = k + 1", "").is_ok() {
        // Its log has what was acknowledged; the server ends with the next sync of a page.
        let rows = &sums[rounds];
        let (count, k) = rows.split_once('\t').unwrap();
        let [count, k]: [u64; 2] = [count, k].map(|n| n.parse().unwrap());
        sums.push(format!("{count}\t{}", k + count));
        rounds += 1;
        assert!(rounds < 50, "the server goes on: {}", server.output());
        thread::sleep(Duration::from_millis(100));
    }
    let _ = server.wait();
    let said = server.output();
    // A file system that was shut down gives no page of a mapped file any more: then the kernel
    // ends the server.
    let is_said = said.contains("Nothing more can be made durable there");
    assert!(is_said || said.contains("signal 7"), "{said}");
    drop(server);
    disk.mount_again();

    let server = world.start();
    // The last update may have been made durable without being acknowledged.
    let found = sum(&server);
    let (count, k) = sums[rounds].split_once('\t').unwrap();
    let [count, k]: [u64; 2] = [count, k].map(|n| n.parse().unwrap());
    let one_more = format!("{count}\t{}", k + count);
    assert!(
        found == sums[rounds] || found == one_more,
        "{found}: {sums:?}"
    );
    sound(&server, "stock.s");
    server.stop().unwrap();
    world.flush().ok();
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), found);
    server.stop().unwrap();
}

/// InnoDB takes a page that it cannot read for damaged: purges and updates pass it over, its log
/// makes that durable, and an index lacks rows from then on.
///
/// Promise (flash-run): A server whose flash gives nothing any more ends before InnoDB passes a
/// page over and its log makes that durable.
#[test]
fn a_server_whose_flash_is_gone_ends_before_it_skips_a_page() {
    const WRITERS: u64 = 3;
    let Some(mut world) = World::new() else {
        return;
    };
    let beside = tempfile::tempdir_in(world.sandbox.path()).unwrap();
    let Some(mut disk) = Disk::make(beside.path(), "xfs") else {
        return;
    };
    let lane_there = make_flash_in(&mut world, &disk.at).with_extension("lane");
    move_behind_a_link(&lane_there, &world.launch.dir.join("lane"));
    disk.sync();
    let mut server = world.start();
    server
        .sql(
            "CREATE DATABASE stock; CREATE TABLE stock.i (id INT PRIMARY KEY, v INT, p VARCHAR(200), KEY (v), KEY (p)) \
             SELECT seq AS id, 0 AS v, REPEAT(MD5(seq), 6) AS p FROM stock.seq_1_to_9000",
            "",
        )
        .unwrap();
    let socket = server.socket().to_owned();
    let count = AtomicU64::new(0);
    // Each changes rows of its own: how often each row was, as far as that was acknowledged.
    let change = |writer: u64| {
        let mut connection = Connection::connect(&socket).unwrap();
        let mut acknowledged = BTreeMap::new();
        for turn in 0.. {
            let id = 1 + writer + WRITERS * (turn * 7919 % (9000 / WRITERS));
            let v = acknowledged.get(&id).map_or(1, |v| v + 1);
            let row = format!("REPLACE INTO stock.i VALUES ({id}, {v}, REPEAT(MD5({turn}), 6))");
            if connection.query(&row).is_err() {
                break;
            }
            acknowledged.insert(id, v);
            count.fetch_add(1, Relaxed);
        }
        acknowledged
    };
    let changed = thread::scope(|scope| {
        let change = &change;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || change(writer)))
            .collect();
        let begun = Instant::now();
        let has_written = || count.load(Relaxed) > 150 && begun.elapsed().as_secs() >= 4;
        while !has_written() && begun.elapsed().as_secs() < 120 {
            thread::sleep(Duration::from_millis(20));
        }
        disk.cut();
        let _ = server.wait();
        let joined = writers.into_iter().map(|writer| writer.join().unwrap());
        joined.flatten().collect::<BTreeMap<u64, u64>>()
    });
    let said = server.output();
    assert!(
        said.contains("The file itself has an older one, so this process ends"),
        "{said}"
    );
    assert!(changed.len() > 100, "the writers hardly wrote");
    drop(server);
    disk.mount_again();

    let server = world.start();
    sound(&server, "stock.i");
    let found = server
        .sql("SELECT id, v FROM stock.i WHERE v > 0", "")
        .unwrap();
    let rows = found.lines().map(|row| row.split_once('\t').unwrap());
    let found: BTreeMap<u64, u64> = rows
        .map(|(id, v)| (id.parse().unwrap(), v.parse().unwrap()))
        .collect();
    for (id, v) in changed {
        let there = found.get(&id).copied().unwrap_or(0);
        // The last one may have been made durable without being acknowledged.
        assert!((v..=v + 1).contains(&there), "row {id}: {there}, not {v}");
    }
    server.stop().unwrap();
}

/// Of flash on another file system, which is in memory here.
#[test]
fn metadata_on_the_file_system_of_the_data_is_reported() {
    let Some(mut world) = World::new() else {
        return;
    };
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let lane_there = make_flash_in(&mut world, memory.path()).with_extension("lane");
    move_behind_a_link(&lane_there, &world.launch.dir.join("lane"));
    let server = world.start();
    let said = server.output();
    let told = format!("{}, is on the same file system", lane_there.display());
    assert!(said.contains(&told), "{said}");
    assert!(!said.contains("nothing gets faster"), "{said}");
    server.stop().unwrap();
}

#[test]
fn flash_on_another_file_system_of_the_data_s_disk_is_told() {
    let Some(mut world) = World::new() else {
        return;
    };
    let beside = tempfile::tempdir_in(world.sandbox.path()).unwrap();
    let Some(disk) = Disk::make(beside.path(), "ext4") else {
        return;
    };
    make_flash_in(&mut world, &disk.at);
    let server = world.start();
    let data = fs::metadata(world.sandbox.path()).unwrap().dev();
    let told = match forebay_pool::disks::whole(data).first() {
        Some(disk) => format!("on the same disk ({disk}) as the data"),
        // No disk is known below this file system.
        None => String::new(),
    };
    let said = server.output();
    assert!(said.contains(&told), "{said}");
    server.stop().unwrap();
}

/// The flash file has holes, as one that was copied has, and its file system has no room to fill
/// them.
///
/// Promise (flash-run): The cache goes around flash whose file system is full, and uses it again
/// when there is room.
#[test]
fn flash_on_a_full_file_system_is_bypassed_until_there_is_room() {
    let Some(mut world) = World::new() else {
        return;
    };
    let beside = tempfile::tempdir_in(world.sandbox.path()).unwrap();
    let Some(disk) = Disk::make(beside.path(), "xfs") else {
        return;
    };
    let line = "run --flash flash --flash-size 14MiB -- mariadbd --no-defaults --help";
    world.forebay(line).ok();
    let there = disk.at.join("flash");
    // The headers and the checkpoints; of the slots nothing is written yet.
    let bytes = fs::read(world.flash()).unwrap();
    let metadata = 1 << 20;
    assert!(bytes[metadata..].iter().all(|&byte| byte == 0));
    fs::write(&there, &bytes[..metadata]).unwrap();
    let sparse = fs::OpenOptions::new().write(true).open(&there).unwrap();
    sparse.set_len(bytes.len() as u64).unwrap();
    sparse.sync_all().unwrap();
    let [lane, lane_there] = [
        world.launch.dir.join("flash.lane"),
        disk.at.join("flash.lane"),
    ];
    fs::copy(&lane, &lane_there).unwrap();
    fs::remove_file(&lane).unwrap();
    fs::remove_file(world.flash()).unwrap();
    // As it was when there was room.
    let status = disk.at.join("flash.status");
    fs::write(&status, [b' '; 4096]).unwrap();
    let filler = disk.at.join("filler");
    for piece in [1 << 20, 4096] {
        let mut full = fs::OpenOptions::new();
        let mut full = full.create(true).append(true).open(&filler).unwrap();
        while full
            .write_all(&vec![7; piece])
            .and_then(|()| full.sync_data())
            .is_ok()
        {}
    }
    symlink(&there, world.flash()).unwrap();
    world.launch.wrapper = world.wrapper(&[]);

    let mut server = world.start();
    fill(&server);
    world.says(&server, "are written to their files at once");
    assert!(
        server.output().contains("No space left"),
        "{}",
        server.output()
    );
    let says_around = || {
        thread::sleep(Duration::from_millis(100));
        let said = serde_json::from_slice::<serde_json::Value>(&fs::read(&status).unwrap());
        said.is_ok_and(|said| said["around_pages"].as_u64() > Some(0))
    };
    assert!(
        (0..300).any(|_| says_around()),
        "the status is not written over"
    );
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    let before = sum(&server);
    Strike::Both.strike(server.server(), server.outer(), || {});
    let _ = server.wait();
    let server = world.start();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    world.says(&server, "are written to their files at once");
    fs::remove_file(&filler).unwrap();
    // It is tried again some seconds after it failed last, with pages that are written then.
    let is_used = || {
        server
            .output()
            .contains("the flash cache takes pages again")
    };
    for _ in 0..60 {
        if is_used() {
            break;
        }
        server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
        thread::sleep(Duration::from_millis(500));
    }
    assert!(is_used(), "{}", server.output());
    sound(&server, "stock.s");
    server.stop().unwrap();
}
