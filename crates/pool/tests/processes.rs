//! Pools in files, shared by real processes, and files that are no pool.
//!
//! The second process is this test's own program, started once more with [`ROLE`] set.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_pool::{ClaimOptions, Lane, Pool, PoolErrorKind, PoolOptions};
use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, IoSlice, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};
use tempfile::TempDir;
use uuid::Uuid;

const PARENT: Uuid = Uuid::from_u128(1);
const CHILD: Uuid = Uuid::from_u128(2);
/// Set in the second process: the pool's path.
const ROLE: &str = "FOREBAY_TEST_SECOND_PROCESS";

fn new_pool() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shared.pool");
    let options = PoolOptions::new()
        .size(16 << 20)
        .segment_size(1 << 20)
        .lanes(4)
        .emulated(true);
    options.create(&path).unwrap();
    (dir, path)
}

fn claim(pool: &Pool, owner: Uuid) -> (Lane, Vec<Vec<u8>>) {
    let options = ClaimOptions::new().segments(7).label("a test");
    let (lane, recovered) = pool.claim(owner, &options).unwrap();
    let payloads = recovered.records().map(|r| r.payload.to_vec()).collect();
    (lane, payloads)
}

/// The second process: claims its lane and appends for ever, saying each record's number once it is
/// acknowledged. Not a test by itself.
#[test]
fn second_process() {
    let Ok(path) = std::env::var(ROLE) else {
        return;
    };
    let pool = PoolOptions::new().open(Path::new(&path)).unwrap();
    let (lane, found) = claim(&pool, CHILD);
    lane.set_stalled("there is no drain".into());
    let mut told = std::io::stdout().lock();
    writeln!(told, "\nclaimed {}", found.len()).unwrap();
    for i in 0u32.. {
        let payload = [&i.to_le_bytes()[..], &[i as u8; 300]].concat();
        if lane.append(1, &[IoSlice::new(&payload)]).is_err() {
            break;
        }
        writeln!(told, "acknowledged {i}").unwrap();
        told.flush().unwrap();
    }
    // Full: keeps the lane until it is killed or told to go.
    writeln!(told, "full").unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

struct Second {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Second {
    fn start(path: &Path) -> Self {
        // Where the tests run in an emulator, the second process needs it too; cargo has it in this
        // variable.
        let arch = std::env::consts::ARCH.to_uppercase();
        let runner = std::env::var(format!("CARGO_TARGET_{arch}_UNKNOWN_LINUX_GNU_RUNNER"));
        let runner = runner.unwrap_or_default();
        let own = std::env::current_exe().unwrap();
        let mut words = runner
            .split_whitespace()
            .map(OsStr::new)
            .chain([own.as_os_str()]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        command
            .args([
                "--exact",
                "second_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            stdin,
            stdout,
        }
    }

    /// Reads lines up to one that starts with `word`, and gives its number if it has one.
    fn wait_for(&mut self, word: &str) -> Option<u32> {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            if let Some(rest) = line.trim_end().strip_prefix(word) {
                return rest.trim().parse().ok();
            }
            line.clear();
        }
        panic!("the second process ended before it said {word:?}");
    }

    /// SIGKILL, in the middle of whatever it does; gives the highest number it acknowledged.
    fn kill(mut self) -> Option<u32> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let last = self
            .stdout
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| {
                let number = line.strip_prefix("acknowledged ")?;
                // The last line may be cut.
                number.parse().ok()
            });
        last.max()
    }
}

/// Promise (pool): Processes share a pool through different lanes, and a lane has one owner at a
/// time.
#[test]
fn two_processes_share_a_pool_and_each_recovers_its_own_records() {
    let (_dir, path) = new_pool();
    let mut second = Second::start(&path);
    let pool = PoolOptions::new().open(&path).unwrap();
    let (lane, _) = claim(&pool, PARENT);
    assert_eq!(second.wait_for("claimed"), Some(0));
    for i in 0..200u8 {
        lane.append(1, &[IoSlice::new(&[i; 700])]).unwrap();
    }
    second.wait_for("full");
    second.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(second.child.wait().unwrap().success());
    drop(lane);
    let (_lane, found) = claim(&pool, PARENT);
    assert_eq!(found, (0..200u8).map(|i| vec![i; 700]).collect::<Vec<_>>());
    let (_lane, found) = claim(&pool, CHILD);
    for (i, payload) in (0u32..).zip(&found) {
        assert_eq!(payload[..4], i.to_le_bytes());
    }
    assert!(found.len() > 15_000);
}

/// Promise (pool): A process that is killed at any moment loses no acknowledged record, and another
/// process can claim its lane at once.
#[test]
fn a_killed_processs_lane_is_claimed_at_once_with_every_record() {
    let (_dir, path) = new_pool();
    // Far fewer than fill the lane: the kill comes while it appends.
    for told in (0..8).map(|round| 7 + 1300 * round) {
        let pool = PoolOptions::new().open(&path).unwrap();
        let mut second = Second::start(&path);
        second.wait_for("claimed");
        second.wait_for(&format!("acknowledged {told}"));
        let error = pool.claim(CHILD, &ClaimOptions::new()).err().unwrap();
        assert!(matches!(error.kind, PoolErrorKind::InUse { .. }), "{error}");
        assert!(error.to_string().contains("(a test) is in use"), "{error}");
        assert!(pool.lanes()[0].in_use);
        let acknowledged = second.kill().unwrap_or(told);
        let (lane, found) = claim(&pool, CHILD);
        assert!(found.len() as u32 > acknowledged);
        for (i, payload) in (0u32..).zip(&found) {
            assert_eq!(
                payload[..],
                [&i.to_le_bytes()[..], &[i as u8; 300]].concat()
            );
        }
        while let Some(sealed) = lane.take_sealed(std::time::Duration::ZERO) {
            sealed.release();
        }
        assert!(lane.remove());
    }
}

/// Opens and creates at `path`; both must be refused, with these words, and `path` stay as it is.
fn refused(path: &Path, open_says: &str, create_says: &str) {
    let before = fs::read(path).ok();
    let error = PoolOptions::new()
        .emulated(true)
        .open(path)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains(open_says), "{error}");
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    if !create_says.is_empty() {
        let options = PoolOptions::new().emulated(true);
        let error = options.create(path).err().unwrap().to_string();
        assert!(error.contains(create_says), "{error}");
    }
    assert!(fs::read(path).ok() == before, "the file was changed");
}

