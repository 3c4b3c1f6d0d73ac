//! PostgreSQL under `forebay run`: after SIGKILL, of whom ever and in another boot too, nothing
//! acknowledged is missing, and a standby that runs under Forebay as well takes over with all of
//! it.
//!
//! Promise (programs): PostgreSQL 15 has every acknowledged transaction after SIGKILL of all or one
//! of its processes and in another boot, and so has a standby or a rewound server.
//! Promise: as `every_processs_synced_bytes_survive_a_power_cut_after_kills`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox, build,
    cut::{cut, loses_nothing, loses_what_is_not_synced},
    databases::{PATIENCE, goes_on, moment, random, small_pool},
    disk::Disk,
    postgres::{
        SYNC_METHODS, Segments, Strike, backend, check, forebay, launch, launch_in, launch_on,
        make_table, set, write_some,
    },
    storm::storm,
    writers::{Writer, all_write},
};
use forebay_bench::{
    postgres::{
        Postgres,
        client::Connection,
        server::{Launch, Server},
    },
    processes::Process,
    scratch::ScratchPool,
    sql::{Client, running::said_by},
};
use forebay_measure::user::User;
use rustix::process::Signal;
use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// A server's launch, with the sandbox and the pool that it is in; none where none is installed.
fn launched() -> Option<(Sandbox, ScratchPool, Launch)> {
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let launch = launch_in(&sandbox, &pool)?;
    Some((sandbox, pool, launch))
}

#[test]
fn log_segments_are_absorbed_by_every_way_of_syncing_them() {
    let Some((_sandbox, _pool, mut launch)) = launched() else {
        return;
    };
    let mut writers = Writer::several(4, &mut random("absorbed"));
    for (number, method) in SYNC_METHODS.into_iter().enumerate() {
        set(&mut launch, "wal_sync_method", method);
        let server = Server::start(&launch).unwrap();
        match number {
            0 => make_table(&server),
            _ => check(&server, &mut writers),
        }
        write_some(&server, &mut writers, 200);
        // The log goes on in another segment, and old ones are recycled.
        for _ in 0..6 {
            server.sql("SELECT pg_switch_wal()").unwrap();
            server.sql("CHECKPOINT").unwrap();
            write_some(&server, &mut writers, 50);
        }
        let said = server.stop().unwrap();
        let segments = Segments::of(&said);
        assert!(segments.absorbed >= 3, "{method}: {segments:?}");
        // Four writers, whose commits may share a write.
        assert!(segments.writes >= 500 / 4, "{method}: {segments:?}");
        assert!(segments.plain.is_empty(), "{method}: {segments:?}");
        assert!(!said.contains("xlogtemp"), "{method}: {said}");
    }
}

/// As [`storm`] of the PostgreSQL that is installed.
fn installed(name: &str, strikes: usize, other_boots: bool) {
    if let Some((_sandbox, _pool, launch)) = launched() {
        storm(name, launch, strikes, other_boots);
    }
}

#[test]
fn nothing_acknowledged_is_lost_whoever_is_killed() {
    installed("killed", 10, false);
}

#[test]
fn nor_if_the_machine_boots_anew_each_time() {
    installed("killed, other boots", 10, true);
}

