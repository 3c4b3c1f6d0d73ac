//! Programs that no library can be put before: static ones, with musl, and of Go. Their system
//! calls on logs are done by an agent, and they see what they would see without.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox,
    recovered::{Disk, run_and_recovered, same},
};
use std::{
    env,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// `forebay run`, up to the pool; what ends its process group ends nothing else.
fn command(sandbox: &Sandbox, line: &str) -> Command {
    let mut run = sandbox.command(line);
    run.process_group(0);
    run
}

/// Builds `programs/calls.c` with a compiler, statically.
fn build_calls(compiler: &str, sandbox: &Sandbox) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/calls.c");
    let mut command = Command::new(compiler);
    let options = ["-O1", "-static", "-pthread", "-o", "calls", source];
    let built = command.args(options).current_dir(sandbox.path());
    assert!(built.status().unwrap().success());
}

/// What `what` of `programs/calls.c` wrote is there after a power cut.
#[track_caller]
fn nothing_is_lost(compiler: &str, disk: Disk, what: &str) {
    let sandbox = Sandbox::new();
    build_calls(compiler, &sandbox);
    let run = command(&sandbox, "run --front-end notify --absorb *.log --pool");
    same(run_and_recovered(disk, &sandbox, run, &["./calls", what]));
}

/// Promise (programs): Writes of a static program are durable when a sync of it says so, by
/// whatever call it wrote, and however its logs are named, duplicated and inherited.
#[test]
fn a_static_programs_writes_outlast_a_power_cut() {
    for what in ["data", "forked", "threads", "closes-all", "locks"] {
        nothing_is_lost("cc", Disk::Synced, what);
    }
    for what in ["names", "times"] {
        nothing_is_lost("cc", Disk::All, what);
    }
}

#[test]
fn what_cannot_be_followed_is_synced_really() {
    for what in ["plain", "mapped", "sent"] {
        nothing_is_lost("cc", Disk::All, what);
    }
    // Bytes that it sends beside a descriptor.
    const BESIDE: u64 = 81_000;
    let max = std::fs::read_to_string("/proc/sys/net/core/optmem_max").unwrap_or_default();
    match max.trim().parse::<u64>() {
        Ok(max) if max < BESIDE => {
            println!("skipped: net.core.optmem_max is {max}, and {BESIDE} are sent");
        }
        _ => nothing_is_lost("cc", Disk::All, "sent-behind"),
    }
}

/// Promise (programs): A log of a static program that gets the number of one which was closed just
/// then is not closed with it, nor is anything else that the program has.
#[test]
fn a_number_is_given_anew_only_when_it_is_free() {
    for what in ["closing", "numbers", "duplicates", "reused"] {
        nothing_is_lost("cc", Disk::All, what);
    }
}

#[test]
fn what_the_kernel_goes_on_with_is_still_synced() {
    for what in ["dsync", "below", "direct"] {
        nothing_is_lost("cc", Disk::All, what);
    }
}

#[test]
fn a_restricted_program_does_nothing_by_its_agent() {
    nothing_is_lost("cc", Disk::All, "restricted");
}

/// The command by an agent that may not look at each process.
fn without_tracing(command: &Command) -> Option<Command> {
    without_rights("-sys_ptrace", command)
}

/// The command without these rights.
fn without_rights(rights: &str, command: &Command) -> Option<Command> {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root has a right to drop");
        return None;
    }
    let mut ordinary = Command::new("setpriv");
    ordinary.args(["--bounding-set", rights, "--inh-caps", rights]);
    ordinary.arg(command.get_program()).args(command.get_args());
    ordinary.current_dir(command.get_current_dir().unwrap());
    ordinary.process_group(0);
    Some(ordinary)
}

/// Promise (programs): A program that becomes invisible to its agent has plain logs from then on,
/// and what is to be synced with each write is.
#[test]
fn a_program_that_cannot_be_seen_any_more_loses_nothing() {
    let sandbox = Sandbox::new();
    build_calls("cc", &sandbox);
    let run = sandbox.command("run --front-end notify --absorb *.log --pool");
    if let Some(run) = without_tracing(&run) {
        same(run_and_recovered(
            Disk::All,
            &sandbox,
            run,
            &["./calls", "unseen"],
        ));
    }
    if let Some(run) =
        without_tracing(&sandbox.command("run --front-end notify --absorb *.log --pool"))
        && build_logs(&sandbox)
    {
        let recovered = same(run_and_recovered(
            Disk::All,
            &sandbox,
            run,
            &["./logs", "drop"],
        ));
        assert_eq!(recovered.len(), 4000);
    }
}

