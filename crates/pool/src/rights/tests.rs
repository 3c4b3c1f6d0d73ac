//! A file's owner decides the user that acts, and a child that acts is that user and nothing else.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::os::unix::fs::PermissionsExt;

const NOBODY: u32 = 65_534;
/// A user that no system knows.
const UNKNOWN: u32 = 3_999_999_999;

fn acting(owner: u32, mode: u32, user: u32) -> Result<u32, DistrustReason> {
    let file = tempfile::tempfile().unwrap();
    let mut stat = rustix::fs::fstat(&file).unwrap();
    (stat.st_uid, stat.st_mode) = (owner, mode);
    acting_user(&stat, user)
}

/// A process's own words in this line of its status.
fn status(line: &str) -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|found| found.strip_prefix(line));
    let words: Vec<_> = found.unwrap().split_whitespace().collect();
    words.join(" ")
}

#[test]
fn root_acts_as_a_files_owner_and_others_as_themselves() {
    assert_eq!(acting(0, 0o600, 0), Ok(0));
    assert_eq!(acting(7, 0o600, 0), Ok(7));
    assert_eq!(acting(7, 0o600, 7), Ok(7));
    // The administrator's device, say, with a group of its own.
    assert_eq!(acting(0, 0o660, 7), Ok(7));
    let refused = Err(DistrustReason::OtherUser { owner: 8 });
    assert_eq!(acting(8, 0o600, 7), refused);
}

#[test]
fn what_anybody_may_write_to_is_not_believed() {
    for user in [0, 7] {
        let mode = 0o602;
        let distrusted = Err(DistrustReason::OthersWrite { owner: 7, mode });
        assert_eq!(acting(7, mode, user), distrusted);
    }
    let mode = 0o620;
    let distrusted = Err(DistrustReason::OthersWrite { owner: 0, mode });
    assert_eq!(acting(0, mode, 0), distrusted);
}

/// Promise (rights): Root does another user's work in a child process that is that user, with that
/// user's groups and no capability.
#[test]
fn child_is_the_user_and_cannot_go_back() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("roots");
        fs::write(&path, "its own").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let said = as_user(NOBODY, || {
            let denied = fs::read(&path).unwrap_err().kind() == io::ErrorKind::PermissionDenied;
            let back = as_user(0, Vec::new).is_err();
            let lines = ["Uid:", "CapPrm:", "CapEff:", "CapAmb:", "NoNewPrivs:"].map(status);
            format!("{denied} {back} {}", lines.join(" ")).into_bytes()
        });
        let none = "0000000000000000";
        let is = format!("true true {NOBODY} {NOBODY} {NOBODY} {NOBODY} {none} {none} {none} 1");
        assert_eq!(String::from_utf8(said.unwrap()).unwrap(), is);
        // This process is root's still.
        assert_eq!((user(), fs::read(&path).unwrap()), (0, b"its own".into()));
    });
}

/// Promise (rights): A user without an entry in the system's list is acted for with no groups.
#[test]
fn child_of_an_unknown_user_has_no_groups() {
    alone(|| {
        let said = as_user(UNKNOWN, || {
            format!("{} {} {:?}", user(), status("Gid:"), status("Groups:")).into_bytes()
        });
        let said = String::from_utf8(said.unwrap()).unwrap();
        let group = NO_GROUP;
        assert_eq!(
            said,
            format!("{UNKNOWN} {group} {group} {group} {group} \"\"")
        );
    });
}

/// Promise (rights): A child that is killed while it acts for a user is an error that says so.
#[test]
fn killed_child_is_an_error_that_says_so() {
    alone(|| {
        for (signal, words) in [
            (Some(libc::SIGKILL), "killed by signal 9"),
            (None, "ended before it was done"),
        ] {
            let said = as_user(NOBODY, || {
                if let Some(signal) = signal {
                    // SAFETY: a signal to this process.
                    unsafe { libc::raise(signal) };
                }
                panic!("on purpose");
            });
            let said = said.unwrap_err().to_string();
            for part in [words, "user 65534", "repeat this"] {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
    });
}

/// Its user may stop it, and root's command does not wait for ever.
#[test]
fn child_that_stays_stopped_is_killed() {
    alone(|| {
        let said = as_user(NOBODY, || {
            // SAFETY: a signal to this process.
            unsafe { libc::raise(libc::SIGSTOP) };
            Vec::new()
        });
        let said = said.unwrap_err().to_string();
        assert!(said.contains("killed by signal 9"), "{said}");
    });
}

/// More than a pipe takes, from the child and back.
#[test]
fn large_answer_arrives_whole() {
    alone(|| {
        let said = as_user(NOBODY, || vec![7; 3 << 20]).unwrap();
        assert!(said == vec![7; 3 << 20]);
    });
}

/// Promise (rights): A child that acts for a user ends with its parent, and that user can neither
/// trace it nor take what it has open.
#[test]
fn child_ends_with_its_parent_and_is_closed_to_its_user() {
    alone(|| {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut number = [0; 4];
        // SAFETY: one thread, as above.
        let parent = unsafe { libc::fork() };
        if parent == 0 {
            let _ = as_user(NOBODY, || {
                let number = std::process::id().to_le_bytes();
                (&writer).write_all(&number).unwrap();
                thread::sleep(Duration::from_secs(600));
                Vec::new()
            });
            // SAFETY: as above.
            unsafe { libc::_exit(1) };
        }
        drop(writer);
        reader.read_exact(&mut number).unwrap();
        let child = u32::from_le_bytes(number);
        let looked = as_user(NOBODY, || {
            let denied = fs::read_dir(format!("/proc/{child}/fd")).is_err();
            vec![u8::from(denied)]
        });
        assert_eq!(looked.unwrap(), [1]);
        rustix::process::kill_process(
            Pid::from_raw(parent).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        wait_for(parent);
        // Both have ended once the pipe has no writer.
        assert_eq!(reader.read(&mut number).unwrap(), 0);
    });
}

#[test]
fn process_with_other_threads_acts_for_nobody_else() {
    if !geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let (_end, ended) = std::sync::mpsc::channel::<()>();
    thread::spawn(move || ended.recv());
    let said = as_user(NOBODY, Vec::new).unwrap_err().to_string();
    assert!(said.contains("other threads"), "{said}");
}

/// Promise (rights): A user that a namespace does not have is acted for by nobody, and the refusal
/// names the user.
#[test]
fn user_that_the_namespace_lacks_is_refused() {
    alone(|| {
        // SAFETY: one thread, as above; the child ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: of this process alone.
            let is_there = unsafe { libc::unshare(libc::CLONE_NEWUSER) } == 0;
            let maps = [
                ("setgroups", "deny"),
                ("gid_map", "0 0 1"),
                ("uid_map", "0 0 1"),
            ];
            let is_mapped = maps
                .iter()
                .all(|(file, map)| fs::write(format!("/proc/self/{file}"), map).is_ok());
            let status = match is_there && is_mapped {
                true => {
                    let said = as_user(NOBODY, Vec::new).unwrap_err().to_string();
                    println!("{said}");
                    i32::from(
                        !(said.contains("user 65534") && said.contains("Nothing was changed")),
                    )
                }
                false => {
                    println!("skipped: no user namespaces here");
                    0
                }
            };
            // SAFETY: as above.
            unsafe { libc::_exit(status) };
        }
        assert_eq!(wait_for(child).and_then(WaitStatus::exit_status), Some(0));
    });
}
