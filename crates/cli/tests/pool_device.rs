//! Pools on block devices: what is on them, who uses them, their sectors and sizes; and on file
//! systems that are full. As root, on loop devices.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox, ZEROS,
    disk::{Loop, Mounted, patiently, run},
};
use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
const SIZES: &str = "--size 4MiB --segment-size 256KiB --lanes 4";

/// A device of zeros, in a directory of its own; none where there can be none.
fn device(mib: u64, sector_bytes: u32) -> Option<(Sandbox, Loop)> {
    let sandbox = Sandbox::on_disk();
    let image = sandbox.file("image");
    File::create(&image).unwrap().set_len(mib * MIB).unwrap();
    let device = Loop::of(&image, sector_bytes)?;
    Some((sandbox, device))
}

fn create(device: &Loop) -> String {
    format!("pool create {} {SIZES}", device.path)
}

fn write(device: &Loop, bytes: &[u8], at: u64) {
    let file = OpenOptions::new().write(true).open(&device.path).unwrap();
    file.write_all_at(bytes, at).unwrap();
    file.sync_all().unwrap();
}

/// A boot record with one partition of Linux, from sector 2048 on, of this many.
fn partitioned(device: &Loop, sectors: u32) {
    let mut sector = [0; 512];
    sector[446 + 4] = 0x83;
    sector[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    sector[446 + 12..446 + 16].copy_from_slice(&sectors.to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    write(device, &sector, 0);
    // A kernel that reads no boot records does not know it else.
    let _ = run("delpart", &[&device.path, "1"]);
    let sectors = sectors.to_string();
    run("addpart", &[&device.path, "1", "2048", &sectors]).unwrap();
}

/// Puts something on a device.
type Fill = fn(&Loop);

/// Promise (pool): `forebay pool create` overwrites the contents of a block device only with
/// `--force`, and never a device in use or a pool whose lane a process has.
#[test]
fn a_devices_contents_are_named_and_overwritten_only_by_force() {
    let contents: [(&str, Fill); 8] = [
        ("ext4 file system named \"data\"", |device| {
            run("mkfs.ext4", &["-q", "-L", "data", &device.path])
                .map(drop)
                .unwrap();
        }),
        ("an XFS file system", |device| {
            run("mkfs.xfs", &["-q", &device.path]).map(drop).unwrap();
        }),
        ("swap space named \"aside\"", |device| {
            run("mkswap", &["-L", "aside", &device.path])
                .map(drop)
                .unwrap();
        }),
        ("a partition table (MBR) with 1 partition", |device| {
            partitioned(device, 8192);
        }),
        ("a partition table (GPT)", |device| {
            // As after a first MiB of zeros: the table at the end is what is left.
            write(device, b"EFI PART", 320 * MIB - 512);
        }),
        // Its first 64 KiB are zeros.
        ("a Btrfs file system", |device| {
            write(device, b"_BHRfS_M", 64 * 1024 + 64);
        }),
        ("a member of a Linux software RAID", |device| {
            write(device, &0xA92B_4EFC_u32.to_le_bytes(), 320 * MIB - 8192);
        }),
        (
            "data of a kind that is not known, from byte 100000 on",
            |device| {
                write(device, b"mine", 100_000);
            },
        ),
    ];
    for (what, fill) in contents {
        let Some((sandbox, device)) = device(320, 512) else {
            return;
        };
        fill(&device);
        let before = sandbox.contents("image");
        let words = ["holds", what, "nothing was changed", "--force"];
        sandbox.run(&create(&device)).fails(1, &words);
        assert!(sandbox.contents("image") == before, "{what}");
        sandbox.run(&format!("{} --force", create(&device))).ok();
        assert_eq!(run("wipefs", &[&device.path]).unwrap(), "", "{what}");
        sandbox.run(&format!("pool check {}", device.path)).ok();
    }
}

#[test]
fn the_partitions_that_would_be_given_up_are_named() {
    let Some((sandbox, device)) = device(16, 512) else {
        return;
    };
    partitioned(&device, 8192);
    let partition = format!("with the partitions {}p1", device.name());
    sandbox.run(&create(&device)).fails(1, &[&partition]);
}

/// Promise: as `a_devices_contents_are_named_and_overwritten_only_by_force`.
#[test]
fn a_device_in_use_is_refused_with_its_use_even_by_force() {
    let Some((sandbox, device)) = device(16, 512) else {
        return;
    };
    let refused = |words: &[&str]| {
        let all = [&["is in use", "nothing was changed"], words].concat();
        sandbox.run(&create(&device)).fails(1, &all);
        let forced = format!("{} --force", create(&device));
        sandbox.run(&forced).fails(1, &all);
    };
    run("mkfs.ext4", &["-q", &device.path]).unwrap();
    let at = sandbox.file("mounted");
    let mounted = Mounted::at(&device.path, &at);
    fs::write(at.join("file"), "kept").unwrap();
    refused(&["is mounted at", at.to_str().unwrap()]);
    assert_eq!(fs::read(at.join("file")).unwrap(), b"kept");
    drop(mounted);
    // As the kernel holds members of arrays and volume groups.
    let mut exclusive = OpenOptions::new();
    exclusive
        .read(true)
        .custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    let held = exclusive.open(&device.path).unwrap();
    refused(&["part of an array"]);
    drop(held);
    partitioned(&device, 16384);
    let partition = format!("{}p1", device.path);
    run("mkfs.ext4", &["-q", &partition]).unwrap();
    let mounted = Mounted::at(&partition, &at);
    refused(&[&format!("{}p1 is mounted at", device.name())]);
    drop(mounted);
    sandbox.run(&format!("{} --force", create(&device))).ok();
}

/// A program that writes to a log under forebay and then sleeps, until this is dropped.
struct Sleeps(Child);

impl Sleeps {
    fn on(sandbox: &Sandbox, pool: &str) -> Self {
        fs::write(sandbox.file("script"), "echo line > a.log; exec sleep 120").unwrap();
        let line = format!("run --pool {pool} --absorb *.log -- sh script");
        let mut command = sandbox.command(&line);
        let sleeps = Self(command.stdin(Stdio::null()).spawn().unwrap());
        let begun = Instant::now();
        loop {
            let status = sandbox.run(&format!("pool status {pool} --json")).ok();
            if status.json()["owners"][0]["in_use"] == true {
                return sleeps;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no lane");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Sleeps {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

/// Promise: as `a_devices_contents_are_named_and_overwritten_only_by_force`.
#[test]
fn a_devices_pool_is_given_up_by_force_unless_a_run_has_it() {
    let Some((sandbox, device)) = device(16, 512) else {
        return;
    };
    let first = sandbox.run(&format!("{} --json", create(&device))).ok();
    let uuid = first.json()["uuid"].as_str().unwrap().to_owned();
    let holds = format!("a Forebay pool, uuid {uuid}");
    sandbox.run(&create(&device)).fails(1, &[&holds, "--force"]);
    let forced = format!("{} --force --json", create(&device));
    let sleeps = Sleeps::on(&sandbox, &device.path);
    let words = ["in use by another process", "stop that process"];
    sandbox.run(&forced).fails(1, &words);
    let status = format!("pool status {} --json", device.path);
    assert_eq!(sandbox.json(&status)["uuid"], uuid.as_str());
    drop(sleeps);
    let second = sandbox.json(&forced);
    assert_ne!(second["uuid"], uuid.as_str());
    assert_eq!(second["owners"], serde_json::json!([]));
}

#[test]
fn a_file_is_not_given_up_by_force() {
    let sandbox = Sandbox::on_disk();
    fs::write(sandbox.file("notes"), "mine").unwrap();
    let words = ["exists already", "remove it"];
    for line in [
        "pool create notes --disk --force",
        "pool create notes --emulated --force",
    ] {
        sandbox.run(line).fails(1, &words);
    }
    assert_eq!(fs::read(sandbox.file("notes")).unwrap(), b"mine");
    let directory = format!("pool create {} --disk --force", sandbox.path().display());
    sandbox.run(&directory).fails(1, &["a directory"]);
}

#[test]
fn a_pool_on_sectors_of_4096_bytes_keeps_synced_values() {
    let Some((sandbox, device)) = device(16, 4096) else {
        return;
    };
    sandbox.run(&create(&device)).ok();
    let pool = &device.path;
    for number in 0..20 {
        sandbox
            .run(&format!(
                "store put --dir s --pool {pool} key{number} value{number}"
            ))
            .ok();
    }
    for number in 0..20 {
        let got = sandbox
            .run(&format!("store get --dir s --pool {pool} key{number}"))
            .ok();
        assert_eq!(got.text().trim(), format!("value{number}"));
    }
    let line = format!("run --explain --pool {pool} --absorb *.log -- {ZEROS} a.log 5000 30");
    let ran = sandbox.run(&line).ok();
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), [0; 150_000]);
    let told = ran.told("a.log");
    assert!(told.ends_with("absorbed"), "{}", ran.stderr);
    sandbox.run(&format!("pool check {pool}")).ok();
}

/// Promise (pool): `forebay pool create` refuses a disk whose sectors are larger than a page.
#[test]
fn a_disk_whose_sectors_are_larger_than_a_page_is_refused() {
    let Some((sandbox, device)) = device(16, 16384) else {
        return;
    };
    let words = ["sectors of 16384 bytes", "4096 bytes or less"];
    sandbox.run(&create(&device)).fails(1, &words);
    // It is not given up for nothing.
    write(&device, &[7; 16384], 0);
    let forced = format!("{} --force", create(&device));
    sandbox.run(&forced).fails(1, &words);
    assert!(fs::read(sandbox.file("image")).unwrap()[..16384] == [7; 16384]);
    // One that was copied to it.
    sandbox.run(&format!("pool create p --disk {SIZES}")).ok();
    write(&device, &fs::read(sandbox.file("p")).unwrap(), 0);
    sandbox
        .run(&format!("pool check {}", device.path))
        .fails(1, &words);
}

#[test]
fn a_device_too_small_is_refused_with_its_size_and_unchanged() {
    let Some((sandbox, device)) = device(3, 512) else {
        return;
    };
    let words = [
        "has 3145728 bytes",
        "4194304",
        "--size",
        "nothing was changed",
    ];
    sandbox.run(&create(&device)).fails(1, &words);
    sandbox
        .run(&format!("{} --force", create(&device)))
        .fails(1, &words);
    let blank = fs::read(sandbox.file("image")).unwrap();
    assert!(blank.iter().all(|byte| *byte == 0));
}

/// A file system of 24 MiB at `mounted`.
fn small_file_system() -> Option<(Sandbox, Loop, Mounted)> {
    let (sandbox, device) = device(24, 512)?;
    run("mkfs.ext4", &["-q", &device.path]).unwrap();
    let mounted = Mounted::at(&device.path, &sandbox.file("mounted"));
    Some((sandbox, device, mounted))
}

#[test]
fn a_pool_too_large_for_its_file_system_is_refused_and_removed() {
    let Some((sandbox, _device, _mounted)) = small_file_system() else {
        return;
    };
    let words = ["does not fit", "67108864 bytes", "Make room"];
    sandbox
        .run("pool create mounted/p --disk --size 64MiB")
        .fails(1, &words);
    assert!(!sandbox.file("mounted/p").exists());
    // The file system may count the first one's blocks for a moment more.
    let smaller = format!("pool create mounted/p --disk {SIZES}");
    patiently(|| match sandbox.run(&smaller) {
        made if made.code == Some(0) => Ok(()),
        refused => Err(refused.stderr),
    });
}

/// Promise (pool): A pool's file with holes on a full file system counts as a disk that fails, not
/// as damaged memory, and costs nothing that was synced.
#[test]
fn a_pool_with_holes_on_a_full_disk_costs_no_synced_byte() {
    let Some((sandbox, _device, _mounted)) = small_file_system() else {
        return;
    };
    sandbox
        .run(&format!("pool create mounted/p --disk {SIZES}"))
        .ok();
    // The pool has its tables in the first 64 KiB; what is behind them loses its blocks, and
    // nothing is left for new ones.
    let script = format!(
        "set -e\n\
        {ZEROS} a.log 1000 10\n\
        fallocate --punch-hole --offset 64KiB --length 3900KiB mounted/p\n\
        dd if=/dev/zero of=mounted/rest bs=4096 2>/dev/null || true\n\
        {ZEROS} a.log 1000 10 10\n"
    );
    fs::write(sandbox.file("script"), script).unwrap();
    let ran = sandbox
        .run("run --pool mounted/p --absorb *.log -- sh script")
        .ok();
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), [0; 20_000]);
    let told = "the disk of the pool mounted/p failed (No space left";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("every sync is a real one"),
        "{}",
        ran.stderr
    );
    // With room again it is a pool as before.
    fs::remove_file(sandbox.file("mounted/rest")).unwrap();
    let line = format!("run --explain --pool mounted/p --absorb *.log -- {ZEROS} b.log 1000 10");
    let ran = sandbox.run(&line).ok();
    assert!(!ran.stderr.contains("failed"), "{}", ran.stderr);
    let told = ran.told("b.log");
    assert!(told.ends_with("absorbed"), "{}", ran.stderr);
}

#[test]
fn a_store_in_a_pool_with_holes_on_a_full_disk_loses_nothing() {
    let Some((sandbox, _device, _mounted)) = small_file_system() else {
        return;
    };
    sandbox
        .run(&format!("pool create mounted/p --disk {SIZES}"))
        .ok();
    let line = |rest: &str| format!("store {rest} --dir s --pool mounted/p");
    sandbox.run(&format!("{} first value", line("put"))).ok();
    let pool = sandbox.file("mounted/p");
    let punch = ["--punch-hole", "--offset", "64KiB", "--length", "3900KiB"];
    run(
        "fallocate",
        &[&punch[..], &[pool.to_str().unwrap()]].concat(),
    )
    .unwrap();
    let rest = File::create(sandbox.file("mounted/rest")).unwrap();
    while rest
        .write_all_at(&[7; 4096], rest.metadata().unwrap().len())
        .is_ok()
    {}
    rest.sync_all().unwrap();
    drop(rest);
    let words = ["its file has holes", "Make room", "fallocate -l 4194304"];
    sandbox
        .run(&format!("{} second value", line("put")))
        .fails(1, &words);
    fs::remove_file(sandbox.file("mounted/rest")).unwrap();
    sandbox.run(&format!("{} second value", line("put"))).ok();
    for key in ["first", "second"] {
        let got = sandbox.run(&format!("{} {key}", line("get"))).ok();
        assert_eq!(got.text().trim(), "value");
    }
}
