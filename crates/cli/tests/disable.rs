//! `forebay disable`: what it proves, and what it does not take for proven.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    FOREBAY,
    image::{SystemImage, can_enable},
    live_system::LiveSystem,
};
use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
};

/// Runs `script` as the unit's program would run: with the drop-in's pool, in its directory.
fn run_there(image: &SystemImage, script: &str) -> Command {
    let mut command = Command::new(FOREBAY);
    command
        .args(["run", "--profile", "redis", "--pool"])
        .arg(image.at("var/lib/forebay/db.pool"))
        .args(["--", "python3", "-c", script])
        .current_dir(image.at("srv/db"))
        .env("FOREBAY_RUN_DIR", image.sandbox.file("run"));
    command
}

/// Has a write acknowledged, and is killed with its supervisor.
const KILLED_WRITER: &str = "import os, signal
fd = os.open('a.aof', os.O_WRONLY | os.O_CREAT)
os.fsync(fd)
os.write(fd, b'acknowledged')
os.fsync(fd)
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)";

/// A unit `db` of root's, whose pool holds writes of a run that was killed with its supervisor.
fn enabled_and_cut_off() -> SystemImage {
    let image = SystemImage::new();
    image.program("bin/python3");
    image.write(
        "lib/systemd/system/db.service",
        "[Service]\nExecStart=/bin/python3\n",
    );
    image
        .run("enable db --pool db --size 32MiB --profile redis --data /srv/db")
        .ok();
    run_there(&image, KILLED_WRITER).output().unwrap();
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
        .json("pool check image/var/lib/forebay/db.pool --json");
    assert!(
        holding["lanes"][0]["records"].as_u64().unwrap() > 0,
        "{holding}"
    );
    // Its paths are another system's: nothing is brought to files of this one.
    let before = image.own_files();
    let left = image.run("disable db");
    assert_eq!(left.code, Some(1));
    assert!(
        left.text().contains("Run this in that system: chroot") && left.text().contains("records"),
        "{}",
        left.text()
    );
    assert_eq!(image.own_files(), before);
    let kept = image
        .sandbox
        .json("pool check image/var/lib/forebay/db.pool --json");
    assert_eq!(kept["lanes"][0]["records"], holding["lanes"][0]["records"]);
    image
        .sandbox
        .run("recover --pool image/var/lib/forebay/db.pool")
        .ok();
    let done = image.run("disable db --json").ok().json();
    assert_eq!(done["is_proven"], true);
    assert_eq!(done["proof"]["pools"][0]["records"], 0);
    assert_eq!(done["removed"].as_array().unwrap().len(), 3, "{done}");
    assert!(image.own_files().is_empty());
    assert_eq!(fs::read(image.at("srv/db/a.aof")).unwrap(), b"acknowledged");
    // Nothing is known of its files any more, unless they are named.
    image
        .run("disable db")
        .fails(1, &["was not enabled", "--data"]);
    let proven = image.run("disable db --data /srv/db").ok().text();
    assert!(proven.contains("proven: "), "{proven}");
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
    // What is there and cannot be read is not given up.
    fs::write(&pool, vec![1; 1 << 20]).unwrap();
    let ran = image.run("disable db --pool-is-lost");
    assert_eq!(ran.code, Some(1));
    assert!(ran.text().contains("not given up"), "{}", ran.text());
    image.drop_in("db");
    // Nor is it proven of one that is gone that it held nothing.
    fs::remove_file(&pool).unwrap();
    let directory = fs::File::open(image.at("srv/db")).unwrap();
    rustix::fs::fremovexattr(&directory, "user.forebay.pools").unwrap();
    let given = image.run("disable db --pool-is-lost --json");
    // The unit starts plainly, and the status says that nothing was proven.
    assert_eq!(given.code, Some(1), "{}", given.text());
    let given = given.json();
    assert_eq!(given["is_proven"], false, "{given}");
    assert_eq!(
        given["proof"]["given_up"].as_array().unwrap().len(),
        1,
        "{given}"
    );
    assert!(image.own_files().is_empty());
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
fn keeps_the_drop_in(image: &SystemImage, script: &str) {
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

/// A unit that was enabled and runs.
fn enabled_and_running(program: &str) -> LiveSystem {
    let system = LiveSystem::new(program);
    system.run(&format!("{} --yes", system.enable())).ok();
    system.told();
    system
}

/// Promise: as `a_unit_is_disabled_once_nothing_is_left`.
#[test]
fn what_a_killed_unit_left_comes_to_its_files() {
    if !can_enable() {
        return;
    }
    let system = enabled_and_running("/bin/sleep 600");
    // Another directory than those that are known.
    fs::create_dir(system.file("elsewhere")).unwrap();
    let mut command = Command::new(FOREBAY);
    command.args(["run", "--profile", "redis", "--pool"]);
    command.arg(system.file("db.pool"));
    command.args(["--", "python3", "-c", KILLED_WRITER]);
    command.current_dir(system.file("elsewhere"));
    command.env("FOREBAY_RUN_DIR", system.file("other-run"));
    command.output().unwrap();
    let done = system.run("disable db --yes --json").ok().json();
    assert_eq!(done["is_proven"], true, "{done}");
    assert!(
        done["proof"]["directories"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it.as_str().unwrap().ends_with("/elsewhere")),
        "{done}"
    );
    assert_eq!(
        fs::read(system.file("elsewhere/a.aof")).unwrap(),
        b"acknowledged"
    );
}

/// Promise (rights): if `forebay disable` fails when the drop-in is gone, the drop-in is put back
/// before the unit starts; if that fails, the unit does not start.
#[test]
fn a_failure_behind_the_removal_puts_the_drop_in_back() {
    if !can_enable() {
        return;
    }
    let system = enabled_and_running("/bin/sleep 600");
    let text = fs::read_to_string(system.drop_in()).unwrap();
    system.fail("daemon-reload\n");
    let ran = system.run("disable db --yes");
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.text().contains("daemon-reload failed") && ran.text().contains("stays under forebay"),
        "{}",
        ran.text()
    );
    assert_eq!(fs::read_to_string(system.drop_in()).unwrap(), text);
    assert_eq!(
        system.told(),
        "stop -- db.service\ndaemon-reload\ndaemon-reload\nstart -- db.service\n"
    );
    // What systemd has read is not known now.
    system.fail("daemon-reload\ndaemon-reload\n");
    let ran = system.run("disable db --yes");
    assert_eq!(ran.code, Some(1));
    assert!(ran.text().contains("IS NOT STARTED"), "{}", ran.text());
    assert_eq!(fs::read_to_string(system.drop_in()).unwrap(), text);
    assert!(!system.told().contains("start --"));
    // The report is not lost if the start fails.
    system.run(&format!("{} --yes", system.enable())).ok();
    system.fail("start\n");
    let ran = system.run("disable db --yes");
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.text().contains("proven: this pool holds no record")
            && ran.text().contains("does not start again"),
        "{}",
        ran.text()
    );
    assert!(!system.drop_in().exists());
}

/// Promise: as `a_unit_is_disabled_once_nothing_is_left`.
#[test]
fn a_unit_that_others_put_under_forebay_is_not_called_free() {
    if !can_enable() {
        return;
    }
    let system = LiveSystem::new(&format!("{FOREBAY} run --pool /p /bin/sleep 600"));
    let line = format!("disable db --yes --data {}", system.file("data").display());
    let said = ["db.service", "under forebay run", "Nothing was changed"];
    system.run(&line).fails(1, &said);
    assert_eq!(system.told(), "");
    system.write_unit("/bin/sleep 600");
    fs::create_dir(system.drop_in().parent().unwrap()).unwrap();
    fs::write(system.drop_in(), "[Service]\nNice=1\n").unwrap();
    let said = ["zz-forebay.conf", "not written by forebay enable"];
    system.run(&line).fails(1, &said);
    assert_eq!(system.told(), "");
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
    let directory = fs::File::open(image.at("srv/db")).unwrap();
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
