//! Places for a pool, by `forebay doctor`: memory is no disk whatever is above it, and only places
//! that were named are written to.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    disk::{Loop, Mounted, run},
};
use std::{fs, path::Path};

const IMAGE_BYTES: u64 = 300 << 20;

/// A file system on a loop device, over a file in `dir`.
fn mounted(dir: &Path, at: &Path, kind: &str) -> Option<(Loop, Mounted)> {
    let image = dir.join("image");
    fs::File::create(&image)
        .unwrap()
        .set_len(IMAGE_BYTES)
        .unwrap();
    let made = run(&format!("mkfs.{kind}"), &["-q", image.to_str().unwrap()]);
    if let Err(why) = made {
        println!("skipped: {why}");
        return None;
    }
    let device = Loop::of(&image, 512)?;
    let mounted = Mounted::at(&device.path, at);
    Some((device, mounted))
}

fn place<'a>(places: &'a serde_json::Value, at: &Path) -> Option<&'a serde_json::Value> {
    let at = at.to_str().unwrap();
    places
        .as_array()
        .unwrap()
        .iter()
        .find(|place| place["directory"] == at)
}

#[test]
fn memory_under_a_loop_device_is_no_disk_for_a_pool() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let sandbox = Sandbox::on_disk();
    let at = sandbox.file("mounted");
    let Some((device, mounted)) = mounted(memory.path(), &at, "ext4") else {
        return;
    };
    let line = format!("pool create {}/p --disk --size 32MiB", at.display());
    sandbox.run(&line).fails(1, &["lies in memory (tmpfs)"]);
    assert!(!at.join("p").exists());
    let report = sandbox.json("doctor --dir mounted --json");
    let own = &report["disks"]["places"][0];
    assert_eq!(own["same_disk"], true, "{report}");
    assert_eq!(own["in_memory"], true, "{report}");
    let advice = report["advice"].to_string();
    assert!(!advice.contains("--disk"), "{advice}");
    assert!(advice.contains("lies in memory"), "{advice}");
    let report = sandbox.json("doctor --dir . --beside mounted --json");
    let beside = place(&report["disks"]["unmeasured"], Path::new("mounted"));
    assert_eq!(beside.unwrap()["in_memory"], true, "{report}");
    // The device itself, and one above it.
    drop(mounted);
    let again = Loop::of(Path::new(&device.path), 512).unwrap();
    for path in [&device.path, &again.path] {
        let line = format!("pool create {path} --size 32MiB --force");
        sandbox.run(&line).fails(1, &["lies in memory (tmpfs)"]);
    }
}

#[test]
fn what_holds_no_data_is_refused_with_what_was_found() {
    let sandbox = Sandbox::on_disk();
    fs::write(sandbox.file("file"), "").unwrap();
    for (at, said) in [
        ("nowhere", "No such file"),
        ("/proc", "proc"),
        ("file", "no directory"),
    ] {
        let ran = sandbox.run(&format!("doctor --dir {at}"));
        ran.fails(2, &[at, said, "give the directory"]);
    }
}

#[test]
fn full_or_read_only_disk_is_said_with_what_it_lacks() {
    let sandbox = Sandbox::on_disk();
    let at = sandbox.file("mounted");
    let Some((_device, _mounted)) = mounted(sandbox.path(), &at, "ext4") else {
        return;
    };
    let large = at.join("large");
    run("fallocate", &["-l", "200M", large.to_str().unwrap()]).unwrap();
    let said = sandbox.run("doctor --dir mounted").ok().text();
    assert!(said.contains("needs 256 MiB free"), "{said}");
    // No place on the data's own disk is another medium.
    assert!(!said.contains("on another medium"), "{said}");
    run("mount", &["-o", "remount,ro", at.to_str().unwrap()]).unwrap();
    let said = sandbox.run("doctor --dir mounted --beside .").ok().text();
    let beside = said.lines().find(|line| line.starts_with("- . "));
    assert!(
        beside.is_some_and(|line| line.contains("cannot be measured: Read-only")),
        "{said}"
    );
}

/// A directory of btrfs has another device's number than what is mounted.
#[test]
fn memory_under_a_subvolume_is_no_disk_either() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let sandbox = Sandbox::on_disk();
    let at = sandbox.file("mounted");
    let is_known = fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("btrfs"));
    if !is_known {
        println!("skipped: the kernel has no btrfs");
        return;
    }
    let Some((_device, _mounted)) = mounted(memory.path(), &at, "btrfs") else {
        return;
    };
    let below = at.join("below");
    run("btrfs", &["subvolume", "create", below.to_str().unwrap()]).unwrap();
    let line = format!("pool create {}/p --disk --size 32MiB", below.display());
    sandbox.run(&line).fails(1, &["lies in memory (tmpfs)"]);
    let line = format!("doctor --dir {} --json", below.display());
    let report = sandbox.json(&line);
    let own = &report["disks"]["places"][0];
    assert_eq!(
        (&own["same_disk"], &own["in_memory"]),
        (&true.into(), &true.into()),
        "{report}"
    );
}

/// What was written to a device so far.
fn written_bytes(device: &Loop) -> u64 {
    const SECTOR: u64 = 512;
    let stat = fs::read_to_string(format!("/sys/block/{}/stat", device.name())).unwrap();
    stat.split_whitespace()
        .nth(6)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * SECTOR
}

#[test]
fn only_what_is_named_is_written_to() {
    /// The file system's own, and less than a measurement.
    const LITTLE: u64 = 128 << 10;
    let sandbox = Sandbox::on_disk();
    let at = sandbox.file("mounted");
    let Some((device, _mounted)) = mounted(sandbox.path(), &at, "xfs") else {
        return;
    };
    let writes = |line: &str| {
        let sync = || run("sync", &["--file-system", at.to_str().unwrap()]).unwrap();
        sync();
        let before = written_bytes(&device);
        let ran = sandbox.run(line);
        sync();
        (ran, written_bytes(&device) - before)
    };
    fs::create_dir(sandbox.file("data")).unwrap();
    let (ran, written) = writes("doctor --dir data --json");
    let report = ran.ok().json();
    assert!(written < LITTLE, "{written}");
    let listed = place(&report["disks"]["unmeasured"], &at);
    // Its image lies on the disk of the data.
    assert_eq!(listed.unwrap()["same_disk"], true, "{report}");
    let (ran, written) = writes("run --absorb x -- true");
    ran.fails(2, &["which pool?", "forebay doctor --dir"]);
    assert!(written < LITTLE, "{written}");
    let line = format!("doctor --dir data --json --beside {}", at.display());
    let (ran, written) = writes(&line);
    let report = ran.ok().json();
    let measured = place(&report["disks"]["places"], &at);
    assert!(
        measured.unwrap()["commit_us"].as_f64() > Some(0.0),
        "{report}"
    );
    assert!(written > LITTLE, "{written}");
    let said = sandbox
        .run("doctor --dir data --beside nowhere")
        .ok()
        .text();
    assert!(
        said.contains("nowhere") && said.contains("No such file"),
        "{said}"
    );
}
