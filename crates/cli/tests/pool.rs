//! `forebay pool`: create, status, check, and pools that are not whole.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::Sandbox;
use forebay_pool::{ClaimOptions, PoolOptions};
use std::{fs, io::IoSlice};
use uuid::Uuid;

/// A pool `p` with a lane that holds `records` records; their first is returned as an offset in the
/// file.
fn pool_with_records(sandbox: &Sandbox, records: usize) {
    sandbox.pool();
    let pool = PoolOptions::new().open(sandbox.file("p")).unwrap();
    let claim = ClaimOptions::new().label("the tests' lane");
    let (lane, recovered) = pool.claim(Uuid::new_v4(), &claim).unwrap();
    drop(recovered);
    for _ in 0..records {
        lane.append(1, &[IoSlice::new(&[0xAB; 1000])]).unwrap();
    }
}

/// Where in the file the payload of the record number `index` lies.
fn payload_at(sandbox: &Sandbox, index: usize) -> usize {
    let bytes = fs::read(sandbox.file("p")).unwrap();
    let is_start = |at: &usize| bytes[*at..].starts_with(&[0xAB; 1000]) && bytes[*at - 1] != 0xAB;
    (1..bytes.len() - 1000).filter(is_start).nth(index).unwrap()
}

#[test]
fn a_pool_is_created_and_says_what_it_survives() {
    let sandbox = Sandbox::new();
    let created = sandbox.json("pool create p --emulated --size 64MiB --segment-size 8MiB --json");
    assert_eq!(created["segment_bytes"], 8 << 20);
    assert_eq!(created["survives_power_cut"], false);
    let status = sandbox.run("pool status p").ok().text();
    assert!(status.contains("process crash only"), "{status}");
    assert!(status.contains("7 of 8 MiB, 7 free"), "{status}");
    let status = sandbox.json("pool status p --json");
    assert_eq!(status, created);
}

#[test]
fn a_lane_is_shown_with_its_owner_and_label() {
    let sandbox = Sandbox::new();
    pool_with_records(&sandbox, 3);
    let status = sandbox.json("pool status p --json");
    let owner = &status["owners"][0];
    assert_eq!(
        (&owner["label"], &owner["in_use"]),
        (&"the tests' lane".into(), &false.into())
    );
    let check = sandbox.json("pool check p --json");
    assert_eq!(check["whole"], true);
    assert_eq!(check["lanes"][0]["records"], 3);
    let text = sandbox.run("pool check p").ok().text();
    assert!(
        text.contains("3 records with 3000 bytes") && text.contains("no damage"),
        "{text}"
    );
}

#[test]
fn nothing_that_exists_is_made_a_pool() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let before = sandbox.contents("p");
    sandbox
        .run("pool create p --emulated")
        .fails(1, &["exists already", "a pool", "nothing was changed"]);
    assert_eq!(sandbox.contents("p"), before);
    fs::write(sandbox.file("notes"), "mine").unwrap();
    sandbox
        .run("pool create notes --emulated")
        .fails(1, &["exists already", "no pool"]);
    assert_eq!(fs::read(sandbox.file("notes")).unwrap(), b"mine");
}

#[test]
fn without_persistent_memory_emulation_must_be_asked_for() {
    let sandbox = Sandbox::new();
    sandbox
        .run("pool create p --size 8MiB --segment-size 1MiB")
        .fails(1, &["not on persistent memory", "--emulated", "-o dax"]);
    assert!(!sandbox.file("p").exists());
}

#[test]
fn commands_that_errors_name_make_a_pool() {
    let sandbox = Sandbox::on_disk();
    sandbox
        .run("pool create nowhere/p")
        .fails(1, &["the directory nowhere is not there", "--disk"]);
    sandbox
        .run("run --pool nowhere/p --absorb x -- true")
        .fails(
            1,
            &["there is no pool", "The directory nowhere is not there"],
        );
    sandbox
        .run("pool create p")
        .fails(1, &["on a disk (--disk)"]);
    let ran = sandbox.run("run --pool p --absorb x -- true");
    let ran = ran.fails(1, &["there is no pool p"]);
    // A file system that is on no device, as a container has one.
    let Some((_, named)) = ran.stderr.split_once("Make it on this disk: forebay ") else {
        return;
    };
    let (line, _) = named.split_once(". ").unwrap();
    assert_eq!(line, "pool create p --disk --size 128MiB");
    sandbox.run(line).ok();
    sandbox.run("run --pool p --absorb x -- true").ok();
}