/// Promise (pool): A file that is no pool, a damaged pool, and a pool that lost its persistent
/// memory are each refused for their own reason and left unchanged.
#[test]
fn a_path_without_a_pool_is_refused_for_what_it_is_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let exists = "exists already";
    refused(&at("empty", b""), "is an empty file", exists);
    refused(&at("short", b"x"), "is not a Forebay pool", exists);
    let text = "To be, or not to be. ".repeat(5000);
    refused(
        &at("foreign", text.as_bytes()),
        "is not a Forebay pool",
        exists,
    );
    refused(&at("zeros", &[0; 1 << 20]), "is not a Forebay pool", exists);
    let directory = dir.path().join("directory");
    fs::create_dir(&directory).unwrap();
    refused(&directory, "opening the pool: Is a directory", exists);
    refused(&dir.path().join("none"), "No such file", "");
    refused(Path::new("/dev/null"), "is neither a regular file nor", "");
}

/// Promise: as `a_path_without_a_pool_is_refused_for_what_it_is_unchanged`.
#[test]
fn a_damaged_pool_file_is_refused_for_what_is_wrong_unchanged() {
    let (dir, path) = new_pool();
    let pool = PoolOptions::new().open(&path).unwrap();
    let (lane, _) = claim(&pool, PARENT);
    lane.append(1, &[IoSlice::new(b"kept")]).unwrap();
    let geometry = pool.geometry();
    drop((lane, pool));
    let whole = fs::read(&path).unwrap();
    let at = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let exists = "exists already";
    let half = &whole[..whole.len() / 2];
    refused(&at("truncated", half), "is truncated", exists);
    refused(&at("a page", &whole[..4096]), "is truncated", exists);
    let mut version = whole.clone();
    for copy in [0, 4096] {
        version[copy + 8] = 9;
        version[copy + 12..copy + 16].fill(0);
        let crc = forebay_pool::crc32c([&version[copy..copy + 128]]);
        version[copy + 12..copy + 16].copy_from_slice(&crc.to_le_bytes());
    }
    refused(
        &at("version", &version),
        "is a pool of format version 9",
        exists,
    );
    let mut corrupt = whole.clone();
    corrupt[30] ^= 1;
    corrupt[4096 + 60] ^= 1;
    refused(&at("corrupt", &corrupt), "superblock A", exists);
    // Damage further in is found by the call that needs it: claiming is refused, and changes
    // nothing either.
    let (lane, map) = (geometry.lane_entry(0) as usize, geometry.map() as usize);
    for (name, bytes) in [("lane", vec![lane + 9, lane + 73]), ("map", vec![map + 3])] {
        let mut damaged = whole.clone();
        for byte in bytes {
            damaged[byte] ^= 1;
        }
        let path = at(name, &damaged);
        let pool = PoolOptions::new().open(&path).unwrap();
        let error = pool.claim(PARENT, &ClaimOptions::new()).err().unwrap();
        assert!(error.to_string().contains("is damaged: "), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        assert!(fs::read(&path).unwrap() == damaged);
    }
}
