//! `forebay-lab run --device`: what is charged, that bytes are what they are, readers of mappings,
//! and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{FOREBAY, Ran, Sandbox, ZEROS};
use forebay_bench::{
    mariadb::server::{self, Launch, Server},
    peers::Peer,
    scratch::{ScratchDir, memory_dir},
};
use forebay_pool::PoolOptions;
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// 20 ms a request.
const SLOW: &str =
    "read = { random_us = 20000, mb_s = 1000 }\nwrite = { random_us = 20000, mb_s = 1000 }\n";

impl Sandbox {
    /// A directory `d` on a device with this profile.
    fn device(&self, profile: &str) {
        fs::create_dir_all(self.file("d")).unwrap();
        fs::write(self.file("device.toml"), profile).unwrap();
    }

    /// Runs `sh -c script` with `d` on the device, and these options.
    fn on_device(&self, options: &str, script: &str) -> Ran {
        let line = format!("run --explain --device d=device.toml {options} -- sh -c");
        let mut command = self.command(&line);
        command
            .arg(script)
            .env("FOREBAY_RUN_DIR", self.file("run"))
            .stdin(Stdio::null());
        Ran::of(command.output().unwrap())
    }
}

/// What the device was asked for: reads, writes, syncs.
fn counts(ran: &Ran) -> [u64; 3] {
    let line = ran
        .stderr
        .lines()
        .find(|line| line.contains(" device ") && !line.contains("reads"));
    let line = line.unwrap_or_else(|| panic!("no figures in {}", ran.stderr));
    let from = line.find(" device ").unwrap() + " device ".len();
    let cells: Vec<&str> = line[from..].split_whitespace().collect();
    // reads, read (a figure and a unit), from memory, writes, written (a figure and a unit), syncs,
    // flushes
    [0, 4, 7].map(|at| cells[at].replace(',', "").parse().unwrap())
}

#[test]
fn a_synced_write_costs_a_write_and_the_journal_others_nothing() {
    let sandbox = Sandbox::new();
    sandbox.device(SLOW);
    let begun = Instant::now();
    let ran = sandbox
        .on_device("", "dd if=/dev/zero of=d/x bs=4k count=5 oflag=dsync 2>/dev/null; cat d/x > y; cat y > d/z")
        .ok();
    assert_eq!(counts(&ran), [0, 10, 5]);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert!(ran.stderr.contains("no pool: nothing is absorbed"));
    assert_eq!(fs::read(sandbox.file("d/z")).unwrap(), vec![0; 5 * 4096]);
    // Beside the directory nothing is charged.
    let ran = sandbox
        .on_device(
            "--no-pool",
            "dd if=/dev/zero of=y bs=4k count=5 oflag=dsync 2>/dev/null",
        )
        .ok();
    assert_eq!(counts(&ran), [0, 0, 0]);
}

#[test]
fn processes_of_a_run_share_the_cache_and_wait_for_each_other() {
    let sandbox = Sandbox::new();
    sandbox.device(&format!("{SLOW}[cache]\nread_ahead_kib = 0\n"));
    for name in ["a", "b", "c", "e"] {
        fs::write(sandbox.file(&format!("d/{name}")), vec![7; 4096]).unwrap();
    }
    let begun = Instant::now();
    let ran = sandbox
        .on_device(
            "",
            "cd d; for f in a b c e; do cat $f > ../copy-$f & done; wait; cat a b c e > ../all",
        )
        .ok();
    assert_eq!(counts(&ran), [4, 0, 0]);
    assert!(begun.elapsed() >= Duration::from_millis(80));
    assert_eq!(fs::read(sandbox.file("all")).unwrap(), vec![7; 4 * 4096]);
}

#[test]
fn room_made_ahead_is_neither_read_nor_written_back() {
    let sandbox = Sandbox::new();
    sandbox.device(&format!("{SLOW}journal = false\n"));
    let script = "import os\n\
                  fd = os.open('d/x', os.O_CREAT | os.O_RDWR)\n\
                  os.posix_fallocate(fd, 0, 1 << 20)\n\
                  for _ in range(3): os.write(fd, b'x' * 5000)\n\
                  os.fdatasync(fd)";
    let ran = sandbox
        .on_device("", &format!("exec python3 -c \"{script}\""))
        .ok();
    assert_eq!(counts(&ran), [0, 1, 1], "{}", ran.stderr);
}