#[test]
fn one_process_is_killed_all_begin_again_and_nothing_is_lost() {
    let mut random = random("one process");
    let Some((_sandbox, _pool, launch)) = launched() else {
        return;
    };
    let server = Server::start(&launch).unwrap();
    make_table(&server);
    let mut writers = Writer::several(4, &mut random);
    for round in 0..3 {
        let done = AtomicBool::new(false);
        let acknowledged = AtomicU64::new(0);
        let wait = moment(&mut random, 300);
        let mut is_stuck = false;
        thread::scope(|scope| {
            // Each until its process ends with all others.
            let until = (&done, &acknowledged);
            all_write::<Connection>(scope, &mut writers, server.socket(), until);
            let mut victim = Connection::connect(server.socket()).unwrap();
            let process = backend(&mut victim);
            is_stuck |= !goes_on(&acknowledged);
            thread::sleep(wait);
            victim
                .query("BEGIN; INSERT INTO ledger.t VALUES (999, 1, 1, '')")
                .unwrap();
            process.signal(Signal::KILL);
            assert!(process.wait_gone(PATIENCE));
            assert!(victim.query("COMMIT").is_err());
            // One that could connect only after that has no process that ends.
            done.store(true, Relaxed);
        });
        assert!(!is_stuck, "no transactions before round {round}'s end");
        let begun = Instant::now();
        while Connection::connect(server.socket()).is_err() {
            assert!(begun.elapsed() < PATIENCE, "it does not begin again");
            thread::sleep(Duration::from_millis(5));
        }
        println!("round {round}: {} acknowledged", acknowledged.load(Relaxed));
        check(&server, &mut writers);
    }
    write_some(&server, &mut writers, 50);
    check(&server, &mut writers);
    let said = server.stop().unwrap();
    assert!(
        said.matches("all server processes terminated; reinitializing")
            .count()
            == 3,
        "{said}"
    );
}

#[test]
fn pgbenchs_sums_agree_after_a_kill_of_server_amid_clients() {
    let Some((_sandbox, _pool, launch)) = launched() else {
        return;
    };
    let server = Server::start(&launch).unwrap();
    let mut command = server.load_program("pgbench", None).unwrap();
    let made = command.args(["--initialize", "--quiet"]).output().unwrap();
    said_by("pgbench", made).unwrap();
    let mut command = server.load_program("pgbench", None).unwrap();
    command.args(["--client=8", "--jobs=2", "--time=60", "--no-vacuum"]);
    let mut clients = forebay_bench::processes::Process::spawn(
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null()),
    )
    .unwrap();
    let history = || {
        let counted = server.value("SELECT COUNT(*) FROM pgbench_history");
        counted.unwrap().parse::<u64>().unwrap()
    };
    let begun = Instant::now();
    while history() < 200 {
        assert!(begun.elapsed() < PATIENCE, "the clients are stuck");
        thread::sleep(Duration::from_millis(20));
    }
    let before = history();
    Strike::All.strike(&server, || {});
    // They lost their connections.
    assert!(!clients.wait(PATIENCE).unwrap().success());
    drop(server);
    let server = Server::start(&launch).unwrap();
    let sums = "SELECT concat_ws(' ', (SELECT SUM(abalance) FROM pgbench_accounts), (SELECT SUM(tbalance) FROM pgbench_tellers), \
                (SELECT SUM(bbalance) FROM pgbench_branches), (SELECT SUM(delta) FROM pgbench_history))";
    let sums = server.value(sums).unwrap();
    let mut all: Vec<&str> = sums.split(' ').collect();
    assert_eq!(all.len(), 4, "{sums}");
    all.dedup();
    assert_eq!(all.len(), 1, "accounts, tellers, branches, history: {sums}");
    let counted = server.value("SELECT COUNT(*) FROM pgbench_history");
    assert!(counted.unwrap().parse::<u64>().unwrap() >= before);
    server.stop().unwrap();
}

/// As a server has left it that was killed, with a number that is `whose` by now.
fn leave_lock(launch: &Launch, text: &str, whose: &str) {
    let (_, rest) = text.split_once('\n').unwrap();
    let path = launch.data().join("postmaster.pid");
    fs::write(&path, format!("{whose}\n{rest}")).unwrap();
    if let Some(user) = &launch.user {
        user.give(&path).unwrap();
    }
}

