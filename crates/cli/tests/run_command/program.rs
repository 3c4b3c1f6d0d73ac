//! The program that is run: which ones cannot be, and that its input, output, status and files are
//! what they would be without Forebay.

use crate::common::{self, FOREBAY, Ran, Sandbox, ZEROS};
use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

#[test]
fn the_programs_output_input_and_status_are_passed_through() {
    let sandbox = Sandbox::new();
    let ran = sandbox
        .script("--absorb *.log", "echo out; echo err >&2; exit 7")
        .fails(7, &["err", "profile generic", "*.log"]);
    assert_eq!(ran.text(), "out\n");
    sandbox.script("--absorb *.log", "exit 0").ok();
    sandbox
        .script("--absorb *.log", "kill -KILL $$")
        .fails(137, &[]);
    sandbox
        .script("--absorb *.log", "kill -SEGV $$")
        .fails(139, &[]);
    let ran = sandbox.feed("run --pool p --absorb x -- cat", b"through");
    assert_eq!(ran.ok().text(), "through");
}

#[test]
fn a_program_that_cannot_be_run_has_the_status_that_shells_give() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    fs::write(sandbox.file("plain"), "text").unwrap();
    fs::write(sandbox.file("garbage"), "text").unwrap();
    fs::set_permissions(sandbox.file("garbage"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |program: &str| sandbox.run(&format!("run --pool p --absorb x -- {program}"));
    run("no-such-program").fails(127, &["no-such-program", "PATH"]);
    run("./no-such-program").fails(127, &["there is no such program"]);
    run("./plain").fails(126, &["not executable"]);
    run("./garbage").fails(126, &["neither a program nor a script"]);
    run("/").fails(126, &["is a directory"]);
    sandbox.run("run --pool p").fails(2, &["CMD"]);
}

#[test]
fn sockets_given_by_a_service_manager_are_the_programs() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    // The program's own child is not meant.
    let program = "echo $LISTEN_PID $$ $LISTEN_FDS; sh -c 'echo $LISTEN_PID'";
    let activated = format!(
        "LISTEN_FDS=1 LISTEN_PID=$$ exec {FOREBAY} run --pool p --absorb x -- sh -c \"$1\""
    );
    let mut command = Command::new("sh");
    command.args(["-c", &activated, "sh", program]);
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = command.current_dir(sandbox.path()).output().unwrap();
    let said = Ran::of(ran).ok().text();
    let said: Vec<&str> = said.split_whitespace().collect();
    assert!(
        matches!(said[..], [named, pid, "1", below] if named == pid && below == pid),
        "{said:?}"
    );
}

#[test]
fn a_library_with_a_space_or_a_colon_in_its_path_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    for name in ["lib forebay.so", "lib:forebay.so"] {
        fs::write(sandbox.file(name), "").unwrap();
        let mut command = sandbox.command("run --pool p --absorb x -- true");
        command.env("FOREBAY_LIBRARY", sandbox.file(name));
        let ran = Ran::of(command.output().unwrap());
        ran.fails(1, &[name, "a space or a colon", "FOREBAY_LIBRARY"]);
    }
}

#[test]
fn the_library_is_refused_to_a_static_program() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    fs::write(sandbox.file("main.c"), "int main(void) { return 0; }\n").unwrap();
    let built = Command::new("cc")
        .args(["-static", "-o", "static", "main.c"])
        .current_dir(sandbox.path())
        .status();
    assert!(built.unwrap().success());
    let said = ["linked statically", "leave out --front-end preload"];
    sandbox
        .run("run --pool p --absorb x --front-end preload -- ./static")
        .fails(126, &said);
    fs::write(sandbox.file("script"), "#!./static\n").unwrap();
    fs::set_permissions(sandbox.file("script"), fs::Permissions::from_mode(0o755)).unwrap();
    sandbox
        .run("run --pool p --absorb x --front-end preload -- ./script")
        .fails(126, &["linked statically"]);
}

#[test]
fn a_program_is_refused_if_file_capabilities_give_it_something() {
    const NOBODY: u32 = 65534;
    if !crate::common::root_can("give a program capabilities") {
        return;
    }
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = sandbox.file("program");
    common::copy("/bin/true", &program);
    // Revision 2, in effect; permitted: CAP_NET_BIND_SERVICE.
    let capabilities: Vec<u8> = [0x0200_0001_u32, 1 << 10, 0, 0, 0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(&program, "security.capability", &capabilities, flags)
    {
        println!("skipped: this file system keeps no capabilities ({error})");
        return;
    }
    // The program under test may lie where another user cannot go.
    let forebay = sandbox.file("forebay");
    common::copy(FOREBAY, &forebay);
    let mut command = Command::new(&forebay);
    command
        .args(["run", "--pool", "p", "--absorb", "x", "--"])
        .arg(&program)
        .current_dir(sandbox.path())
        .uid(NOBODY)
        .gid(NOBODY);
    Ran::of(command.output().unwrap()).fails(126, &["has file capabilities", "run a copy"]);
    sandbox.pool();
    sandbox.run("run --pool p --absorb x -- ./program").ok();
}

#[test]
fn absorbed_writes_are_counted_and_leave_the_files_the_same() {
    let sandbox = Sandbox::new();
    let script = format!(
        "{ZEROS} a.log 100 50; \
         dd if=/dev/zero of=b.txt bs=100 count=3 conv=fsync 2>/dev/null; wc -c < a.log"
    );
    let ran = sandbox.script("--absorb *.log --explain", &script).ok();
    assert_eq!(ran.text().trim(), "5000");
    let line = ran
        .stderr
        .lines()
        .find(|line| line.contains("a.log"))
        .unwrap_or_else(|| panic!("{}", ran.stderr));
    assert!(line.contains("50") && line.contains("4.9 KiB"), "{line}");
    assert!(!ran.stderr.contains("b.txt"), "{}", ran.stderr);
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), vec![0; 5000]);
}
