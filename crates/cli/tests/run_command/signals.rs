//! Signals are the program's: it starts with its caller's, gets those that are sent to `forebay
//! run`, and stops and continues with it.

use crate::common::{FOREBAY, Ran, Sandbox, databases::PATIENCE};
use forebay_bench::processes::Process;
use rustix::process::Signal;
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

#[test]
fn signals_are_passed_on_and_the_program_decides() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let script = r#"
        trap 'echo usr1' USR1; trap 'echo hup' HUP; trap 'echo term; exit 3' TERM
        echo ready
        while :; do sleep 0.02; done
    "#;
    // A shell cannot trap what it was started with ignored, and under nohup that is SIGHUP.
    let mut process = Process::spawn(
        Command::new("env")
            .args(["--default-signal=USR1,HUP,TERM", FOREBAY])
            .args([
                "run", "--pool", "p", "--absorb", "x", "--", "sh", "-c", script,
            ])
            .current_dir(sandbox.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped()),
    )
    .unwrap();
    let mut said = BufReader::new(process.child().stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert_eq!(said.next().unwrap(), "ready");
    for (signal, answer) in [
        (Signal::USR1, "usr1"),
        (Signal::HUP, "hup"),
        (Signal::TERM, "term"),
    ] {
        process.handle().signal(signal);
        assert_eq!(said.next().unwrap(), answer);
    }
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(3));
}

#[test]
fn the_program_starts_with_the_signals_of_its_caller() {
    let sandbox = Sandbox::new();
    let blocked = |ran: Ran| {
        let text = ran.ok().text();
        let line = text
            .lines()
            .find(|line| line.starts_with("SigBlk"))
            .unwrap()
            .to_owned();
        let ignored = text
            .lines()
            .find(|line| line.starts_with("SigIgn"))
            .unwrap()
            .to_owned();
        (line, ignored)
    };
    sandbox.pool();
    // A service manager ignores SIGPIPE for its services.
    for caller in [
        "--default-signal=PIPE,XFSZ",
        "--ignore-signal=PIPE",
        "--ignore-signal=XFSZ",
    ] {
        let of_program = |before: &[&str]| {
            let mut command = Command::new("env");
            command
                .arg(caller)
                .args(before)
                .args(["cat", "/proc/self/status"]);
            Ran::of(command.current_dir(sandbox.path()).output().unwrap())
        };
        let under = of_program(&[FOREBAY, "run", "--pool", "p", "--absorb", "x", "--"]);
        assert_eq!(blocked(under), blocked(of_program(&[])), "{caller}");
    }
}

#[test]
fn a_programs_end_is_noticed_though_the_caller_ignores_sigchld() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    for with in [&["--pool", "p", "--absorb", "x"][..], &["--no-pool"]] {
        let mut command = Command::new("env");
        command
            .args(["--ignore-signal=CHLD", FOREBAY, "run"])
            .args(with);
        command.args(["--", "sh", "-c", "exit 3"]);
        let mut process = Process::spawn(command.current_dir(sandbox.path())).unwrap();
        assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(3), "{with:?}");
    }
}

/// A script under forebay, as a job of ours, that has said that it is ready: SIGTSTP stops no
/// process of an orphaned process group.
fn job(sandbox: &Sandbox, script: &str) -> Process {
    let run = "run --pool p --absorb x -- sh -c";
    let mut process = Process::spawn(
        sandbox
            .command(run)
            .arg(script)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped()),
    )
    .unwrap();
    let mut said = BufReader::new(process.child().stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    process
}

#[test]
fn a_stop_that_the_program_ignores_stops_not_forebay_either() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    // It ends by itself if nothing is passed on.
    let script =
        "trap '' TSTP; trap 'exit 3' USR1; echo ready; for i in $(seq 600); do sleep 0.1; done";
    let mut process = job(&sandbox, script);
    process.handle().signal(Signal::TSTP);
    // Once it is read what follows from it comes first.
    let status = format!("/proc/{}/status", process.handle().pid());
    let is_pending = || {
        let status = fs::read_to_string(&status).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let pending = u64::from_str_radix(pending.unwrap().trim(), 16).unwrap();
        pending & 1 << (Signal::TSTP.as_raw() - 1) != 0
    };
    let until = Instant::now() + PATIENCE;
    while is_pending() {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(5));
    }
    process.handle().signal(Signal::USR1);
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(3));
}

#[test]
fn a_stop_stops_both_and_a_continue_continues_both() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let script = "echo ready; while :; do sleep 0.02; done";
    let mut process = job(&sandbox, script);
    let program = process.first_child(PATIENCE).unwrap();
    let pids = [process.handle().pid(), program.pid()];
    let are_stopped = |wanted: bool| {
        let stat = |pid: i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let is = |pid| stat(pid).rsplit_once(") ").unwrap().1.starts_with('T');
        let until = Instant::now() + PATIENCE;
        while pids.iter().any(|pid| is(*pid) != wanted) {
            assert!(Instant::now() < until, "{:?}", pids.map(stat));
            thread::sleep(Duration::from_millis(5));
        }
    };
    process.handle().signal(Signal::TSTP);
    are_stopped(true);
    process.handle().signal(Signal::CONT);
    are_stopped(false);
    process.handle().signal(Signal::TERM);
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(143));
}
