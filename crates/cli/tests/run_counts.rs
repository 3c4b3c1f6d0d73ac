//! Nothing that a database does to its logs goes past the library: what it counts is what strace
//! counts.
//!
//! Each database runs the same work twice under strace, plain and under `forebay run`, one
//! operation at a time so that both do the same.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{DURABLE_REDIS, FOREBAY, Sandbox, databases::small_pool, have};
use forebay_bench::redis::{
    resp::is_ok,
    server::{Kind, Launch, Server},
};
use std::{
    ffi::OsString,
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// What was done to a database's logs, all together: which of its logs a write goes to depends on
/// when its threads run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    writes: u64,
    syncs: u64,
}

const WRITES: &str = "write,pwrite64,writev,pwritev,pwritev2";
const SYNCS: &str = "fsync,fdatasync,sync_file_range";

/// What stands before a program so that strace writes its calls to `to`.
fn strace(to: &Path) -> Vec<OsString> {
    let mut line: Vec<OsString> = ["strace", "-f", "-y", "-qq", "--seccomp-bpf", "-e"]
        .map(OsString::from)
        .into();
    line.push(format!("trace={WRITES},{SYNCS}").into());
    line.extend([OsString::from("-o"), to.into()]);
    line
}

/// The calls that strace saw, of files whose names end so.
fn seen(output: &Path, suffix: &str) -> Counts {
    let mut counts = Counts::default();
    for line in fs::read_to_string(output).unwrap().lines() {
        // PID CALL(FD</path>, … A call that another thread's interrupted is resumed in a line
        // without a path.
        let Some((call, rest)) = line
            .split_once(' ')
            .and_then(|(_, call)| call.trim_start().split_once('('))
        else {
            continue;
        };
        let Some(path) = rest
            .split_once('<')
            .and_then(|(_, path)| path.split_once('>'))
            .map(|(path, _)| path)
        else {
            continue;
        };
        if !path.ends_with(suffix) {
            continue;
        }
        // Without flags it does nothing: RocksDB asks so whether the file system has the call.
        // Another thread's call may come in between.
        let is_without_flags = [", 0)", ", 0 <unfinished"]
            .iter()
            .any(|end| rest.contains(end));
        if call == "sync_file_range" && is_without_flags {
            continue;
        }
        // Of no bytes: how it is asked whether the file system has shut itself down.
        if call == "pwrite64" && rest.contains("\"\", 0, 0") {
            continue;
        }
        if SYNCS.split(',').any(|sync| sync == call) {
            counts.syncs += 1;
        } else {
            counts.writes += 1;
        }
    }
    counts
}

/// The counts that `forebay run --explain` printed: a line of a table for each file.
fn explained(said: &str, suffix: &str) -> Counts {
    let mut counts = Counts::default();
    for line in said.lines().filter(|line| line.ends_with(" absorbed")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.replace(',', "").parse::<u64>().unwrap();
        // path, writes, bytes and their unit, syncs, state
        let [path, writes, _, _, syncs, _] = words[..] else {
            panic!("{line}");
        };
        if path.ends_with(suffix) {
            counts.writes += number(writes);
            counts.syncs += number(syncs);
        }
    }
    counts
}

/// Syncs that were real ones, since names had changed before them, as `forebay run --explain` says.
fn ordered(said: &str) -> u64 {
    let line = said
        .lines()
        .find(|line| line.contains("syncs were real ones"));
    let number = |line: &str| line.split(' ').next().unwrap().parse().unwrap();
    line.map_or(0, number)
}

/// `plain` and `under` are what strace saw, `explained` is what the library counted.
fn compare(plain: Counts, under: Counts, explained: Counts, ordered: u64) {
    assert_eq!(
        plain, explained,
        "the library counted other calls than the database makes without it"
    );
    let logged = Counts {
        syncs: ordered,
        ..explained
    };
    assert_eq!(
        under, logged,
        "the kernel must get each write that was logged, no other, and the syncs behind new names"
    );
    assert!(ordered * 10 < plain.syncs, "{ordered} of {}", plain.syncs);
}

fn forebay_run(pool: &Path, profile: &str) -> Vec<OsString> {
    let mut line = vec![OsString::from(FOREBAY)];
    line.extend(["run", "--explain", "--profile", profile, "--pool"].map(OsString::from));
    line.extend([pool.into(), "--".into()]);
    line
}

#[test]
fn each_write_and_sync_of_redis_is_counted_as_strace_counts_it() {
    let Ok(program) = Kind::Redis.program() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    if !have("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let run = |name: &str, before: Vec<OsString>| {
        let dir = sandbox.file(name);
        fs::create_dir(&dir).unwrap();
        let calls = sandbox.file(&format!("{name}.strace"));
        let mut server = Server::start(&Launch {
            wrapper: [before, strace(&calls)].concat(),
            options: DURABLE_REDIS.map(str::to_owned).into(),
            ..Launch::of(program.clone(), &dir)
        })
        .unwrap();
        let mut connection = server.connect().unwrap();
        for number in 0..300 {
            let reply = connection.line(&format!("SET key:{number} {number}"));
            assert!(reply.as_ref().is_ok_and(is_ok), "{reply:?}");
        }
        // It closes the connection instead of answering.
        let _ = connection.line("SHUTDOWN NOSAVE");
        assert!(server.wait().unwrap().success());
        (seen(&calls, ".incr.aof"), server.output())
    };
    let (plain, _) = run("plain", Vec::new());
    let (under, said) = run("under", forebay_run(pool.path(), "redis"));
    let explained = explained(&said, ".incr.aof");
    assert_eq!(plain.writes, 300);
    compare(plain, under, explained, ordered(&said));
}

#[test]
fn each_rocksdb_write_and_sync_is_counted_as_strace_counts_it() {
    if !have("db_bench") || !have("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let run = |name: &str, before: Vec<OsString>| {
        let calls = sandbox.file(&format!("{name}.strace"));
        let line = [before, strace(&calls)].concat();
        let ran = Command::new(&line[0])
            .args(&line[1..])
            .args([
                "db_bench",
                "--benchmarks=fillseq",
                "--sync=1",
                "--num=500",
                "--value_size=400",
            ])
            .args(["--compression_type=none", "--write_buffer_size=65536"])
            .arg(format!("--db={}", sandbox.file(name).display()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{said}");
        (seen(&calls, ".log"), said)
    };
    let (plain, _) = run("plain", Vec::new());
    let (under, said) = run("under", forebay_run(pool.path(), "rocksdb"));
    let explained = explained(&said, ".log");
    assert_eq!(plain.writes, 500);
    compare(plain, under, explained, ordered(&said));
}
