//! Root's commands on what another user has: a child process that is this user does the work, and
//! its output and its exit status are the command's.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{FOREBAY, Ran, Sandbox};
use forebay_pool::PoolOptions;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::PathBuf,
    process::Command,
};

/// Whose pool and cache it is: a user without an entry in the system's list.
const UNKNOWN: u32 = 3_999_999_999;

/// A pool and a flash cache of that user's, and the command where that user cannot read it.
struct Foreign {
    sandbox: Sandbox,
    command: PathBuf,
}

impl Foreign {
    /// None if this is not root.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: not root");
            return None;
        }
        let sandbox = Sandbox::on_disk();
        sandbox.let_in();
        let private = sandbox.file("private");
        fs::create_dir(&private).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
        let command = private.join("forebay");
        common::copy(FOREBAY, &command);
        fs::set_permissions(&command, fs::Permissions::from_mode(0o700)).unwrap();
        let options = PoolOptions::new()
            .size(4 << 20)
            .segment_size(64 << 10)
            .emulated(true);
        drop(options.create(sandbox.file("pool")).unwrap());
        forebay_innodb::create(&sandbox.file("f"), 8 << 20).unwrap();
        for name in ["pool", "f", "f.lane"] {
            chown(sandbox.file(name), Some(UNKNOWN), Some(UNKNOWN)).unwrap();
        }
        Some(Self { sandbox, command })
    }

    fn run_with(&self, arguments: &str, change: impl FnOnce(&mut Command)) -> Ran {
        let mut command = Command::new(&self.command);
        command
            .args(arguments.split(' '))
            .current_dir(self.sandbox.path());
        change(&mut command);
        Ran::of(command.output().unwrap())
    }

    fn run(&self, arguments: &str) -> Ran {
        self.run_with(arguments, |_| {})
    }

    fn flash_bytes(&self) -> u64 {
        fs::metadata(self.sandbox.file("f")).unwrap().len()
    }
}

/// Promise (rights): A command of root's on another user's pool or cache reports and ends as that
/// user's own would, also where the user cannot read the command.
#[test]
fn output_and_status_are_those_of_the_users_own_command() {
    let Some(foreign) = Foreign::new() else {
        return;
    };
    let report = foreign.run("recover --pool pool --json").ok().json();
    assert_eq!(report["done"], true, "{report}");
    let report = foreign
        .run("flash resize --flash f --json 16MiB")
        .ok()
        .json();
    assert_eq!(report["bytes"], 16 << 20, "{report}");
    let made = fs::metadata(foreign.sandbox.file("f")).unwrap();
    assert_eq!((made.uid(), made.len()), (UNKNOWN, 16 << 20));
    let refused = foreign.run("flash resize --flash f --json 1MiB");
    let error = refused.json()["error"].to_string();
    assert!(error.contains("cannot be made"), "{error}");
    refused.fails(1, &["cannot be made"]);
    let text = foreign.run("flash flush --flash f").ok().text();
    assert!(text.contains("the cache is empty"), "{text}");
    let report = foreign.run("flash remove --flash f --json").ok().json();
    assert!(report["removed"].as_array().unwrap().len() >= 2, "{report}");
    assert!(!foreign.sandbox.file("f").exists());
}

/// Promise (rights): A command whose child is killed fails, says as whom that worked, and is
/// repeated.
#[test]
fn command_whose_child_is_killed_says_so_and_is_repeated() {
    let Some(foreign) = Foreign::new() else {
        return;
    };
    let cut = foreign.run_with("flash resize --flash f 16MiB", |command| {
        command.env("FOREBAY_FAILPOINT", "flash:lengthened=1:die");
    });
    let user = format!("user {UNKNOWN}");
    cut.fails(1, &[&user, "before it was done", "repeat this"]);
    foreign.run("flash resize --flash f 16MiB").ok();
    assert_eq!(foreign.flash_bytes(), 16 << 20);
}

/// Promise (rights): A command that cannot become the owner of a pool or cache changes nothing and
/// says what is missing.
#[test]
fn command_that_cannot_become_the_owner_changes_nothing() {
    let Some(foreign) = Foreign::new() else {
        return;
    };
    for arguments in ["recover --pool pool", "flash resize --flash f 16MiB"] {
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set", "-setuid", "--inh-caps", "-setuid"])
            .arg(&foreign.command)
            .args(arguments.split(' '))
            .current_dir(foreign.sandbox.path());
        let Ok(ran) = command.output() else {
            println!("skipped: setpriv is not installed");
            return;
        };
        let user = format!("user {UNKNOWN}");
        Ran::of(ran).fails(1, &[&user, "CAP_SETUID", "Nothing was changed"]);
    }
    assert_eq!(foreign.flash_bytes(), 8 << 20);
}
