//! Which files are absorbed: by the profile that goes with the program's name, or one of a
//! configuration file.

use crate::common::Sandbox;
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
    sandbox
        .run("run --pool p -- true")
        .fails(2, &["no profile is for the program \"true\"", "--absorb"]);
    sandbox
        .run("run --pool p --profile oracle -- true")
        .fails(2, &["no profile \"oracle\"", "redis, valkey, rocksdb"]);
    sandbox.run("run --pool p --profile sqlite -- true").ok();
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
