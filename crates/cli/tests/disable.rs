//! `forebay disable`: what it proves, and what it does not take for proven.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    FOREBAY,
    image::{Image, can_enable},
};
use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
};

/// Runs `script` as the unit's program would run: with the drop-in's pool, in its directory.
fn run_there(image: &Image, script: &str) -> Command {
    let mut command = Command::new(FOREBAY);
    command
        .args(["run", "--profile", "redis", "--pool"])
        .arg(image.at("var/lib/forebay/db.pool"))
        .args(["--", "python3", "-c", script])
        .current_dir(image.at("var/lib/redis"))
        .env("FOREBAY_RUN_DIR", image.sandbox.file("run"));
    command
}

/// A unit `db` of root's, whose pool holds writes of a run that was killed with its supervisor.
fn enabled_and_cut_off() -> Image {
    let image = Image::new();
    image.program("bin/python3");
    image.write(
        "lib/systemd/system/db.service",
        "[Service]\nExecStart=/bin/python3\n",
    );
    image
        .run("enable db --pool db --size 32MiB --profile redis --data /var/lib/redis")
        .ok();
    let script = "import os, signal
fd = os.open('a.aof', os.O_WRONLY | os.O_CREAT)
os.fsync(fd)
os.write(fd, b'acknowledged')
os.fsync(fd)
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)";
    run_there(&image, script).output().unwrap();
    image
}

/// Promise (rights): `forebay disable` ends with 0, and takes the drop-in away, only if no pool of
/// the unit holds a record of its files, and no flash cache newer pages.
#[test]
fn a_unit_is_disabled_once_nothing_is_left() {
    if !can_enable() {
        return;
    }
    let image = enabled_and_cut_off();
    let holding = image
        .sandbox
        .run("pool check image/var/lib/forebay/db.pool --json")
        .ok()
        .json();
    assert!(
        holding["lanes"][0]["records"].as_u64().unwrap() > 0,
        "{holding}"
    );
    let done = image.run("disable db --json").ok().json();
    assert_eq!(done["is_proven"], true);
    assert_eq!(done["proof"]["pools"][0]["records"], 0);
    assert_eq!(done["removed"].as_array().unwrap().len(), 2, "{done}");
    assert!(image.own_files().is_empty());
    assert_eq!(
        fs::read(image.at("var/lib/redis/a.aof")).unwrap(),
        b"acknowledged"
    );
    // Nothing is known of its files any more, unless they are named.
    image
        .run("disable db")
        .fails(1, &["was not enabled", "--data"]);
    let proven = image.run("disable db --data /var/lib/redis").ok().text();
    assert!(
        proven.contains("proven: no pool holds a record"),
        "{proven}"
    );
    image
        .sandbox
        .run("pool remove image/var/lib/forebay/db.pool")
        .ok();
}

/// Promise: as `a_unit_is_disabled_once_nothing_is_left`.
#[test]
fn a_pool_that_cannot_be_looked_into_keeps_the_drop_in() {
    if !can_enable() {
        return;
    }
    let image = enabled_and_cut_off();
    let pool = image.at("var/lib/forebay/db.pool");
    fs::rename(&pool, image.at("var/lib/forebay/moved")).unwrap();
    let ran = image.run("disable db");
    assert_eq!(ran.code, Some(1));
    assert!(ran.text().contains("NOT PROVEN"), "{}", ran.text());
    image.drop_in("db");
    fs::rename(image.at("var/lib/forebay/moved"), &pool).unwrap();
}

/// Promise: as `a_unit_is_disabled_once_nothing_is_left`.
#[test]
fn a_program_that_runs_still_keeps_the_drop_in() {
    if !can_enable() {
        return;
    }
    let image = enabled_and_cut_off();
    let script = "import os
fd = os.open('a.aof', os.O_WRONLY | os.O_APPEND)
os.fsync(fd)
os.write(fd, b' and more')
os.fsync(fd)
print('ready', flush=True)
input()";
    keeps_the_drop_in(&image, script);
    // It may open its log at any moment.
    keeps_the_drop_in(&image, "print('ready', flush=True)\ninput()");
    image.run("disable db").ok();
}

/// The unit is not disabled while this runs.
fn keeps_the_drop_in(image: &Image, script: &str) {
    let mut running = run_there(image, script);
    let mut running = (running.stdin(Stdio::piped()).stdout(Stdio::piped()))
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    running
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    let ran = image.run("disable db");
    assert_eq!(ran.code, Some(1));
    assert!(ran.text().contains("used by"), "{}", ran.text());
    image.drop_in("db");
    drop(running.stdin.take());
    running.wait().unwrap();
}

/// Promise: as `a_unit_is_disabled_once_nothing_is_left`.
#[test]
fn a_pool_outside_of_the_root_is_not_taken_for_its_own() {
    if !can_enable() {
        return;
    }
    let image = enabled_and_cut_off();
    image
        .sandbox
        .run("recover --pool image/var/lib/forebay/db.pool")
        .ok();
    image
        .sandbox
        .run("pool create other.pool --disk --size 32MiB")
        .ok();
    let directory = fs::File::open(image.at("var/lib/redis")).unwrap();
    let mark = image.sandbox.file("other.pool").canonicalize().unwrap();
    rustix::fs::fsetxattr(
        &directory,
        "user.forebay.pools",
        mark.as_os_str().as_encoded_bytes(),
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    let ran = image.run("disable db");
    assert_eq!(ran.code, Some(1));
    assert!(ran.text().contains("not below --root"), "{}", ran.text());
    image.drop_in("db");
}