#[test]
fn sizes_that_make_no_pool_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.refuses(&[
        (
            "pool create p --emulated --size 1MiB --segment-size 8MiB",
            1,
            &["no segment"],
        ),
        (
            "pool create p --emulated --segment-size 5000",
            1,
            &["multiple of 4 KiB"],
        ),
        ("pool create p --emulated --size many", 2, &["not a size"]),
        ("pool create p --emulated --size 0", 2, &["more than 0"]),
    ]);
    assert!(!sandbox.file("p").exists());
}

#[test]
fn a_pool_too_small_for_a_lane_is_refused_with_the_size_needed() {
    let sandbox = Sandbox::new();
    for (sizes, works) in [
        ("--size 16MiB", "--size 17MiB"),
        ("--size 17KiB --segment-size 4KiB --lanes 1", "--size 20KiB"),
        ("--size 5MiB --segment-size 4MiB", "--size 9MiB"),
    ] {
        sandbox
            .run(&format!("pool create p --emulated {sizes}"))
            .fails(1, &["two segments", works]);
        assert!(!sandbox.file("p").exists());
        // Of two sizes the later one counts.
        let larger = sizes
            .split_once(" --seg")
            .map_or(String::new(), |(_, s)| format!("--seg{s}"));
        sandbox
            .run(&format!("pool create p --emulated {larger} {works}"))
            .ok();
        std::fs::remove_file(sandbox.file("p")).unwrap();
    }
}

#[test]
fn what_is_no_pool_is_refused() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.file("empty"), "").unwrap();
    fs::write(sandbox.file("text"), "x".repeat(100_000)).unwrap();
    for command in ["status", "check"] {
        sandbox.refuses(&[
            (
                &format!("pool {command} absent"),
                1,
                &["absent", "No such file"],
            ),
            (
                &format!("pool {command} empty"),
                1,
                &["empty file", "pool create"],
            ),
            (&format!("pool {command} text"), 1, &["not a Forebay pool"]),
            (&format!("pool {command} ."), 1, &["error"]),
        ]);
    }
}

#[test]
fn one_torn_superblock_is_repaired_by_the_other_and_two_are_not() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    for copy in [0, 4096] {
        sandbox.edit("p", |bytes| bytes[copy + 40..copy + 100].fill(0xEE));
        let text = sandbox.run("pool status p").ok().text();
        assert!(text.contains("repaired"), "{text}");
        assert!(
            !sandbox
                .run("pool status p")
                .ok()
                .text()
                .contains("repaired")
        );
    }
    sandbox.edit("p", |bytes| {
        bytes[40..100].fill(0xEE);
        bytes[4096 + 40..4096 + 100].fill(0xEE);
    });
    let before = sandbox.contents("p");
    sandbox.run("pool check p").fails(
        1,
        &["both superblocks are unreadable", "nothing was changed"],
    );
    assert_eq!(sandbox.contents("p"), before);
}

#[test]
fn a_pool_of_another_version_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    sandbox.edit("p", |bytes| {
        for copy in [0, 4096] {
            bytes[copy + 8..copy + 12].copy_from_slice(&7u32.to_le_bytes());
            bytes[copy + 12..copy + 16].fill(0);
            let crc = forebay_pool::crc32c([&bytes[copy..copy + 128]]);
            bytes[copy + 12..copy + 16].copy_from_slice(&crc.to_le_bytes());
        }
    });
    sandbox
        .run("pool status p")
        .fails(1, &["version 7", "knows version 1", "newer"]);
}

