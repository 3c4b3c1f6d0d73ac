//! Administrators' mistakes with caches and data directories: they copy them, put an older one
//! back, move a table's file, use one cache for two servers. Newer pages are found, or missed; no
//! older one is served or written in their place without a word.

use crate::world::{World, fill, has_flushed, sound, sum};
use std::fs;

/// Copies the cache, with its metadata, to other names in its directory.
fn copy(world: &World, from: &str, to: &str) {
    for ending in ["", ".lane"] {
        let [from, to] = [from, to].map(|name| world.launch.dir.join(format!("{name}{ending}")));
        fs::copy(from, to).unwrap();
    }
}

fn change(world: &World) -> String {
    let server = world.start();
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    let sum = sum(&server);
    server.stop().unwrap();
    sum
}

/// Promise (flash-run): The server and a flush refuse a cache, or a data directory, that is older
/// than the other.
#[test]
fn an_older_copy_of_the_cache_is_refused_by_server_and_flush() {
    let Some((world, server)) = World::filled() else {
        return;
    };
    server.stop().unwrap();
    copy(&world, "flash", "older");
    let after = change(&world);
    copy(&world, "flash", "newer");
    copy(&world, "older", "flash");
    let said = world.refused();
    assert!(said.contains("not of the same time"), "{said}");
    world.flush().fails(1, &["not of the same time"]);
    copy(&world, "newer", "flash");
    let server = world.start();
    assert_eq!(sum(&server), after);
    has_flushed(&world, server, &after);
    // The guard that is laid now has the same cache's name.
    let after = change(&world);
    copy(&world, "flash", "newer");
    copy(&world, "older", "flash");
    world.flush().fails(1, &["not of the same time"]);
    copy(&world, "newer", "flash");
    let server = world.start();
    has_flushed(&world, server, &after);
}

/// Promise: as `an_older_copy_of_the_cache_is_refused_by_server_and_flush`.
#[test]
fn an_older_data_directory_is_refused_by_a_newer_cache() {
    let Some((world, server)) = World::filled() else {
        return;
    };
    server.stop().unwrap();
    // As a snapshot of its file system has it: the files are the same ones.
    let older = ["forebay.guard", "ibdata1"].map(|name| {
        let path = world.launch.data().join(name);
        (fs::read(&path).unwrap(), path)
    });
    let after = change(&world);
    let newer = older.each_ref().map(|(_, path)| fs::read(path).unwrap());
    for (bytes, path) in &older {
        fs::write(path, bytes).unwrap();
    }
    let said = world.refused();
    assert!(said.contains("not of the same time"), "{said}");
    for (bytes, (_, path)) in newer.iter().zip(&older) {
        fs::write(path, bytes).unwrap();
    }
    let server = world.start();
    has_flushed(&world, server, &after);
}

/// Promise (flash-run): A cache that guards one data directory is not taken for another.
#[test]
fn a_cache_that_guards_one_data_directory_is_refused_in_another() {
    let Some((world, server)) = World::filled() else {
        return;
    };
    server.stop().unwrap();
    // Nothing in it is newer than the files, and its guard stays.
    let set = |policy| world.forebay(&format!("flash set --flash flash --policy {policy}"));
    set("through").ok();
    let server = world.start();
    // Pages go home with a sync, and a server that has nothing to do makes none.
    server
        .sql(
            "UPDATE stock.s SET k = k + 1; FLUSH TABLES stock.s FOR EXPORT; UNLOCK TABLES",
            "",
        )
        .unwrap();
    let before = sum(&server);
    world.until("everything is home", |status| status["dirty_pages"] == 0);
    server.stop().unwrap();
    set("back").ok();
    let Some(mut other) = World::new() else {
        return;
    };
    other.launch.wrapper = world.launch.wrapper.clone();
    let said = other.refused();
    for words in ["Flush it first", "forebay flash flush --flash"] {
        assert!(said.contains(words), "{said}");
    }
    world.flush().ok();
    let server = other.start();
    fill(&server);
    server.stop().unwrap();
    // Now it is the other's, and has newer pages of that.
    let said = world.refused();
    assert!(said.contains("pages of another data directory"), "{said}");
    other.flush().fails(1, &["flash"]);
    world.flush().ok();
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
}

/// Promise (flash-run): A renamed page file is found wherever it is.
#[test]
fn a_renamed_table_is_found_though_ibdata1_is_elsewhere() {
    let Some(mut world) = World::new() else {
        return;
    };
    let system = world.launch.dir.join("system");
    fs::create_dir(&system).unwrap();
    let moved = |name: &str| fs::rename(world.launch.data().join(name), system.join(name));
    moved("ibdata1").unwrap();
    let home = format!("--innodb-data-home-dir={}", system.display());
    world.launch.options.push(home);
    let server = world.start();
    fill(&server);
    server
        .sql(
            "CREATE DATABASE other; RENAME TABLE stock.s TO other.s; UPDATE other.s SET k = k + 1; \
             RENAME TABLE other.s TO stock.s; UPDATE stock.s SET k = k + 1; CREATE DATABASE third; RENAME TABLE stock.s TO third.s; \
             UPDATE third.s SET k = k + 1; DROP DATABASE stock",
            "",
        )
        .unwrap();
    let rows = "SELECT COUNT(*), SUM(k) FROM third.s";
    let before = server.sql(rows, "").unwrap();
    server.stop().unwrap();
    let server = world.start();
    assert_eq!(server.sql(rows, "").unwrap(), before);
    sound(&server, "third.s");
    server.stop().unwrap();
    world.flush().ok();
    let server = world.plain().unwrap();
    assert_eq!(server.sql(rows, "").unwrap(), before);
    sound(&server, "third.s");
    server.stop().unwrap();
}