/// Promise (programs): a `postmaster.pid` whose number is a thread's by now, as one of forebay's in
/// a container, keeps no server from starting; a process's number still does.
#[test]
fn a_threads_number_in_postmaster_pid_is_no_other_server() {
    let Some((sandbox, _pool, launch)) = launched() else {
        return;
    };
    let server = Server::start(&launch).unwrap();
    let lock = fs::read_to_string(launch.data().join("postmaster.pid")).unwrap();
    server.stop().unwrap();
    // Of the server's user: another's it does not take for a server.
    build("thread_number", sandbox.path());
    let words = launch.user.iter().flat_map(User::words);
    let program = sandbox.file("thread_number").into_os_string();
    let words: Vec<OsString> = words.chain([program]).collect();
    let mut other = Command::new(&words[0]);
    // It is killed with the test, however that ends.
    let mut other = Process::spawn(other.args(&words[1..]).stdout(Stdio::piped())).unwrap();
    let said = other.child().stdout.take().unwrap();
    let mut thread = String::new();
    BufReader::new(said).read_line(&mut thread).unwrap();
    let (thread, process) = (thread.trim(), other.child().id().to_string());
    thread.parse::<u32>().unwrap();
    leave_lock(&launch, &lock, thread);
    let server = Server::start(&launch).map(Server::stop);
    let mut plain = launch.clone();
    plain.wrapper.clear();
    leave_lock(&launch, &lock, thread);
    let without = Server::start(&plain).map(Server::stop);
    leave_lock(&launch, &lock, &process);
    let beside = Server::start(&launch).map(Server::stop);
    server.unwrap().unwrap();
    for refused in [without.unwrap_err(), beside.unwrap_err()] {
        assert!(refused.to_string().contains("postmaster.pid"), "{refused}");
    }
}

#[test]
fn pg_waldump_beside_it_reads_every_acknowledged_commit() {
    let Some((_sandbox, _pool, launch)) = launched() else {
        return;
    };
    let server = Server::start(&launch).unwrap();
    make_table(&server);
    let place = || server.value("SELECT pg_current_wal_flush_lsn()").unwrap();
    // So that no segment between is recycled.
    server
        .sql("SELECT pg_create_physical_replication_slot('kept', true)")
        .unwrap();
    let mut writers = Writer::several(3, &mut random("pg_waldump"));
    let from = place();
    write_some(&server, &mut writers, 300);
    let acknowledged: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
    let to = place();
    let mut command = launch.client("pg_waldump").unwrap();
    command
        .args([
            "--rmgr=Transaction",
            "--start",
            &from,
            "--end",
            &to,
            "--path",
        ])
        .arg(launch.data().join("pg_wal"));
    let said = said_by("pg_waldump", command.output().unwrap()).unwrap();
    let commits = said.matches("desc: COMMIT").count() as u64;
    assert!(commits >= acknowledged, "{commits} of {acknowledged}");
    write_some(&server, &mut writers, 50);
    check(&server, &mut writers);
    server.stop().unwrap();
}

/// Makes a standby of `primary` in `dir` by `pg_basebackup`, which streams from it with a pool of
/// its own.
fn standby(primary: &Server, dir: &Path, pool: &ScratchPool) -> Launch {
    let copied = {
        let bare = Launch::new(dir).unwrap();
        let mut command = bare.client("pg_basebackup").unwrap();
        command
            .env("PGHOST", &primary.launch().dir)
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"])
            .args(["--wal-method=stream", "--pgdata"])
            .arg(bare.data());
        said_by("pg_basebackup", command.output().unwrap())
    };
    copied.unwrap();
    launch(dir, pool).unwrap()
}

/// Waits until the value of a query is what it is to be.
#[track_caller]
fn wait_for(server: &Server, query: &str, expected: &str) {
    let begun = Instant::now();
    loop {
        let found = server.value(query);
        if found.as_ref().is_ok_and(|found| found == expected) {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{query}: {found:?}; the server said: {}",
            server.output()
        );
        thread::sleep(Duration::from_millis(10));
    }
}

const STREAMS: &str = "SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'";

