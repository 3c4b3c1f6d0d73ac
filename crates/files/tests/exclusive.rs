//! A file is absorbed by one process of one run on a machine, and any other process that writes to
//! it is noticed, by whatever name.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Lab, content, eventually, holds};
use std::{fs, path::Path, time::Duration};

const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";

/// What `path` holds is on the disk: a power cut leaves it.
fn keep_as_synced(lab: &Lab, path: &Path) {
    fs::copy(path, lab.synced(path)).unwrap();
}

/// Promise (processes): Older records do not overwrite the writes of processes that are no members,
/// by whatever name and in whatever hooked way they opened the file.
#[test]
fn newer_bytes_synced_by_another_name_survive_a_power_cut() {
    for symbolic in [false, true] {
        let lab = Lab::new();
        let (path, link) = (lab.data("a.log"), lab.home.path().join("other-name"));
        let mut run = lab.run();
        assert_eq!(run.open("a", &path, RDWR), 1);
        run.call("pwrite a 0 1 300").unwrap();
        if symbolic {
            std::os::unix::fs::symlink(&path, &link).unwrap();
        } else {
            fs::hard_link(&path, &link).unwrap();
        }
        assert_eq!(run.open("other b", &link, RDWR), 0);
        run.calls(["other pwrite b 0 2 300", "other sync b"]);
        keep_as_synced(&lab, &path);
        run.call("write a 3 1").unwrap();
        assert_eq!(run.call("absorbs a"), Ok(0));
        run.kill_both();
        lab.power_cut();
        lab.recover(Some(OTHER_BOOT), &["--force"]);
        assert_eq!(fs::read(&path).unwrap(), content(2, 300), "{symbolic}");
    }
}

/// Promise: as `newer_bytes_synced_by_another_name_survive_a_power_cut`.
#[test]
fn truncation_by_another_name_is_not_undone_by_older_records() {
    let lab = Lab::new();
    let (path, link) = (lab.data("a.log"), lab.home.path().join("other-name"));
    let mut run = lab.run();
    assert_eq!(run.open("a", &path, RDWR), 1);
    run.call("pwrite a 0 1 300").unwrap();
    fs::hard_link(&path, &link).unwrap();
    run.open("other b", &link, RDWR | libc::O_TRUNC);
    run.calls(["other pwrite b 0 2 100", "other sync b", "write a 3 1"]);
    assert_eq!(run.call("absorbs a"), Ok(0));
    run.end();
}

/// Promise (processes): A run absorbs a file only if no other run on the machine does, and only if
/// the file is open nowhere else.
#[test]
fn a_file_open_elsewhere_at_its_registration_stays_plain() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.call(format!("other raw x {} {RDWR}", path.display()))
        .unwrap();
    assert_eq!(run.open("a", &path, APPEND), 0);
    // In this process, too.
    let path = lab.data("b.log");
    run.call(format!("raw x {} {RDWR}", path.display()))
        .unwrap();
    assert_eq!(run.open("b", &path, APPEND), 0);
    run.calls(["close b", "close x"]);
    assert_eq!(run.open("b", &path, APPEND), 1);
    run.end();
}

/// Promise (processes): Of two runs, with pools of their own or a shared one, one lets go of a file
/// before the other writes to it.
#[test]
fn a_run_lets_go_of_a_file_before_another_run_writes_to_it() {
    let (lab, second) = (Lab::new(), Lab::new());
    let path = lab.data("a.log");
    let (mut run, mut other) = (lab.run(), second.run());
    assert_eq!(run.open("a", &path, RDWR), 1);
    run.call("pwrite a 0 1 300").unwrap();
    assert_eq!(other.open("b", &path, RDWR), 0);
    other.call("pwrite b 0 2 300").unwrap();
    other.call("sync b").unwrap();
    keep_as_synced(&lab, &path);
    run.call("write a 3 1").unwrap();
    assert_eq!(run.call("absorbs a"), Ok(0));
    run.kill_both();
    other.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &["--force"]);
    second.recover(Some(OTHER_BOOT), &["--force"]);
    holds(&path, &[(2, 300)]);
}

/// Promise: as `a_run_lets_go_of_a_file_before_another_run_writes_to_it`.
#[test]
fn two_runs_that_share_a_pool_absorb_a_file_once() {
    let lab = Lab::new();
    let path = lab.data("a.log");
    let (mut run, mut other) = (lab.run(), lab.run());
    assert_eq!(run.open("a", &path, RDWR), 1);
    assert_eq!(other.open("b", &path, RDWR), 0);
    run.call("write a 3 1").unwrap();
    assert_eq!(run.call("absorbs a"), Ok(0));
    // Another's is absorbed by either.
    assert_eq!(other.open("c", &lab.data("c.log"), RDWR), 1);
    other.end();
    run.end();
}