/// Promise (flash-run): A start is refused while a file with newer pages is not found and no server
/// removed it, until the file is back or given up.
#[test]
fn a_table_replaced_by_a_copy_is_missed_until_back_or_given_up() {
    let Some((world, server)) = World::filled() else {
        return;
    };
    server
        .sql(
            "CREATE TABLE stock.t ENGINE=InnoDB SELECT * FROM stock.s",
            "",
        )
        .unwrap();
    let before = sum(&server);
    server.stop().unwrap();
    let [file, kept] = ["t.ibd", "kept"].map(|name| world.launch.data().join("stock").join(name));
    fs::rename(&file, &kept).unwrap();
    fs::copy(&kept, &file).unwrap();
    let said = world.refused();
    for words in ["is another file now", "--give-up"] {
        assert!(said.contains(words), "{said}");
    }
    world.flush().fails(1, &["is another file now"]);
    // Not lost, and not given up as long as it is there.
    fs::rename(&kept, &file).unwrap();
    let there = format!("flash flush --flash flash --give-up {}", file.display());
    world.forebay(&there).fails(1, &["nothing to give up"]);
    let server = world.start();
    sound(&server, "stock.t");
    server.stop().unwrap();
    fs::remove_file(&file).unwrap();
    world.flush().fails(1, &["is not there"]);
    world.forebay(&there).ok();
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), before);
    server.stop().unwrap();
}

#[test]
fn a_file_with_the_caches_name_and_another_ending_is_left_alone() {
    let Some(world) = World::new() else { return };
    let beside =
        ["new", "tmp", "old"].map(|ending| world.launch.dir.join(format!("flash.{ending}")));
    for path in &beside {
        fs::write(path, "mine").unwrap();
    }
    let server = world.start();
    fill(&server);
    world.until("it said how it is", |status| status["enqueued"] != 0);
    server.stop().unwrap();
    world
        .forebay("flash set --flash flash --policy around")
        .ok();
    world.flush().ok();
    for path in &beside {
        assert_eq!(fs::read(path).unwrap(), b"mine", "{}", path.display());
    }
}

/// Promise (flash-run): A copy of a cache is not flushed into the files of a server that runs.
#[test]
fn a_copied_cache_is_not_flushed_into_a_running_servers_files() {
    let Some((world, mut server)) = World::filled() else {
        return;
    };
    copy(&world, "flash", "copy");
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    let after = sum(&server);
    world
        .forebay("flash flush --flash copy")
        .fails(1, &["a server runs with"]);
    // Nor does another server begin with it. Aria's log has a lock of its own, which is not to come
    // before.
    let data = world.launch.data();
    let second = format!(
        "run --no-pool --flash copy -- mariadbd --no-defaults --user=root --datadir={} --aria-log-dir-path={} --skip-networking --socket=second",
        data.display(),
        world.sandbox.path().display()
    );
    world.forebay(&second).fails(1, &["a server runs with"]);
    assert!(data.join("forebay.guard").exists());
    server.server().signal(rustix::process::Signal::KILL);
    let _ = server.wait();
    let server = world.start();
    has_flushed(&world, server, &after);
}

/// Promise (flash-run): A copy of a cache that was made while its server ran is refused once that
/// server has ended.
#[test]
fn a_cache_copied_while_its_server_ran_is_refused_after_its_end() {
    let Some((world, server)) = World::filled() else {
        return;
    };
    copy(&world, "flash", "older");
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    let after = sum(&server);
    server.stop().unwrap();
    world
        .forebay("flash flush --flash older")
        .fails(1, &["not of the same time"]);
    copy(&world, "flash", "newer");
    copy(&world, "older", "flash");
    let said = world.refused();
    assert!(said.contains("not of the same time"), "{said}");
    copy(&world, "newer", "flash");
    let server = world.start();
    has_flushed(&world, server, &after);
}

#[test]
fn a_moved_cache_is_warm_and_its_left_original_is_refused() {
    let Some((mut world, server)) = World::filled() else {
        return;
    };
    server.stop().unwrap();
    fs::create_dir(world.launch.dir.join("other")).unwrap();
    copy(&world, "flash", "other/flash");
    let left = world.launch.wrapper.clone();
    let word = left.iter().position(|word| *word == world.flash());
    let there = world.launch.dir.join("other/flash");
    world.launch.wrapper[word.unwrap()] = there.into();
    let server = world.start();
    let said = server.output();
    assert!(!said.contains("flash: 0 pages"), "not warm: {said}");
    server.sql("UPDATE stock.s SET k = k + 1", "").unwrap();
    let after = sum(&server);
    server.stop().unwrap();
    world.flush().fails(1, &["not of the same time"]);
    let there = std::mem::replace(&mut world.launch.wrapper, left);
    let said = world.refused();
    assert!(said.contains("not of the same time"), "{said}");
    world.launch.wrapper = there;
    let server = world.start();
    assert_eq!(sum(&server), after);
    server.stop().unwrap();
    world.forebay("flash flush --flash other/flash").ok();
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), after);
    server.stop().unwrap();
}
