//! `forebay doctor DIR`: whether a pool holds what belongs into the files of a directory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox, databases::small_pool};
use std::{fs, path::Path};

/// Runs `python3 -c script` in a directory `data` with `*.log` absorbed into `pool`.
fn python(sandbox: &Sandbox, pool: &Path, script: &str) -> Ran {
    let mut command = sandbox.command("run --absorb *.log --pool");
    let script = format!(
        "import os, signal\nos.makedirs('data/below', exist_ok=True)\n\
         fd = os.open('data/below/a.log', os.O_RDWR | os.O_CREAT, 0o600); os.write(fd, b'a' * 100); os.fsync(fd)\n{script}"
    );
    command.arg(pool).args(["--", "python3", "-c", &script]);
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(command.output().unwrap())
}

const KILL_BOTH: &str =
    "os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)";

#[test]
fn a_directory_says_which_pool_holds_what_belongs_into_its_files_until_that_is_recovered() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let shown = pool.path().display().to_string();
    python(&sandbox, pool.path(), KILL_BOTH);
    let ran = sandbox.run("doctor data");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    for words in [&*shown, "forebay recover", "data/below"] {
        assert!(ran.text().contains(words), "{words}: {}", ran.text());
    }
    let report = sandbox.run("doctor --json data").json();
    assert_eq!(report["is_harmless"], false);
    assert_eq!(report["pools"][0]["state"], "holds");
    assert_eq!(report["pools"][0]["pool"], *shown);

    let mut recover = sandbox.command("recover --pool");
    Ran::of(recover.arg(pool.path()).output().unwrap()).ok();
    let ran = sandbox.run("doctor data").ok();
    assert!(ran.text().contains("no pool holds"), "{}", ran.text());
}

#[test]
fn an_orderly_end_leaves_no_mark_and_a_running_program_is_said() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    // Asked while it runs.
    let script = format!(
        "import subprocess, sys\n\
         said = subprocess.run(['{}', 'doctor', 'data'], capture_output=True, text=True)\n\
         assert said.returncode == 1 and 'is running' in said.stdout, said",
        common::FOREBAY
    );
    python(&sandbox, pool.path(), &script).ok();
    drop(pool);
    let report = sandbox.run("doctor --json data").ok().json();
    assert_eq!(report["pools"], serde_json::json!([]));
}

#[test]
fn a_pool_that_is_gone_is_told_too() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    python(&sandbox, pool.path(), KILL_BOTH);
    fs::remove_file(pool.path()).unwrap();
    let ran = sandbox.run("doctor data");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.text().contains("--lift"), "{}", ran.text());
}