/// The name of the run's socket.
fn socket_of(lab: &Lab) -> String {
    let note = fs::read_dir(lab.home.path().join("run")).unwrap().next();
    let note = fs::read(note.unwrap().unwrap().path()).unwrap();
    let note: serde_json::Value = serde_json::from_slice(&note).unwrap();
    note["socket"].as_str().unwrap().to_owned()
}

fn connect(name: &str) -> rustix::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    socket
}

/// Promise (processes): A supervisor that ran out of descriptors hears everything later.
#[test]
fn a_supervisor_out_of_descriptors_hears_everything_later() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.limit_descriptors(4);
    let name = socket_of(&lab);
    let stranger = connect(&name);
    std::thread::sleep(Duration::from_millis(300));
    run.limit_descriptors(256);
    drop(stranger);
    run.call("other give_up").unwrap();
    assert_eq!(run.open("other b", &path, APPEND), 0);
    run.call("write a 1 10").unwrap();
    assert_eq!(run.call("absorbs a"), Ok(0));
    run.end();
}

/// Promise (rights): Strangers that connect and say nothing silence no process of the run.
#[test]
fn silent_connections_keep_no_process_from_being_heard() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    let name = socket_of(&lab);
    let silent: Vec<_> = (0..600).map(|_| connect(&name)).collect();
    let threads = format!("/proc/{}/task", run.supervisor.id());
    assert!(eventually(|| fs::read_dir(&threads).unwrap().count() < 300));
    run.call("other give_up").unwrap();
    assert_eq!(run.open("other b", &path, APPEND), 0);
    run.call("write a 1 10").unwrap();
    assert_eq!(run.call("absorbs a"), Ok(0));
    drop(silent);
    run.end();
}

#[test]
fn no_file_opens_for_writing_while_a_live_supervisor_is_silent() {
    // An ordinary user's: root's holds the open itself up.
    let lab = Lab::of_an_ordinary_user();
    let path = lab.data("a.log");
    let mut run = lab.run_with(|command| {
        command.env("FOREBAY_TEST_WAITS", "heard=2500");
    });
    assert_eq!(run.open("a", &path, APPEND), 1);
    run.calls(["write a 1 300", "other give_up"]);
    run.stop_supervisor();
    for flags in [libc::O_WRONLY, libc::O_RDWR | libc::O_TRUNC] {
        let open = format!("other open b {} {flags}", path.display());
        assert_eq!(run.call(open), Err(libc::EIO), "{flags:o}");
    }
    // Who reads changes nothing.
    let open = format!("other open b {} {}", path.display(), libc::O_RDONLY);
    assert_eq!(run.call(open), Ok(0));
    assert_eq!(run.call("absorbs a"), Ok(1));
    let supervisor = rustix::process::Pid::from_child(&run.supervisor);
    rustix::process::kill_process(supervisor, rustix::process::Signal::CONT).unwrap();
    assert_eq!(run.open("other b", &path, libc::O_WRONLY), 0);
    run.call("write a 2 300").unwrap();
    assert_eq!(run.call("absorbs a"), Ok(0));
    holds(&path, &[(1, 300), (2, 300)]);
    run.end();
}

/// Promise (processes): Members of a supervisor that was killed let go of their files.
#[test]
fn an_orphaned_process_lets_go_of_its_files_at_its_next_call() {
    let lab = Lab::new();
    let (path, link) = (lab.data("a.log"), lab.home.path().join("other-name"));
    let mut run = lab.run();
    assert_eq!(run.open("a", &path, RDWR), 1);
    run.call("pwrite a 0 1 300").unwrap();
    run.kill_supervisor();
    run.call("sync a").unwrap();
    assert_eq!(run.call("absorbs a"), Ok(0));
    assert!(
        lab.label().contains("forebay run is gone"),
        "{}",
        lab.label()
    );
    fs::hard_link(&path, &link).unwrap();
    run.open("other b", &link, RDWR);
    run.calls(["other pwrite b 0 2 300", "other sync b"]);
    run.kill_both();
    lab.recover(Some(OTHER_BOOT), &["--force"]);
    holds(&path, &[(2, 300)]);
}

