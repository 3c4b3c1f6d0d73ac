//! etcd under `forebay run`: a Go program, whose log's segments are preallocated and come by
//! renames.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    agents::{Served, absorbed_paths, copied, no_disk, under_forebay, was_served, write_and_cut},
    cut::put_back,
    databases::{random, small_pool},
    disk::Disk,
    installed,
};
use forebay_databases::etcd::{
    client::Connection,
    server::{current_program, program},
};
use std::{
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Keys that are put at least before a cut.
const KEYS: u64 = 60;

/// Starts a member of a cluster of one, with its data in `data` of a directory.
fn start(dir: &Path, errors: &Path, options: &[&str], before: impl Fn() -> Command) -> Served {
    try_start(dir, errors, options, before).unwrap()
}

/// As [`start`]; of one that does not serve, what it said.
fn try_start(
    dir: &Path,
    errors: &Path,
    options: &[&str],
    before: impl Fn() -> Command,
) -> Result<Served, String> {
    let command = |ports: [u16; 2]| {
        let [client, peer] = ports.map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = before();
        command
            .args(["--data-dir", "data", "--name", "one"])
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .args(options)
            .current_dir(dir);
        command
    };
    // It answers once it has a leader, which is itself.
    let serves = |port| Connection::new(port).is_ok_and(|mut it| it.count().is_ok());
    Served::try_start(command, errors, serves)
}

fn start_under_forebay(
    (sandbox, program): (&Sandbox, &Path),
    dir: &Path,
    pool: &Path,
    boot: usize,
) -> Served {
    start(dir, &sandbox.file("errors"), &[], || {
        under_forebay(sandbox, pool, boot, program)
    })
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

/// What a key was given: now and then as much as etcd takes.
fn value(number: u64) -> Vec<u8> {
    let times = if number.is_multiple_of(2) { 20_000 } else { 1 };
    format!("value {number}; ").repeat(times).into_bytes()
}

/// Puts keys until the server is gone, one after the other; the last that was acknowledged.
fn put(mut connection: Connection, last: u64, acknowledged: &AtomicU64) -> u64 {
    let mut last = last;
    while connection.put(&key(last + 1), &value(last + 1)).is_ok() {
        last += 1;
        acknowledged.fetch_add(1, Relaxed);
    }
    last
}

/// How many keys there are: all from the first one on, each with its value.
fn keys(served: &Served) -> Result<u64, String> {
    let mut connection = Connection::new(served.port).unwrap();
    let count = connection.count().unwrap();
    for number in 1..=count {
        if connection.get(&key(number)).unwrap() != Some(value(number)) {
            return Err(format!("key {number} of {count}"));
        }
    }
    Ok(count)
}

/// Promise (programs): What etcd acknowledged is there after a power cut that took the page cache.
#[test]
fn etcd_has_what_it_acknowledged_after_a_power_cut() {
    let Some(program) = installed(program()) else {
        return;
    };
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let mut random = random("etcd_has_what_it_acknowledged_after_a_power_cut");
    let mut acknowledged = 0;
    let mut has_lost = false;
    // The database is made of the log, which alone is looked at.
    let forget_database = |dir: &Path| drop(fs::remove_dir_all(dir.join("data/member/snap")));
    let mut boot = 0;
    // On a busy machine a cut may come when the disk has all of it.
    while boot < 3 || !has_lost && boot < 12 {
        let etcd = start_under_forebay((&sandbox, &program), sandbox.path(), pool.path(), boot);
        let there = keys(&etcd).unwrap();
        // One more may have been written that nobody was told of.
        let expected = acknowledged..=acknowledged + 1;
        assert!(expected.contains(&there), "{there} of {acknowledged}");
        let connection = Connection::new(etcd.port).unwrap();
        acknowledged = write_and_cut(etcd, no_disk, (KEYS, &mut random), |count| {
            put(connection, there, count)
        });
        was_served(&sandbox.file("errors"), "etcd");
        put_back(&sandbox.file("synced"));
        forget_database(sandbox.path());
        // What this test is about: without a recovery they are not there.
        let without = copied(&sandbox, &["data"], &format!("without{boot}"));
        let plain = try_start(&without, &sandbox.file("plain"), &[], || {
            Command::new(&program)
        });
        has_lost |= match plain {
            Ok(plain) => {
                let there = keys(&plain).unwrap();
                plain.cut();
                there < acknowledged
            }
            // Nor is a log of which something is missing one to start with.
            Err(_) => true,
        };
        fs::remove_dir_all(without).unwrap();
        boot += 1;
    }
    assert!(has_lost, "all {acknowledged} were there without a recovery");
    let etcd = start_under_forebay((&sandbox, &program), sandbox.path(), pool.path(), boot);
    let there = keys(&etcd).unwrap();
    assert!(there >= acknowledged, "{there} of {acknowledged}");
}

/// Cuts the file system off, so many times, under a server that goes from segment to segment: what
/// was wrong then. None where there can be no such disk.
fn cut_off(
    start: impl Fn(&Sandbox, &Path, &Path, usize) -> Result<Served, String>,
    cuts: usize,
) -> Option<Result<(), String>> {
    // A segment is 64 MB, half of the values 240 kB.
    const SEGMENT: u64 = 600;
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let mut disk = Disk::make(sandbox.path(), "ext4")?;
    let mut random = random("etcd_is_whole_after_its_disk_is_cut_off");
    let mut acknowledged = 0;
    for boot in 0..=cuts {
        let etcd = match start(&sandbox, &disk.at, pool.path(), boot) {
            Ok(etcd) => etcd,
            Err(said) if boot > 0 => return Some(Err(said)),
            Err(said) => panic!("before the first cut: {said}"),
        };
        let there = match keys(&etcd) {
            Ok(there) if (acknowledged..=acknowledged + 1).contains(&there) => there,
            other => return Some(Err(format!("{other:?} of {acknowledged}"))),
        };
        if boot == 0 {
            disk.sync();
        }
        if boot < cuts {
            let connection = Connection::new(etcd.port).unwrap();
            let cut_off = |_: &Served| disk.cut();
            let written = (SEGMENT * 2 / 3, &mut random);
            acknowledged = write_and_cut(etcd, cut_off, written, |count| {
                put(connection, there, count)
            });
            disk.mount_again();
        }
    }
    let segments = fs::read_dir(disk.at.join("data/member/wal")).unwrap();
    let of_log = segments.filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        path.extension().is_some_and(|it| it == "wal")
    });
    let segments = of_log.count();
    assert!(cuts < 3 || segments > 1, "{segments} segments");
    Some(Ok(()))
}

