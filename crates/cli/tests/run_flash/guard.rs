//! The cache goes with one state of one data directory: no server comes up without the pages that
//! are only in the cache, and a cache that is of other data is refused and kept.

use crate::world::{World, fill, sound, sum};
use forebay_bench::mariadb::server::copy;
use std::{fs, os::unix::fs::FileExt};

/// How one begins anew after a backup was restored.
const RESTORED: &str = "forebay.guard and forebay.pages in the data directory";

/// Promise (flash-run): A server that is started without Forebay does not come up while the cache
/// may have newer pages, and `forebay doctor` and `forebay recover --for` say so and fail.
/// Promise (flash-run): After `forebay flash flush` the server comes up without Forebay and has
/// everything, and the cache hides nothing that it writes then.
/// Promise: as `a_units_recovery_finds_its_directorys_pool_and_lifts_guards`.
#[test]
fn a_server_without_forebay_comes_up_only_after_a_flush() {
    let Some((world, server)) = World::filled() else {
        return;
    };
    let status = world.forebay("status").ok().text();
    assert!(status.contains("flash cache"), "{status}");
    let said = server.stop().unwrap();
    assert!(
        said.contains("before the server is started without"),
        "{said}"
    );

    let error = world.plain().map(drop).unwrap_err().to_string();
    assert!(error.contains("ibdata1"), "{error}");
    // By its name, or by that of a directory above it.
    for line in [
        "doctor data",
        "doctor .",
        "recover --for data",
        "recover --for .",
    ] {
        let asked = world.forebay(line);
        assert_eq!(asked.code, Some(1), "{line}: {}", asked.stderr);
        for remedy in ["forebay flash flush --flash", "forebay run --flash"] {
            assert!(asked.text().contains(remedy), "{line}: {}", asked.text());
        }
    }

    let flushed = world.flush().ok().text();
    assert!(
        flushed.contains("may be started without Forebay, with innodb_doublewrite on"),
        "{flushed}"
    );
    assert!(world.forebay("doctor data").ok().text().contains("no pool"));
    world.forebay("recover --for .").ok();
    let server = world.plain().unwrap();
    sound(&server, "stock.s");
    server.sql("UPDATE stock.s SET k = -1", "").unwrap();
    server.stop().unwrap();
    // Nothing of what the cache had then is believed now.
    let server = world.start();
    let rows = server.sql("SELECT COUNT(*) FROM stock.s WHERE k = -1", "");
    assert_eq!(rows.unwrap().trim(), "20000");
    sound(&server, "stock.s");
    server.stop().unwrap();
    world.flush().ok();
    assert!(world.flush().ok().text().contains(": 0 pages"));
}

/// Promise (flash-run): A cache is refused with another data directory, a copy, a directory that
/// was written to without it, or a second server, and both are kept.
#[test]
fn a_cache_that_does_not_go_with_the_data_is_refused_and_kept() {
    let Some((world, server)) = World::filled() else {
        return;
    };
    // Another server with the same cache.
    let Some(mut other) = World::new() else {
        return;
    };
    other.launch.wrapper = world.launch.wrapper.clone();
    let said = other.refused();
    assert!(said.contains("in use by another process"), "{said}");
    let busy = world.flush();
    busy.fails(1, &["in use by another process"]);
    server.stop().unwrap();

    // Another data directory.
    let said = other.refused();
    for words in ["pages of another data directory", RESTORED] {
        assert!(said.contains(words), "{said}");
    }
    // A copy that was made while the pages were in the cache.
    let data = other.launch.data();
    fs::remove_dir_all(&data).unwrap();
    copy(&world.launch.data(), &data).unwrap();
    let said = other.refused();
    assert!(said.contains("it is a copy"), "{said}");
    for line in ["doctor data", "recover --lift --for data"] {
        let asked = other.forebay(line);
        assert_eq!(asked.code, Some(1), "{line}: {}", asked.stderr);
        assert!(asked.text().contains("a copy"), "{line}: {}", asked.text());
    }
    // The data directory moved, and with its name.
    let (here, there) = (world.launch.data(), world.sandbox.file("moved"));
    fs::rename(&here, &there).unwrap();
    world.flush().fails(1, &["is not there", "--data"]);
    let at_copy = format!("flash flush --flash flash --data {}", data.display());
    let words = ["a copy of it", "bring the original back", RESTORED];
    let said = world.forebay(&at_copy).fails(1, &words).stderr;
    assert!(!said.contains("name it with --data"), "{said}");
    let words = ["is a copy of a guarded one", "Bring the original back"];
    let give_up = other.forebay("flash flush --cache-is-lost --data data");
    give_up.fails(1, &words);
    world.forebay("flash flush --flash flash --data moved").ok();
    fs::rename(&there, &here).unwrap();
    let server = world.plain().unwrap();
    sound(&server, "stock.s");
    server.stop().unwrap();
}

/// Promise: as `a_cache_that_does_not_go_with_the_data_is_refused_and_kept`.
#[test]
fn a_tablespace_written_to_without_the_cache_is_refused() {
    let Some(world) = World::new() else { return };
    let before = fs::read(world.launch.data().join("ibdata1")).unwrap();
    let server = world.start();
    fill(&server);
    server.stop().unwrap();
    let path = world.launch.data().join("ibdata1");
    let tablespace = fs::OpenOptions::new().write(true).open(path).unwrap();
    let page: Vec<u8> = before[..16 << 10].to_vec();
    tablespace.write_all_at(&page, 0).unwrap();
    let said = world.refused();
    let words = ["was written to without the flash cache", RESTORED];
    for words in words {
        assert!(said.contains(words), "{said}");
    }
    world.flush().fails(1, &words);
}

/// Promise (flash-run): A copy of both files of a cache is as good as the cache.
#[test]
fn a_copy_of_the_cache_on_another_disk_is_flushed_as_the_cache() {
    let Some((world, server)) = World::filled() else {
        return;
    };
    let before = sum(&server);
    server.stop().unwrap();
    for (from, to) in [("flash", "rescued"), ("flash.lane", "rescued.lane")] {
        fs::copy(world.launch.dir.join(from), world.launch.dir.join(to)).unwrap();
    }
    world.forebay("flash flush --flash rescued").ok();
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
    // The one that was left behind is of another state of the data by now.
    let said = world.refused();
    assert!(
        said.contains("was written to without the flash cache"),
        "{said}"
    );
}

#[test]
fn a_guard_is_beside_what_a_system_tablespace_is_a_link_to() {
    let Some(world) = World::new() else { return };
    let [data, system] = [world.launch.data(), world.launch.dir.join("system")];
    fs::create_dir(&system).unwrap();
    fs::rename(data.join("ibdata1"), system.join("ibdata1")).unwrap();
    std::os::unix::fs::symlink(system.join("ibdata1"), data.join("ibdata1")).unwrap();
    let server = world.start();
    fill(&server);
    server.stop().unwrap();
    let doctor = world.forebay("doctor data");
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.text().contains("forebay flash flush --flash"));
    // Given up by the name of the data directory, once it is certain that the cache is not there.
    let give_up = || world.forebay("flash flush --cache-is-lost --data data");
    fs::write(world.flash(), vec![7; 1 << 20]).unwrap();
    let words = ["may still be there", "move it and its .lane away"];
    give_up().fails(1, &words);
    fs::remove_file(world.flash()).unwrap();
    give_up().ok();
    assert!(!system.join("forebay.guard").exists());
    assert_eq!(world.forebay("doctor data").code, Some(0));
}
