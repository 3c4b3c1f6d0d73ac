//! A machine in namespaces: what it has of its own, and that nothing is left of it. Its root is
//! this machine's, with another first process. Needs root, and what a container seldom gives it.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_device::block::lacking;
use forebay_guest::namespace::{NamespaceMachine, NamespaceSetup};
use rustix::process::{Pid, getpgid};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);
/// A layer may not lie in another one of the same file system.
const IN_MEMORY: &str = "/dev/shm";

/// What its first process does: says what it has, and has others wait beside it.
const INIT: &str = "#!/bin/sh
umount -l /before
echo boot $(cat /proc/sys/kernel/random/boot_id)
echo told $(cat /proc/cmdline)
echo lost > /etc/lost
echo kept > /mnt/pmem/kept
sleep 1000 &
setsid sh -c 'trap : TERM; while :; do sleep 1000; done' &
echo LAB up
wait
";

/// A machine that is up, in this directory.
fn machine(dir: &Path) -> NamespaceMachine {
    let mut machine = started(dir, INIT);
    machine.wait_up(PATIENCE).unwrap();
    machine
}

/// One that is on its way, with this first process.
fn started(dir: &Path, init: &str) -> NamespaceMachine {
    let [own, scratch, memory] = ["own", "scratch", "memory"].map(|name| dir.join(name));
    for made in [&own, &scratch, &memory] {
        fs::create_dir_all(made).unwrap();
    }
    fs::write(own.join("init"), init).unwrap();
    fs::set_permissions(own.join("init"), fs::Permissions::from_mode(0o755)).unwrap();
    let layers = [own, PathBuf::from("/")];
    NamespaceMachine::start(NamespaceSetup {
        layers: &layers,
        disks: Vec::new(),
        memory: &memory,
        parameters: "lab.action=none",
        scratch: &scratch,
        console: dir.join("console"),
    })
    .unwrap()
}

/// What the guest printed behind this word.
fn said(machine: &NamespaceMachine, word: &str) -> String {
    let console = machine.guest.console();
    let line = console.lines().find_map(|line| line.strip_prefix(word));
    line.unwrap_or_default().trim().to_owned()
}

/// Processes in the same namespace as this one.
fn processes_in(namespace: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    all.map(|entry| entry.path().join("ns/pid"))
        .filter(|of| fs::read_link(of).is_ok_and(|of| of == namespace))
        .collect()
}

#[test]
fn nothing_is_left_of_a_machine_in_namespaces_but_its_memory() {
    if let Some(lacking) = lacking() {
        eprintln!("skipped: {lacking}");
        return;
    }
    let dir = tempfile::tempdir_in(IN_MEMORY).unwrap();
    let here = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let mut boots = vec![here.trim().to_owned()];
    for _ in 0..2 {
        let mut machine = machine(dir.path());
        boots.push(said(&machine, "boot"));
        assert_eq!(said(&machine, "told"), "lab.action=none");
        let pid = fs::read_to_string(dir.path().join("scratch/pid")).unwrap();
        let namespace = fs::read_link(format!("/proc/{}/ns/pid", pid.trim())).unwrap();
        // Two of them begin others, beside what says that it is up.
        let until = Instant::now() + PATIENCE;
        while processes_in(&namespace).len() < 4 {
            assert!(Instant::now() < until, "a process is missing");
            thread::sleep(Duration::from_millis(5));
        }
        let network = machine.network().unwrap();
        let devices = network
            .enter(|| fs::read_to_string("/proc/thread-self/net/dev"))
            .unwrap();
        assert_eq!(devices.unwrap().lines().count(), 3, "two of a head, and lo");
        machine.doom().unwrap();
        machine.wait_end().unwrap();
        assert_eq!(processes_in(&namespace), Vec::<PathBuf>::new());
    }
    boots.sort();
    boots.dedup();
    assert_eq!(boots.len(), 3, "each boot has an id of its own: {boots:?}");
    let kept = fs::read_to_string(dir.path().join("memory/kept")).unwrap();
    assert_eq!(kept, "kept\n");
    assert!(!Path::new("/etc/lost").exists());
}

#[test]
fn a_machine_in_namespaces_ends_with_who_has_it() {
    if let Some(lacking) = lacking() {
        eprintln!("skipped: {lacking}");
        return;
    }
    let dir = tempfile::tempdir_in(IN_MEMORY).unwrap();
    let machine = machine(dir.path());
    let pid = fs::read_to_string(dir.path().join("scratch/pid")).unwrap();
    let namespace = fs::read_link(format!("/proc/{}/ns/pid", pid.trim())).unwrap();
    drop(machine);
    let until = Instant::now() + PATIENCE;
    while !processes_in(&namespace).is_empty() {
        assert!(Instant::now() < until, "its processes live on");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_terminals_interrupt_does_not_reach_a_machine() {
    if let Some(lacking) = lacking() {
        eprintln!("skipped: {lacking}");
        return;
    }
    let dir = tempfile::tempdir_in(IN_MEMORY).unwrap();
    let _machine = machine(dir.path());
    let pid = fs::read_to_string(dir.path().join("scratch/pid")).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap());
    assert_ne!(getpgid(pid).unwrap(), getpgid(None).unwrap());
}

#[test]
fn a_machine_that_is_not_up_yet_is_killed_as_well() {
    if let Some(lacking) = lacking() {
        eprintln!("skipped: {lacking}");
        return;
    }
    let dir = tempfile::tempdir_in(IN_MEMORY).unwrap();
    let mut machine = started(dir.path(), "#!/bin/sh\necho begun\nsleep 1000\n");
    machine
        .guest
        .wait(PATIENCE, |console| console.contains("begun").then_some(()))
        .unwrap();
    machine.doom().unwrap();
    machine.guest.wait_end(Duration::from_secs(5)).unwrap();
    machine.wait_end().unwrap();
}