/// Promise: as `etcd_has_what_it_acknowledged_after_a_power_cut`.
#[test]
fn etcd_is_whole_after_its_disk_is_cut_off() {
    if let Some(program) = installed(program()) {
        is_whole_when_cut_off(&program);
    }
}

/// Promise: as `etcd_has_what_it_acknowledged_after_a_power_cut`.
#[test]
fn a_current_etcd_is_whole_after_its_disk_is_cut_off() {
    if let Some(program) = installed(current_program()) {
        is_whole_when_cut_off(&program);
    }
}

fn is_whole_when_cut_off(program: &Path) {
    let absorbed = |sandbox: &Sandbox, dir: &Path, pool: &Path, boot| {
        let etcd = start_under_forebay((sandbox, program), dir, pool, boot);
        was_served(&sandbox.file("errors"), "etcd");
        Ok(etcd)
    };
    if let Some(found) = cut_off(absorbed, 3) {
        found.unwrap();
    }
}

/// The control: the same cut takes keys of a server that does not sync them, or the server.
#[test]
fn etcd_without_syncs_loses_when_its_disk_is_cut_off() {
    let Some(program) = installed(program()) else {
        return;
    };
    let unsynced = |sandbox: &Sandbox, dir: &Path, _: &Path, _: usize| {
        let before = || Command::new(&program);
        try_start(dir, &sandbox.file("errors"), &["--unsafe-no-fsync"], before)
    };
    // A log of which the beginning is missing keeps it from starting.
    if let Some(found) = cut_off(unsynced, 1) {
        assert!(found.is_err(), "nothing was lost");
    }
}

#[test]
fn only_the_segments_of_etcds_log_are_absorbed() {
    let Some(program) = installed(program()) else {
        return;
    };
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let etcd = start_under_forebay((&sandbox, &program), sandbox.path(), pool.path(), 0);
    let mut connection = Connection::new(etcd.port).unwrap();
    for number in 1..=20 {
        connection.put(&key(number), b"").unwrap();
    }
    etcd.end(rustix::process::Signal::TERM);
    let said = fs::read_to_string(sandbox.file("errors")).unwrap();
    let paths = absorbed_paths(&said);
    assert!(!paths.is_empty(), "{said}");
    for path in paths {
        assert!(
            path.ends_with(".wal") || path.ends_with(".tmp"),
            "{path}: {said}"
        );
    }
}
