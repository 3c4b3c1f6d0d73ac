//! Programs of a run whose dynamic linker cannot load the library: musl's, another machine's, and
//! one that does not find it. They run as without Forebay, whichever way they are executed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox, build, have};
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

/// Builds a program that says what libraries it was given; false if that compiler is not there.
fn other(compiler: &[&str], into: &Path) -> bool {
    let code = "#include <stdio.h>\n#include <stdlib.h>\n\
         int main(void) { const char *list = getenv(\"LD_PRELOAD\"); printf(\"other %s\\n\", list ? list : \"none\"); return 0; }\n";
    fs::write(into.join("other.c"), code).unwrap();
    let mut command = Command::new(compiler[0]);
    let built = command
        .args(&compiler[1..])
        .args(["-o", "other", "other.c"])
        .current_dir(into);
    built.output().is_ok_and(|built| built.status.success())
}

/// Executes `other` in each way, in a process that has a log.
fn each_way(sandbox: &Sandbox) {
    build("executes", sandbox.path());
    let script = sandbox.file("script");
    fs::write(&script, "#!./other\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let ways = Command::new(sandbox.file("executes")).output().unwrap();
    let ways = String::from_utf8(ways.stdout).unwrap();
    assert!(ways.lines().count() > 12, "{ways}");
    for way in ways.lines() {
        for (preloaded, expected) in [("", "other none\n"), ("libm.so.6", "other libm.so.6\n")] {
            let mut command = sandbox.command("run --emulated 16MiB --absorb *.log -- ./executes");
            command.arg(way).env("FOREBAY_RUN_DIR", sandbox.file("run"));
            // Where the other linker has none of this name, it says so as without Forebay.
            if !preloaded.is_empty() {
                command.env("LD_PRELOAD", preloaded);
            }
            let ran = Ran::of(command.output().unwrap());
            if preloaded.is_empty() {
                assert!(!ran.stderr.contains("ld.so"), "{way}: {}", ran.stderr);
            }
            assert_eq!(
                (ran.code, ran.text()),
                (Some(0), expected.to_owned()),
                "{way}: {}",
                ran.stderr
            );
        }
    }
}

/// Promise (programs): A program for musl or another machine is executed as without Forebay,
/// whichever way.
#[test]
fn a_program_for_musl_is_executed_without_the_library() {
    if !have("musl-gcc") {
        return;
    }
    let sandbox = Sandbox::new();
    assert!(other(&["musl-gcc"], sandbox.path()));
    each_way(&sandbox);
}

/// Promise: as `a_program_for_musl_is_executed_without_the_library`.
#[test]
fn a_program_for_another_machine_gets_no_library() {
    let sandbox = Sandbox::new();
    if !other(&["cc", "-m32"], sandbox.path()) {
        println!("skipped: this compiler builds nothing for 32 bits");
        return;
    }
    each_way(&sandbox);
}

/// Promise (programs): A program that cannot open the library, below another root or as another
/// user, is executed without it.
#[test]
fn program_that_cannot_open_the_library_is_run_without_it() {
    if !common::root_can("change its root") {
        return;
    }
    let sandbox = Sandbox::new();
    let script = r#"
import os, subprocess, sys
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT)
os.write(fd, b"x")
os.fsync(fd)
library = os.environ["LD_PRELOAD"].split(":")[0]
hidden = f"mount -t tmpfs none {os.path.dirname(library)} && exec env"
# The tools and their libraries are below that root, the library under test is not.
bound = "; ".join(f"mkdir -p root/{name} && mount --bind /{name} root/{name}" for name in ["bin", "lib", "lib64", "usr"])
other_root = f"set -e; {bound}; exec chroot root /usr/bin/env"
for way in [hidden, other_root]:
    ran = subprocess.run(["unshare", "--mount", "sh", "-c", way], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, ""), ran
    assert "LD_PRELOAD" not in ran.stdout, ran.stdout
"#;
    let mut command = sandbox.command("run --emulated 16MiB --absorb *.log -- python3 -c");
    command
        .arg(script)
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(command.output().unwrap()).ok();
}