#[test]
fn an_absorbed_files_syncs_are_paid_for_by_its_drain() {
    let sandbox = Sandbox::new();
    let pool = PoolOptions::new().size(6 << 20).segment_size(1 << 20);
    drop(pool.emulated(true).create(sandbox.file("p")).unwrap());
    sandbox.device(SLOW);
    let ran = sandbox
        .on_device(
            "--pool p --profile generic --absorb *.log",
            &format!("{ZEROS} d/x.log 4096 50"),
        )
        .ok();
    let [_, writes, syncs] = counts(&ran);
    // Its registration and its drain, not each of the 50.
    assert!(syncs > 0 && syncs < 10 && writes < 20, "{}", ran.stderr);
    assert_eq!(fs::read(sandbox.file("d/x.log")).unwrap().len(), 50 * 4096);
}

#[test]
fn a_process_starts_with_descriptors_that_are_on_the_device() {
    let sandbox = Sandbox::new();
    sandbox.device(&format!("{SLOW}journal = false\n"));
    let script = "dd if=/dev/zero bs=4k count=1 conv=fsync > d/y 2>/dev/null";
    let ran = sandbox.on_device("", script).ok();
    assert_eq!(counts(&ran), [0, 1, 1], "{}", ran.stderr);
}

#[test]
fn a_file_renamed_into_or_out_of_a_device_takes_its_descriptors() {
    let sandbox = Sandbox::new();
    sandbox.device(&format!("{SLOW}journal = false\n"));
    let perl = |from: &str, to: &str| {
        let program = format!(
            "use IO::Handle; open(F, \"+>\", \"{from}\") or die; rename(\"{from}\", \"{to}\") or die; \
             syswrite(F, \"x\" x 4096); F->sync or die"
        );
        counts(
            &sandbox
                .on_device("", &format!("exec perl -e '{program}'"))
                .ok(),
        )
    };
    assert_eq!(perl("y", "d/y"), [0, 1, 1]);
    assert_eq!(perl("d/z", "z"), [0, 0, 0]);
}

/// Builds a program of these sources, of which the paths are from this package, in the sandbox.
fn build(sandbox: &Sandbox, name: &str, source: &str, libraries: &[&str]) -> PathBuf {
    let program = sandbox.file(name);
    let built = Command::new("cc")
        .args(["-O1", "-Wall", "-o"])
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .args(libraries)
        .status()
        .unwrap();
    assert!(built.success());
    program
}

#[test]
fn readers_of_a_mapping_see_its_bytes_and_are_charged_by_page() {
    const PAGES: u64 = 40;
    let words: Vec<u64> = (0..PAGES * 512)
        .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .collect();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let sum = words
        .iter()
        .fold(0_u64, |sum, word| sum.wrapping_add(*word));
    let fast = SLOW.replace("20000", "100");
    // The child's first touch is one more where nothing is kept.
    for (cache, reads) in [
        (
            "reads = false\nwrites = false\nread_ahead_kib = 0",
            PAGES + 1,
        ),
        ("read_ahead_kib = 0", PAGES),
        ("read_ahead_kib = 64", PAGES.div_ceil(16)),
    ] {
        for kind in ["private", "shared"] {
            let sandbox = Sandbox::new();
            build(&sandbox, "mapped", "tests/programs/mapped.c", &[]);
            sandbox.device(&format!("{fast}[cache]\n{cache}\n"));
            fs::write(sandbox.file("d/x"), &bytes).unwrap();
            // The program's own fault is the program's: it dies of it, or handles it.
            let ran = sandbox.on_device("", &format!("./mapped d/x {kind} handler"));
            let ran = ran.fails(9, &[]);
            assert_eq!(ran.text(), format!("{sum}\n"));
            assert_eq!(counts(&ran)[0], reads, "{cache}, {kind}");
            let ran = sandbox.on_device("", &format!("exec ./mapped d/x {kind} plain"));
            assert_eq!(ran.fails(139, &[]).text(), format!("{sum}\n"));
            // More pages than stay accessible where nothing is kept.
            let script = format!("./mapped d/x {kind} given > y");
            let ran = sandbox.on_device("", &script).ok();
            assert!(fs::read(sandbox.file("y")).unwrap() == bytes);
            assert_eq!(counts(&ran)[0], PAGES.min(reads), "{cache}, {kind}");
        }
    }
}

#[test]
fn leveldbs_tables_are_charged_and_its_pairs_are_right() {
    let sandbox = Sandbox::new();
    if let Err(missing) = Peer::LevelDb.check() {
        assert!(std::env::var_os("CI").is_none(), "{missing}");
        println!("skipped: leveldb is {missing}");
        return;
    }
    let source = "../../crates/cli/tests/programs/leveldb.c";
    build(&sandbox, "leveldb", source, &["-lleveldb"]);
    // In memory: its syncs are real, and a busy disk would take minutes.
    let memory = tempfile::tempdir_in(memory_dir()).unwrap();
    symlink(memory.path(), sandbox.file("d")).unwrap();
    let cost = "{ random_us = 20, mb_s = 1000 }";
    sandbox.device(&format!(
        "read = {cost}\nwrite = {cost}\n[cache]\nreads = false\nwrites = false\n"
    ));
    let script = "./leveldb d/db write 0 | head -n 2000 > written; ./leveldb d/db count";
    let ran = sandbox.on_device("", script).ok();
    let found: usize = ran.text().trim().parse().unwrap();
    assert!(found >= 2000, "{found}");
    // A second look, by mappings of the tables: each page is charged.
    let again = sandbox.on_device("", "./leveldb d/db count").ok();
    assert_eq!(again.text(), ran.text());
    assert!(counts(&again)[0] > 30, "{}", again.stderr);
}

