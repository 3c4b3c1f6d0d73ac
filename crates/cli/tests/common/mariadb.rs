//! A MariaDB server under `forebay run`, writers that remember what they were promised, and what must be true after a crash.

use super::{Sandbox, databases::forebay_run};
use forebay_bench::{
    data::Random,
    mariadb::{
        client::Connection,
        server::{self, Launch, Server},
    },
    sql::Client,
};
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// Debian's own configuration.
const DEBIANS: &str = "/etc/mysql/mariadb.cnf";

/// A server in `dir`, with Debian's configuration where that is installed, under forebay with `pool`; none without MariaDB.
pub fn launch(dir: &Path, pool: &Path) -> Option<Launch> {
    let programs = ["mariadbd", "mariadb-install-db", "mariadb"];
    if let Some(missing) = programs.iter().find_map(|name| server::program(name).err()) {
        assert!(std::env::var_os("CI").is_none(), "{missing}");
        println!("skipped: {missing}");
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

/// As [`launch`], in a sandbox.
pub fn launch_in(sandbox: &Sandbox, pool: &Path) -> Option<Launch> {
    launch(&sandbox.file("mariadb"), pool)
}

/// Every start believes that the machine was booted anew, and that the pool, which is emulated, survived it.
pub fn boot_anew(launch: &mut Launch, number: usize) {
    let ours = ["FOREBAY_TEST_BOOT_ID", "FOREBAY_TEST_POOL_SURVIVED"];
    launch
        .environment
        .retain(|(name, _)| !ours.iter().any(|our| *name == **our));
    let boot = format!("00000000-0000-4000-8000-{number:012}");
    launch
        .environment
        .extend([(ours[0].into(), boot.into()), (ours[1].into(), "1".into())]);
}

/// Makes the table that [`Writer`]s write to.
pub fn make_table(server: &Server) {
    let table = "CREATE DATABASE ledger; CREATE TABLE ledger.t (writer INT, seq INT, part INT, v VARCHAR(400), PRIMARY KEY (writer, seq, part))";
    server.sql(table, "").unwrap();
}

/// A client with a connection of its own, which writes transactions numbered from 1.
pub struct Writer {
    number: u64,
    random: Random,
    /// The last transaction whose commit returned.
    pub acknowledged: u64,
    /// What the server said instead of carrying one out, if it did.
    pub refused: Option<String>,
}

impl Writer {
    /// Some writers.
    pub fn several(count: u64, random: &mut Random) -> Vec<Self> {
        let writer = |number| Self {
            number,
            random: Random::new(random.below(u64::MAX)),
            acknowledged: 0,
            refused: None,
        };
        (0..count).map(writer).collect()
    }

    /// Writes until the connection breaks, or `done`.
    pub fn write(&mut self, socket: &Path, done: &AtomicBool, all: &AtomicU64) {
        let Ok(mut connection) = Connection::connect(socket) else {
            return;
        };
        while !done.load(Relaxed) {
            match self.transaction(&mut connection) {
                Ok(()) => {}
                Err(e) => {
                    self.refused = (e.kind() == io::ErrorKind::Other).then(|| e.to_string());
                    return;
                }
            }
            self.acknowledged += 1;
            all.fetch_add(1, Relaxed);
        }
    }

    /// Of one part, or of two or three between BEGIN and COMMIT.
    fn transaction(&mut self, connection: &mut Connection) -> io::Result<()> {
        let seq = self.acknowledged + 1;
        let parts = parts(self.number, seq);
        let insert = |part: u64, letters: u64| {
            let v = "v".repeat(letters as usize);
            format!(
                "INSERT INTO ledger.t VALUES ({}, {seq}, {part}, '{v}')",
                self.number
            )
        };
        if parts == 1 {
            return connection
                .query(&insert(0, self.random.below(400)))
                .map(drop);
        }
        connection.query("BEGIN")?;
        for part in 0..parts {
            connection.query(&insert(part, self.random.below(400)))?;
        }
        connection.query("COMMIT").map(drop)
    }
}

fn parts(writer: u64, seq: u64) -> u64 {
    1 + (writer + seq) % 3
}

/// Everything that was acknowledged is in the table, each transaction whole; at most one more of each writer; the table is sound; and the binary logs
/// have the same transactions. From now on what was found counts as acknowledged.
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
    let rows = connection
        .query("SELECT writer, seq, part FROM ledger.t")
        .map_err(failed)?;
    let number = |column: &Option<Vec<u8>>| -> u64 {
        String::from_utf8_lossy(column.as_ref().unwrap())
            .parse()
            .unwrap()
    };
    let found: BTreeSet<(u64, u64, u64)> = rows
        .iter()
        .map(|row| (number(&row[0]), number(&row[1]), number(&row[2])))
        .collect();
    let mut expected = BTreeSet::new();
    for writer in writers {
        let last = found.iter().filter(|row| row.0 == writer.number);
        let last = last.map(|row| row.1).max().unwrap_or(0);
        if !(writer.acknowledged..=writer.acknowledged + 1).contains(&last) {
            return Err(format!(
                "writer {}: {} transactions were acknowledged, {last} are there",
                writer.number, writer.acknowledged
            ));
        }
        writer.acknowledged = last;
        for seq in 1..=last {
            expected.extend((0..parts(writer.number, seq)).map(|part| (writer.number, seq, part)));
        }
    }
    if found != expected {
        return Err("transactions are not whole".to_owned());
    }
    match logged(&mut connection).map_err(failed)? == found {
        true => Ok(()),
        false => Err("the binary logs have other transactions than InnoDB".to_owned()),
    }
}

/// The rows that the committed transactions of all binary logs insert.
fn logged(connection: &mut Connection) -> io::Result<BTreeSet<(u64, u64, u64)>> {
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

/// The lines of `--explain` of a file whose name ends so: its name, writes, bytes, syncs and state.
pub fn explained(output: &str, name: &str) -> Option<Vec<String>> {
    let line = output.lines().find(|line| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|path| path.ends_with(name)) && words.next().is_some()
    })?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// The writes that `--explain` says were absorbed of such a file; 0 if it was not absorbed.
pub fn absorbed_writes(output: &str, name: &str) -> u64 {
    let Some(words) = explained(output, name) else {
        return 0;
    };
    let is_absorbed = words.last().is_some_and(|state| state == "absorbed");
    let writes = words
        .get(1)
        .and_then(|number| number.replace(',', "").parse().ok());
    writes.filter(|_| is_absorbed).unwrap_or(0)
}

/// Where a server's files are.
pub fn file(launch: &Launch, name: &str) -> PathBuf {
    launch.data().join(name)
}
