//! SQLite under `forebay run` with `synchronous=FULL`, in each journal mode, killed with SIGKILL:
//! every acknowledged transaction is there, and the database is whole.
//!
//! Promise (programs): SQLite has every acknowledged transaction after SIGKILL, in each journal
//! mode.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    databases::{PATIENCE, Spoken, Strike, moment, random, small_pool},
    have, said_by,
};
use std::{
    ffi::OsStr,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// The number of rows of the table, each with the text that belongs to it, and its last one, as
/// `sqlite3` without forebay sees them; none if there is no table.
fn rows(database: &Path) -> Option<(i64, i64)> {
    let ask =
        |question: &str| -> String { said_by(Command::new("sqlite3").arg(database).arg(question)) };
    assert_eq!(ask("PRAGMA integrity_check"), "ok");
    if ask("SELECT count(*) FROM sqlite_master") == "0" {
        return None;
    }
    let count = ask("SELECT count(*) FROM t").parse().unwrap();
    assert_eq!(
        ask("SELECT count(*) FROM t WHERE v != n || hex(zeroblob(200 + n % 500))"),
        "0"
    );
    let last = ask("SELECT coalesce(max(n), 0) FROM t").parse().unwrap();
    Some((count, last))
}

/// Tells it to insert rows one after the other until it is killed: the last that it said was done;
/// none if it did not say that there is a table. Counts them.
fn insert(database: &mut Spoken, mode: &str, from: i64, done: &AtomicU64) -> Option<i64> {
    for line in [
        format!("PRAGMA journal_mode={mode};"),
        "PRAGMA synchronous=FULL;".to_owned(),
        // So that the log starts anew again and again.
        "PRAGMA wal_autocheckpoint=50;".to_owned(),
        "CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, v TEXT);".to_owned(),
        "SELECT 'ready';".to_owned(),
    ] {
        database.say(&line);
    }
    while database.answer()? != "ready" {}
    let mut last = from;
    loop {
        let n = last + 1;
        database.say(&format!(
            "INSERT INTO t VALUES ({n}, {n} || hex(zeroblob(200 + {n} % 500))); SELECT 'done {n}';"
        ));
        match database.answer() {
            Some(answer) => assert_eq!(answer, format!("done {n}")),
            None => return Some(last),
        }
        done.fetch_add(1, Relaxed);
        last = n;
    }
}

fn storm(mode: &'static str, strikes: usize) {
    if !have("sqlite3") {
        return;
    }
    let mut random = random(mode);
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let path = sandbox.file("database");
    let mut acknowledged = 0;
    for number in 0..strikes {
        let mut database = Spoken::start(
            pool.path(),
            sandbox.path(),
            &[],
            OsStr::new("sqlite3"),
            &[path.as_os_str()],
        );
        let strike = Strike::number(number);
        let wait = Duration::from_millis(50) + moment(&mut random, 300);
        let (struck, supervisor) = database.both();
        let done = AtomicU64::new(0);
        // The earlier strikes may come before there is a table.
        let must_insert = number + 1 == strikes && acknowledged == 0;
        let last = thread::scope(|scope| {
            let done = &done;
            scope.spawn(move || {
                let begun = Instant::now();
                while must_insert && done.load(Relaxed) == 0 && begun.elapsed() < PATIENCE {
                    thread::sleep(Duration::from_millis(1));
                }
                thread::sleep(wait);
                strike.strike(&struck, &supervisor, || {
                    thread::sleep(Duration::from_millis(100))
                });
            });
            insert(&mut database, mode, acknowledged, done)
        });
        strike.check(database.wait());
        // The next run recovers before it starts anything; the database is looked at after that.
        sandbox
            .run(&format!("recover --pool {}", pool.path().display()))
            .ok();
        let found = rows(&path);
        assert!(found.is_some() || last.is_none(), "the table is missing");
        let ((count, max), last) = (found.unwrap_or((0, 0)), last.unwrap_or(acknowledged));
        println!(
            "{mode}, strike {number}, {strike:?}: {} acknowledged, {count} there",
            last - acknowledged
        );
        assert_eq!(count, max, "a row in the middle is missing");
        assert!(
            max == last || max == last + 1,
            "{last} acknowledged, {max} there"
        );
        acknowledged = max;
    }
    assert!(acknowledged > 0, "nothing was inserted");
}

#[test]
fn the_write_ahead_log_loses_nothing_in_6_kills() {
    storm("WAL", 6);
}

#[test]
fn the_rollback_journal_loses_nothing_in_6_kills() {
    storm("DELETE", 6);
}

#[test]
fn the_truncated_journal_loses_nothing_in_3_kills() {
    storm("TRUNCATE", 3);
}

#[test]
fn the_persistent_journal_loses_nothing_in_3_kills() {
    storm("PERSIST", 3);
}