#[test]
fn what_cannot_be_a_device_is_refused_with_what_to_do() {
    let sandbox = Sandbox::new();
    sandbox.device(SLOW);
    let run = |option: &str| sandbox.run(&format!("run --device {option} -- true"));
    run("d=floppy").fails(2, &["floppy", "hdd-7200", "TOML"]);
    run("d").fails(2, &["DIR=PROFILE"]);
    run("nowhere=nvme").fails(2, &["nowhere", "mkdir -p"]);
    run("device.toml=nvme").fails(2, &["not a directory"]);
    run("d=missing.toml").fails(2, &["missing.toml"]);
    run("d=nvme --device ./d=nvram").fails(2, &["two devices"]);
    fs::write(sandbox.file("bad.toml"), "channels = 2\nread = 5\n").unwrap();
    run("d=bad.toml").fails(2, &["bad.toml", "line 2", "docs/devices.md"]);
    fs::write(sandbox.file("bad.toml"), SLOW.replace("20000", "-1")).unwrap();
    run("d=bad.toml").fails(2, &["random_us"]);
    sandbox
        .run("run --no-pool --emulated 64MiB -- true")
        .fails(2, &["--no-pool"]);
    sandbox
        .run("run -- true")
        .fails(2, &["--pool", "--no-pool"]);
    sandbox.run("run --no-pool -- sh -c true").ok();
}

#[test]
fn a_file_on_a_device_is_no_persistent_memory_and_has_no_rings() {
    let sandbox = Sandbox::new();
    sandbox.device(SLOW);
    let script = r#"
import ctypes, mmap, os
SYNC = 3 | 0x80000
READ, BOTH = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
def made(name):
    fd = os.open(name, os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 8192)
    return fd
def maps(fd, flags, protection):
    try:
        mmap.mmap(fd, 4096, flags, protection)
        return True
    except OSError as error:
        return error.errno
log, other = made("d/log"), made("d/other")
print(maps(log, mmap.MAP_SHARED, BOTH), maps(log, SYNC, BOTH), maps(log, mmap.MAP_SHARED, BOTH), maps(log, mmap.MAP_SHARED, READ),
      maps(other, mmap.MAP_SHARED, BOTH))
libc = ctypes.CDLL(None, use_errno=True)
for number in [425, 206]:
    print(libc.syscall(number, 4, ctypes.create_string_buffer(120)), ctypes.get_errno())
"#;
    fs::write(sandbox.file("maps.py"), script).unwrap();
    let ran = sandbox.on_device("", "exec python3 maps.py").ok();
    // EOPNOTSUPP and ENOSYS.
    assert_eq!(
        ran.text(),
        "True 95 95 True True\n-1 38\n-1 38\n",
        "{}",
        ran.stderr
    );
}

/// InnoDB maps its log where that is in /dev/shm, and then neither writes nor syncs it.
#[test]
fn mariadb_in_memory_writes_a_log_on_a_device_by_calls() {
    if let Some(missing) = server::lacking() {
        assert!(std::env::var_os("CI").is_none(), "{missing}");
        println!("skipped: {missing}");
        return;
    }
    let dir = ScratchDir::new_in(&memory_dir()).unwrap();
    let mut launch = Launch::new(dir.path()).unwrap();
    server::create(&launch.data()).unwrap();
    launch.options = ["--innodb-buffer-pool-size=8M", "--innodb-log-file-size=8M"]
        .map(str::to_owned)
        .to_vec();
    launch.environment = vec![("FOREBAY_RUN_DIR".into(), dir.path().join("run").into())];
    let maps_its_log = |launch: &Launch| {
        let server = Server::start(launch).unwrap();
        let maps = format!("/proc/{}/maps", server.server().pid());
        let maps = fs::read_to_string(maps).unwrap();
        server.stop().unwrap();
        maps.contains("ib_logfile0")
    };
    let is_shm = dir.path().starts_with("/dev/shm");
    assert_eq!(maps_its_log(&launch), is_shm);
    let device = format!("{}=nvram", launch.data().display());
    launch.wrapper = [FOREBAY, "run", "--no-pool", "--device", &device, "--"]
        .map(Into::into)
        .to_vec();
    assert!(!maps_its_log(&launch));
}
