//! Other runs of the user: which of them use the pool is said, and one that is stopped holds up no
//! other command.

use crate::common::{Sandbox, stop};
use forebay_bench::processes::Process;
use forebay_measure::processes::Watched;
use rustix::process::Signal;
use std::{fs, process::Stdio};

/// A run, in a directory beside the pool, that goes on until its standard input is closed.
fn neighbour(sandbox: &Sandbox) -> Process {
    sandbox.pool();
    fs::create_dir(sandbox.file("beside")).unwrap();
    let mut command = sandbox.command("run --absorb *.log --pool ../p -- sh -c");
    command
        .arg("echo ready; exec cat")
        .current_dir(sandbox.file("beside"))
        .stdin(Stdio::piped());
    let mut process = sandbox.start(&mut command, "neighbour");
    sandbox.hear(&mut process, "neighbour", "ready");
    process
}

#[test]
fn a_stopped_run_is_named_and_holds_up_no_status_or_other_run() {
    let sandbox = Sandbox::new();
    let mut stopped = neighbour(&sandbox);
    stop(&[Watched::of(stopped.handle().pid()).unwrap()]);
    let pid = stopped.handle().pid();
    for (line, code) in [
        ("status", 1),
        ("status --json", 1),
        ("run --absorb *.log --pool p -- true", 0),
    ] {
        let process = sandbox.start(&mut sandbox.command(line), "said");
        sandbox.ends(process, "said", code);
        let said = fs::read_to_string(sandbox.file("said")).unwrap();
        let words = format!("{pid} does not answer");
        assert!(said.contains(&words), "{line}: {said}");
    }
    stopped.handle().signal(Signal::CONT);
    let process = sandbox.start(&mut sandbox.command("status"), "said");
    sandbox.ends(process, "said", 0);
    drop(stopped.child().stdin.take());
    sandbox.ends(stopped, "neighbour", 0);
}

#[test]
fn a_run_is_known_by_its_pool_though_given_in_another_directory() {
    let sandbox = Sandbox::new();
    let mut first = neighbour(&sandbox);
    let line = "run --absorb *.log --pool p -- true";
    let second = sandbox.start(&mut sandbox.command(line), "said");
    sandbox.ends(second, "said", 0);
    let said = fs::read_to_string(sandbox.file("said")).unwrap();
    assert!(said.contains("the pool is shared with sh"), "{said}");
    drop(first.child().stdin.take());
    sandbox.ends(first, "neighbour", 0);
}