#[test]
fn a_pool_that_is_smaller_than_it_states_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    fs::File::options()
        .write(true)
        .open(sandbox.file("p"))
        .unwrap()
        .set_len(3 << 20)
        .unwrap();
    sandbox
        .run("pool status p")
        .fails(1, &["Restore the file", "nothing was changed"]);
}

#[test]
fn a_flipped_bit_in_a_record_is_damage_and_costs_nothing_else() {
    let sandbox = Sandbox::new();
    pool_with_records(&sandbox, 10);
    let at = payload_at(&sandbox, 4);
    sandbox.edit("p", |bytes| bytes[at + 500] ^= 1);
    let before = sandbox.contents("p");
    let ran = sandbox.run("pool check p").fails(1, &[]);
    assert!(
        ran.text().contains("DAMAGED") && ran.text().contains("salvage"),
        "{}",
        ran.text()
    );
    let check = sandbox.run("pool check p --json").fails(1, &[]).json();
    assert_eq!(check["whole"], false);
    assert_eq!(sandbox.contents("p"), before);
}

#[test]
fn flipped_bits_in_the_lane_table_are_damage() {
    let sandbox = Sandbox::new();
    pool_with_records(&sandbox, 10);
    // One of a lane's two states may be lost; without both, its owner is not known.
    sandbox.edit("p", |bytes| bytes[8192 + 20] ^= 1);
    sandbox.run("pool check p").ok();
    sandbox.edit("p", |bytes| bytes[8192 + 64 + 20] ^= 1);
    let before = sandbox.contents("p");
    let ran = sandbox.run("pool check p").fails(1, &[]);
    assert!(ran.text().contains("DAMAGED"), "{}", ran.text());
    let ran = sandbox.run("pool status p").fails(1, &[]);
    assert!(ran.text().contains("DAMAGED"), "{}", ran.text());
    sandbox
        .run("store put --dir s --pool p k v")
        .fails(1, &["damaged", "pool check"]);
    assert_eq!(sandbox.contents("p"), before);
}

#[test]
fn a_pool_for_a_disk_is_not_made_in_memory() {
    let sandbox = Sandbox::new();
    let path = std::path::PathBuf::from(format!("/dev/shm/forebay-{}", std::process::id()));
    sandbox
        .run(&format!("pool create {} --disk", path.display()))
        .fails(1, &["lies in memory (tmpfs)", "--emulated"]);
    assert!(!path.exists());
}

#[test]
fn a_pool_with_holes_works_and_a_run_says_how_to_fill_them() {
    let sandbox = Sandbox::on_disk();
    sandbox.run("pool create p --disk --size 32MiB").ok();
    let ran = sandbox.run("run --pool p --absorb x -- true").ok();
    assert!(!ran.stderr.contains("holes"), "{}", ran.stderr);
    let punched = std::process::Command::new("fallocate")
        .args(["--punch-hole", "--offset", "8MiB", "--length", "1MiB"])
        .arg(sandbox.file("p"))
        .status();
    assert!(punched.unwrap().success());
    let ran = sandbox.run("run --pool p --absorb x -- true").ok();
    // 1 MiB, or 1020 KiB where the file system needs a block of its own for where the file lies.
    let said = ["1 MiB", "1020 KiB"].map(|holes| format!("has holes of {holes}:"));
    assert!(
        said.iter().any(|said| ran.stderr.contains(said)),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("fallocate -l 33554432"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_run_without_a_pool_says_what_one_on_disk_would_bring() {
    let sandbox = Sandbox::on_disk();
    sandbox
        .run("run --absorb x -- true")
        .fails(2, &["which pool?", "There is no pool on persistent memory"]);
    let report = sandbox.json("doctor --dir . --json");
    // A file system that is on no device, as a container has one.
    if report["disks"]["sync_us"].is_null() {
        return;
    }
    let places = report["disks"]["places"].as_array().unwrap();
    assert!(
        places.iter().any(|place| place["same_disk"] == true),
        "{report}"
    );
}