/// Promise (programs): The supervisor holds no lock, executable or disk space of the program's.
#[test]
fn locks_on_an_open_file_end_with_the_programs_close() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(RDWR);
    run.calls(["flock a", "write a 1 10", "close a"]);
    let file = fs::File::open(&path).unwrap();
    let flock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    assert_eq!(rustix::fs::flock(&file, flock), Ok(()));
    drop(file);
    run.end();
}

/// Promise: as `locks_on_an_open_file_end_with_the_programs_close`.
#[test]
fn a_program_that_was_just_written_and_closed_can_be_executed() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    let path = lab.data("a.log");
    common::copy("/bin/true", &path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let mut run = lab.run();
    assert_eq!(run.open("a", &path, RDWR), 1);
    run.call("close a").unwrap();
    assert!(
        std::process::Command::new(&path)
            .status()
            .unwrap()
            .success()
    );
    run.end();
}

/// Promise: as `locks_on_an_open_file_end_with_the_programs_close`.
#[test]
fn an_unlinked_and_closed_files_space_is_given_back_at_once() {
    for closed_first in [true, false] {
        let lab = Lab::new();
        let (mut run, path) = lab.run_with_log(RDWR);
        run.call("write a 1 3000").unwrap();
        let unlink = format!("unlink {}", path.display());
        let calls = match closed_first {
            true => ["close a", &unlink],
            false => [&unlink, "close a"],
        };
        for call in calls {
            run.call(call).unwrap();
        }
        let descriptors = format!("/proc/{}/fd", run.supervisor.id());
        let holds = || {
            let links = fs::read_dir(&descriptors).unwrap();
            links
                .filter_map(|link| fs::read_link(link.ok()?.path()).ok())
                .any(|link| link.to_string_lossy().contains("a.log"))
        };
        assert!(eventually(|| !holds()), "{closed_first}");
        // Its inode may be another file's now.
        assert_eq!(run.open("other b", &lab.data("b.log"), RDWR), 1);
        assert_eq!(run.open("c", &lab.data("c.log"), RDWR), 1);
        run.call("write c 2 300").unwrap();
        run.kill_both();
        lab.power_cut();
        lab.recover(Some(OTHER_BOOT), &[]);
        assert!(!path.exists());
        assert_eq!(fs::read(lab.data("c.log")).unwrap(), content(2, 300));
    }
}

/// Promise (rights): A member gets the pool that the supervisor opened, whatever the pool's path
/// leads to by now.
#[test]
fn a_member_gets_the_supervisors_pool_wherever_its_path_leads() {
    let lab = Lab::new();
    let mut run = lab.run();
    let (moved, victim) = (
        lab.home.path().join("moved"),
        lab.home.path().join("victim"),
    );
    fs::rename(lab.pool(), &moved).unwrap();
    fs::copy(&moved, &victim).unwrap();
    let before = fs::read(&victim).unwrap();
    std::os::unix::fs::symlink(&victim, lab.pool()).unwrap();
    assert_eq!(run.open("a", &lab.data("a.log"), APPEND), 1);
    run.call("write a 1 300").unwrap();
    let maps = fs::read_to_string(format!("/proc/{}/maps", run.database)).unwrap();
    assert!(maps.contains("moved") && !maps.contains("victim"));
    run.end();
    assert!(fs::read(&victim).unwrap() == before);
}

#[test]
fn a_supervisor_that_starts_takes_away_what_killed_ones_left() {
    let tables = |pid: u32| {
        // The table is the killed one's if it is mapped there.
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let line = maps
            .lines()
            .find(|line| line.contains("forebay-absorbed-"))
            .unwrap();
        std::path::PathBuf::from(line.split_whitespace().last().unwrap())
    };
    let lab = Lab::new();
    let run = lab.run();
    let table = tables(run.supervisor.id());
    assert!(table.exists());
    run.kill_both();
    // Another test's supervisor, which starts at the same time, may take it away as well.
    lab.recover(None, &[]);
    let run = lab.run();
    assert!(eventually(|| !table.exists()) || tables(run.supervisor.id()) == table);
    run.end();
}

/// Promise (files): A logged write is on the disk soon, also if the log is idle.
#[test]
fn an_idle_log_reaches_the_disk_without_anyone_asking() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.call("write a 1 3000").unwrap();
    assert!(eventually(
        || fs::read(lab.synced(&path)).unwrap() == content(1, 3000)
    ));
    run.end();
}
