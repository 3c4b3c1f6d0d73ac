//! LevelDB (Debian's library, a small program of ours) under `forebay run`, killed with SIGKILL:
//! every acknowledged pair is there with its exact bytes.
//!
//! Promise (programs): LevelDB has every acknowledged pair after SIGKILL.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    databases::{Spoken, Strike, forebay_run, leveldb, moment, random, small_pool},
    said_by,
};
use std::{ffi::OsStr, process::Command, thread, time::Duration};

#[test]
fn leveldb_loses_nothing_in_12_kills() {
    const STRIKES: usize = 12;
    let sandbox = Sandbox::new();
    let Some(program) = leveldb(&sandbox) else {
        return;
    };
    let mut random = random("leveldb");
    let pool = small_pool();
    let db = sandbox.file("db");
    let mut next: u64 = 0;
    for number in 0..STRIKES {
        let from = next.to_string();
        let arguments = [db.as_os_str(), OsStr::new("write"), OsStr::new(&from)];
        let mut writer = Spoken::start(
            pool.path(),
            sandbox.path(),
            &["--profile", "leveldb"],
            program.as_os_str(),
            &arguments,
        );
        let strike = Strike::number(number);
        let wait = moment(&mut random, 400);
        let (database, supervisor) = writer.both();
        let acknowledged = thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(wait);
                strike.strike(&database, &supervisor, || {
                    thread::sleep(Duration::from_millis(100))
                });
            });
            let mut acknowledged = next;
            while let Some(n) = writer.answer() {
                assert_eq!(n, acknowledged.to_string());
                acknowledged += 1;
            }
            acknowledged
        });
        strike.check(writer.wait());
        let line = forebay_run(pool.path());
        let said = said_by(
            Command::new(&line[0])
                .args(&line[1..line.len() - 1])
                .args(["--profile", "leveldb", "--"])
                .arg(&program)
                .args([db.as_os_str(), OsStr::new("count")])
                .current_dir(sandbox.path()),
        );
        let there: u64 = said.parse().unwrap();
        println!(
            "strike {number}, {strike:?}: {} acknowledged, {there} there in all",
            acknowledged - next
        );
        assert!(
            there == acknowledged || there == acknowledged + 1,
            "{acknowledged} acknowledged, {there} there"
        );
        next = there;
    }
    assert!(next > 100, "hardly anything was written");
}