/// Promise (programs): A change of users that the kernel refuses leaves a program's logs absorbed.
#[test]
fn a_refused_change_of_users_leaves_logs_absorbed() {
    let sandbox = Sandbox::new();
    build_calls("cc", &sandbox);
    sandbox.pool();
    let line = "run --front-end notify --absorb *.log --explain --pool p -- ./calls refused 7";
    let run = sandbox.command(line);
    let rights = "-sys_ptrace,-setuid,-setgid,-sys_admin";
    let Some(mut run) = without_rights(rights, &run) else {
        return;
    };
    run.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(run.stdin(Stdio::null()).output().unwrap());
    for said in ["then plain", "invisible"] {
        assert!(!ran.stderr.contains(said), "{}", ran.stderr);
    }
    ran.fails(7, &["nothing that it executes gains rights", "absorbed"]);
}

#[test]
fn a_program_with_musl_outlasts_a_power_cut() {
    if common::have("musl-gcc") {
        nothing_is_lost("musl-gcc", Disk::Synced, "data");
        nothing_is_lost("musl-gcc", Disk::All, "names");
    }
}

/// Runs `calls` with these words in an emulated pool, and lists what became of its files.
fn explained(sandbox: &Sandbox, words: &[&str]) -> Ran {
    build_calls("cc", sandbox);
    let mut run = command(
        sandbox,
        "run --front-end notify --absorb *.log --explain --pool p -- ./calls",
    );
    sandbox.pool();
    run.args(words).env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(run.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn the_exit_status_is_the_programs_own() {
    let sandbox = Sandbox::new();
    let ran = explained(&sandbox, &["data", "7"]);
    assert_eq!(ran.code, Some(7), "{}", ran.stderr);
    for said in [
        SAID,
        "--front-end notify",
        "a.log",
        "syncs that cost nothing",
    ] {
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
}

#[test]
fn a_program_for_the_library_is_served_from_outside_if_asked() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let script = "import os\n\
         fd = os.open('a.log', os.O_WRONLY | os.O_CREAT, 0o600)\n\
         assert fd >= 512, fd\n\
         assert os.write(fd, b'x' * 100) == 100\n\
         os.fsync(fd)\n\
         assert 'LD_PRELOAD' not in os.environ\n\
         assert not [name for name in os.environ if name.startswith('FOREBAY_T')]";
    let line = "run --front-end notify --absorb *.log --pool p -- python3 -c";
    let mut run = sandbox.command(line);
    Ran::of(run.arg(script).output().unwrap()).ok();
    let line = "run --absorb *.log --front-end preload --pool p -- ./calls data 0";
    build_calls("cc", &sandbox);
    sandbox
        .run(line)
        .fails(126, &["linked statically", "--front-end preload"]);
}

/// What a run says of its front end.
const SAID: &str = "an agent does the program's system calls on logs";

/// Promise (programs): A program that the library does not fit is served by an agent without being
/// asked for it, and a line says why; so is a script with such an interpreter.
#[test]
fn a_program_gets_the_front_end_that_fits_it() {
    let sandbox = Sandbox::new();
    build_calls("cc", &sandbox);
    sandbox.pool();
    std::fs::write(sandbox.file("script"), "#!./calls data\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(sandbox.file("script"), mode).unwrap();
    let run = |program: &str| {
        let line = format!("run --absorb *.log --explain --pool p -- {program}");
        let mut run = command(&sandbox, &line);
        run.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        let ran = Ran::of(run.stdin(Stdio::null()).output().unwrap());
        let _ = std::fs::remove_file(sandbox.file("a.log"));
        ran
    };
    let absorbed = "syncs that cost nothing";
    run("./calls data 7").fails(7, &[SAID, "calls is linked statically", absorbed]);
    // The kernel gives the script's name after the interpreter's word, which is no status.
    run("./script").fails(0, &[SAID, "its interpreter", "linked statically"]);
    let quiet = run("sh -c true").ok();
    assert!(!quiet.stderr.contains(SAID), "{}", quiet.stderr);
    // Whoever asks is told the same.
    let status = format!("./calls executes {} status", common::FOREBAY);
    let told = run(&status).ok().text();
    assert!(
        told.contains("an agent beside it") && told.contains("linked statically"),
        "{told}"
    );
    let told = run(&format!("{status} --json")).ok().text();
    assert!(told.contains(r#""front_end":"agent""#), "{told}");
    let doctor = format!("./calls executes {} doctor . --json", common::FOREBAY);
    let told = run(&doctor).text();
    assert!(
        told.contains(r#""running":[{"#) && told.contains(r#""front_end":"agent""#),
        "{told}"
    );
    let told = run(&format!("{} status --json", common::FOREBAY))
        .ok()
        .text();
    for word in [r#""front_end":"library""#, "GNU C library"] {
        assert!(told.contains(word), "{told}");
    }
}

#[test]
fn a_go_program_with_the_c_library_gets_an_agent() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    // With what says that it is Go's, and without the part of it that can be left out.
    for flags in ["", "-buildid="] {
        if !build_go(&sandbox, "cgo", &[("CGO_ENABLED", "1")], flags) {
            return;
        }
        let mut run = command(&sandbox, "run --absorb *.log --explain --pool p -- ./cgo");
        run.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        let ran = Ran::of(run.stdin(Stdio::null()).output().unwrap()).ok();
        for said in [SAID, "is a Go program", "syncs that cost nothing"] {
            assert!(ran.stderr.contains(said), "{}", ran.stderr);
        }
    }
}

/// Go, as it is installed.
fn go() -> Option<PathBuf> {
    let search = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = env::split_paths(&search).collect();
    places.push("/usr/local/go/bin".into());
    let found = places
        .into_iter()
        .map(|dir| dir.join("go"))
        .find(|it| it.is_file());
    if found.is_none() {
        println!("skipped: Go is not installed");
    }
    found
}

/// Promise (programs): Writes of a Go program are durable when a sync of it says so.
#[test]
fn a_go_programs_writes_outlast_a_power_cut() {
    let sandbox = Sandbox::new();
    if !build_logs(&sandbox) {
        return;
    }
    let run = command(&sandbox, "run --front-end notify --absorb *.log --pool");
    let recovered = same(run_and_recovered(Disk::Synced, &sandbox, run, &["./logs"]));
    assert_eq!(recovered.len(), 80_300);
}

/// Builds `programs/logs.go`, if that can be.
fn build_logs(sandbox: &Sandbox) -> bool {
    build_go(sandbox, "logs", &[("CGO_ENABLED", "0")], "")
}

/// Builds one of `programs`, with options for the linker, if Go is there.
fn build_go(sandbox: &Sandbox, name: &str, environment: &[(&str, &str)], linker: &str) -> bool {
    let Some(go) = go() else { return false };
    let source = format!("{}/tests/programs/{name}.go", env!("CARGO_MANIFEST_DIR"));
    let built = Command::new(go)
        .args(["build", "-ldflags", linker, "-o"])
        .args([sandbox.file(name), PathBuf::from(source)])
        .env("GO111MODULE", "off")
        .envs(environment.iter().copied())
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"))
        .status();
    assert!(built.unwrap().success());
    true
}

/// Promise: as `a_program_that_cannot_be_served_runs_plainly`.
#[test]
fn a_program_in_a_strict_container_runs_plainly() {
    let sandbox = Sandbox::new();
    build_calls("cc", &sandbox);
    sandbox.pool();
    let contained = |program: &str| {
        let line = format!(
            "contained {} run --front-end notify --absorb *.log --pool p -- {program}",
            common::FOREBAY
        );
        let mut contained = Command::new(sandbox.file("calls"));
        contained.args(line.split(' ')).current_dir(sandbox.path());
        contained.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        Ran::of(contained.stdin(Stdio::null()).output().unwrap())
    };
    let ran = contained("./calls data 7");
    // It is said by the agent, and at the end.
    let again = "nothing absorbed so far";
    assert!(!ran.stderr.contains(again), "{}", ran.stderr);
    ran.fails(7, &["runs plainly", "--security-opt seccomp="]);
    // The agent's connection to its guardian is not the program's.
    let ran = contained("ls -l /proc/self/fd").ok();
    let links = ran.text();
    assert!(
        links.contains("-> ") && !links.contains("socket:"),
        "{links}"
    );
}

/// Promise (programs): A Go program with the C library has the library where no agent can be had.
#[test]
fn a_go_program_without_an_agent_has_the_library() {
    let sandbox = Sandbox::new();
    build_calls("cc", &sandbox);
    sandbox.pool();
    if !build_go(&sandbox, "cgo", &[("CGO_ENABLED", "1")], "") {
        return;
    }
    let run = format!(
        "contained {0} run --absorb *.log --pool p -- ./cgo {0} status --json",
        common::FOREBAY
    );
    let mut contained = Command::new(sandbox.file("calls"));
    contained.args(run.split(' ')).current_dir(sandbox.path());
    contained.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(contained.stdin(Stdio::null()).output().unwrap()).ok();
    for said in ["the library is put before it instead", "unshare"] {
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
    assert!(!ran.stderr.contains(SAID), "{}", ran.stderr);
    let told = ran.text();
    for word in [r#""front_end":"library""#, "no agent can serve it"] {
        assert!(told.contains(word), "{told}");
    }
}

/// Promise (programs): A program that an agent cannot serve runs plainly, and is told why.
#[test]
fn a_program_that_cannot_be_served_runs_plainly() {
    let sandbox = Sandbox::new();
    build_calls("cc", &sandbox);
    sandbox.pool();
    // No number is left for its logs.
    let script = format!(
        "ulimit -n 1024; exec {} run --front-end notify --absorb '*.log' --pool p -- ./calls data 7",
        common::FOREBAY
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(sandbox.path());
    shell.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(shell.output().unwrap());
    let nobody = "nothing was absorbed: no agent can serve the program";
    let said = ["runs plainly", "limit of open files", "ulimit -Hn", nobody];
    ran.fails(7, &said);
    if !common::root_can("make a program another user's") {
        return;
    }
    // Another user than the agent's.
    std::fs::remove_file(sandbox.file("a.log")).unwrap();
    std::fs::set_permissions(
        sandbox.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let line = "run --front-end notify --absorb *.log --pool p -- \
                setpriv --reuid 65534 --clear-groups ./calls data 7";
    let mut run = command(&sandbox, line);
    run.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(run.stdin(Stdio::null()).output().unwrap());
    ran.fails(7, &["a.log stays plain", "another user", "gosu USER"]);
}

/// Promise: as `a_program_that_cannot_be_served_runs_plainly`.
#[test]
fn a_program_with_another_root_or_rights_stays_plain() {
    if !common::root_can("change the root directory") {
        return;
    }
    let sandbox = Sandbox::new();
    build_calls("cc", &sandbox);
    sandbox.pool();
    let said_of = |line: &str, status: i32, said: &[&str]| {
        let before = "run --front-end notify --absorb *.log --pool p --";
        let mut run = command(&sandbox, &format!("{before} {line}"));
        run.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        let ran = Ran::of(run.stdin(Stdio::null()).output().unwrap());
        ran.fails(status, said);
        let _ = std::fs::remove_file(sandbox.file("a.log"));
    };
    let mode = |path: &Path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).unwrap();
    };
    let stays = "a.log stays plain";
    said_of(
        "chroot . ./calls data 7",
        7,
        &[stays, "another root directory"],
    );
    mode(sandbox.path(), 0o777);
    // Whoever executes it becomes its owner.
    let owned = sandbox.file("calls");
    std::os::unix::fs::chown(&owned, Some(65534), None).unwrap();
    mode(&owned, 0o4755);
    said_of("env ./calls data 7", 7, &[stays, "another user"]);
    // As the program itself it is refused.
    said_of("./calls data 7", 126, &["setuid program of another user"]);
}
