//! `forebay doctor`, `completions`, `man`, and `--help`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{FOREBAY, Ran, Sandbox, pty::PtyScreen};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

#[test]
fn doctor_looks_at_the_machine_and_gives_advice() {
    let sandbox = Sandbox::new();
    let report = sandbox.json("doctor --dir . --json");
    assert!(!report["instructions"]["copy"].as_str().unwrap().is_empty());
    assert!(report["directory"]["device"]["fsync_us"].as_f64().unwrap() > 0.0);
    assert!(!report["advice"].as_array().unwrap().is_empty());
    let text = sandbox.run("doctor").ok().text();
    assert!(text.contains("What to do next"), "{text}");
    sandbox
        .run("doctor --dir absent")
        .fails(2, &["No such file"]);
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
}

#[test]
fn completions_and_manual_pages_know_every_subcommand() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = sandbox.run(&format!("completions {shell}")).ok().text();
        assert!(script.contains("verify"), "{shell}");
    }
    sandbox.run("completions cmd").fails(2, &["bash"]);
    assert!(sandbox.run("man").ok().text().starts_with(".ie"));
    sandbox.run("man --dir pages").ok();
    for page in [
        "forebay.1",
        "forebay-pool-create.1",
        "forebay-store-import.1",
        "forebay-flash-flush.1",
    ] {
        assert!(sandbox.file("pages").join(page).exists(), "{page}");
    }
}

#[test]
fn a_manual_page_is_rendered_on_a_terminal() {
    let sandbox = Sandbox::new();
    let shown = |path: &Path| {
        // In a terminal of its own.
        let mut script = Command::new("/usr/bin/script");
        script.args(["-qec", &format!("{FOREBAY} man pool create"), "/dev/null"]);
        script.env("PATH", path).stdin(Stdio::null());
        Ran::of(script.output().unwrap()).ok().text()
    };
    // Where there is no man(1).
    let bin = sandbox.file("bin");
    fs::create_dir(&bin).unwrap();
    let text = shown(&bin);
    assert!(
        text.contains("Usage: forebay pool create") && !text.contains(".TH"),
        "{text}"
    );
    let man = "#!/bin/sh\nread -r first\necho \"rendered by man $*: $first\"\n";
    fs::write(bin.join("man"), man).unwrap();
    fs::set_permissions(bin.join("man"), Permissions::from_mode(0o755)).unwrap();
    let text = shown(&bin);
    assert!(text.contains("rendered by man -l -: .ie"), "{text}");
}

#[test]
fn a_manual_page_stays_when_its_pager_is_interrupted() {
    let sandbox = Sandbox::new();
    let bin = sandbox.file("bin");
    fs::create_dir(&bin).unwrap();
    let man = "#!/bin/sh\ntrap 'echo interrupted' INT\n/bin/cat >/dev/null\necho shown\nwhile :; do read -r key </dev/tty && break; done\necho \"ended by $key\"\n";
    fs::write(bin.join("man"), man).unwrap();
    fs::set_permissions(bin.join("man"), Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(FOREBAY);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    command
        .args(["man", "pool"])
        .current_dir(sandbox.path())
        .env("PATH", path);
    let mut screen = PtyScreen::start(&command, 24, 80);
    screen.until("the page", |text| text.contains("shown"));
    screen.press("\x03");
    screen.until("the pager", |text| text.contains("interrupted"));
    screen.press("q\n");
    screen.until("its end", |text| text.contains("ended by q"));
    assert!(screen.ended().success());
}

/// Lines of help that fit on a terminal.
const SCREEN: usize = 50;

/// The names under "Commands:" in a help text.
fn commands(help: &str) -> Vec<String> {
    let listed = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    (listed.lines().take_while(|line| !line.is_empty()))
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_commands_help_fits_a_screen_and_its_manual_says_more() {
    let sandbox = Sandbox::new();
    let mut left = vec![String::new()];
    let mut seen = 0;
    while let Some(command) = left.pop() {
        let help = sandbox.run(&format!("{command} --help")).ok().text();
        let lines = help.lines().count();
        assert!(lines <= SCREEN, "{command}: {lines} lines");
        assert_eq!(help, sandbox.run(&format!("{command} -h")).ok().text());
        let page = sandbox.run(&format!("man {command}")).ok().text();
        assert!(page.contains("forebay"), "{command}: {page}");
        left.extend((commands(&help).iter()).map(|below| format!("{command} {below}")));
        seen += 1;
    }
    assert!(seen > 25, "{seen}");
    let page = sandbox.run("man run").ok().text();
    assert!(
        page.contains("A configuration file") && page.contains("forebay\\-run"),
        "{page}"
    );
    sandbox.run("man run away").fails(2, &["no command away"]);
}

#[test]
fn help_teaches_with_examples_and_hides_what_is_internal() {
    let sandbox = Sandbox::new();
    let help = sandbox.run("--help").ok().text();
    assert!(
        help.contains("Examples:") && help.contains("Exit status"),
        "{help}"
    );
    assert!(!help.contains("internal"), "{help}");
    let help = sandbox.run("run --help").ok().text();
    let said = help.split("says which files are logs: ").nth(1).unwrap();
    let ends = |c: char| c.is_whitespace() || ".,:".contains(c);
    let said: Vec<&str> = said.split(ends).collect();
    for profile in forebay_files::policy::built_in() {
        assert!(said.contains(&profile.name.as_str()), "{}", profile.name);
    }
    for command in [
        "pool create",
        "pool status",
        "store put",
        "store import",
        "doctor",
    ] {
        let help = sandbox.run(&format!("{command} --help")).ok().text();
        assert!(help.contains("Example"), "{command}");
    }
    for (command, words) in [
        ("run", "Leave this out of a unit"),
        ("flash flush", "files may have torn pages"),
    ] {
        let help = sandbox.run(&format!("{command} --help")).ok().text();
        let help: Vec<&str> = help.split_whitespace().collect();
        assert!(help.join(" ").contains(words), "{command}: {help:?}");
    }
    sandbox.run("").fails(2, &["Usage"]);
    let version = sandbox.run("--version").ok().text();
    assert!(version.starts_with("forebay "), "{version}");
    // Tests from outside ask for it: no other build obeys them.
    assert!(version.ends_with(" with failpoints\n"), "{version}");
}
