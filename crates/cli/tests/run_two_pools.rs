//! A program is killed with its run, and started again with another pool, while the first one has
//! records of its log. Whatever is recovered in whatever order, no older bytes come over newer
//! ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox, cut::put_back, databases::boot_anew, disk::Disk};
use std::{fs, path::PathBuf, thread, time::Duration};

/// Writes a hundred of a byte to the beginning of `a.log` and syncs them, and not when they were
/// written; then, if it is to, ends with its run as in a power cut.
const PROGRAM: &str = r#"
import os, signal, sys
fd = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
os.fsync(fd)
os.pwrite(fd, sys.argv[1].encode() * 100, 0)
os.fdatasync(fd)
if sys.argv[2] == "cut":
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
"#;
const MARK: &str = "user.forebay.pools";

/// Pools beside a data directory.
struct Place {
    sandbox: Sandbox,
    data: PathBuf,
}

impl Place {
    fn new() -> Self {
        let sandbox = Sandbox::on_disk();
        let data = sandbox.file("data");
        fs::create_dir(&data).unwrap();
        Self { sandbox, data }
    }

    fn pool(&self, name: &str, kind: &str) {
        let line = format!("pool create {name} --{kind} --size 4MiB --segment-size 256KiB");
        self.sandbox.run(&line).ok();
    }

    /// `forebay`, in the boot with this number, or really in this one.
    fn forebay(&self, boot: Option<usize>, words: &[&str]) -> Ran {
        let mut environment = Vec::new();
        if let Some(boot) = boot {
            boot_anew(&mut environment, boot);
        }
        let mut command = self.sandbox.command("");
        command
            .args(words)
            .current_dir(&self.data)
            .env("FOREBAY_RUN_DIR", self.sandbox.file("run"))
            .env("FOREBAY_TEST_SYNCED", self.sandbox.file("synced"))
            .envs(environment);
        Ran::of(command.output().unwrap())
    }

    /// Runs the program with a pool until it ends, or is cut.
    fn run(&self, boot: Option<usize>, pool: &str, byte: &str, end: &str) -> Ran {
        let pool = format!("../{pool}");
        let words = [
            "run",
            "--absorb",
            "*.log",
            "--absorb-preallocated",
            "--explain",
            "--pool",
            &pool,
            "--",
            "python3",
            "-c",
            PROGRAM,
            byte,
            end,
        ];
        let ran = self.forebay(boot, &words);
        assert_eq!(ran.code, (end != "cut").then_some(0), "{}", ran.stderr);
        ran
    }

    fn recover(&self, boot: Option<usize>, words: &[&str]) -> Ran {
        self.forebay(boot, &[&["recover"], words].concat())
    }

    #[track_caller]
    fn has(&self, byte: u8) {
        let found = fs::read(self.data.join("a.log")).unwrap();
        assert!(
            found == [byte; 100],
            "{:?}",
            String::from_utf8_lossy(&found)
        );
    }

    /// The directory says nothing any more, and what the kernel remembers is of an earlier boot.
    fn forget_marks(&self) {
        rustix::fs::removexattr(&self.data, MARK).unwrap();
    }

