//! A child that shares its parent's memory has descriptors of its own. What it does to another
//! file, which has the number of a log of its parent's, is not taken for the log's. What it does to
//! the log by a duplicate is not written over.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    recovered::{Disk, RUN, nothing_is_lost, run_and_recovered, same},
};

/// What the log has after a recovery, which is what it had.
fn recovered(sandbox: &Sandbox, way: &str, kind: &str) -> Vec<u8> {
    println!("{kind}: {way}");
    common::build("vforked", sandbox.path());
    let run = sandbox.command(RUN);
    same(run_and_recovered(
        Disk::All,
        sandbox,
        run,
        &["./vforked", way, kind],
    ))
}

fn is_not_the_logs(kind: &str) {
    for way in ["dup2", "dup3", "open", "dup", "range", "fcntl"] {
        let sandbox = Sandbox::new();
        let found = recovered(&sandbox, way, kind);
        assert_eq!(found, [[b'a'; 100], [b'b'; 100]].concat());
        let other = std::fs::read(sandbox.file("other.txt")).unwrap();
        assert_eq!((&other[..6], other.len()), (&b"otXerv"[..], 200));
    }
}

/// Promise (processes): A child with its parent's memory and not its descriptors (`vfork`,
/// `CLONE_VM`) may write to or truncate another file by a log's number: it is not taken for the
/// log.
#[test]
fn a_vfork_childs_writes_in_a_logs_place_are_not_the_logs() {
    is_not_the_logs("vfork");
}

/// Promise: as `a_vfork_childs_writes_in_a_logs_place_are_not_the_logs`.
#[test]
fn a_clone_vm_childs_writes_in_a_logs_place_are_not_the_logs() {
    is_not_the_logs("clone");
}

/// Promise: as `truncations_writes_and_syncs_by_a_vfork_child_are_not_undone`.
#[test]
fn a_vfork_childs_writes_by_a_logs_duplicate_are_not_undone() {
    for way in ["dup2", "dup3", "dup", "fcntl"] {
        let found = recovered(&Sandbox::new(), way, "copy");
        assert_eq!((&found[10..15], found.len()), (&b"child"[..], 200), "{way}");
    }
}

/// Python's `subprocess` makes a child of `vfork`, which closes what it is not to inherit.
#[test]
fn a_vfork_childs_closes_cost_its_parents_writes_no_system_call() {
    nothing_is_lost(
        Disk::Synced,
        r#"
import subprocess
fd, process = os.open("a.log", os.O_WRONLY | os.O_CREAT), os.getpid()
logged(fd, b"a")
subprocess.run(["true"], check=True)
logged(fd, b"b")
filtered("getpid", KILLED)
logged(fd, b"c", 100)
os.kill(os.getppid(), signal.SIGKILL)
os.kill(process, signal.SIGKILL)
"#,
    );
}
