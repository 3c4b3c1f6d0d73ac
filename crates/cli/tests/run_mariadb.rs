//! MariaDB under `forebay run`, as Debian ships and configures it: its logs are absorbed, and after
//! SIGKILL, of whom ever and in another boot too, nothing acknowledged is missing, and InnoDB and
//! the binary log agree.
//!
//! Promise (programs): MariaDB has every acknowledged transaction after SIGKILL and in another
//! boot, and its binary log has exactly InnoDB's transactions.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    cut::{loses_nothing, loses_what_is_not_synced},
    databases::{
        Strike, absorbed_writes, boot_anew, explained, goes_on, moment, random, small_pool,
    },
    mariadb::{check, cut_off, file, keep_in_myrocks, launch_in, make_table},
    skip,
    writers::{self, Writer, check_strike},
};
use forebay_bench::mariadb::{
    client::Connection,
    server::{self, Launch, Server, said_by},
};
use forebay_bench::{mariadb::MariaDb, scratch::ScratchPool, sql::Client};
use std::{
    fs,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

/// Has the writers write until so many more transactions are acknowledged.
fn write_some(server: &Server, writers: &mut [Writer], transactions: u64) {
    writers::write_some::<Connection>(server.socket(), writers, transactions);
}

/// A server's launch, with the sandbox and the pool that it is in; none where none is installed.
fn launched() -> Option<(Sandbox, ScratchPool, Launch)> {
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let launch = launch_in(&sandbox, pool.path())?;
    Some((sandbox, pool, launch))
}

#[test]
fn redo_and_binary_log_are_absorbed_as_debian_configures_them() {
    let Some((_sandbox, _pool, launch)) = launched() else {
        return;
    };
    let server = Server::start(&launch).unwrap();
    make_table(&server);
    let mut writers = Writer::several(3, &mut random("absorbed"));
    write_some(&server, &mut writers, 200);
    check(&server, &mut writers);
    let said = server.stop().unwrap();
    for (name, least) in [
        // Transactions that commit at the same time are one write: at most as many as there are
        // writers.
        ("/ib_logfile0", 200 / 3),
        ("/changes.000001", 200 / 3),
        ("/aria_log.00000001", 1),
    ] {
        assert!(absorbed_writes(&said, name) >= least, "{name}: {said}");
    }
    assert!(!said.contains("io_uring_queue_init() failed with EPERM"));
    assert!(!said.contains("stays plain"), "{said}");
}

/// Kills `strikes` times under load. With `other_boots`, every start believes that the machine was
/// booted anew, so that everything in the pool is written to the files again.
fn storm(name: &str, strikes: usize, other_boots: bool) {
    let mut random = random(name);
    let Some((_sandbox, _pool, mut launch)) = launched() else {
        return;
    };
    // So that InnoDB writes its pages, and a crash finds some half done.
    launch
        .options
        .push("--innodb-max-dirty-pages-pct-lwm=0.001".to_owned());
    let mut writers = Writer::several(4, &mut random);
    for number in 0..strikes {
        if other_boots {
            boot_anew(&mut launch.environment, number);
        }
        let mut server = Server::start(&launch).unwrap();
        match number {
            0 => make_table(&server),
            _ => check(&server, &mut writers),
        }
        let strike = Strike::number(number);
        let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        let (wait, then) = (moment(&mut random, 800), moment(&mut random, 200));
        let mut went_on = true;
        thread::scope(|scope| {
            for writer in &mut writers {
                scope.spawn(|| writer.write::<Connection>(server.socket(), &done, &acknowledged));
            }
            thread::sleep(wait);
            strike.strike(server.server(), server.outer(), || {
                went_on = goes_on(&acknowledged);
                thread::sleep(then);
            });
        });
        assert!(
            went_on,
            "no transaction was acknowledged without the supervisor"
        );
        let status = server.wait().unwrap();
        let name = format!("{name}, strike {number}");
        check_strike(&name, strike, status, &acknowledged, &writers);
    }
    let server = Server::start(&launch).unwrap();
    check(&server, &mut writers);
    server.stop().unwrap();
}

#[test]
fn kills_lose_nothing_and_binary_log_and_innodb_agree() {
    storm("killed", 6, false);
}

/// Promise: as `shortened_records_of_any_writes_replay_to_the_kernels_file`.
#[test]
fn nor_if_the_machine_boots_anew_each_time() {
    storm("killed, other boots", 6, true);
}

#[test]
fn what_a_dba_does_leaves_the_logs_absorbed() {
    let Some((_sandbox, _pool, mut launch)) = launched() else {
        return;
    };
    let server = Server::start(&launch).unwrap();
    make_table(&server);
    let mut writers = Writer::several(2, &mut random("a dba"));
    let absorbed = |name: &str| status_writes(&launch, name);
    write_some(&server, &mut writers, 50);
    check(&server, &mut writers);

    // A new binary log; the old ones go.
    for statement in ["FLUSH BINARY LOGS", "PURGE BINARY LOGS TO 'changes.000002'"] {
        server.sql(statement, "").unwrap();
    }
    write_some(&server, &mut writers, 50);
    assert!(absorbed("/changes.000002") > 0);
    server.sql("RESET MASTER", "").unwrap();
    write_some(&server, &mut writers, 50);
    assert!(absorbed("/changes.000001") > 0);

    // The redo log is written anew beside the old one, which it replaces.
    server
        .sql("SET GLOBAL innodb_log_file_size = 16 << 20", "")
        .unwrap();
    let resized = || fs::metadata(file(&launch, "ib_logfile0")).unwrap().len() == 16 << 20;
    let mut patience = 0..3000;
    while !resized() && patience.next().is_some() {
        write_some(&server, &mut writers, 20);
    }
    assert!(resized(), "the redo log was not resized");
    // Listed by its newest name.
    let before = absorbed("/ib_logfile0");
    write_some(&server, &mut writers, 50);
    let now = absorbed("/ib_logfile0");
    assert!(now >= before + 10, "the new redo log is not absorbed");

    // Held by one connection, the table stands still on the disk.
    let mut holder = Connection::connect(server.socket()).unwrap();
    holder.query("FLUSH TABLES ledger.t FOR EXPORT").unwrap();
    assert!(file(&launch, "ledger/t.cfg").exists());
    holder.query("UNLOCK TABLES").unwrap();
    write_some(&server, &mut writers, 50);

    // Killed now, it recovers with the new log.
    let found = rows(&server);
    Strike::Both.strike(server.server(), server.outer(), || {});
    drop(server);
    boot_anew(&mut launch.environment, 1);
    let server = Server::start(&launch).unwrap();
    assert_eq!(rows(&server), found);
    server.stop().unwrap();
}

/// All rows, one a line.
fn rows(server: &Server) -> String {
    server
        .sql("SELECT writer, seq, part FROM t ORDER BY 1, 2, 3", "ledger")
        .unwrap()
}

/// The writes to a file that `forebay status` says were absorbed so far.
fn status_writes(launch: &Launch, name: &str) -> u64 {
    let status = Command::new(common::FOREBAY)
        .args(["status", "--json"])
        .envs(launch.environment.iter().cloned())
        .output()
        .unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let files = status[0]["files"].as_array().unwrap().iter();
    let found = files.filter(|file| file["path"].as_str().unwrap().ends_with(name));
    found.map(|file| file["writes"].as_u64().unwrap()).sum()
}

#[test]
fn mariadb_starts_again_after_each_of_innodbs_three_shutdowns() {
    let Some((_sandbox, _pool, mut launch)) = launched() else {
        return;
    };
    let mut writers = Writer::several(2, &mut random("shutdown"));
    for way in 0..=2 {
        boot_anew(&mut launch.environment, way);
        let server = Server::start(&launch).unwrap();
        match way {
            0 => make_table(&server),
            _ => check(&server, &mut writers),
        }
        write_some(&server, &mut writers, 50);
        let set = format!("SET GLOBAL innodb_fast_shutdown = {way}");
        server.sql(&set, "").unwrap();
        let said = server.stop().unwrap();
        assert!(absorbed_writes(&said, "/ib_logfile0") > 0, "{said}");
    }
    // Without Forebay: an orderly end left everything in the files.
    launch.wrapper.clear();
    let server = Server::start(&launch).unwrap();
    check(&server, &mut writers);
    server.stop().unwrap();
}

#[test]
fn a_backup_beside_it_is_whole_and_takes_nothing_from_it() {
    let Some((sandbox, _pool, launch)) = launched() else {
        return;
    };
    let Ok(_) = server::program("mariadb-backup") else {
        skip("mariadb-backup is not installed");
        return;
    };
    let server = Server::start(&launch).unwrap();
    make_table(&server);
    let mut writers = Writer::several(2, &mut random("backup"));
    write_some(&server, &mut writers, 50);
    let before = rows(&server);
    let backup = sandbox.file("backup");
    fs::create_dir(&backup).unwrap();
    let target = format!("--target-dir={}", backup.join("data").display());
    let (done, all) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in &mut writers {
            scope.spawn(|| writer.write::<Connection>(server.socket(), &done, &all));
        }
        let mut command = server.client("mariadb-backup").unwrap();
        let data = format!("--datadir={}", launch.data().display());
        command.args(["--backup", &target, &data]);
        let said = said_by("mariadb-backup", command.output().unwrap());
        done.store(true, Relaxed);
        said.unwrap();
    });
    check(&server, &mut writers);
    let after = rows(&server);
    let said = server.stop().unwrap();
    let redo = explained(&said, "/ib_logfile0").unwrap();
    assert_eq!(redo.last().unwrap(), "absorbed", "{said}");

    let prepare = Command::new(server::program("mariadb-backup").unwrap())
        .args(["--prepare", &target])
        .output();
    said_by("mariadb-backup", prepare.unwrap()).unwrap();
    let restored = Server::start(&Launch::new(&backup).unwrap()).unwrap();
    let found = rows(&restored);
    assert!(found.starts_with("0\t1\t0\n"), "{found}");
    let has = |of: &str, rows: &str| rows.lines().all(|row| of.lines().any(|other| other == row));
    assert!(
        has(&found, &before),
        "the backup lacks what was there when it began"
    );
    assert!(has(&after, &found), "the backup has what never was");
    restored.stop().unwrap();
}

/// Promise (disks): A file system that shuts itself down in a sync and reports success, as ext4 and
/// XFS do, costs no acknowledged byte: the supervisor asks it again before a release.
#[test]
fn nothing_acknowledged_is_lost_when_the_file_system_is_cut_off() {
    loses_nothing(|kind| cut_off(kind, 2, |_| ()));
}

#[test]
fn nor_if_it_is_in_myrocks_whose_log_agrees_with_the_binary_log() {
    let found = cut_off("ext4", 2, keep_in_myrocks);
    if let Some(found) = found {
        found.unwrap();
    }
}

#[test]
fn where_nothing_is_synced_the_same_cut_loses() {
    loses_what_is_not_synced::<MariaDb>(|change| cut_off("ext4", 2, change));
}
