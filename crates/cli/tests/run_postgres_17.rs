//! PostgreSQL 17 under `forebay run`, beside the one that Debian has (`run_postgres.rs`): what is
//! killed loses nothing, and what is new in it: a process that summarizes the log, and incremental
//! backups. `scripts/setup.sh suites` fetches it. All of `run_postgres` runs on it with
//! `FOREBAY_POSTGRES_BIN`.
//!
//! Promise (programs): PostgreSQL 17 has every acknowledged transaction after SIGKILL, and so has
//! an incremental backup.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    databases::{random, small_pool},
    postgres::{Segments, check, launch_of, make_table, set, write_some},
    storm::storm,
    writers::Writer,
};
use forebay_bench::{
    postgres::server::{Launch, Server},
    scratch::ScratchPool,
    sql::running::said_by,
};
use forebay_measure::processes::find_newer_postgres;
use std::path::Path;

/// A server in the sandbox; none where PostgreSQL 17 is not.
fn launch(sandbox: &Sandbox, pool: &ScratchPool) -> Option<Launch> {
    let Some(bin) = find_newer_postgres() else {
        println!("skipped: PostgreSQL 17 is not there: scripts/setup.sh suites");
        return None;
    };
    sandbox.let_in();
    let launch = Launch::of_programs(&bin, &sandbox.file("postgres")).unwrap();
    Some(launch_of(launch, pool))
}

#[test]
fn postgresql_17_loses_nothing_acknowledged_whoever_is_killed() {
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    if let Some(mut launch) = launch(&sandbox, &pool) {
        set(&mut launch, "summarize_wal", "on");
        storm("17", launch, 5, false);
    }
}

#[test]
fn nor_if_the_machine_boots_anew_each_time() {
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    if let Some(launch) = launch(&sandbox, &pool) {
        storm("17, other boots", launch, 5, true);
    }
}

/// Copies the server by `pg_basebackup` to a directory of this name.
fn back_up(server: &Server, to: &Path, options: &[&str]) {
    let mut command = server.launch().client("pg_basebackup").unwrap();
    command
        .args(["--checkpoint=fast", "--no-sync", "--wal-method=stream"])
        .args(options)
        .arg("--pgdata")
        .arg(to);
    said_by("pg_basebackup", command.output().unwrap()).unwrap();
}

#[test]
fn an_incremental_backup_under_forebay_combines_to_everything() {
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let Some(mut launch) = launch(&sandbox, &pool) else {
        return;
    };
    set(&mut launch, "summarize_wal", "on");
    let server = Server::start(&launch).unwrap();
    make_table(&server);
    let mut writers = Writer::several(3, &mut random("incremental"));
    write_some(&server, &mut writers, 200);
    let at = |name: &str| launch.dir.join(name);
    let (full, more, combined) = (at("full"), at("more"), at("combined"));
    back_up(&server, &full, &[]);
    write_some(&server, &mut writers, 200);
    let manifest = full.join("backup_manifest");
    let incremental = format!("--incremental={}", manifest.display());
    back_up(&server, &more, &[&incremental]);
    let summaries = launch.data().join("pg_wal/summaries");
    assert!(summaries.read_dir().unwrap().count() > 0);
    let said = server.stop().unwrap();
    let segments = Segments::of(&said);
    assert!(segments.absorbed >= 2, "{said}");
    // The summarizer may read the segment with which the server begins before the first process
    // writes to it: that one stays plain.
    let is_first = |line: &String| line.contains("it is open elsewhere") || line.contains("writes");
    assert!(
        segments
            .plain
            .iter()
            .all(|line| is_first(line) || line.ends_with("not written to")),
        "{said}"
    );

    for (program, arguments) in [
        ("pg_combinebackup", vec![&full, &more]),
        ("pg_verifybackup", vec![]),
    ] {
        let mut command = launch.client(program).unwrap();
        command.args(arguments);
        if program == "pg_combinebackup" {
            command.arg("--no-sync").arg("--output");
        }
        said_by(program, command.arg(&combined).output().unwrap()).unwrap();
    }
    let bin = launch.program.parent().unwrap();
    let other = sandbox.file("restored");
    let mut restored = Launch::of_programs(bin, &other).unwrap();
    restored.options.clone_from(&launch.options);
    std::fs::rename(&combined, restored.data()).unwrap();
    let server = Server::start(&restored).unwrap();
    check(&server, &mut writers);
    server.stop().unwrap();
}
