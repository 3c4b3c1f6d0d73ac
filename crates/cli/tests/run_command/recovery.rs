//! Records that a killed run left in its pool are in the files after the next run, or after a
//! recovery, whatever became of the files' times and names.

use crate::common::{
    Ran, Sandbox,
    databases::{PATIENCE, boot_anew, small_pool},
};
use forebay_pool::PoolOptions;
use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

#[test]
fn what_an_earlier_run_left_is_recovered_first() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let write = "echo acknowledged > a.log; sync a.log; kill -KILL $PPID; kill -KILL $$";
    let run = |script: &str| {
        let mut command = sandbox.command("run --absorb *.log --pool");
        Ran::of(
            command
                .arg(pool.path())
                .args(["--", "sh", "-c", script])
                .output()
                .unwrap(),
        )
    };
    let _ = run(write);
    let ran = run("cat a.log").ok();
    assert_eq!(ran.text(), "acknowledged\n");
    run("true").ok();
}

#[test]
fn nothing_to_recover_is_no_error_and_no_pool_is_one() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let report = sandbox.json("recover --pool p --json");
    assert_eq!(report["done"], true);
    assert!(
        sandbox
            .run("recover --pool p")
            .ok()
            .text()
            .contains("nothing to recover")
    );
    sandbox.run("recover --pool nowhere").fails(1, &["nowhere"]);
    sandbox
        .run("recover --pool p --force --discard")
        .fails(2, &["cannot be used with"]);
    let mut status = sandbox.command("status --json");
    let none = Ran::of(
        status
            .env("FOREBAY_RUN_DIR", sandbox.file("run"))
            .output()
            .unwrap(),
    )
    .ok();
    assert_eq!(none.json(), serde_json::json!([]));
}

#[test]
fn recovery_removes_the_recovered_runs_table() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let script = "import os, signal\n\
         open('table', 'w').write(os.environ['FOREBAY_TABLE'])\n\
         fd = os.open('a.log', os.O_WRONLY | os.O_CREAT)\n\
         os.fsync(fd)\nos.write(fd, b'acknowledged')\nos.fsync(fd)\n\
         os.kill(os.getppid(), signal.SIGKILL)\nos.kill(os.getpid(), signal.SIGKILL)\n";
    sandbox.python(pool.path(), script);
    // A run that starts beside it removes what no recovery needs; this one waits for its recovery.
    sandbox.python(small_pool().path(), "pass");
    let table = fs::read_to_string(sandbox.file("table")).unwrap();
    let order = table.replace("forebay-absorbed-", "forebay-order-");
    for left in [&table, &order] {
        assert!(Path::new(left).exists(), "{left}");
    }
    let line = format!("recover --pool {}", pool.path().display());
    sandbox.run(&line).ok();
    for left in [table, order] {
        assert!(!Path::new(&left).exists(), "{left}");
    }
}

