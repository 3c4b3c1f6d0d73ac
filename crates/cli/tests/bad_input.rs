//! Stores that are not whole, not writable, or not with their pool: a clear error with the remedy,
//! and nothing lost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{FOREBAY, Ran, Sandbox};
use forebay_bench::{
    data::{Values, key},
    processes::Process,
};
use forebay_pool::PoolOptions;
use forebay_store::{Durability, Store, StoreOptions};
use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
};

/// The test that is a process of other tests, and what it says of each pair.
const WRITER: &str = "write_until_killed";
const ACKNOWLEDGED: &str = "acknowledged";
/// Gives the keys.
const SEED: u64 = 0x0F0E_BA11;

fn open_store(dir: &Path, pool: &Path) -> Store {
    let pool = PoolOptions::new().open(pool).unwrap();
    let options = StoreOptions::new().durability(Durability::DOUBLE);
    options.open(dir, Some(&pool)).unwrap()
}

/// Puts pairs into the store `s` of the working directory.
#[test]
#[ignore = "a process of the other tests"]
fn write_until_killed() {
    let store = open_store(Path::new("s"), Path::new("p"));
    let values = Values::new(4096);
    for number in 0.. {
        store.put(&key(SEED, number), values.value(number)).unwrap();
        println!("{ACKNOWLEDGED}");
    }
}

/// A writer of the store `s`, whose acknowledged pairs are counted.
struct Writer {
    process: Process,
    said: BufReader<ChildStdout>,
    acknowledged: u64,
}

impl Writer {
    fn start(sandbox: &Sandbox) -> Self {
        sandbox.pool();
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", WRITER, "--ignored", "--nocapture"])
            .current_dir(sandbox.file("."));
        let mut process = Process::spawn(command.stdout(Stdio::piped())).unwrap();
        let said = BufReader::new(process.child().stdout.take().unwrap());
        Self {
            process,
            said,
            acknowledged: 0,
        }
    }

    /// Waits for so many acknowledgements more.
    fn acknowledged(&mut self, more: u64) {
        let lines = self.said.by_ref().lines().map(Result::unwrap);
        let acknowledged = lines.filter(|line| line == ACKNOWLEDGED);
        self.acknowledged += acknowledged.take(more as usize).count() as u64;
        assert!(self.acknowledged >= more, "the writer ended");
    }

    /// Kills it. The number of pairs that it said were there.
    fn kill(mut self) -> u64 {
        self.process.kill();
        let lines = self.said.lines().map_while(Result::ok);
        self.acknowledged + lines.filter(|line| line == ACKNOWLEDGED).count() as u64
    }
}

/// A store `s` whose writer was killed, so that acknowledged writes are in the pool `p` only. How
/// many pairs were acknowledged.
fn killed_store(sandbox: &Sandbox) -> u64 {
    let mut writer = Writer::start(sandbox);
    writer.acknowledged(300);
    writer.kill()
}

/// Every acknowledged pair is in the store `s`.
#[track_caller]
fn assert_whole(sandbox: &Sandbox, acknowledged: u64) {
    let store = open_store(&sandbox.file("s"), &sandbox.file("p"));
    let values = Values::new(4096);
    for number in 0..acknowledged {
        let found = store.get(&key(SEED, number)).unwrap();
        assert_eq!(found.as_deref(), Some(values.value(number)), "{number}");
    }
}