    /// Nor do the tables of its runs, which are in memory.
    fn forget_tables(&self) {
        let here = self.sandbox.path().canonicalize().unwrap();
        let here = here.as_os_str().as_encoded_bytes();
        for entry in fs::read_dir("/dev/shm").unwrap().map(Result::unwrap) {
            let name = entry.file_name();
            if !name.to_string_lossy().starts_with("forebay-absorbed-") {
                continue;
            }
            // Of another test's run it may be gone by now.
            let table = fs::read(entry.path()).unwrap_or_default();
            if table.windows(here.len()).any(|some| some == here) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    fn mark(&self, pools: &[&str]) {
        let paths = pools.iter().map(|pool| self.sandbox.file(pool));
        let lines: Vec<String> = paths
            .map(|path| path.canonicalize().unwrap().to_str().unwrap().to_owned())
            .collect();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&self.data, MARK, lines.join("\n").as_bytes(), flags).unwrap();
    }
}

/// It says which pool comes first.
#[track_caller]
fn stayed_plain(ran: &Ran, pool: &str) {
    assert!(
        ran.stderr.contains("records of it may wait in"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains(pool), "{}", ran.stderr);
}

/// The recovery refused something, and says these words.
#[track_caller]
fn refused(ran: &Ran, words: &[&str]) {
    let said = format!("{}{}", ran.text(), ran.stderr);
    assert_eq!(ran.code, Some(1), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
}

/// Promise (processes): A run absorbs no file while a killed run's records for it wait in another
/// pool, also after a reboot: the directory has a mark.
#[test]
fn a_second_runs_writes_survive_records_in_the_firsts_pool() {
    for kind in ["disk", "emulated"] {
        let mut place = Place::new();
        let Some(mut disk) = Disk::make(place.sandbox.path(), "ext4") else {
            return;
        };
        place.data.clone_from(&disk.at);
        // With its space: what is written to that in place, and synced by `fdatasync`, moves no
        // time on the disk for a while.
        fs::write(place.data.join("a.log"), [b'0'; 100]).unwrap();
        disk.sync();
        for name in ["z.pool", "a.pool"] {
            place.pool(name, kind);
        }
        place.run(None, "z.pool", "A", "cut");
        if kind == "disk" {
            thread::sleep(Duration::from_secs(1));
        }
        stayed_plain(&place.run(None, "a.pool", "B", "cut"), "z.pool");
        disk.cut();
        disk.mount_again();
        // Refused or not: nothing older comes over it.
        place.recover(None, &["--for", "."]);
        place.has(b'B');
    }
}

/// Promise: as `a_second_runs_writes_survive_records_in_the_firsts_pool`.
#[test]
fn a_directory_marked_by_another_pool_is_plain_until_recovery() {
    let place = Place::new();
    for name in ["z.pool", "a.pool"] {
        place.pool(name, "emulated");
    }
    place.run(Some(1), "z.pool", "A", "cut");
    put_back(&place.sandbox.file("synced"));
    stayed_plain(&place.run(Some(2), "a.pool", "B", "end"), "z.pool");
    place.has(b'B');
    refused(
        &place.recover(Some(2), &["--for", "."]),
        &["changed", "z.pool"],
    );
    place.has(b'B');
    place
        .recover(Some(2), &["--pool", "../z.pool", "--discard"])
        .ok();
    let ran = place.run(Some(2), "a.pool", "C", "end");
    assert!(!ran.stderr.contains("records of it"), "{}", ran.stderr);
    place.recover(Some(2), &["--for", "."]).ok();
    place.has(b'C');
}

/// Promise: as `older_records_come_first_if_two_pools_have_some_of_a_file`.
#[test]
fn a_moved_pools_log_stays_plain_until_it_is_back_or_given_up() {
    let place = Place::new();
    for name in ["z.pool", "a.pool"] {
        place.pool(name, "emulated");
    }
    let (z, aside) = (place.sandbox.file("z.pool"), place.sandbox.file("aside"));
    place.run(Some(1), "z.pool", "A", "cut");
    fs::rename(&z, &aside).unwrap();
    for boot in [1, 2] {
        let ran = place.run(Some(boot), "a.pool", "B", "end");
        stayed_plain(&ran, "--lift");
    }
    refused(
        &place.recover(Some(2), &["--for", "."]),
        &["--lift", "z.pool"],
    );
    place.recover(Some(2), &["--for", ".", "--lift"]).ok();
    let ran = place.run(Some(2), "a.pool", "C", "cut");
    assert!(!ran.stderr.contains("records of it"), "{}", ran.stderr);
    // It was not gone for good.
    fs::rename(&aside, &z).unwrap();
    refused(
        &place.recover(Some(3), &["--pool", "../z.pool"]),
        &["newer records"],
    );
    place.recover(Some(3), &["--pool", "../a.pool"]).ok();
    refused(
        &place.recover(Some(3), &["--pool", "../z.pool"]),
        &["was changed"],
    );
    place.has(b'C');
}

/// Promise (processes): Records that were given up or recovered hold up no later run.
#[test]
fn a_recreated_pool_holds_up_the_next_run_and_no_later_one() {
    let place = Place::new();
    place.pool("z.pool", "emulated");
    place.run(Some(1), "z.pool", "A", "cut");
    let aside = place.sandbox.file("aside");
    fs::rename(place.sandbox.file("z.pool"), &aside).unwrap();
    place.pool("z.pool", "emulated");
    let ran = place.run(Some(1), "z.pool", "B", "cut");
    assert!(!ran.stderr.contains("records of it"), "{}", ran.stderr);
    // What the old one had is seen to be older.
    place.recover(Some(1), &["--pool", "../z.pool"]).ok();
    refused(
        &place.recover(Some(2), &["--pool", "../aside"]),
        &["was changed"],
    );
    place.has(b'B');
}

/// Records of one file in two pools, which two runs left that did not see each other, in boots of
/// these numbers; the second run's are newer.
fn in_two_pools(first: usize, second: usize) -> Place {
    let place = Place::new();
    for name in ["z.pool", "a.pool"] {
        place.pool(name, "emulated");
    }
    place.run(Some(first), "z.pool", "A", "cut");
    place.forget_marks();
    place.forget_tables();
    let ran = place.run(Some(second), "a.pool", "B", "cut");
    assert!(!ran.stderr.contains("records of it"), "{}", ran.stderr);
    place.mark(&["a.pool", "z.pool"]);
    place
}

/// Linux 6.8 and later.
fn mounts_are_numbered() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map(|word| word.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(8))
}

/// Promise (processes): Recoveries of several pools, in whatever order and of a moved one too,
/// write no older bytes over newer ones.
#[test]
fn older_records_come_first_if_two_pools_have_some_of_a_file() {
    if !mounts_are_numbered() {
        println!("skipped: this kernel does not say whether a mount is the one that it was");
        return;
    }
    let place = in_two_pools(1, 1);
    refused(
        &place.recover(Some(2), &["--pool", "../a.pool"]),
        &["older records", "z.pool"],
    );
    refused(
        &place.recover(Some(2), &["--pool", "../a.pool", "--force"]),
        &["older records", "z.pool"],
    );
    let ran = place.recover(Some(2), &["--for", "."]).ok();
    assert!(ran.text().contains("nothing is left"), "{}", ran.text());
    place.has(b'B');
}

/// Promise: as `older_records_come_first_if_two_pools_have_some_of_a_file`.
#[test]
fn two_pools_records_of_two_boots_await_the_users_decision() {
    let place = in_two_pools(1, 2);
    put_back(&place.sandbox.file("synced"));
    for _ in 0..2 {
        let ran = place.recover(Some(3), &["--for", "."]);
        refused(&ran, &["newer records", "--discard", "older records"]);
    }
    place
        .recover(Some(3), &["--pool", "../z.pool", "--force"])
        .ok();
    place.has(b'A');
    place.recover(Some(3), &["--for", "."]).ok();
    place.has(b'B');
}

/// Promise: as `a_recreated_pool_holds_up_the_next_run_and_no_later_one`.
#[test]
fn runs_with_their_own_pools_that_end_in_order_hinder_none() {
    let place = Place::new();
    for name in ["z.pool", "a.pool"] {
        place.pool(name, "emulated");
    }
    for (pool, byte) in [("z.pool", "A"), ("a.pool", "B"), ("z.pool", "C")] {
        let ran = place.run(None, pool, byte, "end");
        assert!(!ran.stderr.contains("records of it"), "{}", ran.stderr);
        place.has(byte.as_bytes()[0]);
    }
}
