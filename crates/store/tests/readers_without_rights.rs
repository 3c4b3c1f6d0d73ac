//! Readers that can write neither to a store nor to its pool, since the file system is read-only to
//! them; beside a process that writes all the time, and beside what that left when it was killed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{contents, tiny, within};
use forebay_pool::PoolOptions;
use forebay_store::{Durability, ReadOnlyStore, ScanRange};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, ErrorKind, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// The directory in which a process of this program finds store and pool.
const PLACE: &str = "FOREBAY_STORE_READERS_PLACE";
const KEYS: u64 = 500;

fn place() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(PathBuf::from)
}

fn number(reader: &ReadOnlyStore, key: &str) -> u64 {
    let value = reader.get(key).unwrap().unwrap();
    u64::from_le_bytes(value[..].try_into().unwrap())
}

#[test]
#[ignore = "the process that writes until it is killed; run by the tests below"]
fn owner() {
    let Some(place) = place() else { return };
    // It does not outlive the test.
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let pool = PoolOptions::new().open(place.join("pool")).unwrap();
    let options = tiny(Durability::DOUBLE);
    let store = options.open(place.join("store"), &pool).unwrap();
    for n in 0.. {
        store.put(&(n % KEYS).to_le_bytes(), &[7; 700]).unwrap();
        // Both or none.
        let mut batch = store.batch();
        batch.put("one", &u64::to_le_bytes(n)).unwrap();
        batch.put("other", &u64::to_le_bytes(n)).unwrap();
        store.write(&batch).unwrap();
        if n == KEYS {
            store.put("large", &[1; 100_000]).unwrap();
            println!("written");
        }
    }
}

#[test]
#[ignore = "the process that may only read; run by the tests below"]
fn reader() {
    let Some(place) = place() else { return };
    let pool_path = place.join("pool");
    let refused = File::options().write(true).open(&pool_path).unwrap_err();
    let is_refusal = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
    assert!(is_refusal.contains(&refused.kind()), "{refused}");
    let refused = fs::write(place.join("store/file"), "").unwrap_err();
    assert!(is_refusal.contains(&refused.kind()), "{refused}");
    let options = tiny(Durability::DOUBLE);
    let reading = PoolOptions::new().open_read_only(&pool_path).unwrap();
    // Found by the manifest, and given.
    for pool in [None, Some(&reading)] {
        let reader = options.open_read_only(place.join("store"), pool).unwrap();
        let mut before = 0;
        for _ in 0..5 {
            reader.refresh().unwrap();
            let n = number(&reader, "one");
            assert_eq!(number(&reader, "other"), n);
            assert!(n >= before.max(KEYS), "{n} after {before}");
            before = n;
            let keys: Vec<_> = (0..KEYS).map(u64::to_le_bytes).collect();
            let values = reader.multi_get(&keys).unwrap();
            assert!(
                values
                    .iter()
                    .all(|v| v.as_ref().is_some_and(|v| *v == [7; 700]))
            );
            let count = reader.scan(ScanRange::all()).unwrap().count() as u64;
            assert_eq!(count, KEYS + 3);
        }
        assert_eq!(reader.get("large").unwrap().unwrap().len(), 100_000);
    }
    println!("read it");
}

/// A directory with this program and a pool in memory or on a disk.
fn shared_place(on_disk: bool) -> TempDir {
    let dir = match on_disk {
        false if Path::new("/dev/shm").is_dir() => tempfile::tempdir_in("/dev/shm"),
        _ => tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")),
    };
    let dir = dir.unwrap();
    fs::copy(std::env::current_exe().unwrap(), dir.path().join("program")).unwrap();
    let pool = PoolOptions::new().size(2 << 20).segment_size(64 << 10);
    let pool = pool.lanes(4).emulated(!on_disk).on_disk(on_disk);
    drop(pool.create(dir.path().join("pool")).unwrap());
    dir
}

/// A process of this program, behind the words of another command.
fn process(before: &[&str], place: &Path, test: &str) -> Command {
    let program = place.join("program");
    let words = before.iter().map(|word| word.to_string());
    let mut words = words.chain([program.to_str().unwrap().to_owned()]);
    let mut command = Command::new(words.next().unwrap());
    let arguments = ["--ignored", "--exact", "--nocapture", test];
    command.args(words).args(arguments).env(PLACE, place);
    command.current_dir("/").stdout(Stdio::piped());
    command
}

/// Killed when this is dropped.
struct Owner(Child);

impl Owner {
    /// It has written, and goes on.
    fn start(place: &Path) -> Self {
        // So that nothing is shown to others by chance.
        let umask = ["sh", "-c", "umask 077; exec \"$0\" \"$@\""];
        let mut command = process(&umask, place, "owner");
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let owner = Self(child);
        let mut said = said.map_while(Result::ok);
        assert!(said.any(|line| line.contains("written")), "it has ended");
        owner
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Some at a time.
fn assert_readers_read(before: &[&str], place: &Path) {
    let start = |_| {
        let mut command = process(before, place, "reader");
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let readers: Vec<Child> = (0..3).map(start).collect();
    for reader in readers {
        let ran = reader.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        let complained = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.success() && said.contains("read it"),
            "{said}{complained}"
        );
    }
}

/// Has them read beside a process that writes, and beside what that left.
fn read_beside_owner_and_killed(before: Vec<String>) {
    within(Duration::from_secs(120), "reading", move || {
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        for on_disk in [false, true] {
            let dir = shared_place(on_disk);
            let before: Vec<&str> = before
                .iter()
                .map(|word| match *word {
                    "PLACE" => dir.path().to_str().unwrap(),
                    word => word,
                })
                .collect();
            let owner = Owner::start(dir.path());
            assert_readers_read(&before, dir.path());
            drop(owner);
            let pool = dir.path().join("pool");
            let look = || {
                (
                    contents(&dir.path().join("store")),
                    fs::read(&pool).unwrap(),
                )
            };
            let left = look();
            assert_readers_read(&before, dir.path());
            assert!(look() == left, "a reader changed something");
        }
    });
}

fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: only root can {what}");
    }
    root
}

/// Promise (store): A store and its pool are read on a read-only file system, beside the owner and
/// beside what a killed one left, and nothing is changed.
#[test]
fn stores_and_pools_on_a_read_only_mount_are_read() {
    if !is_root("mount a directory read-only") {
        return;
    }
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
    let tried = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .args([tempfile::tempdir().unwrap().path(), Path::new("true")])
        .output()
        .unwrap();
    if !tried.status.success() {
        let why = String::from_utf8_lossy(&tried.stderr).into_owned();
        println!("skipped: no mount may be made here: {why}");
        return;
    }
    let words = ["unshare", "--mount", "sh", "-c", script, "PLACE"];
    read_beside_owner_and_killed(words.map(str::to_owned).to_vec());
}
