//! A MariaDB server under `forebay run`, writers that remember what they were promised, and what
//! must be true after a crash.

use super::{
    Sandbox,
    cut::{Database, cut},
    databases::{forebay_run, random, small_pool},
    disk::Disk,
    skip,
    writers::{self, Writer},
};
use forebay_bench::{
    BenchError,
    mariadb::{
        MariaDb,
        client::Connection,
        server::{self, Launch, Server},
    },
    sql::Client,
};
use rustix::process::Signal;
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

/// Debian's own configuration.
const DEBIANS: &str = "/etc/mysql/mariadb.cnf";

/// A server in `dir`, with Debian's configuration where that is installed, under forebay with
/// `pool`; none without MariaDB.
pub fn launch(dir: &Path, pool: &Path) -> Option<Launch> {
    let programs = ["mariadbd", "mariadb-install-db", "mariadb"];
    if let Some(missing) = programs.iter().find_map(|name| server::program(name).err()) {
        skip(&missing);
        return None;
    }
    std::fs::create_dir_all(dir).unwrap();
    let mut launch = Launch::new(dir).unwrap();
    if !launch.data().exists() {
        server::create(&launch.data()).unwrap();
    }
    let own = dir.join("my.cnf");
    let include = match Path::new(DEBIANS).exists() {
        true => format!("!include {DEBIANS}\n"),
        false => String::new(),
    };
    std::fs::write(&own, include).unwrap();
    launch.defaults = Some(own);
    launch.wrapper = forebay_run(pool);
    launch.environment = vec![("FOREBAY_RUN_DIR".into(), dir.join("run").into())];
    // Any name: none of Forebay's configuration knows it.
    launch.options = ["--log-bin=changes", "--sync-binlog=1"]
        .map(str::to_owned)
        .to_vec();
    Some(launch)
}

/// Has the server keep its tables in MyRocks, where that is installed.
pub fn keep_in_myrocks(launch: &mut Launch) {
    let Some(plugins) = server::myrocks() else {
        skip("MyRocks is not installed");
        return;
    };
    launch.options.extend([
        format!("--plugin-dir={}", plugins.display()),
        "--plugin-load-add=ha_rocksdb".to_owned(),
        "--default-storage-engine=rocksdb".to_owned(),
        "--transaction-isolation=READ-COMMITTED".to_owned(),
        // The server's default refuses to start if the last write to the log, which was not
        // acknowledged, is there in part.
        "--rocksdb-wal-recovery-mode=2".to_owned(),
    ]);
}

/// As [`launch`], in a sandbox.
pub fn launch_in(sandbox: &Sandbox, pool: &Path) -> Option<Launch> {
    launch(&sandbox.file("mariadb"), pool)
}

/// Makes the table that [`Writer`]s write to.
pub fn make_table(server: &Server) {
    let table = format!("CREATE DATABASE ledger; CREATE TABLE {}", writers::TABLE);
    server.sql(&table, "").unwrap();
}

/// Everything that was acknowledged is in the table, each transaction whole; at most one more of
/// each writer; the table is sound; and the binary logs have the same transactions. From now on
/// what was found counts as acknowledged.
pub fn check(server: &Server, writers: &mut [Writer]) {
    faults(server, writers).unwrap();
}

/// As [`check`]: what is wrong.
pub fn faults(server: &Server, writers: &mut [Writer]) -> Result<(), String> {
    let failed = |e: io::Error| e.to_string();
    let mut connection = Connection::connect(server.socket()).map_err(failed)?;
    let checked = connection
        .query("CHECK TABLE ledger.t EXTENDED")
        .map_err(failed)?;
    let last = checked.last().and_then(|row| row.last()?.clone());
    if last.as_deref() != Some(&b"OK"[..]) {
        return Err(format!("CHECK TABLE: {checked:?}"));
    }
    let found = writers::found(&mut connection).map_err(failed)?;
    writers::compare(&found, writers)?;
    match logged(&mut connection).map_err(failed)? == found {
        true => Ok(()),
        false => Err("the binary logs have other transactions than the table's engine".to_owned()),
    }
}

/// The rows that the committed transactions of all binary logs insert.
fn logged(connection: &mut Connection) -> io::Result<BTreeSet<writers::Row>> {
    let text = |column: &Option<Vec<u8>>| {
        String::from_utf8_lossy(column.as_deref().unwrap_or_default()).into_owned()
    };
    let mut rows = BTreeSet::new();
    for log in connection.query("SHOW BINARY LOGS")? {
        let mut open = Vec::new();
        for event in connection.binary_log(&text(&log[0]))? {
            match (text(&event[2]).as_str(), text(&event[5])) {
                ("Gtid", _) => open.clear(),
                ("Xid", _) => rows.extend(open.drain(..)),
                (_, info) => open.extend(inserted(&info)),
            }
        }
    }
    Ok(rows)
}

/// What an INSERT of a [`Writer`] inserts.
fn inserted(statement: &str) -> Option<(u64, u64, u64)> {
    let (_, values) = statement.split_once("INSERT INTO ledger.t VALUES (")?;
    let mut numbers = values
        .split(',')
        .map(|value| value.trim().parse::<u64>().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

/// Where a server's files are.
pub fn file(launch: &Launch, name: &str) -> PathBuf {
    launch.data().join(name)
}

impl Database for MariaDb {
    type Client = Connection;

    fn start(launch: &Launch) -> Result<Server, BenchError> {
        Server::start(launch)
    }

    fn make_table(server: &Server) {
        make_table(server);
    }

    fn kill(server: &Server) {
        server.outer().signal(Signal::KILL);
        server.server().signal(Signal::KILL);
    }

    fn faults(server: &Server, writers: &mut [Writer]) -> Result<(), String> {
        faults(server, writers)
    }
}

/// What was wrong after a server's file system was cut off so many times; none where there can be
/// no such disk.
pub fn cut_off(
    kind: &str,
    rounds: usize,
    change: impl Fn(&mut Launch),
) -> Option<Result<(), String>> {
    let mut random = random(kind);
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let mut disk = Disk::make(sandbox.path(), kind)?;
    let mut launch = launch(&disk.at.join("mariadb"), pool.path())?;
    launch
        .environment
        .push(("FOREBAY_RUN_DIR".into(), sandbox.file("run").into()));
    change(&mut launch);
    Some(cut(&mut launch, &mut disk, rounds, &mut random))
}
