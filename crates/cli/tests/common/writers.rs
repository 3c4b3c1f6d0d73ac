//! Writers of an SQL server that remember what they were promised: each has a connection of its
//! own, and writes to the table `ledger.t`.

use super::databases::{PATIENCE, Strike};
use forebay_bench::{data::Random, sql::Client};
use std::{
    collections::BTreeSet,
    io,
    path::Path,
    process::ExitStatus,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread::{self, Scope},
    time::{Duration, Instant},
};

/// The table's columns.
pub const TABLE: &str =
    "ledger.t (writer INT, seq INT, part INT, v VARCHAR(400), PRIMARY KEY (writer, seq, part))";

/// A row of the table: writer, transaction, part of it.
pub type Row = (u64, u64, u64);

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
    pub fn write<C: Client>(&mut self, socket: &Path, done: &AtomicBool, all: &AtomicU64) {
        let Ok(mut connection) = C::connect(socket) else {
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
    fn transaction(&mut self, connection: &mut impl Client) -> io::Result<()> {
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

/// After a strike: says what came of it, and checks how the supervisor ended, and that the server
/// refused nothing.
#[track_caller]
pub fn check_strike(
    name: &str,
    strike: Strike,
    status: ExitStatus,
    all: &AtomicU64,
    writers: &[Writer],
) {
    println!("{name}, {strike:?}: {} acknowledged", all.load(Relaxed));
    strike.check(status);
    let refused: Vec<_> = writers.iter().filter_map(|w| w.refused.clone()).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Has each writer write, in a thread of its own, as [`Writer::write`].
pub fn all_write<'a, C: Client>(
    scope: &'a Scope<'a, '_>,
    writers: &'a mut [Writer],
    socket: &'a Path,
    (done, all): (&'a AtomicBool, &'a AtomicU64),
) {
    for writer in writers {
        scope.spawn(move || writer.write::<C>(socket, done, all));
    }
}

/// Has the writers write until so many more transactions are acknowledged.
pub fn write_some<C: Client>(socket: &Path, writers: &mut [Writer], transactions: u64) {
    let (done, all) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        all_write::<C>(scope, writers, socket, (&done, &all));
        let until = Instant::now() + PATIENCE;
        while all.load(Relaxed) < transactions && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
        done.store(true, Relaxed);
    });
    assert!(all.load(Relaxed) >= transactions, "the server is stuck");
}

/// The rows that there are.
pub fn found(connection: &mut impl Client) -> io::Result<BTreeSet<Row>> {
    let rows = connection.query("SELECT writer, seq, part FROM ledger.t")?;
    let number = |column: &Option<Vec<u8>>| -> u64 {
        String::from_utf8_lossy(column.as_ref().unwrap())
            .parse()
            .unwrap()
    };
    let row = |row: &Vec<_>| (number(&row[0]), number(&row[1]), number(&row[2]));
    Ok(rows.iter().map(row).collect())
}

/// Every transaction that was acknowledged is there, each whole; at most one more of each writer.
/// What is wrong, if not. From now on what was found counts as acknowledged.
pub fn compare(found: &BTreeSet<Row>, writers: &mut [Writer]) -> Result<(), String> {
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
    match *found == expected {
        true => Ok(()),
        false => Err("transactions are not whole".to_owned()),
    }
}