#[test]
fn a_standby_takes_over_with_everything_and_its_primary_follows() {
    let mut random = random("standby");
    let sandbox = Sandbox::new();
    let pools = [small_pool(), small_pool()];
    let Some(first) = launch_in(&sandbox, &pools[0]) else {
        return;
    };
    let mut primary = Server::start(&first).unwrap();
    // What is written is kept for the rewinding, which recovers the old primary by a server without
    // our settings.
    let setting = "ALTER SYSTEM SET wal_keep_size = '64MB'";
    primary.sql(setting).unwrap();
    make_table(&primary);
    let second = standby(&primary, &sandbox.file("standby"), &pools[1]);
    let stands_by = Server::start(&second).unwrap();
    // From now on a transaction is acknowledged when the standby has it too.
    for statement in [
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
        "SELECT pg_reload_conf()",
    ] {
        primary.sql(statement).unwrap();
    }
    wait_for(&primary, STREAMS, "1");
    let mut writers = Writer::several(4, &mut random);
    write_some(&primary, &mut writers, 200);

    // The standby is killed and comes back; who waits for it goes on.
    Strike::All.strike(&stands_by, || {});
    drop(stands_by);
    let stands_by = Server::start(&second).unwrap();
    wait_for(&primary, STREAMS, "1");
    write_some(&primary, &mut writers, 200);

    // The primary is killed amid its work.
    let mut is_stuck = false;
    let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let until = (&done, &acknowledged);
        all_write::<Connection>(scope, &mut writers, primary.socket(), until);
        is_stuck |= !goes_on(&acknowledged);
        thread::sleep(moment(&mut random, 300));
        Strike::All.strike(&primary, || {});
    });
    assert!(!is_stuck, "no transactions before the failover");
    primary.wait().unwrap();
    println!(
        "{} acknowledged before the failover",
        acknowledged.load(Relaxed)
    );
    assert_eq!(stands_by.value("SELECT pg_promote()").unwrap(), "t");
    check(&stands_by, &mut writers);
    write_some(&stands_by, &mut writers, 100);

    // The old primary may have more than the new one: its pool is brought to its files before they
    // are rewound. Before a checkpoint, the new one's control file names the old timeline, and
    // pg_rewind finds nothing to do.
    stands_by.sql("CHECKPOINT").unwrap();
    // By the directory: where its processes outlived the supervisor, they have settled the lane,
    // and no lane names the directory that has the guard.
    let data = first.data();
    forebay(&first, &["recover", "--for", data.to_str().unwrap()]).ok();
    let mut rewind = first.client("pg_rewind").unwrap();
    rewind
        .arg("--target-pgdata")
        .arg(first.data())
        .arg(format!(
            "--source-server=host={} user=postgres dbname=postgres",
            second.dir.display()
        ))
        .args(["--write-recovery-conf", "--no-sync"]);
    let rewound = rewind.output().unwrap();
    let told = String::from_utf8_lossy(&rewound.stderr).into_owned();
    said_by("pg_rewind", rewound).unwrap();
    assert!(!told.contains("no rewind required"), "{told}");
    let follows = Server::start(&first).unwrap();
    wait_for(&follows, "SELECT pg_is_in_recovery()", "t");
    write_some(&stands_by, &mut writers, 50);
    let place = stands_by.value("SELECT pg_current_wal_lsn()").unwrap();
    let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{place}'::pg_lsn");
    wait_for(&follows, &replayed, "t");
    check(&follows, &mut writers);
    follows.stop().unwrap();
    stands_by.stop().unwrap();
}

/// What was wrong after a server's file system was cut off so many times; none where there can be
/// no such disk.
fn cut_off(kind: &str, rounds: usize, change: impl Fn(&mut Launch)) -> Option<Result<(), String>> {
    let mut random = random(kind);
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let mut disk = Disk::make(sandbox.path(), kind)?;
    let mut launch = launch_on(&disk, &sandbox, &pool)?;
    change(&mut launch);
    Some(cut(&mut launch, &mut disk, rounds, &mut random))
}

#[test]
fn nothing_acknowledged_is_lost_when_the_file_system_is_cut_off() {
    loses_nothing(|kind| cut_off(kind, 2, |_| ()));
}

#[test]
fn where_nothing_is_synced_the_same_cut_loses() {
    loses_what_is_not_synced::<Postgres>(|change| cut_off("ext4", 2, change));
}