/// What is left in the pool after `script` wrote to `a.log` and all of its run was killed, with its
/// data cut off as by a power cut.
fn left_by(sandbox: &Sandbox, pool: &Path, script: &str) {
    // The program kills its supervisor and itself.
    let script = format!(
        "import ctypes, os, signal, time\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         is_x86 = os.uname().machine == 'x86_64'\n\
         SYS_utimensat, SYS_linkat = (280, 265) if is_x86 else (88, 37)\n\
         AT_EMPTY_PATH = 0x1000\n\
         fd = os.open('a.log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n\
         os.fsync(fd)\nos.write(fd, b'acknowledged')\nos.fsync(fd)\n\
         time.sleep(0.3)\n\
         {script}\n\
         os.kill(os.getppid(), signal.SIGKILL)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    );
    sandbox.python(pool, &script);
    // The supervisor's death is what was waited for; the program's follows it.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let status = sandbox
            .run(&format!("pool status {} --json", pool.display()))
            .ok();
        if !status.text().contains("\"in_use\": true") {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    for name in ["a.log", "b.log", "d/a.log", "e/a.log"] {
        let path = sandbox.file(name);
        if let Ok(file) = fs::File::options().write(true).open(path) {
            let times = file.metadata().unwrap().modified().unwrap();
            file.set_len(0).unwrap();
            file.set_modified(times).unwrap();
        }
    }
}

/// Promise: as `a_lane_is_replayed_though_an_unchanged_files_time_moved`.
#[test]
fn changes_of_a_files_times_and_names_reach_the_pool() {
    for (script, name) in [
        // A buffer that is not there.
        (
            "assert libc.write(fd, ctypes.c_void_p(1), 100) == -1",
            "a.log",
        ),
        // FALLOC_FL_KEEP_SIZE
        (
            "assert libc.fallocate(fd, 1, ctypes.c_long(0), ctypes.c_long(1 << 16)) == 0",
            "a.log",
        ),
        ("os.utime(fd, (2e9, 2e9))", "a.log"),
        ("os.utime('a.log', (2e9, 2e9))", "a.log"),
        (
            "os.utime('a.log', (2e9, 2e9), follow_symlinks=False)",
            "a.log",
        ),
        // By their numbers, too.
        (
            "libc.syscall(SYS_utimensat, fd, None, (ctypes.c_int64 * 4)(*[2000000000, 0] * 2), 0)",
            "a.log",
        ),
        (
            "libc.syscall(SYS_utimensat, -100, b'a.log', (ctypes.c_int64 * 4)(*[2000000000, 0] * 2), 0)",
            "a.log",
        ),
        (
            "assert libc.utimensat(fd, b'', (ctypes.c_int64 * 4)(*[2000000000, 0] * 2), AT_EMPTY_PATH) == 0",
            "a.log",
        ),
        (
            "libc.syscall(SYS_utimensat, fd, b'', (ctypes.c_int64 * 4)(*[2000000000, 0] * 2), AT_EMPTY_PATH)",
            "a.log",
        ),
        (
            "libc.syscall(SYS_linkat, -100, b'a.log', -100, b'b.log', 0); os.unlink('a.log')",
            "b.log",
        ),
        (
            "libc.syscall(86, b'a.log', b'b.log') if is_x86 else os.link('a.log', 'b.log'); os.unlink('a.log')",
            "b.log",
        ),
        ("os.link('a.log', 'b.log'); os.unlink('a.log')", "b.log"),
        ("os.mkdir('d'); os.rename('a.log', 'd/a.log')", "d/a.log"),
        // RENAME_EXCHANGE
        (
            "os.mkdir('d'); os.rename('a.log', 'd/a.log'); os.mkdir('e'); assert libc.renameat2(-100, b'd', -100, b'e', 2) == 0",
            "e/a.log",
        ),
    ] {
        let sandbox = Sandbox::new();
        let pool = small_pool();
        left_by(&sandbox, pool.path(), script);
        assert_eq!(fs::read(sandbox.file(name)).unwrap(), b"", "{script}");
        let report = sandbox.recover_in_another_boot(pool.path());
        assert_eq!(
            report["lanes"][0]["outcome"], "replayed",
            "{script}: {report}"
        );
        let known = report["lanes"][0]["files"][0]["path"].as_str().unwrap();
        assert!(known.ends_with(name), "{script}: {report}");
        assert_eq!(
            fs::read(sandbox.file(name)).unwrap(),
            b"acknowledged",
            "{script}"
        );
    }
}

/// Promise: as `another_boots_emulated_pool_is_written_nowhere_unless_forced`.
#[test]
fn an_emulated_pool_of_another_boot_stops_a_run_with_the_remedy() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    left_by(&sandbox, pool.path(), "");
    let run = || {
        let mut command = sandbox.command("run --absorb *.log --pool");
        command.arg(pool.path()).args(["--", "true"]);
        command.env(
            "FOREBAY_TEST_BOOT_ID",
            "00000000-0000-4000-8000-000000000001",
        );
        Ran::of(command.output().unwrap())
    };
    run().fails(
        1,
        &["emulated", "forebay recover --pool", "--discard", "--force"],
    );
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), b"");
    sandbox
        .run(&format!(
            "recover --pool {} --discard",
            pool.path().display()
        ))
        .ok();
    run().ok();
}

#[test]
fn a_pool_in_recovery_admits_no_program_and_no_other_recovery() {
    let is_whole = ["--", "sh", "-c", "test \"$(cat a.log)\" = acknowledged"];
    for (line, program) in [
        ("run --absorb *.log --pool", &is_whole[..]),
        ("recover --pool", &[]),
    ] {
        let sandbox = Sandbox::new();
        let pool = small_pool();
        left_by(&sandbox, pool.path(), "");
        let mut environment = Vec::new();
        boot_anew(&mut environment, 1);
        let mut command = sandbox.command("recover --pool");
        command
            .arg(pool.path())
            .envs(environment.clone())
            // It is about to write, and stands still.
            .env("FOREBAY_FAILPOINT", "replay:step=1:600000ms");
        let mut first = sandbox.start(&mut command, "first");
        let has_it = || PoolOptions::new().open(pool.path()).unwrap().lanes()[0].in_use;
        let until = Instant::now() + PATIENCE;
        while !has_it() {
            assert!(Instant::now() < until && first.ended().is_none());
            thread::sleep(Duration::from_millis(5));
        }
        let mut command = sandbox.command(line);
        command.arg(pool.path()).args(program).envs(environment);
        let mut second = sandbox.start(&mut command, "second");
        let words = "another process is recovering lane 0 of python3";
        sandbox.hear(&mut second, "second", words);
        assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), b"", "{line}");
        first.kill();
        sandbox.ends(second, "second", 0);
        let found = fs::read(sandbox.file("a.log")).unwrap();
        assert_eq!(found, b"acknowledged", "{line}");
    }
}
