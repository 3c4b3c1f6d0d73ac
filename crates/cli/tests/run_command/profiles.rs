//! Profiles choose the absorbed files: by the program's name, or from a configuration file.

use crate::common::{Sandbox, databases::small_pool};
use std::{fs, os::unix::fs::symlink};

#[test]
fn the_profile_comes_from_the_programs_name_and_is_said() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    symlink("/bin/true", sandbox.file("redis-server")).unwrap();
    let ran = sandbox.run("run --pool p -- ./redis-server").ok();
    assert!(
        ran.stderr.contains("profile redis, absorbing *.aof"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("process crash only"), "{}", ran.stderr);
    let ran = sandbox.run("run --pool p -- true").ok();
    assert!(
        ran.stderr.contains("profile any, absorbing *.aof"),
        "{}",
        ran.stderr
    );
    sandbox
        .run("run --pool p --profile oracle -- true")
        .fails(2, &["no profile \"oracle\"", "redis, rocksdb, sqlite"]);
    sandbox.run("run --pool p --profile sqlite -- true").ok();
}

/// Promise (programs): SQLite inside a program that no profile names has its syncs absorbed.
#[test]
fn a_database_inside_another_program_is_served() {
    let sandbox = Sandbox::new();
    let script = r#"
import sqlite3
database = sqlite3.connect("inside.db", isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA synchronous=FULL")
database.execute("CREATE TABLE t(x)")
for x in range(20):
    database.execute("INSERT INTO t VALUES (?)", (x,))
import os
os._exit(0)
"#;
    sandbox.pool();
    fs::write(sandbox.file("app.py"), script).unwrap();
    let ran = sandbox.run("run --pool p --explain -- python3 app.py").ok();
    let said = ran.stderr.clone() + &ran.text();
    assert!(said.contains("profile any"), "{said}");
    assert!(said.contains("inside.db-wal"), "{said}");
}

#[test]
fn a_configuration_file_is_read_and_checked() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    fs::write(
        sandbox.file("good.toml"),
        "[profile.mine]\nprograms = [\"true\"]\nabsorb = [\"*.wal\"]\n",
    )
    .unwrap();
    let ran = sandbox.run("run --pool p --config good.toml -- true").ok();
    assert!(
        ran.stderr.contains("profile mine, absorbing *.wal"),
        "{}",
        ran.stderr
    );
    fs::write(
        sandbox.file("bad.toml"),
        "[profile.mine]\nabsorb = [\"*.wal\"]\nbuffer = 3\n",
    )
    .unwrap();
    sandbox
        .run("run --pool p --config bad.toml -- true")
        .fails(2, &["bad.toml, line 3", "buffer"]);
    sandbox
        .run("run --pool p --config none.toml -- true")
        .fails(1, &["none.toml"]);
}

#[test]
fn file_of_a_path_that_is_too_long_alone_stays_plain() {
    let sandbox = Sandbox::new();
    let script = r#"
import os, subprocess
directory = os.open(".", os.O_RDONLY)
for _ in range(25):
    os.mkdir("d" * 200, dir_fd=directory)
    directory = os.open("d" * 200, os.O_RDONLY, dir_fd=directory)
for at, name in [(directory, "deep.log"), (None, "a.log")]:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=at)
    os.write(fd, b"x")
    os.fsync(fd)
"#;
    let ran = sandbox.python(small_pool().path(), script).ok();
    assert!(
        ran.stderr
            .contains("deep.log stays plain: its path is longer"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("all files"), "{}", ran.stderr);
}