fn value_log_files(sandbox: &Sandbox) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(sandbox.file("s/vlog"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    files
}

/// A store `s` with some pairs, closed.
fn closed_store(sandbox: &Sandbox) {
    let lines: String = (0..100).map(|i| format!("key {i}\tvalue {i}\n")).collect();
    sandbox
        .feed("store import --dir s --format tsv", lines.as_bytes())
        .ok();
}

#[test]
fn a_store_with_data_in_its_pool_is_opened_with_that_pool_only() {
    let sandbox = Sandbox::new();
    let acknowledged = killed_store(&sandbox);
    sandbox
        .run("pool create other --emulated --size 6MiB --segment-size 1MiB")
        .ok();
    let before = (
        sandbox.contents("s"),
        sandbox.contents("p"),
        sandbox.contents("other"),
    );
    for with in ["", "--durability nosync", "--pool other"] {
        for command in ["put --dir s k v", "verify --dir s"] {
            let ran = sandbox.run(&format!("store {command} {with}"));
            ran.fails(1, &["may still be in its pool", "Open it with that pool"]);
        }
    }
    assert!(
        before
            == (
                sandbox.contents("s"),
                sandbox.contents("p"),
                sandbox.contents("other")
            )
    );
    assert_whole(&sandbox, acknowledged);
}

#[test]
fn a_recreated_pool_is_not_taken_for_the_one_with_the_data() {
    let sandbox = Sandbox::new();
    killed_store(&sandbox);
    fs::rename(sandbox.file("p"), sandbox.file("kept")).unwrap();
    sandbox.pool();
    sandbox
        .run("store get --dir s --pool p k")
        .fails(1, &["may still be in its pool"]);
    fs::rename(sandbox.file("kept"), sandbox.file("p")).unwrap();
    sandbox.run("store verify --dir s --pool p").ok();
}

#[test]
fn a_store_or_pool_in_use_by_another_process_is_refused() {
    let sandbox = Sandbox::new();
    let mut writer = Writer::start(&sandbox);
    writer.acknowledged(1);
    sandbox
        .run("store put --dir s --pool p k v")
        .fails(1, &["in use by another process"]);
    sandbox
        .run("store get --dir s k")
        .fails(1, &["in use by another process"]);
    let check = sandbox.json("pool check p --json");
    assert_eq!(check["lanes"][0]["state"], "in use");
    let status = sandbox.json("pool status p --json");
    assert_eq!(status["owners"][0]["in_use"], true);
    let acknowledged = writer.kill();
    assert_whole(&sandbox, acknowledged);
}

#[test]
fn a_missing_value_log_file_is_reported_until_it_is_back() {
    let sandbox = Sandbox::new();
    closed_store(&sandbox);
    let file = value_log_files(&sandbox).remove(0);
    let aside = sandbox.file("aside");
    fs::rename(&file, &aside).unwrap();
    let before = sandbox.contents("s");
    for command in ["get --dir s k", "verify --dir s", "put --dir s k v"] {
        sandbox
            .run(&format!("store {command}"))
            .fails(1, &["vlog", "put the file back"]);
    }
    assert_eq!(sandbox.contents("s"), before);
    fs::rename(&aside, &file).unwrap();
    assert_eq!(sandbox.json("store verify --dir s --json")["keys"], 100);
}

#[test]
fn a_truncated_value_log_file_is_reported() {
    let sandbox = Sandbox::new();
    closed_store(&sandbox);
    let file = value_log_files(&sandbox).remove(0);
    for bytes in [100, 0] {
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        let before = sandbox.contents("s");
        sandbox.run("store get --dir s k").fails(1, &["vlog"]);
        assert_eq!(sandbox.contents("s"), before);
    }
}

#[test]
fn a_foreign_value_log_file_is_reported() {
    let sandbox = Sandbox::new();
    closed_store(&sandbox);
    fs::rename(sandbox.file("s"), sandbox.file("other")).unwrap();
    closed_store(&sandbox);
    let file = value_log_files(&sandbox).remove(0);
    fs::copy(
        sandbox.file("other/vlog").join(file.file_name().unwrap()),
        &file,
    )
    .unwrap();
    let before = sandbox.contents("s");
    sandbox.run("store get --dir s k").fails(1, &["vlog"]);
    assert_eq!(sandbox.contents("s"), before);
}

#[test]
fn a_damaged_value_is_found_by_verify_and_never_returned() {
    let sandbox = Sandbox::new();
    closed_store(&sandbox);
    let file = value_log_files(&sandbox).remove(0);
    let name = file
        .strip_prefix(sandbox.path())
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    sandbox.edit(&name, |bytes| {
        let at = bytes.windows(8).position(|w| w == b"value 50").unwrap();
        bytes[at] ^= 1;
    });
    let ran = sandbox.run("store verify --dir s");
    assert_eq!(ran.code, Some(1));
    assert!(
        format!("{}{}", ran.text(), ran.stderr)
            .to_lowercase()
            .contains("damaged"),
        "{}",
        ran.stderr
    );
    let mut get = sandbox.command("store get --dir s");
    Ran::of(get.arg("key 50").output().unwrap()).fails(1, &["damaged"]);
}

#[test]
fn a_torn_or_foreign_manifest_is_reported() {
    let sandbox = Sandbox::new();
    closed_store(&sandbox);
    sandbox.edit("s/MANIFEST", |bytes| bytes[20] ^= 1);
    let before = sandbox.contents("s");
    for command in ["get --dir s k", "put --dir s k v"] {
        sandbox
            .run(&format!("store {command}"))
            .fails(1, &["MANIFEST", "damaged"]);
    }
    assert_eq!(sandbox.contents("s"), before);
}

#[test]
fn a_read_only_directory_is_reported() {
    let sandbox = Sandbox::new();
    let program = sandbox.file("forebay");
    common::copy(FOREBAY, &program);
    fs::create_dir(sandbox.file("dir")).unwrap();
    for (path, mode) in [
        (sandbox.path().to_owned(), 0o755),
        (sandbox.file("dir"), 0o555),
        (program.clone(), 0o755),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut put = Command::new(&program);
    put.args(["store", "put", "--dir", "dir/s", "k", "v"])
        .current_dir(sandbox.path());
    if rustix::process::geteuid().is_root() {
        const NOBODY: u32 = 65534;
        put.uid(NOBODY).gid(NOBODY);
    }
    Ran::of(put.output().unwrap()).fails(1, &["dir/s", "Permission denied"]);
    fs::set_permissions(sandbox.file("dir"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!sandbox.file("dir/s").exists());
}

#[test]
fn a_full_disk_is_reported_and_acknowledged_values_are_there() {
    let sandbox = Sandbox::new();
    closed_store(&sandbox);
    // A limit on the size of files stands for a full disk: a write past it fails, as one without
    // space does.
    let lines: String = (0..200_000)
        .map(|i| format!("more {i}\t{}\n", "x".repeat(200)))
        .collect();
    fs::write(sandbox.file("in.tsv"), lines).unwrap();
    let ran = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\"",
            FOREBAY,
        ])
        .args(["store", "import", "--dir", "t", "in.tsv"])
        .current_dir(sandbox.path())
        .output()
        .unwrap();
    Ran::of(ran).fails(1, &["File too large"]);
    let listed = sandbox.run("store scan --dir s").ok().text();
    assert_eq!(listed.lines().count(), 100);
}
