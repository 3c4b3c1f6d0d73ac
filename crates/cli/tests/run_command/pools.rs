//! The pool of a run: one that is missing, no pool or too small is refused with what to do, and an
//! emulated one is kept from run to run.

use crate::common::{Ran, Sandbox, databases::absorbed_writes};
use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::Path};

#[test]
fn without_a_pool_or_with_one_that_is_none_it_says_what_to_do() {
    let sandbox = Sandbox::new();
    sandbox.refuses(&[
        ("run --absorb x -- true", 2, &["--pool", "--emulated 64MiB"]),
        (
            "run --pool p --emulated 1MiB --absorb x -- true",
            2,
            &["cannot be used with"],
        ),
        (
            "run --pool nowhere --absorb x -- true",
            1,
            &["there is no pool nowhere", "forebay pool create"],
        ),
    ]);
    fs::write(sandbox.file("foreign"), vec![7; 1 << 20]).unwrap();
    sandbox
        .run("run --pool foreign --absorb x -- true")
        .fails(1, &["not a Forebay pool"]);
    assert_eq!(fs::read(sandbox.file("foreign")).unwrap(), vec![7; 1 << 20]);
    let mut command = sandbox.command("run --absorb x --pool p -- true");
    sandbox.pool();
    Ran::of(
        command
            .env("FOREBAY_LIBRARY", "/nowhere.so")
            .output()
            .unwrap(),
    )
    .fails(1, &["/nowhere.so"]);
}

#[test]
fn an_emulated_pool_is_kept_from_run_to_run() {
    // Named after the user, who may have one already: that one is not touched.
    let path = format!(
        "/dev/shm/forebay-{}.pool",
        rustix::process::getuid().as_raw()
    );
    if Path::new(&path).exists() {
        println!("skipped: {path} is there already");
        return;
    }
    let sandbox = Sandbox::new();
    let run = || sandbox.run("run --emulated 2MiB --absorb x -- true").ok();
    assert!(run().stderr.contains(&path));
    run();
    sandbox
        .run("run --emulated 4MiB --absorb x -- true")
        .fails(1, &["2 MiB, not 4 MiB", "forebay recover"]);
    fs::remove_file(path).unwrap();
}

#[test]
fn a_pool_without_room_for_one_process_is_refused() {
    let sandbox = Sandbox::new();
    sandbox
        .run("pool create p --emulated --size 9MiB --segment-size 4MiB")
        .ok();
    sandbox
        .run("run --pool p --absorb x --segments 3 -- true")
        .fails(1, &["2 free segments of 4 MiB", "needs 3", "--segments"]);
    sandbox.run("run --pool p --absorb x -- true").ok();
}

#[test]
fn a_pool_may_have_a_path_that_is_not_utf_8() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let pool = sandbox.path().join(OsStr::from_bytes(b"\xff.pool"));
    fs::rename(sandbox.file("p"), &pool).unwrap();
    let script = "import os; fd = os.open('a.log', os.O_WRONLY | os.O_CREAT); os.write(fd, b'a'); os.fsync(fd)";
    let mut command = sandbox.command("run --explain --absorb *.log --pool");
    command.arg(pool).args(["--", "python3", "-c", script]);
    let run = sandbox.start(&mut command, "said");
    sandbox.ends(run, "said", 0);
    let said = fs::read_to_string(sandbox.file("said")).unwrap();
    assert_eq!(absorbed_writes(&said, "a.log"), 1, "{said}");
}
